//! The users: they edit ConfigMaps and Secrets in every possible way, add, edit, suspend and remove ConfigMonitors,
//! scale, and protect pods by PodDisruptionBudgets.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use configmonitor_operator::monitor::content::{ContentHash, Kind};
use fastrand::Rng;
use serde_json::{Value, json};
use testenv::{Client, DEADLINE, Kubectl, eventually, is_ready};
use tokio::time::{sleep, timeout};

use super::secrets::{PLANTED, planted};
use crate::nightly::chaos::timeline::REQUEST;
use crate::test_namespace::TestNamespace;
use testenv::fixture::{condition, ensure_settled};

/// The number of applications, each with a ConfigMap, pods and a ConfigMonitor of its own.
const APPS: usize = 8;
/// The number of Deployments among them, which are scaled; of the others one is a StatefulSet and one a DaemonSet.
const DEPLOYMENTS: usize = 6;
/// The applications that also have a Secret, and a ConfigMonitor of both.
const WITH_SECRET: [usize; 3] = [1, 3, 7];
/// The steps of a phase: only ConfigMaps are edited, then only Secrets, then only their labels. A restart for one would
/// hide a lost change of the other.
const PHASE: usize = 80;
/// The fields of the spec that users edit, and that `heal` removes unless they are part of the intended spec.
const EDITED: [&str; 4] = ["maxUnavailable", "maxSurge", "deletionPolicy", "suspend"];
/// A user who gets no answer goes on after this time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Everything settles within this time after the last fault.
const SETTLED_WITHIN: Duration = Duration::from_secs(600);

/// Defines the edits of an application: those of a ConfigMap or a Secret, and the others.
macro_rules! edits {
    ([$($of_source:ident,)+], [$($other:ident,)+]) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(super) enum Edit {
            $($of_source,)+
            $($other,)+
        }
        const OF_SOURCE: &[Edit] = &[$(Edit::$of_source,)+];
        const EDITS: &[Edit] = &[$(Edit::$of_source,)+ $(Edit::$other,)+];
    };
}

edits!(
    [Content, BackAndForth, LabelOnly, DeleteAndCreate, BinaryData, Megabyte, OtherKey, Apply,],
    [AddMonitor, RemoveMonitor, Suspend, Resume, MaxUnavailable, DeletionPolicy, MaxSurge, Request, Disruption, Scale,]
);

pub(super) struct Load<'a> {
    ns: &'a TestNamespace,
    client: Client,
    kubectl: Kubectl,
    rng: Rng,
    /// The file of the last `kubectl apply`.
    file: PathBuf,
    count: usize,
    pub(super) done: BTreeMap<Edit, usize>,
    pub(super) of_secrets: BTreeMap<Edit, usize>,
}

impl<'a> Load<'a> {
    pub(super) fn new(ns: &'a TestNamespace, kubectl: Kubectl, seed: u64) -> Self {
        let client = ns.client.clone();
        let file = kubectl.kubeconfig().with_extension("applied.json");
        Self {
            ns,
            client,
            kubectl,
            rng: Rng::with_seed(seed),
            file,
            count: 0,
            done: BTreeMap::new(),
            of_secrets: BTreeMap::new(),
        }
    }

    /// Creates everything, and waits for the baselines.
    pub(super) async fn set_up(&mut self) {
        for app in 0..APPS {
            let name = name(app);
            self.ns.config_map(&name, "first").await;
            if has_secret(app) {
                self.ns.create("secrets", with_data("secrets", &name, "first")).await;
            }
            let labels = json!({"app": name, "track": track(app), "of": "chaos"});
            if app < DEPLOYMENTS {
                self.ns.create_deployment(&name, replicas(app), &labels).await;
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
            self.ns.create(resource, json!({"metadata": {"name": name}, "spec": spec})).await;
        }
        // No ConfigMonitor selects these pods, though they belong to a ConfigMap that changes.
        self.ns.create_deployment("stranger", 2, &json!({"app": "stranger", "of": "chaos"})).await;
        let bare = json!({"metadata": {"name": "bare", "labels": {"app": name(0)}}, "spec": {"containers": [{"name": "app", "image": "app"}]}});
        self.ns.create("pods", bare).await;
        for app in 0..APPS {
            if is_protected(app) {
                self.ns.create("poddisruptionbudgets", disruption_budget(app)).await;
            }
            self.ns.create("configmonitors", monitor(&name(app), intended(app))).await;
        }
        // A second ConfigMonitor of the same pods, and one of the pods of two applications.
        let second = json!({"configMap": name(0), "podSelector": {"app": name(1)}, "maxUnavailable": 1});
        self.ns.create("configmonitors", monitor("second", second)).await;
        let both = json!([{"key": "app", "operator": "In", "values": [name(2), name(5)]}]);
        let wide = json!({"configMap": name(2), "podSelector": {"of": "chaos"}, "podSelectorExpressions": both,
            "maxUnavailable": "50%"});
        self.ns.create("configmonitors", monitor("wide", wide)).await;
        self.wait_until_settled().await.unwrap();
    }

    pub(super) async fn step(&mut self) {
        let app = self.rng.usize(..APPS);
        let mut edit = match self.rng.u8(..4) {
            0 | 1 => Edit::Content,
            2 if has_secret(app) => OF_SOURCE[self.rng.usize(..OF_SOURCE.len())],
            _ => EDITS[self.rng.usize(..EDITS.len())],
        };
        let mut resource = "configmaps";
        if has_secret(app) {
            let phase = (self.count / PHASE + app / 3) % 3;
            resource = [resource, "secrets", resources(app)[self.rng.usize(..2)]][phase];
            if phase == 2 && OF_SOURCE.contains(&edit) {
                edit = Edit::LabelOnly;
            }
        }
        self.count += 1;
        // An edit without a successful answer is not repeated: it may have been carried out.
        if let Ok(Ok(())) = timeout(ANSWER_TIMEOUT, self.make(edit, app, resource)).await {
            *self.done.entry(edit).or_default() += 1;
            if OF_SOURCE.contains(&edit) && resource == "secrets" {
                *self.of_secrets.entry(edit).or_default() += 1;
            }
        }
        sleep(Duration::from_millis(self.rng.u64(5..150))).await;
    }

    async fn make(&mut self, edit: Edit, app: usize, resource: &str) -> Result<()> {
        let (own, other, count) = (name(app), name(self.rng.usize(..APPS)), self.count);
        let source = self.ns.path(resource, &own);
        let data = |content: String| with_data(resource, &own, &content);
        match edit {
            Edit::Content => self.patch(resource, &own, data(format!("edit {count}"))).await,
            Edit::BackAndForth => {
                let before = self.client.get(&source).await?.ok()?["data"]["config.cfg"].clone();
                self.patch(resource, &own, data(format!("forth {count}"))).await?;
                sleep(Duration::from_millis(self.rng.u64(..1500))).await;
                self.patch(resource, &own, json!({"data": {"config.cfg": before}})).await
            }
            Edit::LabelOnly => {
                let labels = json!({"metadata": {"labels": {"edit": count.to_string()}}});
                self.patch(resource, &own, labels).await
            }
            Edit::DeleteAndCreate => {
                let before = self.client.get(&source).await?.ok()?["data"].clone();
                self.client.delete(&source).await?.ok()?;
                sleep(Duration::from_millis(self.rng.u64(..500))).await;
                let mut object = data(format!("anew {count}"));
                if self.rng.bool() {
                    object["data"] = before;
                }
                self.create(resource, object).await
            }
            Edit::BinaryData => {
                let blob: &[u8] = [&[0, 0, 0][..], &[0, 1, 2], &[255]][self.rng.usize(..3)];
                let blob = match resource {
                    "secrets" => json!({"data": {"blob": planted(blob)}}),
                    _ => json!({"binaryData": {"blob": BASE64.encode(blob)}}),
                };
                self.patch(resource, &own, blob).await
            }
            Edit::Megabyte => self.patch(resource, &own, data(format!("{count:09}").repeat(100_000))).await,
            Edit::OtherKey => {
                let other = json!({"data": {"other.cfg": value(resource, &format!("edit {count}"))}});
                self.patch(resource, &own, other).await
            }
            Edit::Apply => {
                let mut object = data(format!("applied {count}"));
                object["apiVersion"] = json!("v1");
                object["kind"] = json!(if resource == "secrets" { "Secret" } else { "ConfigMap" });
                std::fs::write(&self.file, object.to_string())?;
                let args = ["apply", "-n", &self.ns.namespace, "-f", self.file.to_str().unwrap_or_default()];
                self.kubectl.ok(&args).await.map(drop)
            }
            Edit::AddMonitor => {
                let mut spec = json!({"configMap": other, "podSelector": {"app": own}});
                if has_secret(app) && self.rng.bool() {
                    (spec["configMap"], spec["sources"]) = (Value::Null, both(&own));
                }
                let is_budgeted = self.rng.u8(..4) > 0;
                spec["maxUnavailable"] = if is_budgeted { self.max_unavailable() } else { json!("100%") };
                self.create("configmonitors", monitor(&format!("more-{}", count % 4), spec)).await
            }
            Edit::RemoveMonitor => {
                let path = self.ns.path("configmonitors", &format!("more-{}", count % 4));
                self.client.delete(&path).await?.ok().map(drop)
            }
            Edit::Suspend => self.patch_spec(&own, json!({"suspend": true})).await,
            Edit::Resume => self.patch_spec(&own, json!({"suspend": null})).await,
            Edit::MaxUnavailable => {
                let some = [Value::Null, json!("100%"), self.max_unavailable(), self.max_unavailable()];
                let most = &some[self.rng.usize(..4)];
                self.patch_spec(&own, json!({"maxUnavailable": most})).await
            }
            Edit::DeletionPolicy => {
                let policy = ["Delete", "Evict"][self.rng.usize(..2)];
                self.patch_spec(&own, json!({"deletionPolicy": policy})).await
            }
            Edit::MaxSurge => {
                let surge = [json!(1), json!("50%"), Value::Null][self.rng.usize(..3)].clone();
                let most = if surge.is_null() || self.rng.bool() { json!(1) } else { Value::Null };
                self.patch_spec(&own, json!({"maxSurge": surge, "maxUnavailable": most})).await
            }
            Edit::Request => {
                let annotations = json!({REQUEST: format!("edit {count}")});
                self.patch("configmonitors", &own, json!({"metadata": {"annotations": annotations}})).await
            }
            Edit::Disruption => {
                // A PodDisruptionBudget cannot know the desired pods of a DaemonSet, and allows no eviction.
                let app = app % (DEPLOYMENTS + 1);
                if self.client.delete(&self.ns.path("poddisruptionbudgets", &name(app))).await?.status == 404 {
                    self.create("poddisruptionbudgets", disruption_budget(app)).await?;
                }
                Ok(())
            }
            Edit::Scale => {
                let replicas = json!({"spec": {"replicas": self.rng.u64(..5)}});
                self.patch("deployments", &name(app % DEPLOYMENTS), replicas).await
            }
        }
    }

    fn max_unavailable(&mut self) -> Value {
        [json!(1), json!(2), json!("50%")][self.rng.usize(..3)].clone()
    }

    async fn create(&self, resource: &str, object: Value) -> Result<()> {
        self.client.create(&self.ns.collection(resource), &object).await?.ok().map(drop)
    }

    async fn patch(&self, resource: &str, name: &str, patch: Value) -> Result<()> {
        self.client.merge_patch(&self.ns.path(resource, name), &patch).await?.ok().map(drop)
    }

    async fn patch_spec(&self, name: &str, patch: Value) -> Result<()> {
        self.patch("configmonitors", name, json!({"spec": patch})).await
    }

    /// Restores every object except for the content of the sources.
    pub(super) async fn heal(&self) -> Result<()> {
        eventually("everything is as it was intended to be", DEADLINE, async || self.put_right().await).await?;
        self.wait_until_settled().await
    }

    async fn put_right(&self) -> Result<()> {
        for app in 0..APPS {
            let name = name(app);
            for resource in resources(app) {
                if self.client.get(&self.ns.path(resource, &name)).await?.status == 404 {
                    self.create(resource, json!({"metadata": {"name": name}, "data": {}})).await?;
                }
            }
            let mut spec = intended(app);
            for field in EDITED {
                // Null removes the field.
                spec[field] = spec[field].take();
            }
            self.patch_spec(&name, spec).await?;
            // Always a new one: an interrupted eviction counts for two minutes in the old one.
            let budget = self.client.delete(&self.ns.path("poddisruptionbudgets", &name)).await?;
            ensure!(matches!(budget.status, 200 | 404), "the PodDisruptionBudget {name} stays: {}", budget.body);
            if is_protected(app) {
                self.create("poddisruptionbudgets", disruption_budget(app)).await?;
            }
            if app < DEPLOYMENTS {
                self.patch("deployments", &name, json!({"spec": {"replicas": replicas(app)}})).await?;
            }
        }
        Ok(())
    }

    /// Edits a source of every application, and checks that every pod is replaced.
    pub(super) async fn edit_all(&mut self) -> Result<()> {
        let before = self.uids().await?;
        for app in 0..APPS {
            let name = name(app);
            if app == WITH_SECRET[0] {
                self.patch("secrets", &name, with_data("secrets", &name, "last")).await?;
            } else if has_secret(app) {
                // The same data in another Secret.
                let data = self.client.get(&self.ns.path("secrets", &name)).await?.ok()?["data"].clone();
                self.client.delete(&self.ns.path("secrets", &name)).await?.ok()?;
                self.create("secrets", json!({"metadata": {"name": name}, "data": data})).await?;
            } else {
                self.patch("configmaps", &name, with_data("configmaps", &name, "last")).await?;
            }
        }
        self.wait_until_settled().await?;
        let after = self.uids().await?;
        let left: Vec<_> = before.iter().filter(|uid| after.contains(uid)).collect();
        ensure!(left.is_empty(), "an edit after the end did not replace {left:?}");
        Ok(())
    }

    async fn uids(&self) -> Result<Vec<String>> {
        let pods = self.client.list(&self.ns.collection("pods")).await?;
        let intended = pods.iter().filter(|pod| {
            !pod["metadata"]["ownerReferences"].is_null() && pod["metadata"]["labels"]["app"] != "stranger"
        });
        Ok(intended.map(|pod| pod["metadata"]["uid"].to_string()).collect())
    }

    /// Waits until every ConfigMonitor reports the current content of its sources, and every pod is Ready.
    async fn wait_until_settled(&self) -> Result<()> {
        let desired: usize = (0..=DEPLOYMENTS).map(replicas).sum::<usize>() + 1 + 2 + 1;
        eventually("everything is at rest", SETTLED_WITHIN, async || {
            let list = async |resource| self.client.list(&self.ns.collection(resource)).await;
            let (config_maps, secrets) = (list("configmaps").await?, list("secrets").await?);
            for monitor in list("configmonitors").await? {
                let name = &monitor["metadata"]["name"];
                let (mut hashes, mut has_all) = (Vec::new(), true);
                for named in sources(&monitor["spec"]) {
                    let (kind, objects, named) = match named.get("secret") {
                        Some(secret) => (Kind::Secret, &secrets, secret),
                        None => (Kind::ConfigMap, &config_maps, &named["configMap"]),
                    };
                    let source = objects.iter().find(|object| object["metadata"]["name"] == named["name"]);
                    let source = source.with_context(|| format!("{name}: {named} is missing"))?;
                    let keys: Option<_> = serde_json::from_value(named["keys"].clone())?;
                    let object = serde_json::from_value(source.clone())?;
                    hashes.push(ContentHash::of(kind, &object, keys.as_ref()).to_string());
                    let exists = |key: &Value| {
                        ["data", "binaryData"].iter().any(|data| source[data].get(key.as_str().unwrap()).is_some())
                    };
                    has_all &= named["keys"].as_array().is_none_or(|keys| keys.iter().all(exists));
                }
                let reason = if has_all { "UpToDate" } else { "KeyNotFound" };
                let hashes = hashes.iter().map(|hash| Some(&**hash));
                ensure_settled(&monitor, reason, "hash", hashes).with_context(|| name.to_string())?;
                let is_ready = condition(&monitor, "Ready")["status"] == "True";
                ensure!(is_ready == has_all, "{name}: Ready is {is_ready}");
                ensure!(monitor["status"]["restart"].is_null(), "{name}: a restart is left");
                let (asked, handled) =
                    (&monitor["metadata"]["annotations"][REQUEST], &monitor["status"]["lastHandledRestartRequest"]);
                ensure!(asked.is_null() || asked == handled, "{name}: a requested restart has not begun");
            }
            let pods = list("pods").await?;
            let not_ready: Vec<_> =
                pods.iter().filter(|pod| !is_ready(pod)).map(|pod| &pod["metadata"]["name"]).collect();
            let count = pods.len();
            ensure!(
                count == desired && not_ready.is_empty(),
                "{count} of {desired} desired pods exist, not Ready: {not_ready:?}"
            );
            Ok(())
        })
        .await
    }
}

fn name(app: usize) -> String {
    format!("app-{app}")
}

fn has_secret(app: usize) -> bool {
    WITH_SECRET.contains(&app)
}

/// Returns the kinds of an application's sources.
fn resources(app: usize) -> &'static [&'static str] {
    if has_secret(app) { &["configmaps", "secrets"] } else { &["configmaps"] }
}

/// Returns a source with this content. A Secret has one more key, whose name must not be logged either.
fn with_data(resource: &str, name: &str, content: &str) -> Value {
    let mut data = json!({"config.cfg": value(resource, content)});
    if resource == "secrets" {
        data[PLANTED] = json!(planted(b"key"));
    }
    json!({"metadata": {"name": name}, "data": data})
}

/// Returns the content as the source holds it.
fn value(resource: &str, content: &str) -> String {
    if resource == "secrets" { planted(content.as_bytes()) } else { content.to_owned() }
}

fn both(name: &str) -> Value {
    json!([{"configMap": {"name": name}}, {"secret": {"name": name}}])
}

/// Returns the sources of a spec, each as in a list.
fn sources(spec: &Value) -> Vec<Value> {
    let only = || vec![json!({"configMap": {"name": spec["configMap"], "keys": spec["keys"]}})];
    spec["sources"].as_array().cloned().unwrap_or_else(only)
}

fn replicas(app: usize) -> usize {
    app % 3 + 2
}

fn track(app: usize) -> &'static str {
    if app.is_multiple_of(2) { "stable" } else { "canary" }
}

fn intended(app: usize) -> Value {
    let mut spec = json!({"configMap": name(app), "podSelector": {"app": name(app)}});
    // Without this the guard against loops would slow the restarts down: everything changes again and again here.
    spec["minIntervalSeconds"] = json!(1);
    let more = match app {
        0 => json!({"maxSurge": 1, "keys": ["config.cfg"]}),
        1 => json!({"maxUnavailable": 1}),
        2 => json!({"maxUnavailable": "50%", "keys": ["config.cfg", "blob"]}),
        3 => json!({"maxSurge": "50%", "deletionPolicy": "Evict"}),
        4 => json!({"maxSurge": 1, "maxUnavailable": 2, "minReadySeconds": 1}),
        5 => json!({"maxUnavailable": 2, "deletionPolicy": "Evict",
            "podSelectorExpressions": [{"key": "track", "operator": "In", "values": [track(app)]}]}),
        // The StatefulSet.
        6 => json!({"maxUnavailable": 1, "deletionPolicy": "Evict", "minReadySeconds": 1}),
        _ => json!({"maxUnavailable": 1}),
    };
    for (field, value) in more.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    if has_secret(app) {
        (spec["configMap"], spec["sources"]) = (Value::Null, both(&name(app)));
    }
    if app == WITH_SECRET[1] {
        spec["sources"][1]["secret"]["keys"] = json!(["config.cfg", "blob"]);
    }
    spec
}

fn is_protected(app: usize) -> bool {
    intended(app)["deletionPolicy"] == "Evict"
}

fn disruption_budget(app: usize) -> Value {
    json!({"metadata": {"name": name(app)}, "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": name(app)}}}})
}

fn monitor(name: &str, mut spec: Value) -> Value {
    spec["minIntervalSeconds"] = json!(1);
    spec["quietPeriodSeconds"] = json!(name.bytes().map(u64::from).sum::<u64>() % 3);
    json!({"apiVersion": "magalix.com/v1", "kind": "ConfigMonitor", "metadata": {"name": name}, "spec": spec})
}
