//! Secrets: a right that is given apart, and nothing of them that somebody could read who may not read them.

use anyhow::ensure;
use serde_json::{Value, json};
use testenv::fixture::{APP, NAME, condition, file, message_of};
use testenv::{DEADLINE, eventually};

use crate::test_namespace::{TestNamespace, control_plane};

/// In base64: what is planted, and must not be found.
const PLANTED: [&str; 2] = ["cGxhbnRlZC1vbmU=", "cGxhbnRlZC10d28="];
const PLAIN: [&str; 2] = ["planted-one", "planted-two"];

/// Pods, a Secret, and a ConfigMonitor about it and a ConfigMap.
async fn with_secret() -> TestNamespace {
    let world = TestNamespace::with_pods(2).await;
    write(&world, "tls", PLANTED[0]).await;
    let sources = json!([{"configMap": {"name": NAME}}, {"secret": {"name": "tls"}}]);
    world.create_monitor(NAME, json!({"configMap": null, "sources": sources})).await;
    world
}

async fn write(world: &TestNamespace, name: &str, value: &str) {
    world.create("secrets", json!({"metadata": {"name": name}, "data": {"tls.key": value}})).await;
}

async fn edit(world: &TestNamespace, value: &str) {
    world.patch("secrets", "tls", json!({"data": {"tls.key": value}})).await;
}

/// Gives the right to read all Secrets of the namespace, as docs/install.md says.
async fn allow(world: &TestNamespace) {
    let rights = file("deploy/secrets/rbac.yml");
    control_plane().await.kubectl().ok(&["apply", "-n", &world.namespace, "-f", &rights]).await.unwrap();
}

/// Gives the right to read this Secret alone.
async fn allow_only(world: &TestNamespace, name: &str) {
    let rule = json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": [name], "verbs": ["get", "list", "watch"]});
    world.create("roles", json!({"metadata": {"name": "one-secret"}, "rules": [rule]})).await;
    world.bind("one-secret", &world.namespace).await;
}

/// What the operator has asked for about Secrets: the verb, the path, and whether it was allowed.
fn asked(world: &TestNamespace) -> Vec<(String, String, bool)> {
    let about_secrets = |entry: &Value| entry["objectRef"]["resource"] == "secrets";
    let request = |entry: Value| {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let allowed = entry["annotations"]["authorization.k8s.io/decision"] == "allow";
        (text(&entry["verb"]), text(&entry["requestURI"]), allowed)
    };
    world.requests().unwrap().into_iter().filter(about_secrets).map(request).collect()
}

/// Waits until the content of so many sources is recorded, and nothing is left to do.
async fn is_recorded(world: &TestNamespace, count: usize) {
    eventually("the sources are recorded", DEADLINE, async || {
        let monitor = world.get("configmonitors", NAME).await;
        let (status, ready) = (&monitor["status"], condition(&monitor, "Ready"));
        let sources = status["sources"].as_array().into_iter().flatten();
        ensure!(
            ready["reason"] == "UpToDate" && sources.filter(|source| source["hash"].is_string()).count() == count,
            "{status}"
        );
        ensure!(ready["observedGeneration"] == monitor["metadata"]["generation"], "an older spec: {status}");
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn without_the_right_a_config_monitor_says_so_others_work_and_it_does_once_the_right_is_given() {
    let world = with_secret().await;
    world.deployment("other", 1, json!({"app": "other"})).await;
    world.config_map("plain", "one").await;
    let operator = world.operator().await;
    let forbidden = world.ready_message_has(&["the right to list secrets"]).await;
    assert_eq!(condition(&forbidden, "Stalled")["reason"], "Forbidden");
    assert!(message_of(&forbidden, "Stalled").contains("deploy/secrets"), "{}", message_of(&forbidden, "Stalled"));
    world.create_monitor("other", json!({"configMap": "plain", "podSelector": {"app": "other"}})).await;
    world.settled("other", "UpToDate").await;
    let others = world.ready_pods("app=other", 1).await;
    world.edit("plain", "two").await;
    world.replaced("app=other", &others).await;

    allow(&world).await;
    is_recorded(&world, 2).await;
    let before = world.ready_pods(APP, 2).await;
    edit(&world, PLANTED[1]).await;
    world.replaced(APP, &before).await;
    is_recorded(&world, 2).await;
    let is_single = |(_, uri, _): &&(String, String, bool)| uri.contains("fieldSelector");
    let asked = asked(&world);
    assert!(asked.iter().any(|(verb, _, allowed)| verb == "watch" && *allowed), "{asked:?}");
    assert!(asked.iter().filter(is_single).count() > 0, "a Role may name single Secrets: {asked:?}");
    drop(operator);
}

#[tokio::test]
async fn a_role_that_names_a_secret_is_enough_for_that_one() {
    let world = with_secret().await;
    allow_only(&world, "tls").await;
    let _operator = world.operator().await;
    is_recorded(&world, 2).await;
    let before = world.ready_pods(APP, 2).await;
    eventually("the Secret is watched", DEADLINE, async || {
        ensure!(asked(&world).iter().any(|(verb, _, allowed)| verb == "list" && *allowed), "{:?}", asked(&world));
        Ok(())
    })
    .await
    .unwrap();
    edit(&world, PLANTED[1]).await;
    let before = world.replaced(APP, &before).await;
    is_recorded(&world, 2).await;
    let asked = asked(&world);
    let is_of_all =
        |(verb, uri, _): &(String, String, bool)| verb != "get" && !uri.contains("fieldSelector=metadata.name%3Dtls");
    assert!(asked.iter().all(|request| !is_of_all(request) || !request.2), "{asked:?}");

    // Another one is not in that Role.
    write(&world, "other", PLANTED[0]).await;
    let sources = json!([{"secret": {"name": "tls"}}, {"secret": {"name": "other"}}]);
    world.patch("configmonitors", NAME, json!({"spec": {"sources": sources}})).await;
    world.ready_message_has(&["the right to", "secrets"]).await;
    assert_eq!(world.pods(APP).await, before);
}

#[tokio::test]
async fn nothing_of_a_secret_is_written_or_logged() {
    let world = with_secret().await;
    allow(&world).await;
    let operator = world.operator().await;
    is_recorded(&world, 2).await;
    let before = world.ready_pods(APP, 2).await;
    edit(&world, PLANTED[1]).await;
    let before = world.replaced(APP, &before).await;
    is_recorded(&world, 2).await;
    // A key that is not there, and a Secret that comes anew.
    let sources = json!([{"secret": {"name": "tls", "keys": ["tls.crt"]}}]);
    world.patch("configmonitors", NAME, json!({"spec": {"sources": sources}})).await;
    world.ready_message_has(&["Secret \"tls\" lacks \"tls.crt\""]).await;
    let sources = json!([{"secret": {"name": "tls"}}]);
    world.patch("configmonitors", NAME, json!({"spec": {"sources": sources}})).await;
    is_recorded(&world, 1).await;
    let uid = world.get("secrets", "tls").await["metadata"]["uid"].as_str().unwrap().to_owned();
    world.delete("secrets", "tls").await;
    world.ready_message_has(&["Secret \"tls\" does not exist"]).await;
    write(&world, "tls", PLANTED[1]).await;
    world.replaced(APP, &before).await;
    world.ready_message_has(&["2 of 2 pods restarted for the content of Secret/tls"]).await;

    let events = world.client.list(&world.collection("events")).await.unwrap();
    let by_it = |event: &&Value| event["reportingController"] == "magalix.com/configmonitor-operator";
    let events: Vec<&Value> = events.iter().filter(by_it).collect();
    assert!(!events.is_empty() && events.iter().all(|event| event["regarding"]["kind"] != "Secret"), "{events:?}");
    let written = format!("{}{events:?}{:?}", world.get("configmonitors", NAME).await, operator.log().unwrap());
    for secret in PLANTED.iter().chain(&PLAIN).copied().chain([&*uid]) {
        assert!(!written.contains(secret), "{secret} in {written}");
    }
}

/// Waits until this version of the Secret has been looked at, and nothing is left to do. Returns how many restarts there have been.
async fn restarts_by(world: &TestNamespace, secret: &Value) -> usize {
    eventually("the edit is noted", DEADLINE, async || {
        let monitor = world.get("configmonitors", NAME).await;
        let (status, read) = (&monitor["status"], &monitor["status"]["sources"][0]["resourceVersion"]);
        ensure!(*read == secret["metadata"]["resourceVersion"] && status["restart"].is_null(), "{status}");
        Ok(status["history"].as_array().map_or(0, Vec::len))
    })
    .await
    .unwrap()
}

/// As docs/recipes.md has it.
#[tokio::test]
async fn the_usual_tools_make_as_many_restarts_as_the_recipes_say() {
    let world = TestNamespace::with_pods(2).await;
    allow(&world).await;
    let data = |value: &str| json!({"data": {"tls.crt": value, "tls.key": value, "ca.crt": PLANTED[0]}});
    world.create("secrets", json!({"metadata": {"name": "tls"}, "data": data(PLANTED[0])["data"]})).await;
    let sources = json!([{"secret": {"name": "tls", "keys": ["tls.crt", "tls.key"]}}]);
    let _operator = world.operator().await;
    world.create_monitor(NAME, json!({"configMap": null, "sources": sources})).await;
    is_recorded(&world, 1).await;
    // cert-manager renews a certificate by one write, and annotates the Secret by others.
    let annotated =
        world.patch("secrets", "tls", json!({"metadata": {"annotations": {"cert-manager.io/x": "y"}}})).await;
    assert_eq!(restarts_by(&world, &annotated).await, 0);
    let renewed = world.patch("secrets", "tls", data(PLANTED[1])).await;
    assert_eq!(restarts_by(&world, &renewed).await, 1);
    // A key that is not named, as by whoever adds a certificate authority.
    let other = world.patch("secrets", "tls", json!({"data": {"ca.crt": PLANTED[1]}})).await;
    assert_eq!(restarts_by(&world, &other).await, 1);
    // Deleted and made anew with the same data, as by a driver that takes it away with the last pod.
    world.delete("secrets", "tls").await;
    world.ready_message_has(&["Secret \"tls\" does not exist"]).await;
    let anew = world.create("secrets", json!({"metadata": {"name": "tls"}, "data": other["data"]})).await;
    assert_eq!(restarts_by(&world, &anew).await, 2);
}
