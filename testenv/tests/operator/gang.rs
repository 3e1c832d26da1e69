//! A workload of a kind that the operator does not know: the custom resource `Gang`. The test plays its controller.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use testenv::{Client, DEADLINE, eventually};
use tokio::sync::OnceCell;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::world::{World, control_plane};
use testenv::fixture::{APP, NAME};

/// Where etcd keeps them.
pub(crate) const GANGS: &str = "example.com/gangs";

const GROUP: &str = "/apis/example.com/v1";

/// How often its controller looks at its pods.
const EVERY: Duration = Duration::from_millis(50);

static INSTALLED: OnceCell<()> = OnceCell::const_new();

/// A Gang of pods `app=frontend`. Its controller stops when this value is dropped.
pub(crate) struct Gang<'a> {
    world: &'a World,
    controller: JoinHandle<()>,
}

impl Drop for Gang<'_> {
    fn drop(&mut self) {
        self.controller.abort();
    }
}

impl World {
    /// Creates a Gang of so many pods and waits until they are Ready.
    pub(crate) async fn gang(&self, replicas: usize) -> Gang<'_> {
        INSTALLED.get_or_init(install).await;
        let template = json!({"metadata": {"labels": {"app": NAME}}});
        let object = json!({
            "apiVersion": "example.com/v1", "kind": "Gang", "metadata": {"name": NAME},
            "spec": {"replicas": replicas, "template": template},
        });
        self.client.create(&self.gangs(), &object).await.unwrap().ok().unwrap();
        let controller = Controller { client: self.client.clone(), gangs: self.gangs(), pods: self.collection("pods") };
        let gang = Gang { world: self, controller: tokio::spawn(controller.run()) };
        self.ready_pods(APP, replicas).await;
        gang
    }

    fn gangs(&self) -> String {
        format!("{GROUP}/namespaces/{}/gangs", self.namespace)
    }
}

impl Gang<'_> {
    /// Changes how many pods it wants, and waits until it has no more than that.
    pub(crate) async fn scale_down(&self, replicas: usize) {
        let path = format!("{}/{NAME}", self.world.gangs());
        let patch = json!({"spec": {"replicas": replicas}});
        self.world.client.merge_patch(&path, &patch).await.unwrap().ok().unwrap();
        eventually("it is scaled down", DEADLINE, async || {
            let pods = self.world.pods(APP).await;
            ensure!(pods.len() <= replicas, "{pods:?}");
            Ok(())
        })
        .await
        .unwrap();
    }
}

async fn install() {
    let client = control_plane().await.client();
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let crd = json!({"metadata": {"name": "gangs.example.com"}, "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"kind": "Gang", "plural": "gangs", "singular": "gang"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
    }});
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    client.create(crds, &crd).await.unwrap().ok().unwrap();
    let gangs = format!("{GROUP}/namespaces/default/gangs");
    eventually("Gangs are served", DEADLINE, async || client.list(&gangs).await).await.unwrap();
}

/// Makes as many pods as are wanted, and deletes the newest if there are more.
struct Controller {
    client: Client,
    gangs: String,
    pods: String,
}

impl Controller {
    async fn run(self) {
        let mut made = 0;
        loop {
            // What has failed is done the next time.
            let _ = self.reconcile(&mut made).await;
            sleep(EVERY).await;
        }
    }

    async fn reconcile(&self, made: &mut usize) -> Result<()> {
        let gang = self.client.get(&format!("{}/{NAME}", self.gangs)).await?.ok()?;
        let uid = &gang["metadata"]["uid"];
        let wanted = usize::try_from(gang["spec"]["replicas"].as_u64().unwrap_or(0))?;
        let mut pods = self.client.list(&self.pods).await?;
        pods.retain(|pod| pod["metadata"]["ownerReferences"][0]["uid"] == *uid);
        pods.retain(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        let number =
            |pod: &Value| pod["metadata"]["labels"]["number"].as_str().and_then(|text| text.parse::<usize>().ok());
        pods.sort_by_key(number);
        for pod in pods.iter().skip(wanted) {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            self.client.delete(&format!("{}/{name}", self.pods)).await?.ok()?;
        }
        for _ in pods.len()..wanted {
            *made += 1;
            let owner =
                json!({"apiVersion": "example.com/v1", "kind": "Gang", "name": NAME, "uid": uid, "controller": true});
            let labels = json!({"app": NAME, "number": made.to_string()});
            let metadata = json!({"name": format!("gang-{made}"), "labels": labels, "ownerReferences": [owner]});
            let spec = json!({"containers": [{"name": "app", "image": "app"}]});
            self.client.create(&self.pods, &json!({"metadata": metadata, "spec": spec})).await?.ok()?;
        }
        Ok(())
    }
}
