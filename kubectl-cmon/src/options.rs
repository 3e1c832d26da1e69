//! The command line.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use configmonitor_operator::kube::objects::{DAEMON_SETS, DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS};
use configmonitor_operator::kube::{Resource, ServerTime};
use configmonitor_operator::monitor::content::Kind;
use configmonitor_operator::monitor::source::SourceName;
use jiff::SignedDuration;

/// The flags of kubectl that have a value and are passed on.
const VALUES: &str = "as as-group as-uid as-user-extra cache-dir certificate-authority client-certificate client-key cluster \
                      context kubeconfig kuberc log-flush-frequency password profile profile-output proxy-url \
                      request-timeout server tls-server-name token user username v vmodule";
/// Those that are true or false.
const SWITCHES: &str = "disable-compression insecure-skip-tls-verify match-server-version warnings-as-errors";

/// The owners of pods that have a pod template.
pub(crate) const WORKLOADS: [Resource; 4] = [DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS, REPLICA_SETS];

/// What to do, and as whom.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) access: Access,
    pub(crate) command: Command,
}

/// As whom, and where.
#[derive(Debug)]
pub(crate) struct Access {
    /// The flags for kubectl.
    pub(crate) kubectl: Vec<String>,
    pub(crate) namespace: Option<String>,
    /// Whether the proxy may refuse all requests that write.
    pub(crate) only_reads: bool,
}

/// Shows ConfigMonitors, waits for their restarts, and requests or suspends these.
#[derive(Debug, Parser)]
#[command(
    version,
    name = "kubectl-cmon",
    disable_help_subcommand = true,
    after_help = "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 a person must do something, 4 timeout, 5 held by a window, an \
                  interval or spec.suspend, 6 a plan has pods. All flags of `kubectl options` are passed on to kubectl."
)]
struct CommandLine {
    /// The namespace; by default that of the kubeconfig.
    #[arg(short, long, global = true, value_name = "NAME")]
    namespace: Option<String>,
    #[command(subcommand)]
    command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show what each ConfigMonitor knows, does and waits for.
    #[command(after_help = "Example: kubectl cmon status shop")]
    Status(Status),
    /// Wait until the pods run with the content as of now.
    #[command(after_help = "Example: kubectl apply -f config.yaml && kubectl cmon wait --for-source cm/shop-config")]
    Wait(Wait),
    /// Show which pods would be restarted, and what that waits for. Ends with 6 if there are any.
    #[command(after_help = "Example: kubectl cmon plan -f config.yaml")]
    Plan(Plan),
    /// Print a ConfigMonitor for a workload, or for a release.
    #[command(after_help = "Example: kubectl cmon create deployment/shop | kubectl apply -f -")]
    Create(Create),
    /// Print suspended ConfigMonitors for the workloads that Reloader or wave restarts.
    #[command(after_help = "Example: kubectl cmon convert -n shop > configmonitors.yaml")]
    Convert(Convert),
    /// Look for what keeps ConfigMonitors from their work, say what to do, and note what nobody watches.
    #[command(after_help = "Example: kubectl cmon doctor -n shop")]
    Doctor(Search),
    /// Request a restart of all selected pods.
    #[command(after_help = "Example: kubectl cmon restart shop --wait")]
    Restart(Restart),
    /// Keep restarts from beginning and going on.
    #[command(after_help = "Example: kubectl cmon suspend shop")]
    Suspend(Suspend),
    /// Let restarts begin and go on again.
    #[command(after_help = "Example: kubectl cmon resume shop --wait")]
    Resume(Resume),
}

/// The ConfigMonitors to show.
#[derive(Debug, Args)]
pub(crate) struct Status {
    /// The ConfigMonitor; all of the namespace without it.
    #[arg(value_parser = monitor)]
    pub(crate) name: Option<String>,
    /// Print JSON.
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Format>,
}

/// A format of output that programs read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Json,
}

/// What to wait for.
#[derive(Debug, Args)]
pub(crate) struct Wait {
    /// The ConfigMonitor; all of the namespace, or all with the source, without it.
    #[arg(value_parser = monitor)]
    pub(crate) name: Option<String>,
    /// Wait for those with this source, such as cm/shop-config or secret/shop-db.
    #[arg(long, value_name = "KIND/NAME", value_parser = source)]
    pub(crate) for_source: Option<SourceName>,
    #[command(flatten)]
    pub(crate) limit: Limit,
}

/// What to plan.
#[derive(Debug, Args)]
pub(crate) struct Plan {
    /// The ConfigMonitor; all of the namespace without it.
    #[arg(value_parser = monitor)]
    pub(crate) name: Option<String>,
    /// Plan for these objects, as kubectl apply takes them: a file, or - for standard input.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) filename: Option<String>,
    /// Plan for the deletion of a source, such as cm/shop-config.
    #[arg(long, value_name = "KIND/NAME", value_parser = source)]
    pub(crate) delete: Vec<SourceName>,
    /// Plan for the end of spec.suspend.
    #[arg(long)]
    pub(crate) resume: bool,
    /// Plan for a request of a restart.
    #[arg(long)]
    pub(crate) restart: bool,
    /// Plan for another time, such as 2026-12-01T02:00:00Z.
    #[arg(long, value_name = "TIME")]
    pub(crate) at: Option<ServerTime>,
    /// Print JSON.
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Format>,
}

/// What to create a ConfigMonitor for.
#[derive(Debug, Args)]
pub(crate) struct Create {
    /// The workload, such as deployment/shop.
    #[arg(value_name = "KIND/NAME", value_parser = workload, required_unless_present = "release")]
    pub(crate) workload: Option<(Resource, String)>,
    /// All pods with this label, whose sources are then read from the pods.
    #[arg(long, value_name = "KEY=VALUE", value_parser = label, conflicts_with = "workload")]
    pub(crate) release: Option<(String, String)>,
    /// Add Secrets, which the operator needs a further right for.
    #[arg(long)]
    pub(crate) secrets: bool,
    /// Take maxSurge over, though no operator is seen that hands pods over.
    #[arg(long)]
    pub(crate) surge: bool,
}

/// What to convert.
#[derive(Debug, Args)]
pub(crate) struct Convert {
    /// Convert the workloads of these manifests, in place of those of the namespace: a file, a folder, or - for standard
    /// input.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) filename: Option<String>,
    /// Take maxSurge over, though no operator is seen that hands pods over.
    #[arg(long)]
    pub(crate) surge: bool,
}

/// Where to look.
#[derive(Debug, Args)]
pub(crate) struct Search {
    /// Look in all namespaces.
    #[arg(short = 'A', long)]
    pub(crate) all_namespaces: bool,
    /// Print JSON.
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Format>,
}

/// For how long to wait.
#[derive(Debug, Args)]
pub(crate) struct Limit {
    /// How long to wait at most, such as 90s or 15m.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration)]
    pub(crate) timeout: Duration,
}

/// What to suspend.
#[derive(Debug, Args)]
pub(crate) struct Suspend {
    /// The ConfigMonitor.
    #[arg(value_parser = monitor, required_unless_present = "all", conflicts_with = "all")]
    pub(crate) name: Option<String>,
    /// Suspend all of the namespace.
    #[arg(long)]
    pub(crate) all: bool,
}

/// The ConfigMonitor whose pods to restart.
#[derive(Debug, Args)]
pub(crate) struct Restart {
    /// The ConfigMonitor.
    #[arg(value_parser = monitor)]
    pub(crate) name: String,
    /// Wait until the pods run with the content as of now.
    #[arg(long)]
    pub(crate) wait: bool,
    #[command(flatten)]
    pub(crate) limit: Limit,
}

/// What to resume.
#[derive(Debug, Args)]
pub(crate) struct Resume {
    /// The ConfigMonitor.
    #[arg(value_parser = monitor, required_unless_present = "all", conflicts_with = "all")]
    pub(crate) name: Option<String>,
    /// Resume all that the command suspend has suspended in the namespace. First see what restarts then, with plan --resume.
    #[arg(long)]
    pub(crate) all: bool,
    /// Take the content as of now for that of the pods, so that nothing restarts. Nobody checks that they have it.
    #[arg(long)]
    pub(crate) as_baseline: bool,
    /// Wait until the pods run with the content as of now.
    #[arg(long)]
    pub(crate) wait: bool,
    #[command(flatten)]
    pub(crate) limit: Limit,
}

impl Command {
    fn only_reads(&self) -> bool {
        !matches!(self, Self::Restart(_) | Self::Suspend(_) | Self::Resume(_))
    }
}

impl Options {
    /// Reads the command line, or prints help, the version or what is wrong.
    pub(crate) fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, ExitCode> {
        let mut arguments = arguments.into_iter();
        let program = arguments.next().unwrap_or_default();
        let file = Path::new(&program).file_name().unwrap_or_default().to_string_lossy();
        let parsed = command_named(&file).try_get_matches_from([program].into_iter().chain(arguments));
        let read = parsed.and_then(|matches| {
            let CommandLine { namespace, command } = CommandLine::from_arg_matches(&matches)?;
            let access = Access { kubectl: passed_on(&matches), namespace, only_reads: command.only_reads() };
            Ok(Self { access, command })
        });
        read.map_err(|error| {
            // Nobody reads what cannot be printed.
            let _ = error.print();
            ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
        })
    }
}

/// The command line with help that has the name of the program: kubectl finds kubectl-config_monitor for
/// `kubectl config-monitor`.
fn command_named(program: &str) -> clap::Command {
    let name = program.replacen("kubectl-", "kubectl ", 1).replace('_', "-");
    let example = |command: clap::Command| {
        let help = command.get_after_help().map(|help| help.to_string().replace("kubectl cmon", &name));
        command.after_help(help.unwrap_or_default())
    };
    command().mut_subcommands(example).bin_name(&name)
}

/// The command line with the flags of kubectl, which no help repeats.
fn command() -> clap::Command {
    let hidden = |name: &'static str| Arg::new(name).long(name).global(true).hide(true);
    let values = VALUES.split(' ').map(|name| {
        let value = hidden(name).action(ArgAction::Append);
        if ["server", "v"].contains(&name) { value.short(name.chars().next()) } else { value }
    });
    let switches = SWITCHES.split(' ').map(|name| {
        hidden(name).action(ArgAction::Append).num_args(0..=1).require_equals(true).default_missing_value("true")
    });
    CommandLine::command().args(values).args(switches)
}

/// Returns the flags for kubectl. A global flag is in the matches of the subcommand, wherever it was given.
fn passed_on(matches: &ArgMatches) -> Vec<String> {
    let matches = matches.subcommand().map_or(matches, |(_, matches)| matches);
    let names = VALUES.split(' ').chain(SWITCHES.split(' '));
    let given = names.flat_map(|name| {
        let values = matches.get_many::<String>(name).into_iter().flatten();
        values.map(move |value| format!("--{name}={value}"))
    });
    given.collect()
}

fn duration(text: &str) -> Result<Duration, String> {
    let duration = SignedDuration::from_str(text).ok().and_then(|duration| Duration::try_from(duration).ok());
    duration.ok_or_else(|| "expected a duration such as 90s or 15m".to_owned())
}

fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    if value.is_empty() || !value.chars().all(is_part) {
        return Err(format!("{value:?} cannot be the name of the ConfigMonitor, too"));
    }
    Ok((key.to_owned(), value.to_owned()))
}

/// Returns the kind in lower case, and the name.
fn pair(text: &str) -> Result<(String, &str), String> {
    let (kind, name) = text.split_once('/').filter(|(_, name)| !name.is_empty()).ok_or("expected KIND/NAME")?;
    Ok((kind.to_lowercase(), name))
}

fn workload(text: &str) -> Result<(Resource, String), String> {
    let (kind, name) = pair(text)?;
    let is_it = |(resource, short): &(Resource, &str)| {
        [&*resource.kind.to_lowercase(), resource.plural, short].contains(&&*kind)
    };
    let found = WORKLOADS.into_iter().zip(["deploy", "sts", "ds", "rs"]).find(is_it);
    let (resource, _) =
        found.ok_or_else(|| format!("{kind:?} is no deployment, statefulset, daemonset or replicaset"))?;
    Ok((resource, name.to_owned()))
}

/// Reads the name of a ConfigMonitor, alone or as `kubectl get --output name` prints it.
fn monitor(text: &str) -> Result<String, String> {
    const KINDS: [&str; 4] = ["configmonitor.magalix.com", "configmonitor", "configmonitors", "cmon"];
    let name =
        text.split_once('/').map_or(Some(text), |(kind, name)| KINDS.contains(&&*kind.to_lowercase()).then_some(name));
    let name = name.filter(|name| !name.is_empty());
    Ok(name.ok_or("expected a name, or configmonitor.magalix.com/NAME")?.to_owned())
}

/// Reads a kind, by any of the names that kubectl knows, and the name of an object.
pub(crate) fn source(text: &str) -> Result<SourceName, String> {
    let (kind, name) = pair(text)?;
    let kind = match &*kind {
        "cm" | "configmap" | "configmaps" => Kind::ConfigMap,
        "secret" | "secrets" => Kind::Secret,
        _ => return Err(format!("{kind:?} is neither a ConfigMap nor a Secret")),
    };
    Ok(SourceName { kind, name: name.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(arguments: &str) -> Result<Options, ExitCode> {
        Options::read(arguments.split_whitespace().map(OsString::from))
    }

    #[test]
    fn flags_of_kubectl_are_passed_on_wherever_they_are() {
        let before = "kubectl-cmon --context=prod -s https://a --as me --insecure-skip-tls-verify wait shop";
        let after = "kubectl-cmon wait shop --context prod --server=https://a --as=me --insecure-skip-tls-verify=true";
        for line in [before, after] {
            let options = read(line).unwrap();
            let expected = ["--as=me", "--context=prod", "--server=https://a", "--insecure-skip-tls-verify=true"];
            assert_eq!(options.access.kubectl, expected, "{line}");
        }
        assert_eq!(read("kubectl-cmon status -n shop").unwrap().access.namespace.as_deref(), Some("shop"));
    }

    #[test]
    fn a_name_may_be_as_kubectl_prints_it() {
        for name in ["shop", "cmon/shop", "configmonitor.magalix.com/shop"] {
            let Command::Status(status) = read(&format!("kubectl-cmon status {name}")).unwrap().command else {
                panic!("{name}")
            };
            assert_eq!(status.name.as_deref(), Some("shop"), "{name}");
        }
    }

    #[test]
    fn help_has_the_name_by_which_the_plugin_was_called() {
        let mut command = command_named("kubectl-config_monitor");
        command.build();
        let help = command.find_subcommand_mut("plan").unwrap().render_help().to_string();
        assert!(
            help.contains("Usage: kubectl config-monitor plan")
                && help.contains("Example: kubectl config-monitor plan"),
            "{help}"
        );
    }

    #[test]
    fn the_page_has_each_command() {
        let page = include_str!("../../docs/kubectl-cmon.md");
        let commands = CommandLine::command();
        let missing = commands.get_subcommands().find(|its| !page.contains(&format!("\n| `{}` |", its.get_name())));
        assert_eq!(missing.map(clap::Command::get_name), None);
    }

    #[test]
    fn a_wrong_command_line_ends_with_2() {
        let wrong = [
            "status deploy/a",
            "suspend",
            "",
            "wait --for-source shop",
            "wait --for-source pod/a",
            "wait --timeout=soon",
            "restart",
        ];
        let both = ["resume", "resume a --all", "create", "create deploy/a --release b=c", "create pod/a"];
        for line in wrong.into_iter().chain(both) {
            let code = read(&format!("kubectl-cmon {line}")).map(|_| ()).unwrap_err();
            assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::from(2)), "{line}");
        }
    }
}
