//! What the operator may do: by its Role, and by what its proxy lets through.

use std::collections::BTreeSet;

use anyhow::ensure;
use serde_json::{Value, json};
use testenv::{Client, DEADLINE, eventually};

use crate::world::World;
use testenv::fixture::{APP, NAME};

/// The rights that the Role grants, as VERB GROUP/RESOURCE.
async fn granted(world: &World) -> BTreeSet<String> {
    let role = world.get("roles", "configmonitor-operator").await;
    let mut rights = BTreeSet::new();
    for rule in role["rules"].as_array().unwrap() {
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                rights.extend(texts(&rule["verbs"]).map(|verb| format!("{verb} {group}/{resource}")));
            }
        }
    }
    rights
}

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().unwrap().iter().map(|text| text.as_str().unwrap())
}

/// The right that a request takes, written in the same way.
fn right(entry: &Value) -> String {
    let object = &entry["objectRef"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let right = format!("{} {}/{}", text(&entry["verb"]), text(&object["apiGroup"]), text(&object["resource"]));
    match &object["subresource"] {
        Value::Null => right,
        subresource => format!("{right}/{}", text(subresource)),
    }
}

#[tokio::test]
async fn every_right_is_used_and_none_is_missing() {
    let world = World::with_pods(1).await;
    for resource in ["statefulsets", "daemonsets", "replicationcontrollers"] {
        let labels = json!({"of": resource});
        let selector = if resource == "replicationcontrollers" { labels } else { json!({"matchLabels": labels}) };
        let spec = json!({
            "selector": selector,
            "template": {
                "metadata": {"labels": {"app": NAME, "of": resource}},
                "spec": {"containers": [{"name": "app", "image": "app"}]},
            },
        });
        world.create(resource, json!({"metadata": {"name": NAME}, "spec": spec})).await;
    }
    world.ready_pods(APP, 4).await;
    let _operator = world.operator().await;
    world.monitor(NAME, json!({"unmanagedPods": "Delete", "deletionPolicy": "Evict"})).await;
    world.edit(NAME, "two").await;
    world.settled(NAME, "UpToDate").await;

    world.patch("configmonitors", NAME, json!({"spec": {"deletionPolicy": "Delete"}})).await;
    // No kubelet ends it, as there is no such node, and so it holds the restart open.
    let spec = json!({"nodeName": "nowhere", "containers": [{"name": "app", "image": "app"}]});
    world.create("pods", json!({"metadata": {"name": "held", "labels": {"app": NAME}}, "spec": spec})).await;
    world.edit(NAME, "three").await;
    world.settled(NAME, "RestartInProgress").await;

    // Scaled down in the middle: only the owners can tell that nothing more is to come.
    for resource in ["deployments", "statefulsets", "replicationcontrollers"] {
        world.patch(resource, NAME, json!({"spec": {"replicas": 0}})).await;
    }
    let on_no_node = json!({"spec": {"template": {"spec": {"nodeSelector": {"is": "nowhere"}}}}});
    world.patch("daemonsets", NAME, on_no_node).await;
    eventually("they are scaled down", DEADLINE, async || {
        let pods = world.pods(APP).await;
        ensure!(pods.is_empty(), "left: {pods:?}");
        Ok(())
    })
    .await
    .unwrap();
    world.delete("pods", "held?gracePeriodSeconds=0").await;
    world.settled(NAME, "NoPodsSelected").await;

    let requests = world.requests().unwrap();
    assert_eq!(requests.iter().map(right).collect::<BTreeSet<_>>(), granted(&world).await);
    let refused: Vec<String> =
        requests.iter().filter(|entry| entry["responseStatus"]["code"] == 403).map(right).collect();
    assert!(refused.is_empty(), "{refused:?}");
}

#[tokio::test]
async fn the_proxy_refuses_what_the_operator_never_asks_for() {
    let world = World::new().await;
    let url = world.proxy.url();
    let client = Client::new(&url);
    let config_maps = &world.collection("configmaps");
    client.get(config_maps).await.unwrap().ok().unwrap();

    let pod = world.path("pods", NAME);
    let token = world.path("serviceaccounts", "configmonitor-operator/token");
    let reads = [
        "/api",
        "/version",
        "/api/v1/configmaps",
        "/api/v1/namespaces/default/configmaps",
        "/api/v1/namespaces/default/secrets",
        &world.path("deployments", NAME),
        &world.collection("replicationcontrollers"),
        &format!("{pod}/exec"),
        &format!("{pod}/log"),
    ];
    for path in reads {
        assert_refused_by_proxy(path, client.get(path).await);
    }
    // Whoever has a token may ask the API server this.
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    for path in [reviews, &token, &format!("{pod}/binding")] {
        assert_refused_by_proxy(path, client.create(path, &json!({})).await);
    }
    assert_refused_by_proxy("PATCH", client.merge_patch(&pod, &json!({})).await);
    // What a web page makes the browser on this host ask for has another name in it than the address.
    let elsewhere = Client::new(&url.replace("127.0.0.1", "localhost"));
    assert_refused_by_proxy("localhost", elsewhere.get(config_maps).await);
}

/// The API server would say so in an object of the kind Status.
fn assert_refused_by_proxy(what: &str, answer: anyhow::Result<testenv::Answer>) {
    let answer = answer.unwrap();
    assert_eq!((answer.status, answer.body), (403, json!("Forbidden\n")), "{what}");
}
