//! Flags, each with an environment variable.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::Arc;

use clap::{Args, Parser, Subcommand, ValueEnum};
use reqwest::Url;
use tracing_subscriber::filter::{LevelFilter, Targets};

use crate::controller::{Excluded, NamespaceSelector, Namespaces};
use crate::election::identity;
use crate::kube::names::is_dns_label;
use crate::kube::transport::UNIX;

/// The names of objects that platforms add to pods, separated by commas.
pub const DISCOVER_EXCLUDE: &str = "kube-root-ca.crt,openshift-service-ca.crt,istio-ca-root-cert";

const CRD: &str = include_str!("../crd.yml");

/// Restarts the pods that read a ConfigMap or a Secret when its content changes.
#[derive(Debug, Parser)]
#[command(version, name = "configmonitor-operator", disable_help_subcommand = true)]
struct CommandLine {
    #[command(flatten)]
    options: Options,
    #[command(subcommand)]
    command: Option<Command>,
}

/// What to do instead of running the operator.
#[derive(Clone, Copy, Debug, Subcommand)]
enum Command {
    /// Print the CustomResourceDefinition that this operator needs, for kubectl apply.
    Crd,
}

/// The options of the operator.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// URL of kubectl proxy: http://HOST:PORT, or unix:///PATH for its unix socket.
    #[arg(long, env = "KUBECTL_PROXY_URL", value_name = "URL", default_value = "http://127.0.0.1:8001", value_parser = proxy_url)]
    pub(crate) proxy_url: Url,
    /// Namespaces to work in, separated by commas. Vertical bars, as in the pattern of the proxy, separate them as well.
    #[arg(long, env = "res_namespace", value_name = "NAME,...", default_value = "default", value_parser = namespaces)]
    pub(crate) namespace: Vec<Box<[Arc<str>]>>,
    /// Work in all namespaces and ignore --namespace.
    #[arg(long, env = "CONFIGMONITOR_ALL_NAMESPACES")]
    pub(crate) all_namespaces: bool,
    /// Namespaces that --all-namespaces leaves out, separated by commas; NAME* for all that begin like this.
    #[arg(
        long,
        env = "CONFIGMONITOR_EXCLUDE_NAMESPACES",
        value_name = "NAME,...",
        default_value = "kube-system,kube-node-lease,kube-public",
        value_delimiter = ','
    )]
    pub(crate) exclude_namespaces: Vec<Excluded>,
    /// Labels that namespaces must have with --all-namespaces: KEY=VALUE, KEY!=VALUE, KEY or !KEY.
    #[arg(long, env = "CONFIGMONITOR_NAMESPACE_SELECTOR", value_name = "LABEL,...", requires = "all_namespaces")]
    pub(crate) namespace_selector: Option<NamespaceSelector>,
    /// UID of the operator's own pod, which is never deleted.
    #[arg(long, env = "POD_UID", value_name = "UID")]
    pub(crate) pod_uid: Option<String>,
    /// Act only while holding the Lease configmonitor-operator in --pod-namespace, so that several replicas can run.
    #[arg(long, env = "CONFIGMONITOR_LEADER_ELECT", requires_ifs = [("true", "pod_uid"), ("true", "pod_namespace")])]
    pub(crate) leader_elect: bool,
    /// Namespace of the operator's own pod and of the Lease.
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAME", value_parser = namespace)]
    pub(crate) pod_namespace: Option<Arc<str>>,
    /// Maximum number of deletions and evictions in flight.
    #[arg(long, env = "CONFIGMONITOR_DELETE_CONCURRENCY", value_name = "N", default_value = "32")]
    pub(crate) delete_concurrency: NonZeroU16,
    /// Maximum number of other requests in flight. Watches and their lists do not count.
    #[arg(long, env = "CONFIGMONITOR_REQUEST_CONCURRENCY", value_name = "N", default_value = "32")]
    pub(crate) request_concurrency: NonZeroU16,
    /// Hand pods over for spec.maxSurge. Needs the rights of the Component deploy/surge.
    #[arg(long, env = "CONFIGMONITOR_SURGE")]
    pub(crate) surge: bool,
    /// Objects that spec.discover leaves out in all ConfigMonitors, because the platform adds them to pods.
    #[arg(
        long,
        env = "CONFIGMONITOR_DISCOVER_EXCLUDE",
        value_name = "NAME,...",
        default_value = DISCOVER_EXCLUDE,
        value_delimiter = ','
    )]
    pub(crate) discover_exclude: Vec<Arc<str>>,
    /// Address of the probes, /livez and /readyz, and of /metrics.
    #[arg(long, env = "CONFIGMONITOR_LISTEN", value_name = "ADDRESS:PORT", default_value = "[::]:8080")]
    pub(crate) listen: SocketAddr,
    /// Format of log lines.
    #[arg(long, env = "CONFIGMONITOR_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
    /// Log level, or levels for parts of the operator, such as info,configmonitor_operator::kube=debug.
    #[arg(long, env = "CONFIGMONITOR_LOG", value_name = "FILTER", default_value = "info", value_parser = log_filter)]
    pub log: Targets,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Plain text.
    Text,
    /// One JSON object per line.
    Json,
}

/// Why the operator does not run.
#[derive(Debug, PartialEq, Eq)]
pub enum Stop {
    /// A flag or variable is wrong: one line for stderr.
    Usage(String),
    /// Help, the version or the CRD was requested: a text for stdout.
    Print(String),
}

impl Options {
    pub(crate) fn namespaces(&self) -> Namespaces {
        if self.all_namespaces {
            let (excluded, selector) = (self.exclude_namespaces.clone(), self.namespace_selector.clone());
            return Namespaces::All { excluded, selector };
        }
        Namespaces::Named(self.namespace.iter().flatten().cloned().collect::<BTreeSet<_>>().into_iter().collect())
    }

    /// The namespace of the Lease, and the name of the process in the Lease. None without `--leader-elect`.
    pub(crate) fn candidacy(&self) -> Option<(Arc<str>, String)> {
        let identity = self.pod_uid.as_deref().map(identity);
        self.pod_namespace.clone().zip(identity).filter(|_| self.leader_elect)
    }

    /// Reads the options from the command line and, where it is silent, from the environment.
    ///
    /// # Errors
    /// A text to print instead of running.
    pub fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, Stop> {
        let CommandLine { options, command } = CommandLine::try_parse_from(arguments).map_err(|error| {
            let text = error.render().to_string();
            if error.use_stderr() { Stop::Usage(one_line(&text)) } else { Stop::Print(text) }
        })?;
        match command {
            Some(Command::Crd) => Err(Stop::Print(CRD.to_owned())),
            None => Ok(options),
        }
    }
}

/// Joins the lines of an error message of clap and drops the usage below them.
fn one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty() && !line.starts_with("For more information")).collect();
    lines.join(" ")
}

fn proxy_url(text: &str) -> Result<Url, String> {
    let url: Url = text.parse().map_err(|error| format!("{error}"))?;
    let is_socket = url.scheme() == UNIX && !url.has_host() && url.path().len() > 1;
    // It would send credentials to the API server instead of its own.
    let is_http = url.scheme() == "http" && url.has_host() && !text.contains(['@', '?', '#']);
    if is_socket || is_http {
        return Ok(url);
    }
    Err("use unix:///PATH or http://HOST:PORT/PATH, without TLS, credentials, query and fragment".to_owned())
}

/// Rejects a word without a level, which `Targets` would take for a module, so that all other log lines would be lost.
fn log_filter(text: &str) -> Result<Targets, String> {
    let odd = text.split(',').find(|part| !part.contains('=') && part.parse::<LevelFilter>().is_err());
    if let Some(odd) = odd {
        return Err(format!(
            "{odd:?} is not a level: use LEVEL or PART=LEVEL, where LEVEL is off, error, warn, info, debug or trace"
        ));
    }
    text.parse().map_err(|error| format!("{error}"))
}

fn namespaces(text: &str) -> Result<Box<[Arc<str>]>, String> {
    text.split([',', '|']).map(namespace).collect()
}

fn namespace(text: &str) -> Result<Arc<str>, String> {
    if is_dns_label(text) {
        Ok(text.into())
    } else {
        Err("a namespace has 1 to 63 lowercase letters, digits and hyphens, and starts and ends with a letter or digit"
            .to_owned())
    }
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
    fn all_flags_have_defaults() {
        let options = read(&[]).expect("defaults");
        assert_eq!(options.proxy_url.as_str(), "http://127.0.0.1:8001/");
        assert_eq!(options.listen.to_string(), "[::]:8080");
        assert_eq!(options.log_format, LogFormat::Text);
        assert_eq!(options.namespaces(), Namespaces::Named(vec!["default".into()]));
    }

    #[test]
    fn the_namespaces_are_one_or_several_or_all() {
        let namespaces = |arguments: &[&str]| read(arguments).expect("valid").namespaces();
        for list in
            [&["--namespace", "b,a,b"][..], &["--namespace", "b|a|b"], &["--namespace", "b", "--namespace", "a"]]
        {
            assert_eq!(namespaces(list), Namespaces::Named(vec!["a".into(), "b".into()]), "{list:?}");
        }
        let defaults = ["kube-system", "kube-node-lease", "kube-public"];
        assert_eq!(
            namespaces(&["--all-namespaces", "--namespace", "a"]),
            Namespaces::All { excluded: defaults.map(|name| name.parse().expect("valid")).into(), selector: None }
        );
        let labelled = namespaces(&["--all-namespaces", "--exclude-namespaces=", "--namespace-selector=a=b,!c"]);
        let (none, selector) = ("".parse().expect("valid"), "a=b,!c".parse().ok());
        assert_eq!(labelled, Namespaces::All { excluded: vec![none], selector });
    }

    #[test]
    fn a_candidate_is_identified_by_its_host_and_its_pod() {
        let candidacy = |arguments: &[&str]| read(arguments).expect("valid").candidacy();
        let pod = ["--pod-namespace", "a", "--pod-uid", "u"];
        assert_eq!(candidacy(&pod), None);
        let (namespace, identity) = candidacy(&[&pod[..], &["--leader-elect"]].concat()).expect("one");
        let host = identity.strip_suffix("_u").expect("the UID");
        assert!(&*namespace == "a" && !host.is_empty() && host == host.trim(), "{identity:?}");
    }

    #[test]
    fn a_wrong_value_is_one_line_that_names_its_flag() {
        for (arguments, about) in [
            (["--proxy-url", "https://127.0.0.1:8001"], "--proxy-url"),
            (["--proxy-url", "http://user:secret@127.0.0.1"], "credentials"),
            (["--proxy-url", "127.0.0.1:8001"], "--proxy-url"),
            (["--proxy-url", "unix://host/path"], "--proxy-url"),
            (["--proxy-url", "unix:///"], "--proxy-url"),
            (["--namespace", "Not A Name"], "--namespace"),
            (["--namespace", "a,,b"], "--namespace"),
            (["--exclude-namespaces", "a*b"], "--exclude-namespaces"),
            (["--namespace-selector", "a in (b)"], "--namespace-selector"),
            (["--namespace-selector", "a=b"], "--all-namespaces"),
            (["--listen", "8080"], "--listen"),
            (["--delete-concurrency", "0"], "--delete-concurrency"),
            (["--request-concurrency", "many"], "--request-concurrency"),
            (["--log-format", "xml"], "text, json"),
            (["--leader-elect", "--pod-uid=1"], "--pod-namespace"),
            (["--leader-elect", "--pod-namespace=a"], "--pod-uid"),
            (["--log", "a=b=c"], "--log"),
            (["--log", "nonsense"], "\"nonsense\" is not a level"),
            (["--unknown", "x"], "--unknown"),
        ] {
            let Err(Stop::Usage(line)) = read(&arguments) else { panic!("{arguments:?} is wrong") };
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
    fn help_is_not_an_error() {
        assert!(matches!(read(&["--help"]), Err(Stop::Print(text)) if text.contains("res_namespace")));
    }
}
