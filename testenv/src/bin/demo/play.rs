//! What happens in the demo, in order.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use testenv::{Client, ControlPlane, DEADLINE, Process, Proxy, RunDir, eventually, is_ready, operator};

use crate::show::{self, Log, Pod};

const PODS: &str = "/api/v1/namespaces/default/pods?labelSelector=app%3Dfrontend";
const MONITOR: &str = "/apis/magalix.com/v1/namespaces/default/configmonitors/flakapp-config-monitor";

/// The account in `deploy/rbac.yml`.
const SERVICE_ACCOUNT: &str = "configmonitor-operator";

/// Everything that runs. It ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct Stage {
    operator: Log,
    _proxy: Proxy,
    control_plane: ControlPlane,
    _dir: RunDir,
}

impl Stage {
    /// The whole demo. Fails unless every pod was replaced and all are ready.
    pub(crate) async fn play() -> Result<Self> {
        let binary = operator::binary()?;
        println!("A ConfigMap is edited, and the pods that read it restart.");
        println!("All of it runs here, as processes on 127.0.0.1; nothing is installed.");

        show::step("Start a Kubernetes control plane");
        let start = Instant::now();
        let control_plane = ControlPlane::start().await?;
        show::note(&format!(
            "etcd, API server, controllers, scheduler and a node are up: {:.1} s",
            start.elapsed().as_secs_f32()
        ));

        show::step("Install the operator's resource and its rights");
        let kubectl = control_plane.kubectl();
        show::kubectl(kubectl, &["apply", "--server-side", "-f", "crd.yml"]).await?;
        show::kubectl(kubectl, &["apply", "--server-side", "-f", "deploy/rbac.yml"]).await?;
        let crd = "crd/configmonitors.magalix.com";
        show::kubectl(kubectl, &["wait", "--for=condition=Established", crd]).await?;

        show::step("Create the application: a ConfigMap, a Deployment, a ConfigMonitor");
        for file in ["configmap.yml", "deployment.yml", "configmonitor.yml"] {
            let file = format!("demo-app/{file}");
            show::kubectl(kubectl, &["apply", "--server-side", "-f", &file]).await?;
        }
        show::kubectl(kubectl, &["rollout", "status", "deployment/frontend", "--timeout=60s"]).await?;

        show::step("Run the operator, beside a kubectl proxy that holds its token");
        let token = control_plane.service_account_token("default", SERVICE_ACCOUNT).await?;
        let proxy = Proxy::start(&control_plane, &token, &[]).await?;
        show::command(&format!("kubectl proxy --port={}", proxy.port()));
        let dir = RunDir::create()?;
        let operator = start_operator(&binary, &proxy.url(), dir.path())?;
        let stage = Self { operator: Log::new(operator), _proxy: proxy, control_plane, _dir: dir };
        tokio::select! {
            result = stage.edit() => result?,
            error = stage.follow() => return Err(error),
        }
        Ok(stage)
    }

    /// Says what a person can do with what still runs.
    pub(crate) fn show_how_to_go_on(&self) {
        let kubeconfig = self.control_plane.kubectl().kubeconfig();
        println!("\nEverything is still running. In another terminal:\n");
        println!("   export KUBECONFIG={}", kubeconfig.display());
        println!("   kubectl edit configmap flaskapp-config");
        println!("   kubectl get pods -l app=frontend --watch\n");
        println!("A kubectl that fits: {}", self.control_plane.kubectl().program().display());
        println!("Stop everything with Ctrl-C here, or: kill {}", std::process::id());
        println!("The operator's log goes on below.\n");
    }

    /// Shows the operator's log while it runs; returns why it ended.
    pub(crate) async fn follow(&self) -> anyhow::Error {
        self.operator.follow().await
    }

    async fn edit(&self) -> Result<()> {
        let client = self.control_plane.client();
        let kubectl = self.control_plane.kubectl();
        let monitor = eventually("the ConfigMonitor is Ready", DEADLINE, async || {
            let monitor = client.get(MONITOR).await?.ok()?;
            ensure!(is_ready(&monitor), "its status is {}", monitor["status"]);
            Ok(monitor)
        })
        .await?;
        self.operator.show_new()?;
        show::kubectl(kubectl, &["get", "configmonitors"]).await?;

        show::step("The pods before");
        let before = pods(&client).await?;
        show::pods(&before);

        show::step("Edit the ConfigMap");
        let patch = json!({"data": {"config.cfg": "MSG = \"It has changed!\"\n"}}).to_string();
        let edited = Instant::now();
        show::kubectl(kubectl, &["patch", "configmap", "flaskapp-config", "--type=merge", "-p", &patch]).await?;
        let quiet = monitor["spec"]["quietPeriodSeconds"].as_u64().unwrap_or_default();
        show::note(&format!("The operator waits {quiet} s, in case more edits follow."));
        let after = eventually("all pods are replaced and Ready", 2 * DEADLINE, async || {
            let after = pods(&client).await?;
            check(&before, &after, &monitor, &client.get(MONITOR).await?.ok()?)?;
            Ok(after)
        })
        .await?;
        let took = edited.elapsed();
        self.operator.show_new()?;

        show::step("The pods after");
        show::pods(&after);
        show::step("What Kubernetes shows of it");
        show::kubectl(kubectl, &["get", "configmonitors"]).await?;
        let monitor = "configmonitor/flakapp-config-monitor";
        show::kubectl(kubectl, &["events", "--for", monitor]).await?;
        println!(
            "\nAll {} pods were replaced, and are ready, {:.1} s after the edit.",
            before.len(),
            took.as_secs_f32()
        );
        Ok(())
    }
}

fn start_operator(binary: &Path, proxy_url: &str, dir: &Path) -> Result<Process> {
    let args = ["--proxy-url", proxy_url, "--namespace", "default", "--listen", "127.0.0.1:0"];
    let mut command = Command::new(binary);
    command.args(args);
    show::command(&format!("configmonitor-operator {}", args.join(" ")));
    Process::start(&command, &dir.join("operator.log"))
}

async fn pods(client: &Client) -> Result<Vec<Pod>> {
    Ok(client.list(PODS).await?.iter().filter_map(Pod::new).collect())
}

/// Whether the restart is over: no old pod is left, the new ones are as many
/// and ready, and the ConfigMonitor, which was `old`, says so too.
fn check(before: &[Pod], after: &[Pod], old: &Value, new: &Value) -> Result<()> {
    let is_old = |pod: &&Pod| before.iter().any(|other| other.uid == pod.uid);
    let left = after.iter().filter(is_old).count();
    ensure!(left == 0, "{left} of the pods are the old ones");
    let ready = after.iter().filter(|pod| pod.ready).count();
    let (wanted, there) = (before.len(), after.len());
    ensure!(ready == wanted && there == wanted, "{there} of {wanted} are there, {ready} are ready");
    let hash = |monitor: &Value| monitor["status"]["sources"][0]["hash"].clone();
    ensure!(
        is_ready(new) && hash(new) != hash(old),
        "the pods are replaced, but the ConfigMonitor says {}",
        new["status"]
    );
    Ok(())
}
