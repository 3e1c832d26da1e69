//! A workload of a kind that the operator does not know: the custom resource `Gang`. The test plays its controller.

use std::time::Duration;

use anyhow::Result;
use serde_json::json;
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

/// The controller of a Gang of pods `app=frontend`, which stops when this value is dropped.
pub(crate) struct Gang(JoinHandle<()>);

impl Drop for Gang {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl World {
    /// Creates a Gang of so many pods and waits until they are Ready.
    pub(crate) async fn gang(&self, replicas: usize) -> Gang {
        INSTALLED.get_or_init(install).await;
        let template = json!({"metadata": {"labels": {"app": NAME}}});
        let object = json!({
            "apiVersion": "example.com/v1", "kind": "Gang", "metadata": {"name": NAME},
            "spec": {"replicas": replicas, "template": template},
        });
        let gangs = format!("{GROUP}/namespaces/{}/gangs", self.namespace);
        self.client.create(&gangs, &object).await.unwrap().ok().unwrap();
        let controller = Controller { client: self.client.clone(), gangs, pods: self.collection("pods") };
        let gang = Gang(tokio::spawn(controller.run()));
        self.ready_pods(APP, replicas).await;
        gang
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

/// Makes as many pods as are wanted.
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
        for _ in pods.len()..wanted {
            *made += 1;
            let owner =
                json!({"apiVersion": "example.com/v1", "kind": "Gang", "name": NAME, "uid": uid, "controller": true});
            let metadata = json!({"name": format!("gang-{made}"), "labels": {"app": NAME}, "ownerReferences": [owner]});
            let spec = json!({"containers": [{"name": "app", "image": "app"}]});
            self.client.create(&self.pods, &json!({"metadata": metadata, "spec": spec})).await?.ok()?;
        }
        Ok(())
    }
}
