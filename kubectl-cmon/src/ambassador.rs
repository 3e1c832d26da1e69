//! The way to the API server: a `kubectl proxy` that only this process can use.
//!
//! It listens on a unix socket in a folder of mode 0700: a port would give every user of the machine the caller's rights.
//! Between the two stands another process of this program, which ends the proxy even if the plugin is killed.

use std::env;
use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::io::{self, Read as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream as Socket;
use std::process::{ExitCode, Stdio};
use std::sync::Arc;

use configmonitor_operator::kube::client::Client;
use configmonitor_operator::kube::error::{Cause, Error};
use configmonitor_operator::kube::list::Selection;
use configmonitor_operator::kube::transport::{KubectlProxy, Transport};
use configmonitor_operator::kube::{PODS, Resource, Uid};
use configmonitor_operator::monitor::pod::Pod;
use reqwest::Url;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::process::Command;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::monitors::all;
use crate::options::Access;
use crate::outcome::Failure;

/// The namespace of a pod, for kubectl that runs in one.
const IN_CLUSTER: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
/// The label of the operator's pods.
pub(crate) const OPERATORS: &str = "app.kubernetes.io/name=configmonitor-operator";
/// The first word of the command line that runs kubectl with the others, for as long as somebody holds the other end of
/// standard output.
pub(crate) const TIED: &str = "__tied";
/// Requests in flight.
const REQUESTS: usize = 16;

/// A running `kubectl proxy` and its client. The proxy ends with this value.
pub(crate) struct Ambassador {
    /// A client for all namespaces.
    pub(crate) client: Client,
    transport: Arc<dyn Transport>,
    /// The URL of its requests.
    base: Url,
    /// The namespace that the command line or the kubeconfig names.
    pub(crate) namespace: Arc<str>,
    _proxy: Lines<BufReader<UnixStream>>,
    _folder: TempDir,
}

impl Ambassador {
    /// Returns the operator's pod, if it runs in the namespace, and no other does.
    pub(crate) async fn operator(&self, namespace: &Arc<str>) -> Result<Option<Uid>, Failure> {
        let its = self.client.within(namespace).list(&operators(PODS), None, |pod: Pod| pod.uid).await?.items;
        Ok(<[Uid; 1]>::try_from(its).ok().map(|[only]| only))
    }

    /// Returns whether an operator that serves the namespace hands pods over, as far as its pods may be seen.
    pub(crate) async fn surges(&self) -> Result<bool, Failure> {
        match self.client.list(&operators(PODS), None, |pod: Value| surges(&pod, &self.namespace)).await {
            Ok(pods) => Ok(pods.items.contains(&true)),
            Err(Error { cause: Cause::Forbidden(_), .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns a client for the namespace, or for all of them.
    pub(crate) fn client_for(&self, all_namespaces: bool) -> Client {
        if all_namespaces { self.client.clone() } else { self.client.within(&self.namespace) }
    }

    /// Returns the way to the API server, for another client.
    pub(crate) fn way(&self) -> (&Arc<dyn Transport>, &Url) {
        (&self.transport, &self.base)
    }

    /// Starts the proxy with the flags of kubectl, and asks kubectl for the namespace meanwhile.
    pub(crate) async fn start(access: &Access) -> Result<Self, Failure> {
        let own = Permissions::from_mode(0o700);
        let folder = tempfile::Builder::new().prefix("kubectl-cmon-").permissions(own).tempdir()?;
        let socket = folder.path().join("proxy");
        let (own_end, its_end) = Socket::pair()?;
        own_end.set_nonblocking(true)?;
        let mut command = Command::new(env::current_exe()?);
        command.arg(TIED).args(&access.kubectl).arg("proxy").arg("--unix-socket").arg(&socket);
        // Without it, a server with a path loses the path.
        command.arg("--append-server-path=true");
        if access.only_reads {
            command.arg("--reject-methods=^(POST|PUT|PATCH|DELETE)$");
        }
        // A plugin for credentials may prompt.
        command.stdout(OwnedFd::from(its_end)).spawn()?;
        drop(command);
        let mut lines = BufReader::new(UnixStream::from_std(own_end)?).lines();
        let namespace = namespace(access).await?;
        while let Some(line) = lines.next_line().await? {
            if line.starts_with("Starting to serve on ") {
                let url = Url::from_file_path(&socket).map_err(|()| Failure::failed("the socket has no path"))?;
                let url = url.as_str().replacen("file", "unix", 1).parse().map_err(Failure::failed)?;
                let (transport, base) = KubectlProxy::at(url).map_err(Failure::failed)?;
                let transport: Arc<dyn Transport> = Arc::new(transport);
                let (meter, stop) = (Arc::new(()), CancellationToken::new());
                let client = Client::new(Box::new(Arc::clone(&transport)), base.clone(), REQUESTS, 1, meter, stop);
                return Ok(Self { client, transport, base, namespace, _proxy: lines, _folder: folder });
            }
        }
        Err(Failure::failed("kubectl proxy does not start"))
    }
}

/// Runs kubectl, and ends it once nobody holds the other end of standard output, which is a socket.
pub(crate) async fn tied(words: Vec<OsString>) -> Result<ExitCode, Failure> {
    let mut kubectl = Command::new(program()).args(words).kill_on_drop(true).spawn().map_err(not_found)?;
    let mut socket = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let (sender, closed) = oneshot::channel();
    // A thread of its own, which nobody joins: kubectl may end first. Nothing can be read before the end.
    std::thread::spawn(move || sender.send(socket.read(&mut [0])));
    tokio::select! {
        ended = kubectl.wait() => drop(ended?),
        _ = closed => kubectl.kill().await?,
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn kubectl(access: &Access) -> Command {
    let mut command = Command::new(program());
    command.args(&access.kubectl);
    command
}

/// Returns the kubectl that has called this plugin, if it says so.
fn program() -> OsString {
    env::var_os("KUBECTL_PATH").unwrap_or_else(|| "kubectl".into())
}

fn not_found(error: io::Error) -> Failure {
    Failure::Failed(format!("cannot start kubectl: {error}"))
}

/// Selects the operators' objects of a resource.
pub(crate) fn operators(resource: Resource) -> Selection {
    Selection { labels: Some(OPERATORS.to_owned()), ..all(resource) }
}

/// Returns whether this pod of an operator says that it serves the namespace, and hands pods over.
fn surges(pod: &Value, namespace: &str) -> bool {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let variables = containers.filter_map(|container| container["env"].as_array()).flatten();
    let value = |name: &str| {
        variables.clone().filter(|variable| variable["name"] == name).find_map(|variable| variable["value"].as_str())
    };
    let mut named = value("res_namespace").into_iter().flat_map(|names| names.split([',', '|'])).map(str::trim);
    let is_here = pod["metadata"]["namespace"] == namespace || named.any(|name| name == namespace);
    value("CONFIGMONITOR_SURGE") == Some("true") && (is_here || value("CONFIGMONITOR_ALL_NAMESPACES") == Some("true"))
}

/// Returns the namespace of the command line, of the kubeconfig, or of the pod.
async fn namespace(access: &Access) -> Result<Arc<str>, Failure> {
    if let Some(namespace) = &access.namespace {
        return Ok(namespace.as_str().into());
    }
    let mut command = kubectl(access);
    command.args(["config", "view", "--minify", "--output=jsonpath={..namespace}"]).stderr(Stdio::null());
    let output = command.output().await.map_err(not_found)?;
    let configured = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    // There is nothing to minify in a pod.
    let of_pod = || std::fs::read_to_string(IN_CLUSTER).ok().filter(|_| !output.status.success());
    let named = Some(configured).filter(|configured| !configured.is_empty()).or_else(of_pod);
    Ok(named.as_deref().map_or("default", str::trim).into())
}
