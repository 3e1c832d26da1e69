//! Where the demo plays: the simulated cluster in this process, or a real control plane. What users do in it is shown as
//! commands of curl or kubectl.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};
use simulated_cluster::cluster::Cluster;
use simulated_cluster::network::Process;
use simulated_cluster::serve::Server;
use simulated_cluster::state::ClusterState;
use testenv::binaries::Binaries;
use testenv::{Client, ControlPlane, DEADLINE, Proxy, eventually, project};
use tokio::time::sleep;

use crate::show::{command, kubectl, note, step};

const CONFIG_MAP: &str = "/api/v1/namespaces/default/configmaps/flaskapp-config";
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods?labelSelector=app%3Dfrontend";
pub(crate) const MONITOR: &str = "/apis/magalix.com/v1/namespaces/default/configmonitors/flakapp-config-monitor";
const NODE: &str = "/api/v1/nodes/node";

/// The account in `deploy/serviceaccount.yml`.
const SERVICE_ACCOUNT: &str = "configmonitor-operator";

/// A cluster. Dropping this value stops it.
pub(crate) enum World {
    Simulated(Arc<Cluster>, Server),
    Real(Box<Real>),
}

pub(crate) struct Real {
    proxy: Proxy,
    control_plane: ControlPlane,
}

impl World {
    /// Starts the cluster of the application, without the application where it is real.
    pub(crate) async fn start(is_real: bool) -> Result<Self> {
        if !is_real {
            println!("Real: the operator, a process that sends every request over HTTP.");
            println!(
                "Simulated: the API server, the controllers and the kubelets. Tests hold their answers against the real ones."
            );
            step("Start the simulated cluster");
            let cluster = Cluster::new(ClusterState::demo(Vec::new()));
            let server = Server::start(&cluster, Process::First).await?;
            drop(tokio::spawn(Arc::clone(&cluster).live()));
            command(&format!("export API={}", server.url()));
            return Ok(Self::Simulated(cluster, server));
        }
        println!(
            "Real: the operator, etcd, kube-apiserver, the controllers, the scheduler and kubectl. Simulated: the node, by kwok."
        );
        println!("What is not in the cache is built first: that takes ten minutes, once, and needs Go.");
        step("Start a Kubernetes control plane");
        let start = Instant::now();
        let control_plane = ControlPlane::start().await?;
        note(&format!("It is up after {:.1} s.", start.elapsed().as_secs_f32()));
        step("Install the operator's CRD and its rights");
        let admin = control_plane.kubectl();
        kubectl(admin, &["apply", "-f", "crd.yml", "-f", "deploy/serviceaccount.yml", "-f", "deploy/role/role.yml"])
            .await?;
        let wait = ["wait", "--for=condition=Established", "crd/configmonitors.magalix.com"];
        // kubectl fails at an object whose conditions are null, as they are at first.
        eventually("the CRD is established", DEADLINE, async || kubectl(admin, &wait).await).await?;
        let token = control_plane.service_account_token("default", SERVICE_ACCOUNT).await?;
        let proxy = control_plane.proxy_with(&token, &[]).await?;
        note(&format!("kubectl proxy, which holds the operator's token, listens on {}.", proxy.url()));
        Ok(Self::Real(Box::new(Real { proxy, control_plane })))
    }

    /// Returns the URL for the operator.
    pub(crate) fn proxy_url(&self) -> String {
        match self {
            Self::Simulated(_, server) => server.url(),
            Self::Real(real) => real.proxy.url(),
        }
    }

    /// Returns a client of a user.
    pub(crate) fn client(&self) -> Client {
        match self {
            Self::Simulated(_, server) => Client::new(&server.url()),
            Self::Real(real) => real.control_plane.client(),
        }
    }

    /// Creates the application and its ConfigMonitor from the files of the demo.
    pub(crate) async fn create_application(&self) -> Result<()> {
        match self {
            Self::Simulated(..) => {
                note("The cluster has the Deployment of demo-app/deployment.yml, with 3 pods.");
                for (path, file) in [(CONFIG_MAP, "configmap.yml"), (MONITOR, "configmonitor.yml")] {
                    command(&format!("curl -X PATCH $API{path} --data-binary @demo-app/{file}"));
                    let yaml = fs::read_to_string(project("demo-app").join(file))?;
                    self.client().apply(path, yaml).await?.ok()?;
                }
                Ok(())
            }
            Self::Real(real) => {
                let admin = real.control_plane.kubectl();
                for file in ["configmap.yml", "deployment.yml", "configmonitor.yml"] {
                    kubectl(admin, &["apply", "-f", &format!("demo-app/{file}")]).await?;
                }
                kubectl(admin, &["rollout", "status", "deployment/frontend", "--timeout=60s"]).await
            }
        }
    }

    /// Edits the ConfigMap.
    pub(crate) async fn edit(&self, content: &str) -> Result<()> {
        let patch = json!({"data": {"config.cfg": content}});
        let Self::Real(real) = self else {
            command(&format!("curl -X PATCH $API{CONFIG_MAP} --data '{patch}'"));
            return self.client().merge_patch(CONFIG_MAP, &patch).await?.ok().map(drop);
        };
        let args = ["patch", "configmap", "flaskapp-config", "-p", &patch.to_string()];
        kubectl(real.control_plane.kubectl(), &args).await
    }

    /// Keeps new pods from getting ready, or lets them. In the simulated cluster they read the ConfigMap.
    pub(crate) async fn keep_new_pods_unready(&self, holds: bool) -> Result<()> {
        if matches!(self, Self::Simulated(..)) {
            return Ok(());
        }
        if holds {
            note("kwok runs no application. So that new pods do not get ready, its node takes none for now.");
        }
        self.client().merge_patch(NODE, &json!({"spec": {"unschedulable": holds}})).await?.ok().map(drop)
    }

    /// Lets the pods get older than clocks may differ.
    pub(crate) async fn let_time_pass(&self) {
        match self {
            Self::Simulated(cluster, _) => {
                note("A minute passes: the clock of the cluster is set forward.");
                cluster.set_forward(60_000);
            }
            Self::Real(_) => {
                note("12 s pass: the operator allows for clocks that differ by 10 s.");
                sleep(Duration::from_secs(12)).await;
            }
        }
    }

    pub(crate) async fn show_pods(&self) -> Result<()> {
        let Self::Real(real) = self else {
            command(&format!("curl \"$API{PODS}\""));
            for pod in self.client().list(PODS).await? {
                let name = pod["metadata"]["name"].as_str().unwrap_or_default();
                note(&format!("{name}: {}", state_of(&pod)));
            }
            return Ok(());
        };
        kubectl(real.control_plane.kubectl(), &["get", "pods", "-l", "app=frontend"]).await
    }

    pub(crate) async fn show_monitor(&self) -> Result<()> {
        let Self::Real(real) = self else {
            command(&format!("curl $API{MONITOR}"));
            let monitor = self.client().get(MONITOR).await?.ok()?;
            let conditions = monitor["status"]["conditions"].as_array();
            for condition in conditions.into_iter().flatten().filter(|condition| condition["type"] == "Ready") {
                let [status, reason, message] =
                    ["status", "reason", "message"].map(|field| condition[field].as_str().unwrap_or_default());
                note(&format!("Ready is {status}: {reason}. {message}"));
            }
            return Ok(());
        };
        kubectl(real.control_plane.kubectl(), &["get", "cmon"]).await
    }

    pub(crate) fn show_how_to_go_on(&self) {
        match self {
            Self::Simulated(_, server) => {
                println!("   export API={}", server.url());
                println!(
                    "   curl -X PATCH $API{CONFIG_MAP} --data '{{\"data\": {{\"config.cfg\": \"MSG = \\\"Hello\\\"\"}}}}'"
                );
                println!("   curl \"$API{PODS}\"");
                println!("   curl $API{MONITOR}\n");
                println!("A pod that starts with content without \"MSG = \" does not get ready.");
            }
            Self::Real(real) => {
                let kubectl = real.control_plane.kubectl();
                println!("   export KUBECONFIG={}", kubectl.kubeconfig().display());
                println!("   kubectl edit configmap flaskapp-config");
                println!("   kubectl get pods -l app=frontend --watch\n");
                println!("If you have no kubectl, use {}", kubectl.program().display());
            }
        }
    }

    /// Says how to see the same elsewhere.
    pub(crate) fn show_what_else(&self) {
        if matches!(self, Self::Simulated(..)) && Binaries::are_built().is_ok_and(|are_built| are_built) {
            println!("On the real control plane, which is in the cache: make demo CLUSTER=real");
        }
    }
}

/// Returns whether a pod runs and is ready, in words.
fn state_of(pod: &Value) -> &'static str {
    match pod["metadata"]["deletionTimestamp"].is_null() {
        true if testenv::is_ready(pod) => "ready",
        true => "not ready",
        false => "terminating",
    }
}
