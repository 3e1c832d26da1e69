//! An application with one replica that restarts: whoever asks its endpoints is always answered, with `maxSurge`, or
//! without it by a `preStop` sleep that is longer than the start of the successor.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::lab::{Lab, lab, new_message};

const EVERY: Duration = Duration::from_millis(10);

/// The demo application once more, with one replica, a Service, and a ConfigMonitor.
struct App<'a> {
    lab: &'a Lab,
    name: &'static str,
    /// Asks pods that are terminating and still ready, too, if there are no others, as kube-proxy does.
    asks_terminating: bool,
}

fn path(resource: &str, rest: &str) -> String {
    format!("/{resource}/namespaces/lab/{rest}")
}

impl<'a> App<'a> {
    /// Creates the application. An old pod answers for `lingers` seconds after its deletion: whoever has looked up its
    /// endpoints before still asks it.
    async fn create(self, lingers: u64, fields: Value) -> Self {
        let Self { lab, name, .. } = self;
        let client = lab.client();
        let mut deployment = client.get(&path("apis/apps/v1", "deployments/frontend")).await.unwrap().ok().unwrap();
        let labels = json!({"app": name});
        deployment["metadata"] = json!({"name": name});
        deployment["status"] = Value::Null;
        let spec = &mut deployment["spec"];
        spec["replicas"] = json!(1);
        spec["selector"] = json!({"matchLabels": labels});
        spec["template"]["metadata"] = json!({"labels": labels});
        let pod = &mut spec["template"]["spec"];
        pod["volumes"] = json!([{"name": "config", "configMap": {"name": name}}]);
        pod["containers"][0]["lifecycle"] = json!({"preStop": {"sleep": {"seconds": lingers}}});
        let create = async |group: &str, resource: &str, object: &Value| {
            client.create(&path(group, resource), object).await.unwrap().ok().unwrap();
        };
        let config_map = json!({"metadata": {"name": name}, "data": {"config.cfg": "MSG = \"first\"\n"}});
        create("api/v1", "configmaps", &config_map).await;
        create("apis/apps/v1", "deployments", &deployment).await;
        let service = json!({"metadata": {"name": name}, "spec": {"selector": labels, "ports": [{"port": 8080}]}});
        create("api/v1", "services", &service).await;
        lab.kubectl(&["rollout", "status", &format!("deployment/{name}"), "--timeout=300s"]).await.unwrap();
        let mut spec = json!({"configMap": name, "podSelector": labels, "minIntervalSeconds": 1});
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let monitor =
            json!({"apiVersion": "magalix.com/v1", "kind": "ConfigMonitor", "metadata": {"name": name}, "spec": spec});
        create("apis/magalix.com/v1", "configmonitors", &monitor).await;
        self.has_reason("UpToDate").await;
        self
    }

    async fn delete(self) {
        self.lab.kubectl(&["delete", "configmonitor,deployment,service,configmap", self.name]).await.unwrap();
    }

    async fn pods(&self) -> Result<Vec<Value>> {
        self.lab.pods(&format!("app={}", self.name)).await
    }

    async fn has_reason(&self, reason: &str) {
        let Self { lab, name, .. } = self;
        lab.eventually(&format!("the reason is {reason}"), async || {
            let monitor =
                lab.client().get(&path("apis/magalix.com/v1", &format!("configmonitors/{name}"))).await?.ok()?;
            let conditions = monitor["status"]["conditions"].as_array().into_iter().flatten();
            let ready = conditions.into_iter().find(|condition| condition["type"] == "Ready");
            ensure!(ready.is_some_and(|ready| ready["reason"] == reason), "{}", monitor["status"]);
            Ok(())
        })
        .await;
    }

    /// What the pods behind the Service answer now, in the order of its endpoints.
    async fn ask(&self) -> Result<String> {
        let Self { lab, name, asks_terminating } = self;
        let slices = path(
            "apis/discovery.k8s.io/v1",
            &format!("endpointslices?labelSelector=kubernetes.io/service-name={name}"),
        );
        let slices = lab.client().list(&slices).await?;
        let endpoints = || slices.iter().flat_map(|slice| slice["endpoints"].as_array().into_iter().flatten());
        let mut ready = endpoints().filter(|endpoint| endpoint["conditions"]["ready"] == true);
        let mut serving = endpoints().filter(|endpoint| *asks_terminating && endpoint["conditions"]["serving"] == true);
        let endpoint = ready.next().or_else(|| serving.next());
        let pod = endpoint.and_then(|endpoint| endpoint["targetRef"]["name"].as_str()).context("no endpoint")?;
        let page = lab.client().get(&path("api/v1", &format!("pods/{pod}:8080/proxy/"))).await?.ok()?;
        Ok(page.as_str().context("no text")?.trim().to_owned())
    }

    /// Asks every 10 ms until told to stop. Returns how many questions were answered, and which were not.
    async fn ask_on(&self, mut stop: watch::Receiver<bool>) -> (usize, Vec<String>) {
        let (mut answered, mut failed) = (0, Vec::new());
        while !*stop.borrow_and_update() {
            match self.ask().await {
                Ok(_) => answered += 1,
                Err(error) => failed.push(format!("{error:#}")),
            }
            sleep(EVERY).await;
        }
        (answered, failed)
    }

    /// Asserts that all is answered while this happens.
    async fn answers(&self, during: impl Future<Output = ()>) {
        let (stop, stopped) = watch::channel(false);
        let happens = async {
            during.await;
            stop.send_replace(true);
        };
        let ((), (answered, failed)) = tokio::join!(happens, self.ask_on(stopped));
        println!("{}: {answered} requests answered, {} failed", self.name, failed.len());
        assert!(failed.is_empty() && answered > 100, "{answered} answered, failed: {failed:?}");
    }

    async fn edit(&self, content: &str) {
        let patch = json!({"data": {"config.cfg": content}}).to_string();
        self.lab.kubectl(&["patch", "configmap", self.name, "--type=merge", "-p", &patch]).await.unwrap();
    }

    async fn restart(&self, times: usize) {
        for _ in 0..times {
            let message = new_message();
            self.edit(&format!("MSG = \"{message}\"\n")).await;
            self.lab
                .eventually(&format!("the page shows {message:?}"), async || {
                    let page = self.ask().await?;
                    ensure!(page == message, "{page}");
                    Ok(())
                })
                .await;
            self.has_reason("UpToDate").await;
            self.is_alone().await;
        }
    }

    /// Waits until no other pod is terminating: a client would ask it as well while no pod is ready.
    async fn is_alone(&self) {
        self.lab
            .eventually("one pod is left", async || {
                let pods = self.pods().await?;
                ensure!(
                    pods.len() == 1 && pods[0]["metadata"]["labels"]["magalix.com/handed-over"].is_null(),
                    "{pods:?}"
                );
                Ok(())
            })
            .await;
    }
}

#[tokio::test]
async fn one_replica_answers_every_request_through_ten_restarts_and_bad_content() {
    let lab = &*lab().await;
    let app = App { lab, name: "surging", asks_terminating: false }.create(3, json!({"maxSurge": 1})).await;
    app.answers(async {
        app.restart(10).await;
        let before = app.ask().await.unwrap();
        app.edit("MSG = 1\n").await;
        lab.eventually("the successor fails", async || {
            let pods = app.pods().await?;
            let mut statuses =
                pods.iter().flat_map(|pod| pod["status"]["containerStatuses"].as_array().into_iter().flatten());
            ensure!(statuses.any(|status| status["restartCount"].as_u64() > Some(0)), "{}", pods.len());
            Ok(())
        })
        .await;
        app.edit(&format!("MSG = \"{before}\"\n")).await;
        app.has_reason("UpToDate").await;
        app.is_alone().await;
    })
    .await;
    app.delete().await;
}

#[tokio::test]
async fn without_surge_one_replica_answers_while_its_pre_stop_hook_sleeps_longer_than_the_successor_starts() {
    let lab = &*lab().await;
    let app = App { lab, name: "lingering", asks_terminating: true }.create(20, json!({})).await;
    app.answers(app.restart(5)).await;
    app.delete().await;
}
