//! What users do: they edit ConfigMaps in every way there is, add, edit, suspend and remove ConfigMonitors, and scale.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use serde_json::{Value, json};
use testenv::{Client, DEADLINE, Kubectl, eventually, is_ready};
use tokio::time::{sleep, timeout};

use crate::world::{World, condition, ensure_settled};

/// So many applications, each with a ConfigMap, pods and a ConfigMonitor of its own.
const APPS: usize = 8;
/// So many of them are Deployments, which are scaled; of the others one is a StatefulSet and one a DaemonSet.
const DEPLOYMENTS: usize = 6;
/// A user who gets no answer does something else after this time.
const PATIENCE: Duration = Duration::from_secs(2);
/// Everything is at rest within this time once nothing is wrong any more.
const CALM_WITHIN: Duration = Duration::from_secs(240);

/// What is done to one of the applications.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Edit {
    Content,
    BackAndForth,
    LabelOnly,
    DeleteAndCreate,
    BinaryData,
    Megabyte,
    Apply,
    AddMonitor,
    RemoveMonitor,
    Suspend,
    Resume,
    QuietPeriod,
    Selector,
    Source,
    Scale,
}

const EDITS: [Edit; 15] = [
    Edit::Content,
    Edit::BackAndForth,
    Edit::LabelOnly,
    Edit::DeleteAndCreate,
    Edit::BinaryData,
    Edit::Megabyte,
    Edit::Apply,
    Edit::AddMonitor,
    Edit::RemoveMonitor,
    Edit::Suspend,
    Edit::Resume,
    Edit::QuietPeriod,
    Edit::Selector,
    Edit::Source,
    Edit::Scale,
];

/// The users.
pub(super) struct Load<'a> {
    world: &'a World,
    client: Client,
    kubectl: Kubectl,
    rng: Rng,
    /// What is applied.
    file: PathBuf,
    count: usize,
    pub(super) done: BTreeMap<Edit, usize>,
}

impl<'a> Load<'a> {
    pub(super) fn new(world: &'a World, kubectl: Kubectl, seed: u64) -> Self {
        let client = world.client.clone();
        let file = kubectl.kubeconfig().with_extension("applied.json");
        Self { world, client, kubectl, rng: Rng::with_seed(seed), file, count: 0, done: BTreeMap::new() }
    }

    /// Creates everything, and waits for the baselines.
    pub(super) async fn set_up(&mut self) {
        for app in 0..APPS {
            let name = name(app);
            self.world.config_map(&name, "first").await;
            let labels = json!({"app": name});
            if app < DEPLOYMENTS {
                self.world.create_deployment(&name, replicas(app), &labels).await;
                continue;
            }
            let resource = if app == DEPLOYMENTS { "statefulsets" } else { "daemonsets" };
            let mut spec = json!({
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "app", "image": "app"}]}},
            });
            if resource == "statefulsets" {
                (spec["replicas"], spec["serviceName"]) = (json!(replicas(app)), json!(name));
            }
            self.world.create(resource, json!({"metadata": {"name": name}, "spec": spec})).await;
        }
        // Nobody means this one, though it is about a ConfigMap that changes.
        self.world.create_deployment("stranger", 2, &json!({"app": "stranger"})).await;
        let bare = json!({"metadata": {"name": "bare", "labels": {"app": name(0)}}, "spec": {"containers": [{"name": "app", "image": "app"}]}});
        self.world.create("pods", bare).await;
        for app in 0..APPS {
            self.world.create("configmonitors", monitor(&name(app), &name(app), &name(app))).await;
        }
        // A second one on the same pods.
        self.world.create("configmonitors", monitor("other", &name(1), &name(0))).await;
        self.calm().await.unwrap();
    }

    /// Does something, and rests for a moment.
    pub(super) async fn step(&mut self) {
        let edit = if self.rng.bool() { Edit::Content } else { EDITS[self.rng.usize(..EDITS.len())] };
        let app = self.rng.usize(..APPS);
        self.count += 1;
        // Who gets an error, or no answer, leaves it at that: it may have been done all the same.
        if let Ok(Ok(())) = timeout(PATIENCE, self.make(edit, app)).await {
            *self.done.entry(edit).or_default() += 1;
        }
        sleep(Duration::from_millis(self.rng.u64(5..150))).await;
    }

    async fn make(&mut self, edit: Edit, app: usize) -> Result<()> {
        let (own, other, count) = (name(app), name(self.rng.usize(..APPS)), self.count);
        let config_map = self.world.path("configmaps", &own);
        let data = |content: String| json!({"data": {"config.cfg": content}});
        match edit {
            Edit::Content => self.patch("configmaps", &own, data(format!("edit {count}"))).await,
            Edit::BackAndForth => {
                let before = self.client.get(&config_map).await?.ok()?["data"]["config.cfg"].clone();
                self.patch("configmaps", &own, data(format!("forth {count}"))).await?;
                sleep(Duration::from_millis(self.rng.u64(..1500))).await;
                self.patch("configmaps", &own, json!({"data": {"config.cfg": before}})).await
            }
            Edit::LabelOnly => {
                let labels = json!({"metadata": {"labels": {"edit": count.to_string()}}});
                self.patch("configmaps", &own, labels).await
            }
            Edit::DeleteAndCreate => {
                self.client.delete(&config_map).await?.ok()?;
                sleep(Duration::from_millis(self.rng.u64(..500))).await;
                let object = json!({"metadata": {"name": own}, "data": {"config.cfg": format!("anew {}", count / 2)}});
                self.create("configmaps", object).await
            }
            Edit::BinaryData => {
                let blob = ["AAAA", "AAEC", "/w=="][self.rng.usize(..3)];
                self.patch("configmaps", &own, json!({"binaryData": {"blob": blob}})).await
            }
            Edit::Megabyte => self.patch("configmaps", &own, data(format!("{count:09}").repeat(100_000))).await,
            Edit::Apply => {
                let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": own},
                    "data": {"config.cfg": format!("applied {count}")}});
                std::fs::write(&self.file, object.to_string())?;
                let args = ["apply", "-n", &self.world.namespace, "-f", self.file.to_str().unwrap_or_default()];
                self.kubectl.ok(&args).await.map(drop)
            }
            Edit::AddMonitor => {
                self.create("configmonitors", monitor(&format!("more-{}", count % 4), &own, &other)).await
            }
            Edit::RemoveMonitor => {
                let path = self.world.path("configmonitors", &format!("more-{}", count % 4));
                self.client.delete(&path).await?.ok().map(drop)
            }
            Edit::Suspend => self.patch_spec(&own, json!({"suspend": true})).await,
            Edit::Resume => self.patch_spec(&own, json!({"suspend": null})).await,
            Edit::QuietPeriod => {
                let seconds = self.rng.u64(..3);
                self.patch_spec(&own, json!({"quietPeriodSeconds": seconds})).await
            }
            Edit::Selector => self.patch_spec(&own, json!({"podSelector": {"app": other}})).await,
            Edit::Source => self.patch_spec(&own, json!({"configMap": other})).await,
            Edit::Scale => {
                let replicas = json!({"spec": {"replicas": self.rng.u64(..5)}});
                self.patch("deployments", &name(app % DEPLOYMENTS), replicas).await
            }
        }
    }

    async fn create(&self, resource: &str, object: Value) -> Result<()> {
        self.client.create(&self.world.collection(resource), &object).await?.ok().map(drop)
    }

    async fn patch(&self, resource: &str, name: &str, patch: Value) -> Result<()> {
        self.client.merge_patch(&self.world.path(resource, name), &patch).await?.ok().map(drop)
    }

    async fn patch_spec(&self, name: &str, patch: Value) -> Result<()> {
        self.patch("configmonitors", name, json!({"spec": patch})).await
    }

    /// Everything is made as it was meant to be, but for what the ConfigMaps hold.
    pub(super) async fn heal(&self) -> Result<()> {
        eventually("everything is as it was meant to be", DEADLINE, async || self.put_right().await).await?;
        self.calm().await
    }

    async fn put_right(&self) -> Result<()> {
        for app in 0..APPS {
            let name = name(app);
            if self.client.get(&self.world.path("configmaps", &name)).await?.status == 404 {
                self.create("configmaps", json!({"metadata": {"name": name}, "data": {}})).await?;
            }
            let spec = monitor(&name, &name, &name)["spec"].clone();
            let spec =
                json!({"spec": {"configMap": spec["configMap"], "podSelector": spec["podSelector"], "suspend": null}});
            self.patch("configmonitors", &name, spec).await?;
            if app < DEPLOYMENTS {
                self.patch("deployments", &name, json!({"spec": {"replicas": replicas(app)}})).await?;
            }
        }
        Ok(())
    }

    /// Every ConfigMap gets new content, and every pod must be another one.
    pub(super) async fn edit_all(&mut self) -> Result<()> {
        let before = self.uids().await?;
        for app in 0..APPS {
            self.patch("configmaps", &name(app), json!({"data": {"config.cfg": "last"}})).await?;
        }
        self.calm().await?;
        let after = self.uids().await?;
        let left: Vec<_> = before.iter().filter(|uid| after.contains(uid)).collect();
        ensure!(left.is_empty(), "an edit after the end did not replace {left:?}");
        Ok(())
    }

    async fn uids(&self) -> Result<Vec<String>> {
        let pods = self.client.list(&self.world.collection("pods")).await?;
        let meant = pods.iter().filter(|pod| {
            !pod["metadata"]["ownerReferences"].is_null() && pod["metadata"]["labels"]["app"] != "stranger"
        });
        Ok(meant.map(|pod| pod["metadata"]["uid"].to_string()).collect())
    }

    /// Waits until every ConfigMonitor says that pods run with what the ConfigMap holds now, and every pod is Ready.
    async fn calm(&self) -> Result<()> {
        let wanted: usize = (0..=DEPLOYMENTS).map(replicas).sum::<usize>() + 1 + 2 + 1;
        eventually("everything is at rest", CALM_WITHIN, async || {
            let list = async |resource| self.client.list(&self.world.collection(resource)).await;
            let config_maps = list("configmaps").await?;
            for monitor in list("configmonitors").await? {
                let source = config_maps.iter().find(|map| map["metadata"]["name"] == monitor["spec"]["configMap"]);
                let name = &monitor["metadata"]["name"];
                let source = source.with_context(|| format!("{name}: no ConfigMap"))?;
                let version = source["metadata"]["resourceVersion"].as_str();
                ensure_settled(&monitor, "UpToDate", version).with_context(|| name.to_string())?;
                ensure!(condition(&monitor, "Ready")["status"] == "True", "{name}: not Ready");
                ensure!(monitor["status"]["restart"].is_null(), "{name}: a restart is left");
            }
            let pods = list("pods").await?;
            let ready = pods.iter().filter(|pod| is_ready(pod)).count();
            ensure!(
                ready == wanted && pods.len() == wanted,
                "{ready} of {} pods are Ready, {wanted} are wanted",
                pods.len()
            );
            Ok(())
        })
        .await
    }
}

fn name(app: usize) -> String {
    format!("app-{app}")
}

fn replicas(app: usize) -> usize {
    app % 3 + 1
}

/// A ConfigMonitor for the pods of one application and the ConfigMap of another.
fn monitor(name: &str, pods: &str, config_map: &str) -> Value {
    let spec = json!({"configMap": config_map, "podSelector": {"app": pods}, "quietPeriodSeconds": name.bytes().map(u64::from).sum::<u64>() % 3});
    json!({"apiVersion": "magalix.com/v1", "kind": "ConfigMonitor", "metadata": {"name": name}, "spec": spec})
}
