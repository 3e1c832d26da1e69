//! Completion, by the protocol of kubectl's plugins: the words so far as arguments; a candidate a line, and a directive.
//!
//! From "Writing shell completions for plugins" in kubectl's documentation, and Cobra's `ShellCompDirective`.

use std::ffi::OsString;

use clap::{Arg, Command};
use configmonitor_operator::kube::list::Selection;
use configmonitor_operator::kube::{NAMESPACES, PODS, Resource};
use configmonitor_operator::monitor::CONFIG_MONITORS;
use serde_json::Value;

use crate::ambassador::Ambassador;
use crate::monitors::{all, name_of};
use crate::options::{self, Access};
use crate::outcome::Failure;
use crate::text::print;

/// The word by which kubectl's helper asks.
pub(crate) const COMPLETE: &str = "__complete";

/// What may stand in place of the last word.
#[derive(Debug, PartialEq)]
enum Candidates {
    These(Vec<String>),
    /// The names of the objects that there are.
    Objects(Resource),
    Files,
}

/// Prints what may stand in place of the last word.
pub(crate) async fn run(words: Vec<OsString>) -> Result<(), Failure> {
    let words: Vec<String> = words.into_iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let (last, before) = words.split_last().map_or(("", &[][..]), |(last, before)| (&**last, before));
    // Shells complete files by themselves.
    let (candidates, directive) = match candidates(before, last) {
        Candidates::These(candidates) => (candidates, 4),
        Candidates::Objects(resource) => (names(before, resource).await?, 4),
        Candidates::Files => (Vec::new(), 0),
    };
    let lines = candidates.into_iter().filter(|candidate| candidate.starts_with(last)).map(|line| line + "\n");
    print(format_args!("{}:{directive}\n", lines.collect::<String>()))
}

fn candidates(before: &[String], last: &str) -> Candidates {
    let mut root = options::command();
    root.build();
    let matches = options::matches(before);
    let given = matches.as_ref().and_then(|matches| matches.subcommand());
    let command = given.and_then(|(name, _)| root.find_subcommand(name)).unwrap_or(&root);
    let awaited = before.last().and_then(|word| command.get_arguments().find(|arg| awaits(arg, word)));
    let positional = || command.get_positionals().find(|arg| given.is_some_and(|(_, its)| !its.contains_id(id(arg))));
    match awaited.or_else(|| positional().filter(|_| !last.starts_with('-'))) {
        Some(arg) => values(arg),
        None if last.starts_with('-') => Candidates::These(flags(command)),
        None => Candidates::These(command.get_subcommands().map(|its| its.get_name().to_owned()).collect()),
    }
}

fn id(arg: &Arg) -> &str {
    arg.get_id().as_str()
}

/// Returns whether the next word is the value of this flag.
fn awaits(arg: &Arg, word: &str) -> bool {
    let is_it = arg.get_long().is_some_and(|long| word.strip_prefix("--") == Some(long))
        || arg.get_short().is_some_and(|short| *word == format!("-{short}"));
    is_it && arg.get_action().takes_values() && !arg.is_require_equals_set()
}

fn values(arg: &Arg) -> Candidates {
    match id(arg) {
        "name" => Candidates::Objects(CONFIG_MONITORS),
        "namespace" => Candidates::Objects(NAMESPACES),
        "pod" => Candidates::Objects(PODS),
        "filename" | "kubeconfig" | "cache-dir" | "certificate-authority" | "client-certificate" | "client-key" => {
            Candidates::Files
        }
        _ => Candidates::These(arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect()),
    }
}

fn flags(command: &Command) -> Vec<String> {
    let shown = command.get_arguments().filter(|arg| !arg.is_hide_set()).filter_map(Arg::get_long);
    shown.map(|long| format!("--{long}")).collect()
}

/// Reads the names of all objects of the resource, with the flags that were given so far.
async fn names(before: &[String], resource: Resource) -> Result<Vec<String>, Failure> {
    let ambassador = Ambassador::start(&Access::to_read(before)).await?;
    let client = ambassador.client_for(resource == NAMESPACES);
    let names = Selection { metadata_only: true, ..all(resource) };
    Ok(client.list(&names, None, |object: Value| name_of(&object)).await?.items)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Candidates {
        let mut words: Vec<String> = line.split(' ').map(ToOwned::to_owned).collect();
        let last = words.pop().unwrap();
        candidates(&words, &last)
    }

    fn these(line: &str) -> Vec<String> {
        let Candidates::These(candidates) = of(line) else { panic!("{line}") };
        candidates
    }

    #[test]
    fn a_word_is_completed_by_what_may_stand_there() {
        assert_eq!(these("")[..2], ["status", "wait"]);
        assert_eq!(these("--context prod st")[..2], ["status", "wait"]);
        for line in ["status ", "wait sh", "resume --timeout 1m ", "-n shop plan "] {
            assert_eq!(of(line), Candidates::Objects(CONFIG_MONITORS), "{line}");
        }
        assert_eq!(of("why "), Candidates::Objects(PODS));
        assert_eq!(of("status --namespace "), Candidates::Objects(NAMESPACES));
        assert_eq!(of("plan -f "), Candidates::Files);
        assert_eq!(these("status shop "), Vec::<String>::new(), "it takes one name");
        assert_eq!(these("plan -o "), ["json"]);
        assert!(these("wait --for").contains(&"--for-source".to_owned()));
        assert!(!these("wait --").contains(&"--context".to_owned()), "no help shows it");
    }
}
