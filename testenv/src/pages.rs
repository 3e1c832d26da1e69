//! The pages of the documentation and the commands in them, so that tests run what a reader types.

use std::cell::Cell;
use std::fs;
use std::path::PathBuf;
use std::thread;

use anyhow::{Context, Result};

use crate::project;

/// The pages outside of `docs`.
const PAGES: [&str; 7] = [
    "README.md",
    "ARCHITECTURE.md",
    "BENCHMARKS.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "charts/configmonitor-operator/README.md",
];

/// The programs whose commands are found in sentences and tables.
const PROGRAMS: [&str; 13] = [
    "cargo",
    "cosign",
    "ctr",
    "curl",
    "docker",
    "gh",
    "git",
    "helm",
    "kind",
    "kubectl",
    "make",
    "sha256sum",
    "wait.sh",
];

const NO_DAEMON: &str = "the tests have no container daemon, and with it no kind";
const NO_CONTAINER: &str = "the simulated node runs no container";
const BY_MAKE: &str = "make test runs it";
const A_NAME: &str = "it is no whole command: the sentence is about the subcommand";

/// The commands that no test runs, with the reason. A text with a space at the end stands for all commands that begin with it.
pub const EXCEPTIONS: [(&str, &str); 15] = [
    ("cargo clippy --workspace --all-targets -- -D warnings", BY_MAKE),
    ("cargo update --workspace", "it changes Cargo.lock"),
    (
        "cosign ",
        "a release is signed by its workflow, and there is none; make release-check verifies signatures with a key",
    ),
    ("ctr ", NO_DAEMON),
    ("docker ", NO_DAEMON),
    ("gh ", "the hosting service attests releases, and there is none"),
    ("kind ", NO_DAEMON),
    ("kubectl apply -k", A_NAME),
    ("kubectl exec ", NO_CONTAINER),
    // On a real node testenv/tests/node/lab.rs makes the same requests.
    ("kubectl get --raw ", NO_CONTAINER),
    ("kubectl logs ", NO_CONTAINER),
    ("kubectl rollout restart", A_NAME),
    ("kubectl wait --for=condition=Ready", A_NAME),
    ("make ", "continuous integration runs make test and make test-node; a test checks that each other target exists"),
    ("sha256sum --check --ignore-missing SHA256SUMS", "release/check.sh checks a release by its own SHA256SUMS"),
];

#[derive(Debug)]
pub struct Step {
    /// The command as the page has it, on one or more lines.
    pub command: String,
    /// What the page says that the command prints. Empty if the page shows no output.
    pub prints: String,
    is_run: Cell<bool>,
}

/// A section of a page, up to the next heading.
#[derive(Debug)]
pub struct Section {
    pub page: String,
    pub heading: String,
    pub yaml: Vec<String>,
    /// The commands of each block of them, without the exceptions.
    pub sessions: Vec<Vec<Step>>,
    /// The scripts, and the commands in sentences and tables.
    pub others: Vec<Step>,
    /// The entries of [`EXCEPTIONS`] that the other commands fall under.
    pub exceptions: Vec<&'static str>,
    is_for_a_test: bool,
}

impl Step {
    fn new(command: &str, prints: &str) -> Self {
        Self { command: command.to_owned(), prints: prints.to_owned(), is_run: Cell::new(false) }
    }

    /// Records that a test runs this command.
    pub fn record_run(&self) {
        self.is_run.set(true);
    }
}

impl Section {
    /// Returns a section for a test that runs its commands. Dropping the section panics if a command was not run.
    pub fn of(page: &str, heading: &str) -> Result<Self> {
        let mut sections = sections(page)?.into_iter();
        let found = sections.find(|section| section.heading == heading && section.steps().next().is_some());
        let mut section = found.with_context(|| format!("{page} has no section {heading:?} with a command"))?;
        section.is_for_a_test = true;
        Ok(section)
    }

    /// Returns all sections of a page that have a command, for a test that runs the commands of the whole page.
    pub fn all_of(page: &str) -> Result<Vec<Self>> {
        let mut sections = sections(page)?;
        sections.retain(|section| section.steps().next().is_some());
        sections.iter_mut().for_each(|section| section.is_for_a_test = true);
        Ok(sections)
    }

    /// Returns all commands but the exceptions.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.sessions.iter().flatten().chain(&self.others)
    }

    pub fn step(&self, beginning: &str) -> Option<&Step> {
        self.steps().find(|step| step.command.starts_with(beginning))
    }

    fn parse(page: &str, heading: &str, text: &str) -> Self {
        let mut exceptions = Vec::new();
        let mut without_exceptions = |steps: Vec<Step>| -> Vec<Step> {
            let (excepted, others): (Vec<Step>, Vec<Step>) =
                steps.into_iter().partition(|step| exception(&step.command).is_some());
            exceptions.extend(excepted.iter().filter_map(|step| exception(&step.command)));
            others
        };
        let sessions: Vec<Vec<Step>> =
            blocks(text, "console").iter().map(|block| without_exceptions(session(block))).collect();
        let scripts = blocks(text, "sh").into_iter().map(|script| Step::new(&script, ""));
        let mut others = without_exceptions(scripts.chain(in_sentences(text)).collect());
        others.retain(|other| sessions.iter().flatten().all(|step| step.command != other.command));
        Self {
            page: page.to_owned(),
            heading: heading.to_owned(),
            yaml: blocks(text, "yaml"),
            sessions: sessions.into_iter().filter(|session| !session.is_empty()).collect(),
            others,
            exceptions,
            is_for_a_test: false,
        }
    }
}

impl Drop for Section {
    fn drop(&mut self) {
        let left: Vec<&str> = self.steps().filter(|step| !step.is_run.get()).map(|step| &*step.command).collect();
        let is_fine = !self.is_for_a_test || left.is_empty() || thread::panicking();
        assert!(is_fine, "{}, {}: the test does not run {left:#?}", self.page, self.heading);
    }
}

pub fn pages() -> Result<Vec<String>> {
    let mut pages: Vec<String> = PAGES.map(str::to_owned).into();
    for entry in fs::read_dir(project("docs"))? {
        let path = PathBuf::from("docs").join(entry?.file_name());
        if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path.to_str().context("a page whose name is not UTF-8")?.to_owned());
        }
    }
    Ok(pages)
}

pub fn sections(page: &str) -> Result<Vec<Section>> {
    let text = fs::read_to_string(project(page)).with_context(|| format!("cannot read {page}"))?;
    let (mut parts, mut is_code) = (vec![(String::new(), String::new())], false);
    for line in text.lines() {
        is_code ^= is_fence(line);
        match (heading(line).filter(|_| !is_code), parts.last_mut()) {
            (None, Some((_, text))) => text.extend([line, "\n"]),
            (heading, _) => parts.push((heading.unwrap_or_default().to_owned(), String::new())),
        }
    }
    Ok(parts.iter().map(|(heading, text)| Section::parse(page, heading, text)).collect())
}

/// Returns the fenced blocks of a text in this language, without their indentation.
pub fn blocks(text: &str, language: &str) -> Vec<String> {
    let (mut blocks, mut lines) = (Vec::new(), text.lines());
    while let Some(opening) = lines.find(|line| is_fence(line)) {
        let indent = opening.len() - opening.trim_start().len();
        let block: Vec<&str> = lines.by_ref().take_while(|line| !is_fence(line)).collect();
        if opening.trim_start() == format!("```{language}") {
            blocks.push(
                block.into_iter().map(|line| line.get(indent..).unwrap_or_default()).collect::<Vec<_>>().join("\n"),
            );
        }
    }
    blocks
}

/// Returns the text of a heading, if this line outside of fenced blocks is one.
pub fn heading(line: &str) -> Option<&str> {
    line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#'))
}

/// Returns the lines outside of fenced blocks, without the fences.
pub fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_edge = is_fence(line);
        is_code ^= is_edge;
        !is_code && !is_edge
    })
}

/// Returns the commands of a block. A command goes on after a backslash, and to the end of its here-document.
fn session(block: &str) -> Vec<Step> {
    let (mut steps, mut lines) = (Vec::<Step>::new(), block.lines());
    while let Some(line) = lines.next() {
        let Some(first) = line.strip_prefix("$ ") else {
            if let Some(step) = steps.last_mut() {
                step.prints.extend([line, "\n"]);
            }
            continue;
        };
        let mut command = first.to_owned();
        let end_of_input = first.split_once("<<").map(|(_, word)| word.trim());
        while command.ends_with('\\') || end_of_input.is_some_and(|word| !command.ends_with(&format!("\n{word}"))) {
            let Some(next) = lines.next() else { break };
            command.extend(["\n", next]);
        }
        steps.push(Step::new(&command, ""));
    }
    steps
}

/// Returns the commands in the sentences and tables of a text: code that begins with a program and has at least two words after it. A program and a
/// subcommand alone are a name.
fn in_sentences(text: &str) -> Vec<Step> {
    let sentences = prose(text).collect::<Vec<_>>().join("\n");
    let mut commands = Vec::<Step>::new();
    for code in sentences.split('`').skip(1).step_by(2) {
        let words: Vec<&str> = code.split_whitespace().collect();
        let command = words.join(" ");
        let is_command = words.len() > 2 && PROGRAMS.contains(&words[0]);
        if is_command && commands.iter().all(|other| other.command != command) {
            commands.push(Step::new(&command, ""));
        }
    }
    commands
}

/// Returns the entry of [`EXCEPTIONS`] for this command.
fn exception(command: &str) -> Option<&'static str> {
    let is_meant = |text: &str| command == text || (text.ends_with(' ') && command.starts_with(text));
    EXCEPTIONS.iter().map(|(text, _)| *text).find(|text| is_meant(text))
}

fn is_fence(line: &str) -> bool {
    line.trim_start().starts_with("```")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Run `kubectl get\npods`, see `kubectl get`, or `docker push x`.\n\n  ```console\n  $ helm install a \\\n        b\n  \
                        $ cat <<EOF\n  $ x\n  EOF\n  $ kubectl get pods -w\n  NAME\n  shop\n  $ docker build .\n  ```\n\n```sh\necho\n```\n";

    fn commands<'a>(steps: impl IntoIterator<Item = &'a Step>) -> Vec<(&'a str, &'a str)> {
        steps.into_iter().map(|step| (&*step.command, &*step.prints)).collect()
    }

    #[test]
    fn commands_are_found_in_blocks_with_what_they_print_and_in_sentences() {
        let section = Section::parse("page", "heading", TEXT);
        let session =
            [("helm install a \\\n      b", ""), ("cat <<EOF\n$ x\nEOF", ""), ("kubectl get pods -w", "NAME\nshop\n")];
        assert_eq!(commands(&section.sessions[0]), session);
        assert_eq!(commands(&section.others), [("echo", ""), ("kubectl get pods", "")]);
        assert_eq!(section.exceptions, ["docker ", "docker "]);
    }

    #[test]
    #[should_panic(expected = "the test does not run [\n    \"kubectl get pods\",\n]")]
    fn a_test_that_runs_not_all_commands_of_a_section_fails() {
        let mut section = Section::parse("page", "heading", TEXT);
        section.is_for_a_test = true;
        section.sessions.iter().flatten().for_each(Step::record_run);
        section.steps().find(|step| step.command == "echo").into_iter().for_each(Step::record_run);
    }
}
