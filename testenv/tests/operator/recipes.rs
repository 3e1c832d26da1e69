//! The recipes about when and how pods are restarted: what docs/recipes.md has is applied, its commands are run, and they print what it says.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use testenv::fixture::{condition, file};
use testenv::pages::{Section, Step, blocks};
use testenv::{DEADLINE, Operator, eventually};
use tokio::time::sleep;

use crate::reader::Reader;
use crate::test_namespace::{TestNamespace, control_plane};

const SHOP: &str = "shop";
const SHOP_PODS: &str = "app=shop";
/// The 29th of February.
const RARELY: &str = "0 8 29 2 *";

/// Returns a ConfigMonitor of a page. Where the page shows only the spec, it is that of `shop`.
fn whole(yaml: &str) -> String {
    let head = "apiVersion: magalix.com/v1\nkind: ConfigMonitor\nmetadata:\n  name: shop\n";
    if yaml.starts_with("spec:") { format!("{head}{yaml}") } else { yaml.to_owned() }
}

/// A namespace with an operator and what a recipe speaks of, and somebody who follows the recipe.
pub(crate) struct Kitchen {
    pub(crate) operator: Operator,
    pub(crate) ns: TestNamespace,
    pub(crate) reader: Reader,
}

impl Kitchen {
    /// A namespace with the ConfigMap `shop-config` and these Deployments.
    pub(crate) async fn with(deployments: &[(&str, usize)]) -> Self {
        let ns = TestNamespace::new().await;
        ns.create("configmaps", json!({"metadata": {"name": "shop-config"}, "data": {"app.cfg": "one"}})).await;
        for (name, replicas) in deployments {
            ns.create_deployment(name, *replicas, &json!({"app": name, "tier": "backend"})).await;
        }
        ns.ready_pods("tier=backend", deployments.iter().map(|(_, replicas)| replicas).sum()).await;
        let reader = Reader::new(control_plane().await, &ns.namespace).await;
        Self { operator: ns.operator().await, ns, reader }
    }

    /// The same, where the first ConfigMonitor of this recipe has its baseline.
    async fn of(recipe: &Section, deployments: &[(&str, usize)]) -> Self {
        let mut kitchen = Self::with(deployments).await;
        let monitor = whole(&recipe.yaml[0]);
        kitchen.reader.apply(&monitor).await;
        let name = monitor.lines().find_map(|line| line.strip_prefix("  name: ")).unwrap();
        kitchen.ns.settled(name, "UpToDate").await;
        kitchen
    }

    async fn run(&mut self, line: &str) -> String {
        self.reader.run(line).await.unwrap()
    }

    async fn follow(&mut self, steps: impl IntoIterator<Item = &Step>) {
        self.reader.follow(steps).await;
    }

    async fn edit(&mut self, content: &str) {
        let patch = json!({"data": {"app.cfg": content}});
        self.run(&format!("kubectl patch configmap shop-config --type=merge --patch '{patch}'")).await;
    }

    async fn change(&self, spec: Value) {
        self.ns.patch("configmonitors", SHOP, json!({"spec": spec})).await;
    }

    async fn settled(&self) -> Value {
        self.ns.settled(SHOP, "UpToDate").await
    }

    async fn restarts(&self) -> usize {
        self.settled().await["status"]["history"].as_array().map_or(0, Vec::len)
    }
}

#[tokio::test]
async fn every_config_monitor_of_the_docs_is_accepted() {
    let mut kitchen = Kitchen::with(&[(SHOP, 1)]).await;
    let pages = fs::read_dir(file("docs")).unwrap().map(|page| page.unwrap().path());
    let pages = pages.filter(|page| page.extension().is_some_and(|extension| extension == "md"));
    let docs: Vec<String> =
        pages.chain([file("README.md").into()]).map(|page| fs::read_to_string(page).unwrap()).collect();
    let blocks = blocks(&docs.concat(), "yaml").into_iter().filter(|block| block.contains("podSelector"));
    let mut accepted = 0;
    for block in blocks {
        let yaml = whole(&block);
        kitchen.reader.apply(&yaml).await;
        for monitor in kitchen.ns.client.list(&kitchen.ns.collection("configmonitors")).await.unwrap() {
            let name = monitor["metadata"]["name"].as_str().unwrap();
            let reason = eventually(&format!("something is said about\n{yaml}"), DEADLINE, async || {
                let monitor = kitchen.ns.get("configmonitors", name).await;
                let reason = condition(&monitor, "Ready")["reason"].as_str().unwrap_or_default().to_owned();
                ensure!(
                    !reason.is_empty() && monitor["status"]["observedGeneration"] == monitor["metadata"]["generation"]
                );
                Ok(reason)
            })
            .await
            .unwrap();
            assert_ne!(reason, "InvalidSpec", "{yaml}");
            kitchen.ns.delete("configmonitors", name).await;
            accepted += 1;
        }
    }
    assert!(accepted >= 12, "{accepted}");
    let budgets = Section::of("docs/recipes.md", "PodDisruptionBudgets").unwrap();
    kitchen.follow(budgets.steps()).await;
}

#[tokio::test]
async fn by_day_a_change_waits_for_the_nightly_window_and_without_windows_a_revert_replaces_only_bad_pods() {
    let recipe = Section::of("docs/recipes.md", "A nightly window").unwrap();
    let mut kitchen = Kitchen::of(&recipe, &[(SHOP, 4)]).await;
    kitchen.reader.apply(&recipe.yaml[0].replace("0 2 * * *", RARELY)).await;
    kitchen.follow(&recipe.sessions[0]).await;
    kitchen.change(json!({"windows": [{"schedule": "* * * * *", "durationSeconds": 60}]})).await;
    kitchen.follow(&recipe.sessions[1]).await;
    assert_eq!((kitchen.restarts().await, kitchen.ns.deletions().unwrap()), (1, 4));

    // Bad content, which one pod has when the day begins.
    sleep(Duration::from_secs(3)).await;
    let before = kitchen.ns.pods(SHOP_PODS).await;
    kitchen.change(json!({"canary": {"pods": 1, "bakeSeconds": 3600}})).await;
    kitchen.edit("bad").await;
    let is_bad = |(pod, _): &(String, _)| !before.contains_key(pod);
    let bad = eventually("one pod has the bad content", DEADLINE, async || {
        let pods = kitchen.ns.pods(SHOP_PODS).await;
        let mut bad = pods.into_iter().filter(is_bad).map(|(pod, _)| pod);
        bad.next().with_context(|| "every pod is old")
    });
    let bad = bad.await.unwrap();
    kitchen.change(json!({"windows": [{"schedule": RARELY, "durationSeconds": 60}]})).await;
    kitchen.edit("two").await;
    kitchen.ns.settled(SHOP, "OutsideWindow").await;
    assert_eq!(kitchen.ns.deletions().unwrap(), 5);
    kitchen.follow(&recipe.others).await;
    kitchen.settled().await;
    assert_eq!(kitchen.ns.sent_deletions()[5..], [bad]);
}

#[tokio::test]
async fn in_a_change_freeze_nothing_restarts_and_who_asks_gets_past_a_window_but_not_past_suspend() {
    let recipe = Section::of("docs/recipes.md", "A change freeze").unwrap();
    let mut kitchen = Kitchen::of(&recipe, &[(SHOP, 2)]).await;
    kitchen.reader.apply(&whole(&recipe.yaml[0]).replace("0 8 4 1 *", RARELY).replace("28512000", "60")).await;
    let [suspend, lift] = &recipe.sessions[..] else { panic!("two blocks of commands") };
    kitchen.follow(suspend).await;
    let request = Section::of("docs/recipes.md", "Restart now").unwrap();
    kitchen.follow(&request.sessions[0][..2]).await;
    kitchen.follow(&lift[..2]).await;
    assert_eq!(kitchen.ns.deletions().unwrap(), 0);
    kitchen.follow(&lift[2..3]).await;
    assert_eq!((kitchen.restarts().await, kitchen.ns.deletions().unwrap()), (1, 2));
    kitchen.edit("three").await;
    kitchen.follow(&lift[3..]).await;
    kitchen.follow(request.steps()).await;
    assert_eq!((kitchen.restarts().await, kitchen.ns.deletions().unwrap()), (2, 4));
}

#[tokio::test]
async fn a_fleet_has_one_budget() {
    let deployments = [(SHOP, 2), ("billing", 2)];
    let recipe = Section::of("docs/recipes.md", "A fleet that must not restart together").unwrap();
    let mut kitchen = Kitchen::of(&recipe, &deployments).await;
    let began = Instant::now();
    kitchen.follow(&recipe.sessions[0]).await;
    // The next one may go after the ten seconds of the page.
    let (deleted, most) = (kitchen.ns.deletions().unwrap(), 1 + began.elapsed().as_secs() / 10);
    assert!(deleted > 0 && deleted as u64 <= most, "{deleted} of at most {most}");
    kitchen.ns.patch("configmonitors", "fleet", json!({"spec": {"minReadySeconds": 0}})).await;
    kitchen.ns.settled("fleet", "UpToDate").await;
    assert_eq!(kitchen.ns.deletions().unwrap(), 4);
}

#[tokio::test]
async fn the_first_commit_restarts_at_once_and_those_of_the_next_hour_together() {
    let recipe = Section::of("docs/recipes.md", "A pipeline with ten commits an hour").unwrap();
    let mut kitchen = Kitchen::of(&recipe, &[(SHOP, 4)]).await;
    kitchen.follow(&recipe.sessions[0]).await;
    kitchen.edit("four").await;
    kitchen.follow(&recipe.others).await;
    assert_eq!((kitchen.restarts().await, kitchen.ns.deletions().unwrap()), (2, 8));
}

#[tokio::test]
async fn what_an_application_writes_restarts_nothing_or_less_and_less_often() {
    let recipe = Section::of("docs/recipes.md", "An application that writes its own ConfigMap").unwrap();
    let mut kitchen = Kitchen::of(&recipe, &[(SHOP, 1)]).await;
    let write = |number: usize| {
        let patch = json!({"data": {"last-start": number.to_string()}});
        format!("kubectl patch configmap shop-config --field-manager=shop --type=merge --patch '{patch}'")
    };
    let other = json!({"configMap": "other", "podSelector": {"app": "none"}});
    kitchen.ns.config_map("other", "one").await;
    kitchen.ns.create_monitor("other", other).await;
    kitchen.run(&write(0)).await;
    // The watch shows it after the other.
    kitchen.ns.edit("other", "two").await;
    kitchen.ns.settled("other", "NoPodsSelected").await;
    let status = kitchen.ns.get("configmonitors", SHOP).await["status"].clone();
    assert!(status["conditions"][0]["reason"] == "UpToDate" && status["history"].is_null(), "{status}");
    kitchen.change(json!({"keys": null, "quietPeriodSeconds": 0})).await;
    for number in 1..=5 {
        assert_eq!(kitchen.restarts().await, number - 1);
        kitchen.run(&write(number)).await;
    }
    assert_eq!(kitchen.restarts().await, 5);
    kitchen.run(&write(6)).await;
    kitchen.follow(&recipe.sessions[0]).await;
    kitchen.ns.event("ConfigMonitor", "RestartBackOff").await;
    kitchen.change(json!({"minIntervalSeconds": 1})).await;
    assert_eq!(kitchen.restarts().await, 6);
}

#[tokio::test]
async fn one_pod_goes_first_and_when_it_fails_the_others_stay() {
    let recipe = Section::of("docs/recipes.md", "One pod first").unwrap();
    let mut kitchen = Kitchen::of(&recipe, &[(SHOP, 4)]).await;
    // A pod that has started up to a second before the content left counts as one that may have read it.
    sleep(Duration::from_secs(3)).await;
    let before = kitchen.ns.pods(SHOP_PODS).await;
    let [bakes, failed] = &recipe.sessions[..] else { panic!("two blocks of commands") };
    kitchen.follow(bakes).await;
    let after = kitchen.ns.ready_pods(SHOP_PODS, 4).await;
    let new: Vec<_> = after.keys().filter(|pod| !before.contains_key(*pod)).collect();
    assert_eq!(new.len(), 1);
    // What a kubelet says of a container that has crashed.
    let last_state =
        json!({"terminated": {"exitCode": 1, "reason": "Error", "message": "app.cfg: unknown colour: two\n"}});
    let container = json!({"name": "app", "image": "app", "imageID": "", "ready": true, "restartCount": 1,
        "state": {"running": {"startedAt": "2026-11-23T00:00:00Z"}}, "lastState": last_state});
    let status = json!({"status": {"containerStatuses": [container]}});
    kitchen.ns.patch("pods", &format!("{}/status", new[0]), status).await;
    kitchen.follow(failed).await;
    kitchen.ns.event("ConfigMonitor", "CanaryFailed").await;
    assert_eq!(kitchen.ns.deletions().unwrap(), 1);
    kitchen.edit("one").await;
    kitchen.settled().await;
    assert_eq!(kitchen.ns.sent_deletions()[1..], [new[0].clone()], "only those that have come since");
}

#[tokio::test]
async fn whoever_asks_gets_a_restart_without_a_change() {
    let recipe = Section::of("docs/recipes.md", "Restart now").unwrap();
    let mut kitchen = Kitchen::with(&[(SHOP, 4)]).await;
    kitchen.ns.create_monitor(SHOP, json!({"configMap": "shop-config", "podSelector": {"app": SHOP}})).await;
    kitchen.settled().await;
    let before = kitchen.ns.pods(SHOP_PODS).await;
    kitchen.follow(recipe.steps()).await;
    kitchen.follow(Section::of("docs/recipes.md", "Which of them for which wish").unwrap().steps()).await;
    kitchen.ns.replaced(SHOP_PODS, &before).await;
    assert_eq!((kitchen.restarts().await, kitchen.ns.deletions().unwrap()), (1, 4));
}

#[tokio::test]
async fn a_pipeline_waits_for_every_edit_of_the_file_or_fails_and_says_why() {
    let mut kitchen = Kitchen::with(&[(SHOP, 2)]).await;
    let section = Section::of("docs/recipes.md", "Wait in CI").unwrap();
    let secret = json!({"metadata": {"name": "shop-tls"}, "stringData": {"tls.key": "one"}});
    kitchen.ns.create("secrets", secret).await;
    let sources = json!([{"configMap": {"name": "shop-config"}}, {"secret": {"name": "shop-tls"}}]);
    kitchen.ns.create_monitor(SHOP, json!({"configMap": null, "sources": sources, "podSelector": {"app": SHOP}})).await;
    kitchen.ns.settled(SHOP, "Forbidden").await;
    let failure = kitchen.reader.run("kubectl cmon wait shop").await.unwrap_err().to_string();
    assert!(failure.contains("grant the operator the right to"), "{failure}");
    kitchen.run("kubectl apply -f configmonitor-operator/deploy/secrets/role/role.yml").await;
    kitchen.run("kubectl wait configmonitor/shop --for=condition=Ready --timeout=10m").await;
    let before = kitchen.ns.pods(SHOP_PODS).await;
    let file = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shop-config}\ndata: {app.cfg: two}\n---\n\
                apiVersion: v1\nkind: Secret\nmetadata: {name: shop-tls}\nstringData: {tls.key: two}\n";
    fs::write(kitchen.reader.file("shop.yml"), file).unwrap();
    kitchen.operator.process().pause().unwrap();
    let goes_on = async {
        eventually("the file is applied", DEADLINE, async || {
            let config_map = kitchen.ns.get("configmaps", "shop-config").await;
            ensure!(config_map["data"]["app.cfg"] == "two", "{config_map}");
            Ok(())
        })
        .await
        .unwrap();
        // Ready is that of the earlier content, and ends nothing.
        sleep(Duration::from_secs(3)).await;
        kitchen.operator.process().resume().unwrap();
    };
    tokio::join!(kitchen.reader.follow(section.steps()), goes_on);
    let after = kitchen.ns.pods(SHOP_PODS).await;
    assert!(after.len() == 2 && after.keys().all(|pod| !before.contains_key(pod)), "{after:?}");
}
