//! The recipes about when and how pods are restarted: what docs/recipes.md has is applied, its commands are run, and they print what it says.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use testenv::fixture::{condition, file};
use testenv::process::printed;
use testenv::{DEADLINE, RunDir, eventually};
use tokio::time::sleep;

use crate::test_namespace::{TestNamespace, control_plane};

const SHOP: &str = "shop";
const SHOP_PODS: &str = "app=shop";
/// The 29th of February.
const RARELY: &str = "0 8 29 2 *";

/// A section of docs/recipes.md.
struct Recipe {
    yaml: Vec<String>,
    /// For each block of them, commands and what they print.
    sessions: Vec<Vec<(String, String)>>,
}

/// A namespace with what a recipe speaks of, and kubectl for it.
struct Kitchen {
    world: TestNamespace,
    dir: RunDir,
    path: String,
    variables: Vec<(String, String)>,
}

/// The fenced blocks of a text in this language.
pub(crate) fn blocks(text: &str, language: &str) -> Vec<String> {
    let opening = format!("\n```{language}\n");
    text.split(&opening).skip(1).map(|rest| rest.split("\n```").next().unwrap().to_owned()).collect()
}

fn read(name: &str) -> String {
    fs::read_to_string(file(name)).unwrap()
}

impl Recipe {
    /// The section with this heading.
    fn of(heading: &str) -> Self {
        let recipes = read("docs/recipes.md");
        let section = recipes.split("\n## ").find_map(|section| section.strip_prefix(heading)).expect(heading);
        let session = |block: String| {
            let steps =
                block.trim_start_matches("$ ").split("\n$ ").map(|step| step.split_once('\n').unwrap_or((step, "")));
            steps.map(|(command, prints)| (command.to_owned(), prints.to_owned())).collect()
        };
        let sessions = blocks(section, "console").into_iter().map(session).collect();
        Self { yaml: blocks(section, "yaml"), sessions }
    }
}

/// What does not depend on when, and of which pods, it is said.
fn shape(text: &str) -> Vec<&str> {
    let depends = |word: &str| {
        let (digits, hyphens) = (word.contains(|c: char| c.is_ascii_digit()), word.matches('-').count());
        let is_age = word.ends_with(['s', 'm', 'h', 'd']) && word.starts_with(|c: char| c.is_ascii_digit());
        hyphens > 1 || (digits && (hyphens > 0 || word.contains(':') || is_age))
    };
    text.split_whitespace().map(|word| if depends(word) { "..." } else { word }).collect()
}

impl Kitchen {
    /// A namespace with the ConfigMap `shop-config` and these Deployments.
    async fn with(deployments: &[(&str, usize)]) -> Self {
        let world = TestNamespace::new().await;
        world.create("configmaps", json!({"metadata": {"name": "shop-config"}, "data": {"app.cfg": "one"}})).await;
        for (name, replicas) in deployments {
            world.create_deployment(name, *replicas, &json!({"app": name, "tier": "backend"})).await;
        }
        world.ready_pods("tier=backend", deployments.iter().map(|(_, replicas)| replicas).sum()).await;
        let (dir, kubectl) = (RunDir::create().unwrap(), control_plane().await.kubectl());
        let kubeconfig = kubectl.ok(&["config", "view", "--raw", "--flatten"]).await.unwrap();
        fs::write(dir.path().join("kubeconfig"), kubeconfig).unwrap();
        let programs = [kubectl.program().parent().unwrap().to_owned()];
        let others = env::var_os("PATH").unwrap();
        let path = env::join_paths(programs.into_iter().chain(env::split_paths(&others))).unwrap();
        let mut kitchen = Self { world, dir, path: path.into_string().unwrap(), variables: Vec::new() };
        let namespace = kitchen.world.namespace.clone();
        kitchen.run(&format!("kubectl config set-context --current --namespace {namespace}")).await.unwrap();
        kitchen
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs a command as a person in this namespace, and returns what it prints.
    async fn run(&mut self, line: &str) -> Result<String> {
        // Who waits in vain is not to wait for long here.
        let line = &*line.replace("--timeout=15m", "--timeout=3m");
        let assigned =
            line.split_once('=').map(|(name, _)| name).filter(|name| name.chars().all(char::is_alphanumeric));
        let line = assigned.map_or(line.to_owned(), |name| format!("{line}; printf %s \"${name}\""));
        let mut command = Command::new("sh");
        command.args(["-c", &line]).env("PATH", &self.path).env("HOME", self.dir.path()).env("KUBERC", "off");
        command.env("KUBECONFIG", self.file("kubeconfig")).envs(self.variables.iter().cloned());
        let text = printed(&command).await?;
        let Some(name) = assigned else { return Ok(text) };
        self.variables.push((name.to_owned(), text));
        Ok(String::new())
    }

    /// Applies this, unless a field of it is unknown.
    async fn apply(&mut self, yaml: &str) {
        fs::write(self.file("recipe.yaml"), yaml).unwrap();
        self.run("kubectl apply --validate=strict --filename \"$HOME/recipe.yaml\"").await.unwrap();
    }

    /// Runs the commands, and waits for each that prints something to print what is written.
    async fn follow(&mut self, session: &[(String, String)]) {
        for (command, prints) in session {
            let is_repeatable = command.starts_with("kubectl get");
            let mut is_first = true;
            eventually(&format!("{command} prints what it should"), DEADLINE, async || {
                let printed = if is_first || is_repeatable { self.run(command).await.unwrap() } else { String::new() };
                is_first = false;
                ensure!(shape(&printed) == shape(prints), "{printed}");
                Ok(())
            })
            .await
            .unwrap();
        }
    }

    async fn change(&self, spec: Value) {
        self.world.patch("configmonitors", SHOP, json!({"spec": spec})).await;
    }

    async fn settled(&self) -> Value {
        self.world.settled(SHOP, "UpToDate").await
    }

    /// How many restarts have ended.
    async fn restarts(&self) -> usize {
        self.settled().await["status"]["history"].as_array().map_or(0, Vec::len)
    }
}

#[tokio::test]
async fn every_config_monitor_of_the_docs_is_accepted() {
    let mut kitchen = Kitchen::with(&[(SHOP, 1)]).await;
    let _operator = kitchen.world.operator().await;
    let pages = fs::read_dir(file("docs")).unwrap().map(|page| page.unwrap().path());
    let pages = pages.filter(|page| page.extension().is_some_and(|extension| extension == "md"));
    let docs: Vec<String> =
        pages.chain([file("README.md").into()]).map(|page| fs::read_to_string(page).unwrap()).collect();
    let blocks = blocks(&docs.concat(), "yaml").into_iter().filter(|block| block.contains("podSelector"));
    let mut accepted = 0;
    for block in blocks {
        let head = "apiVersion: magalix.com/v1\nkind: ConfigMonitor\nmetadata:\n  name: part\n";
        let yaml = if block.starts_with("spec:") { format!("{head}{block}") } else { block };
        kitchen.apply(&yaml).await;
        for monitor in kitchen.world.client.list(&kitchen.world.collection("configmonitors")).await.unwrap() {
            let name = monitor["metadata"]["name"].as_str().unwrap();
            let reason = eventually(&format!("something is said about\n{yaml}"), DEADLINE, async || {
                let monitor = kitchen.world.get("configmonitors", name).await;
                let reason = condition(&monitor, "Ready")["reason"].as_str().unwrap_or_default().to_owned();
                ensure!(
                    !reason.is_empty() && monitor["status"]["observedGeneration"] == monitor["metadata"]["generation"]
                );
                Ok(reason)
            })
            .await
            .unwrap();
            assert_ne!(reason, "InvalidSpec", "{yaml}");
            kitchen.world.delete("configmonitors", name).await;
            accepted += 1;
        }
    }
    assert!(accepted >= 15, "{accepted}");
}

#[tokio::test]
async fn by_day_a_change_waits_for_the_nightly_window() {
    let mut kitchen = Kitchen::with(&[(SHOP, 4)]).await;
    let _operator = kitchen.world.operator().await;
    let recipe = Recipe::of("A nightly window");
    kitchen.apply(&recipe.yaml[0]).await;
    kitchen.settled().await;
    kitchen.apply(&recipe.yaml[0].replace("0 2 * * *", RARELY)).await;
    kitchen.follow(&recipe.sessions[0]).await;
    kitchen.change(json!({"windows": [{"schedule": "* * * * *", "durationSeconds": 60}]})).await;
    kitchen.follow(&recipe.sessions[1]).await;
    assert_eq!((kitchen.restarts().await, kitchen.world.deletions().unwrap()), (1, 4));
}

#[tokio::test]
async fn in_a_change_freeze_nothing_restarts_and_who_asks_gets_past_a_window_but_not_past_suspend() {
    let mut kitchen = Kitchen::with(&[(SHOP, 2)]).await;
    let _operator = kitchen.world.operator().await;
    let recipe = Recipe::of("A change freeze");
    kitchen.apply(&recipe.yaml[0]).await;
    kitchen.settled().await;
    kitchen.apply(&recipe.yaml[0].replace("0 8 4 1 *", RARELY).replace("28512000", "60")).await;
    let [suspend, lift] = &recipe.sessions[..] else { panic!("two blocks of commands") };
    kitchen.follow(suspend).await;
    let request = &Recipe::of("Restart now").sessions[0];
    kitchen.follow(&request[..2]).await;
    kitchen.follow(&lift[..2]).await;
    assert_eq!(kitchen.world.deletions().unwrap(), 0);
    kitchen.follow(&lift[2..3]).await;
    assert_eq!((kitchen.restarts().await, kitchen.world.deletions().unwrap()), (1, 2));
    kitchen
        .run("kubectl patch configmap shop-config --type=merge --patch '{\"data\":{\"app.cfg\":\"three\"}}'")
        .await
        .unwrap();
    kitchen.follow(&lift[3..]).await;
    kitchen.follow(request).await;
    assert_eq!((kitchen.restarts().await, kitchen.world.deletions().unwrap()), (2, 4));
}

#[tokio::test]
async fn a_fleet_has_one_budget() {
    let mut kitchen = Kitchen::with(&[(SHOP, 2), ("billing", 2)]).await;
    let _operator = kitchen.world.operator().await;
    let recipe = Recipe::of("A fleet that must not restart together");
    kitchen.apply(&recipe.yaml[0]).await;
    kitchen.world.settled("fleet", "UpToDate").await;
    kitchen.follow(&recipe.sessions[0]).await;
    assert_eq!(kitchen.world.deletions().unwrap(), 1);
    kitchen.world.patch("configmonitors", "fleet", json!({"spec": {"minReadySeconds": 0}})).await;
    kitchen.world.settled("fleet", "UpToDate").await;
    assert_eq!(kitchen.world.deletions().unwrap(), 4);
}

#[tokio::test]
async fn the_first_commit_restarts_at_once_and_those_of_the_next_hour_together() {
    let mut kitchen = Kitchen::with(&[(SHOP, 4)]).await;
    let _operator = kitchen.world.operator().await;
    let recipe = Recipe::of("A pipeline with ten commits an hour");
    kitchen.apply(&recipe.yaml[0]).await;
    kitchen.settled().await;
    kitchen.follow(&recipe.sessions[0]).await;
    kitchen
        .run("kubectl patch configmap shop-config --type=merge --patch '{\"data\":{\"app.cfg\":\"four\"}}'")
        .await
        .unwrap();
    kitchen.change(json!({"minIntervalSeconds": 1})).await;
    assert_eq!((kitchen.restarts().await, kitchen.world.deletions().unwrap()), (2, 8));
}

#[tokio::test]
async fn what_an_application_writes_restarts_nothing_or_less_and_less_often() {
    let mut kitchen = Kitchen::with(&[(SHOP, 1)]).await;
    let _operator = kitchen.world.operator().await;
    let recipe = Recipe::of("An application that writes its own ConfigMap");
    kitchen.apply(&recipe.yaml[0]).await;
    kitchen.settled().await;
    let write = |number: usize| {
        let patch = json!({"data": {"last-start": number.to_string()}});
        format!("kubectl patch configmap shop-config --field-manager=shop --type=merge --patch '{patch}'")
    };
    kitchen.run(&write(0)).await.unwrap();
    assert_eq!(kitchen.restarts().await, 0);
    kitchen.change(json!({"keys": null, "quietPeriodSeconds": 0})).await;
    for number in 1..=5 {
        assert_eq!(kitchen.restarts().await, number - 1);
        kitchen.run(&write(number)).await.unwrap();
    }
    assert_eq!(kitchen.restarts().await, 5);
    kitchen.run(&write(6)).await.unwrap();
    kitchen.follow(&recipe.sessions[0]).await;
    kitchen.world.event("ConfigMonitor", "RestartBackOff").await;
    kitchen.change(json!({"minIntervalSeconds": 1})).await;
    assert_eq!(kitchen.restarts().await, 6);
}

#[tokio::test]
async fn one_pod_goes_first_and_when_it_fails_the_others_stay() {
    let mut kitchen = Kitchen::with(&[(SHOP, 4)]).await;
    let _operator = kitchen.world.operator().await;
    let recipe = Recipe::of("One pod first");
    kitchen.apply(&recipe.yaml[0]).await;
    kitchen.settled().await;
    // A pod that has started up to a second before the content left counts as one that may have read it.
    sleep(Duration::from_secs(3)).await;
    let before = kitchen.world.pods(SHOP_PODS).await;
    let [bakes, failed] = &recipe.sessions[..] else { panic!("two blocks of commands") };
    kitchen.follow(bakes).await;
    let after = kitchen.world.ready_pods(SHOP_PODS, 4).await;
    let new: Vec<_> = after.keys().filter(|pod| !before.contains_key(*pod)).collect();
    assert_eq!(new.len(), 1);
    // What a kubelet says of a container that has crashed.
    let last_state =
        json!({"terminated": {"exitCode": 1, "reason": "Error", "message": "app.cfg: unknown colour: two\n"}});
    let container = json!({"name": "app", "image": "app", "imageID": "", "ready": true, "restartCount": 1,
        "state": {"running": {"startedAt": "2026-11-23T00:00:00Z"}}, "lastState": last_state});
    let status = json!({"status": {"containerStatuses": [container]}});
    kitchen.world.patch("pods", &format!("{}/status", new[0]), status).await;
    kitchen.follow(failed).await;
    kitchen.world.event("ConfigMonitor", "CanaryFailed").await;
    assert_eq!(kitchen.world.deletions().unwrap(), 1);
    kitchen
        .run("kubectl patch configmap shop-config --type=merge --patch '{\"data\":{\"app.cfg\":\"one\"}}'")
        .await
        .unwrap();
    kitchen.settled().await;
    assert_eq!(kitchen.world.sent_deletions()[1..], [new[0].clone()], "only those that have come since");
}

#[tokio::test]
async fn whoever_asks_gets_a_restart_without_a_change() {
    let mut kitchen = Kitchen::with(&[(SHOP, 4)]).await;
    let _operator = kitchen.world.operator().await;
    let recipe = Recipe::of("Restart now");
    kitchen.apply(&recipe.yaml[0]).await;
    kitchen.settled().await;
    let before = kitchen.world.pods(SHOP_PODS).await;
    kitchen.follow(&recipe.sessions[0]).await;
    kitchen.world.replaced(SHOP_PODS, &before).await;
    assert_eq!((kitchen.restarts().await, kitchen.world.deletions().unwrap()), (1, 4));
}
