//! What a person may set: flags, each with an environment variable.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::Arc;

use clap::{Args, Parser, Subcommand, ValueEnum};
use reqwest::Url;
use tracing_subscriber::filter::{LevelFilter, Targets};

use crate::controller::Namespaces;
use crate::election::identity;
use crate::kube::names::is_dns_label;

/// The CustomResourceDefinition that this operator needs.
const CRD: &str = include_str!("../crd.yml");

/// Restarts the pods that read a ConfigMap when its content changes.
#[derive(Debug, Parser)]
#[command(version, name = "configmonitor-operator", disable_help_subcommand = true)]
struct CommandLine {
    #[command(flatten)]
    options: Options,
    #[command(subcommand)]
    command: Option<Command>,
}

/// What is done instead of running.
#[derive(Clone, Copy, Debug, Subcommand)]
enum Command {
    /// Print the CustomResourceDefinition that this operator needs, for kubectl apply.
    Crd,
}

/// What the operator runs with.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Where kubectl proxy listens.
    #[arg(long, env = "KUBECTL_PROXY_URL", value_name = "URL", default_value = "http://127.0.0.1:8001", value_parser = proxy_url)]
    pub proxy_url: Url,
    /// The namespaces to work in, with commas between them.
    #[arg(long, env = "res_namespace", value_name = "NAME,...", default_value = "default", value_delimiter = ',', value_parser = namespace)]
    pub namespace: Vec<Arc<str>>,
    /// Work in all namespaces, whatever --namespace says.
    #[arg(long, env = "CONFIGMONITOR_ALL_NAMESPACES")]
    pub all_namespaces: bool,
    /// The UID of the operator's own pod, which it never deletes.
    #[arg(long, env = "POD_UID", value_name = "UID")]
    pub pod_uid: Option<String>,
    /// Act only while holding the Lease configmonitor-operator in the operator's own namespace, so that several replicas can run.
    #[arg(long, env = "CONFIGMONITOR_LEADER_ELECT", requires_ifs = [("true", "pod_uid"), ("true", "pod_namespace")])]
    pub leader_elect: bool,
    /// The namespace of the operator's own pod, where the Lease is.
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAME", value_parser = namespace)]
    pub pod_namespace: Option<Arc<str>>,
    /// Deletions and evictions at a time.
    #[arg(long, env = "CONFIGMONITOR_DELETE_CONCURRENCY", value_name = "N", default_value = "32")]
    pub delete_concurrency: NonZeroU16,
    /// Other requests at a time. Watches and their lists do not count.
    #[arg(long, env = "CONFIGMONITOR_REQUEST_CONCURRENCY", value_name = "N", default_value = "32")]
    pub request_concurrency: NonZeroU16,
    /// Where the probes /livez and /readyz and the metrics, /metrics, are answered.
    #[arg(long, env = "CONFIGMONITOR_LISTEN", value_name = "ADDRESS:PORT", default_value = "0.0.0.0:8080")]
    pub listen: SocketAddr,
    /// Label the metrics about ConfigMonitors with their namespaces and names.
    #[arg(long, env = "CONFIGMONITOR_METRICS_PER_CONFIGMONITOR")]
    pub metrics_per_configmonitor: bool,
    /// How log lines are written.
    #[arg(long, env = "CONFIGMONITOR_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
    /// What is logged: a level, or levels for parts of the operator, such as info,configmonitor_operator::kube=debug.
    #[arg(long, env = "CONFIGMONITOR_LOG", value_name = "FILTER", default_value = "info", value_parser = log_filter)]
    pub log: Targets,
}

/// What a process needs to take part in the election of a leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidacy {
    /// The namespace of the Lease.
    pub namespace: Arc<str>,
    /// Names the process in the Lease.
    pub identity: String,
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For a person.
    Text,
    /// One JSON object a line.
    Json,
}

/// Why there are no options to run with.
#[derive(Debug, PartialEq, Eq)]
pub enum Stop {
    /// A wrong value: one line for stderr.
    Wrong(String),
    /// Help, the version or the CRD was asked for: a text for stdout.
    Asked(String),
}

impl Options {
    /// The namespaces to work in.
    #[must_use]
    pub fn namespaces(&self) -> Namespaces {
        if self.all_namespaces {
            return Namespaces::All;
        }
        Namespaces::Named(self.namespace.iter().cloned().collect::<BTreeSet<_>>().into_iter().collect())
    }

    /// What it takes part with in the election of a leader, if it does.
    #[must_use]
    pub fn candidacy(&self) -> Option<Candidacy> {
        let (namespace, pod_uid) =
            self.leader_elect.then_some(self.pod_namespace.clone().zip(self.pod_uid.as_deref()))??;
        Some(Candidacy { namespace, identity: identity(pod_uid) })
    }

    /// Reads the command line and, for what it does not say, the environment.
    ///
    /// # Errors
    /// What to tell instead of running.
    pub fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, Stop> {
        let CommandLine { options, command } = CommandLine::try_parse_from(arguments).map_err(|error| {
            let text = error.render().to_string();
            if error.use_stderr() { Stop::Wrong(one_line(&text)) } else { Stop::Asked(text) }
        })?;
        match command {
            Some(Command::Crd) => Err(Stop::Asked(CRD.to_owned())),
            None => Ok(options),
        }
    }
}

/// What is wrong, without the usage that clap adds below it.
fn one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty() && !line.starts_with("For more information")).collect();
    lines.join(" ")
}

fn proxy_url(text: &str) -> Result<Url, String> {
    let url: Url = text.parse().map_err(|error| format!("{error}"))?;
    if url.scheme() != "http" || !url.has_host() {
        return Err("kubectl proxy speaks plain HTTP: http://HOST:PORT".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("kubectl proxy takes no credentials, and passes others on in place of its own".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("only a host, a port and a path can be named".to_owned());
    }
    Ok(url)
}

/// A word alone would be taken for the name of a part, and everything else would be silent.
fn log_filter(text: &str) -> Result<Targets, String> {
    let odd = text.split(',').find(|part| !part.contains('=') && part.parse::<LevelFilter>().is_err());
    if let Some(odd) = odd {
        return Err(format!(
            "{odd:?} is no level; write LEVEL or PART=LEVEL, with off, error, warn, info, debug or trace"
        ));
    }
    text.parse().map_err(|error| format!("{error}"))
}

fn namespace(text: &str) -> Result<Arc<str>, String> {
    if is_dns_label(text) { Ok(text.into()) } else { Err("this cannot be the name of a namespace".to_owned()) }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::docs::{REFERENCE, code, table};

    fn read(arguments: &[&str]) -> Result<Options, Stop> {
        Options::read(std::iter::once("configmonitor-operator").chain(arguments.iter().copied()).map(OsString::from))
    }

    #[test]
    fn nothing_needs_to_be_said() {
        let options = read(&[]).expect("defaults");
        assert_eq!(options.proxy_url.as_str(), "http://127.0.0.1:8001/");
        assert_eq!(options.listen.to_string(), "0.0.0.0:8080");
        assert_eq!(options.log_format, LogFormat::Text);
        assert_eq!(options.namespaces(), Namespaces::Named(vec!["default".into()]));
    }

    #[test]
    fn the_namespaces_are_one_or_several_or_all() {
        let namespaces = |arguments: &[&str]| read(arguments).expect("valid").namespaces();
        assert_eq!(namespaces(&["--namespace", "b,a,b"]), Namespaces::Named(vec!["a".into(), "b".into()]));
        assert_eq!(namespaces(&["--all-namespaces", "--namespace", "a"]), Namespaces::All);
    }

    #[test]
    fn a_candidate_is_known_by_its_host_and_its_pod() {
        let candidacy = |arguments: &[&str]| read(arguments).expect("valid").candidacy();
        let pod = ["--pod-namespace", "a", "--pod-uid", "u"];
        assert_eq!(candidacy(&pod), None);
        let Candidacy { namespace, identity } = candidacy(&[&pod[..], &["--leader-elect"]].concat()).expect("one");
        let host = identity.strip_suffix("_u").expect("the UID");
        assert!(&*namespace == "a" && !host.is_empty() && host == host.trim(), "{identity:?}");
    }

    #[test]
    fn a_wrong_value_is_one_line_that_names_its_flag() {
        for (arguments, about) in [
            (["--proxy-url", "https://127.0.0.1:8001"], "--proxy-url"),
            (["--proxy-url", "http://user:secret@127.0.0.1"], "credentials"),
            (["--proxy-url", "127.0.0.1:8001"], "--proxy-url"),
            (["--namespace", "Not A Name"], "--namespace"),
            (["--namespace", "a,,b"], "--namespace"),
            (["--listen", "8080"], "--listen"),
            (["--delete-concurrency", "0"], "--delete-concurrency"),
            (["--request-concurrency", "many"], "--request-concurrency"),
            (["--log-format", "xml"], "text, json"),
            (["--leader-elect", "--pod-uid=1"], "--pod-namespace"),
            (["--leader-elect", "--pod-namespace=a"], "--pod-uid"),
            (["--log", "a=b=c"], "--log"),
            (["--log", "nonsense"], "\"nonsense\" is no level"),
            (["--unknown", "x"], "--unknown"),
        ] {
            let Err(Stop::Wrong(line)) = read(&arguments) else { panic!("{arguments:?} is wrong") };
            assert!(line.contains(about) && !line.contains('\n'), "{arguments:?}: {line}");
        }
    }

    #[test]
    fn the_reference_has_each_flag_with_its_variable_and_its_default() {
        let command = CommandLine::command();
        let flags = command.get_arguments().map(|flag| {
            let defaults = flag.get_default_values().iter().filter_map(|value| value.to_str()).map(code);
            let default = if flag.get_action().takes_values() { defaults.collect() } else { code("false") };
            let variable = flag.get_env().and_then(|name| name.to_str()).map(code);
            [format!("`--{}`", flag.get_long().expect("a long name")), variable.expect("a variable"), default]
        });
        let documented = table(REFERENCE, "## Flags").into_iter().map(|row| [0, 1, 2].map(|cell| row[cell].to_owned()));
        assert_eq!(documented.collect::<Vec<_>>(), flags.collect::<Vec<_>>());
    }

    #[test]
    fn asking_for_help_is_not_an_error() {
        assert!(matches!(read(&["--help"]), Err(Stop::Asked(text)) if text.contains("res_namespace")));
    }
}
