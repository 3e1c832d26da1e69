//! What happens in the demo, in order.

use std::future::Future;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, ensure};
use serde_json::Value;
use testenv::{DEADLINE, Process, RunDir, eventually, is_ready, operator};

use crate::show::{self, Log};
use crate::world::{MONITOR, PODS, World};

const GOOD: &str = "MSG = \"It has changed!\"\n";
/// The application does not start with this content.
const BAD: &str = "MSG: a typo\n";

/// Everything that runs. Dropping this value stops it.
pub(crate) struct Stage {
    operator: Log,
    world: World,
    _dir: RunDir,
}

impl Stage {
    /// Plays the whole demo. Fails unless the pods are replaced, and kept, as it says.
    pub(crate) async fn play(is_real: bool) -> Result<Self> {
        let binary = operator::binary()?;
        println!("This demo edits a ConfigMap, and the operator restarts the pods that read it.");
        println!("Everything runs as processes on 127.0.0.1. Nothing is installed.");
        let world = World::start(is_real).await?;

        show::step("Create an application and its ConfigMonitor");
        world.create_application().await?;

        show::step("Run the operator");
        let dir = RunDir::create()?;
        let operator = Log::new(start_operator(&binary, &world.proxy_url(), dir.path())?);
        show::note("Lines that begin with | are the operator's log, shortened.");
        let stage = Self { operator, world, _dir: dir };
        stage.restart().await?;
        stage.halt_and_revert().await?;
        Ok(stage)
    }

    pub(crate) fn show_how_to_go_on(&self) {
        println!("\nEverything is still running. In another terminal:\n");
        self.world.show_how_to_go_on();
        println!("To stop everything, press Ctrl-C here or run: kill {}", std::process::id());
        println!("The operator's log continues below.\n");
    }

    pub(crate) fn show_what_else(&self) {
        self.world.show_what_else();
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

    /// Waits until the pods and the ConfigMonitor are as `check` demands.
    async fn wait_until(&self, what: &str, check: impl Fn(&[Value], &Value) -> Result<()>) -> Result<()> {
        let client = self.world.client();
        let waits =
            eventually(what, DEADLINE, async || check(&client.list(PODS).await?, &client.get(MONITOR).await?.ok()?));
        self.follow_until(waits).await
    }

    async fn restart(&self) -> Result<()> {
        let is_settled = |_: &[Value], monitor: &Value| is_up_to_date(monitor);
        self.wait_until("the ConfigMonitor is Ready", is_settled).await?;
        self.world.show_monitor().await?;

        show::step("Edit the ConfigMap");
        let before = self.world.client().list(PODS).await?;
        self.world.show_pods().await?;
        let edited = Instant::now();
        self.world.edit(GOOD).await?;
        show::note("The operator waits 3 s for further edits. At most 25 %, here one pod, may be missing at a time.");
        self.wait_until("all pods are replaced and ready", |pods, monitor| over(&before, 0, pods, monitor)).await?;
        let took = edited.elapsed().as_secs_f32();
        self.follow_until(self.operator.wait_for("RestartCompleted")).await?;

        show::step("All pods are new");
        self.world.show_pods().await?;
        self.world.show_monitor().await?;
        show::note(&format!("All {} pods are replaced and ready {took:.1} s after the edit.", before.len()));
        Ok(())
    }

    async fn halt_and_revert(&self) -> Result<()> {
        show::step("Edit it again, with content that no pod gets ready with");
        self.world.let_time_pass().await;
        let before = self.world.client().list(PODS).await?;
        self.world.keep_new_pods_unready(true).await?;
        self.world.edit(BAD).await?;
        let halts = |pods: &[Value], monitor: &Value| {
            let (old, ready) = (kept(&before, pods), pods.iter().filter(|pod| is_ready(pod)).count());
            let is_one_bad = pods.len() == before.len() && ready + 1 == pods.len() && old == ready;
            ensure!(is_one_bad && !is_ready(monitor), "{old} are old, {ready} ready");
            Ok(())
        };
        self.wait_until("one pod is replaced, and is not ready", halts).await?;
        self.world.show_pods().await?;
        self.world.show_monitor().await?;
        show::note("The restart waits: the budget allows no second pod to be missing.");

        show::step("Revert the edit");
        self.world.edit(GOOD).await?;
        self.follow_until(self.operator.wait_for("modification reverted")).await?;
        self.world.keep_new_pods_unready(false).await?;
        self.wait_until("only the bad pod is replaced", |pods, monitor| over(&before, before.len() - 1, pods, monitor))
            .await?;
        self.world.show_pods().await?;
        self.world.show_monitor().await?;
        println!("\nOnly the pod with the bad content was replaced. The others never stopped serving.");
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

/// Returns how many of the pods existed before.
fn kept(before: &[Value], pods: &[Value]) -> usize {
    let uid = |pod: &Value| pod["metadata"]["uid"].clone();
    pods.iter().filter(|pod| before.iter().any(|other| uid(other) == uid(pod))).count()
}

/// Checks that a restart is over: as many pods as before are ready, this many of them were kept, and the ConfigMonitor
/// reports the same.
fn over(before: &[Value], keeps: usize, pods: &[Value], monitor: &Value) -> Result<()> {
    let (kept, ready) = (kept(before, pods), pods.iter().filter(|pod| is_ready(pod)).count());
    let desired = before.len();
    ensure!(kept == keeps && ready == desired && pods.len() == desired, "{kept} of {desired} are old, {ready} ready");
    is_up_to_date(monitor)
}

fn is_up_to_date(monitor: &Value) -> Result<()> {
    ensure!(is_ready(monitor), "the status of the ConfigMonitor is {}", monitor["status"]);
    Ok(())
}
