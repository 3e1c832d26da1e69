//! What happens in the demo, in order.

use std::future::Future;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use testenv::{ControlPlane, DEADLINE, Process, Proxy, RunDir, eventually, is_ready, operator};

use crate::show::{self, Log};

const PODS: &str = "/api/v1/namespaces/default/pods?labelSelector=app%3Dfrontend";
const MONITOR: &str = "/apis/magalix.com/v1/namespaces/default/configmonitors/flakapp-config-monitor";

const GET_PODS: [&str; 4] = ["get", "pods", "-l", "app=frontend"];

/// The account in `deploy/serviceaccount.yml`.
const SERVICE_ACCOUNT: &str = "configmonitor-operator";

/// Everything that runs. Dropping this value stops it.
#[derive(Debug)]
pub(crate) struct Stage {
    operator: Log,
    _proxy: Proxy,
    control_plane: ControlPlane,
    _dir: RunDir,
}

impl Stage {
    /// Plays the whole demo. Fails unless every pod is replaced and ready.
    pub(crate) async fn play() -> Result<Self> {
        let binary = operator::binary()?;
        println!("This demo edits a ConfigMap, and the operator restarts the pods that read it.");
        println!("Everything runs as processes on 127.0.0.1. Nothing is installed.");

        show::step("Start a Kubernetes control plane");
        let start = Instant::now();
        let control_plane = ControlPlane::start().await?;
        show::note(&format!(
            "etcd, kube-apiserver, the controllers, the scheduler and a simulated node are up after {:.1} s.",
            start.elapsed().as_secs_f32()
        ));

        show::step("Install the operator's CRD and its rights");
        let kubectl = control_plane.kubectl();
        show::kubectl(
            kubectl,
            &["apply", "-f", "crd.yml", "-f", "deploy/serviceaccount.yml", "-f", "deploy/role/role.yml"],
        )
        .await?;
        let wait = ["wait", "--for=condition=Established", "crd/configmonitors.magalix.com"];
        // kubectl fails at an object whose conditions are null, as they are at first.
        eventually("the CRD is established", DEADLINE, async || show::kubectl(kubectl, &wait).await).await?;

        show::step("Create an application and its ConfigMonitor");
        for file in ["configmap.yml", "deployment.yml", "configmonitor.yml"] {
            show::kubectl(kubectl, &["apply", "-f", &format!("demo-app/{file}")]).await?;
        }
        show::kubectl(kubectl, &["rollout", "status", "deployment/frontend", "--timeout=60s"]).await?;

        show::step("Run the operator and a kubectl proxy, which holds the token");
        let token = control_plane.service_account_token("default", SERVICE_ACCOUNT).await?;
        let proxy = control_plane.proxy_with(&token, &[]).await?;
        show::command(&format!("kubectl proxy --port={}", proxy.port()));
        let dir = RunDir::create()?;
        let operator = start_operator(&binary, &proxy.url(), dir.path())?;
        show::note("Lines that begin with | are the operator's log, shortened.");
        let stage = Self { operator: Log::new(operator), _proxy: proxy, control_plane, _dir: dir };
        stage.edit().await?;
        Ok(stage)
    }

    pub(crate) fn show_how_to_go_on(&self) {
        let kubectl = self.control_plane.kubectl();
        println!("\nEverything is still running. In another terminal:\n");
        println!("   export KUBECONFIG={}", kubectl.kubeconfig().display());
        println!("   kubectl edit configmap flaskapp-config");
        println!("   kubectl get pods -l app=frontend --watch\n");
        println!("If you have no kubectl, use {}", kubectl.program().display());
        println!("To stop everything, press Ctrl-C here or run: kill {}", std::process::id());
        println!("The operator's log continues below.\n");
    }

    /// Shows the operator's log while the operator runs; returns why it stopped.
    pub(crate) async fn follow(&self) -> anyhow::Error {
        self.operator.follow().await
    }

    async fn follow_until<T>(&self, wait: impl Future<Output = Result<T>>) -> Result<T> {
        let result = tokio::select! {
            result = wait => result,
            error = self.follow() => Err(error),
        };
        self.operator.show_new()?;
        result
    }

    async fn edit(&self) -> Result<()> {
        let client = self.control_plane.client();
        let kubectl = self.control_plane.kubectl();
        let is_synced = eventually("the ConfigMonitor is Ready", DEADLINE, async || {
            let monitor = client.get(MONITOR).await?.ok()?;
            ensure!(is_ready(&monitor), "its status is {}", monitor["status"]);
            Ok(monitor)
        });
        let monitor = self.follow_until(is_synced).await?;
        show::kubectl(kubectl, &["get", "cmon"]).await?;

        show::step("Edit the ConfigMap");
        let before = client.list(PODS).await?;
        show::kubectl(kubectl, &GET_PODS).await?;
        let patch = json!({"data": {"config.cfg": "MSG = \"It has changed!\"\n"}}).to_string();
        let edited = Instant::now();
        show::kubectl(kubectl, &["patch", "configmap", "flaskapp-config", "-p", &patch]).await?;
        let quiet = monitor["spec"]["quietPeriodSeconds"].as_u64().unwrap_or_default();
        show::note(&format!("The operator waits {quiet} s for further edits."));
        let replaced = eventually("all pods are replaced and ready", 2 * DEADLINE, async || {
            check(&before, &client.list(PODS).await?, &monitor, &client.get(MONITOR).await?.ok()?)?;
            Ok(edited.elapsed())
        });
        let took = self.follow_until(replaced).await?;
        self.follow_until(self.operator.wait_for("RestartCompleted")).await?;

        show::step("All pods are new");
        show::kubectl(kubectl, &GET_PODS).await?;
        show::kubectl(kubectl, &["get", "cmon"]).await?;
        println!("\nAll {} pods are replaced and ready {:.1} s after the edit.", before.len(), took.as_secs_f32());
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

/// Checks that the restart is over: no old pod is left, as many new ones are
/// ready, and the ConfigMonitor, which was `old`, reports the same.
fn check(before: &[Value], after: &[Value], old: &Value, new: &Value) -> Result<()> {
    let uid = |pod: &Value| pod["metadata"]["uid"].clone();
    let left = after.iter().filter(|pod| before.iter().any(|other| uid(other) == uid(pod))).count();
    ensure!(left == 0, "{left} of the old pods are left");
    let ready = after.iter().filter(|pod| is_ready(pod) && pod["metadata"]["deletionTimestamp"].is_null()).count();
    let (desired, actual) = (before.len(), after.len());
    ensure!(ready == desired && actual == desired, "{actual} of {desired} pods exist, {ready} are ready");
    let hash = |monitor: &Value| monitor["status"]["sources"][0]["hash"].clone();
    ensure!(
        is_ready(new) && hash(new) != hash(old),
        "the pods are replaced, but the status of the ConfigMonitor is {}",
        new["status"]
    );
    Ok(())
}
