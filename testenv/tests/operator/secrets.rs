//! Secrets: a right that is given apart, and nothing of them that somebody could read who may not read them.

use anyhow::ensure;
use serde_json::{Value, json};
use testenv::fixture::{APP, NAME, condition, file, message_of};
use testenv::pages::Section;
use testenv::{DEADLINE, eventually};

use crate::reader::Reader;
use crate::test_namespace::{TestNamespace, control_plane};

/// Two values, in base64.
const PLANTED: [&str; 2] = ["cGxhbnRlZC1vbmU=", "cGxhbnRlZC10d28="];

/// Pods, a Secret, and a ConfigMonitor about it and a ConfigMap.
async fn with_secret() -> TestNamespace {
    let ns = TestNamespace::with_pods(2).await;
    write(&ns, "tls", PLANTED[0]).await;
    let sources = json!([{"configMap": {"name": NAME}}, {"secret": {"name": "tls"}}]);
    ns.create_monitor(NAME, json!({"configMap": null, "sources": sources})).await;
    ns
}

async fn write(ns: &TestNamespace, name: &str, value: &str) {
    ns.create("secrets", json!({"metadata": {"name": name}, "data": {"tls.key": value}})).await;
}

async fn edit(ns: &TestNamespace, value: &str) {
    ns.patch("secrets", "tls", json!({"data": {"tls.key": value}})).await;
}

/// Gives the right to read all Secrets of the namespace, as docs/install.md says.
pub(crate) async fn allow(ns: &TestNamespace) {
    let rights = file("deploy/secrets/role/role.yml");
    control_plane().await.kubectl().ok(&["apply", "-n", &ns.namespace, "-f", &rights]).await.unwrap();
}

/// Gives the right to read this Secret alone, as docs/install.md says.
async fn allow_only(ns: &TestNamespace, name: &str) {
    let mut reader = Reader::new(control_plane().await, &ns.namespace).await;
    let section = Section::of("docs/install.md", "Only some Secrets").unwrap();
    reader.apply(&section.yaml[1].replace("shop-tls, shop-db", name)).await;
    for placeholder in ["OPERATOR_NS", "NAMESPACE"] {
        reader.replace(placeholder, &ns.namespace);
    }
    reader.follow(section.steps()).await;
}

/// What the operator has asked for about Secrets: the verb, the path, and whether it was allowed.
fn asked(ns: &TestNamespace) -> Vec<(String, String, bool)> {
    let about_secrets = |entry: &Value| entry["objectRef"]["resource"] == "secrets";
    let request = |entry: Value| {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let allowed = entry["annotations"]["authorization.k8s.io/decision"] == "allow";
        (text(&entry["verb"]), text(&entry["requestURI"]), allowed)
    };
    ns.requests().unwrap().into_iter().filter(about_secrets).map(request).collect()
}

/// Waits until the content of so many sources is recorded, and nothing is left to do.
async fn is_recorded(ns: &TestNamespace, count: usize) {
    eventually("the sources are recorded", DEADLINE, async || {
        let monitor = ns.get("configmonitors", NAME).await;
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
    let ns = with_secret().await;
    ns.deployment("other", 1, json!({"app": "other"})).await;
    ns.config_map("plain", "one").await;
    let operator = ns.operator().await;
    let forbidden = ns.messages_have(&["the right to get, list and watch secrets"]).await;
    assert_eq!(condition(&forbidden, "Stalled")["reason"], "Forbidden");
    assert!(message_of(&forbidden, "Stalled").contains("deploy/secrets"), "{}", message_of(&forbidden, "Stalled"));
    ns.create_monitor("other", json!({"configMap": "plain", "podSelector": {"app": "other"}})).await;
    ns.settled("other", "UpToDate").await;
    let others = ns.ready_pods("app=other", 1).await;
    ns.edit("plain", "two").await;
    ns.replaced("app=other", &others).await;

    allow(&ns).await;
    is_recorded(&ns, 2).await;
    let before = ns.ready_pods(APP, 2).await;
    edit(&ns, PLANTED[1]).await;
    ns.replaced(APP, &before).await;
    is_recorded(&ns, 2).await;
    let asked = asked(&ns);
    assert!(asked.iter().any(|(verb, _, allowed)| verb == "watch" && *allowed), "{asked:?}");
    drop(operator);
}

#[tokio::test]
async fn a_role_that_names_a_secret_is_enough_for_that_one() {
    let ns = with_secret().await;
    allow_only(&ns, "tls").await;
    let _operator = ns.operator().await;
    is_recorded(&ns, 2).await;
    let before = ns.ready_pods(APP, 2).await;
    edit(&ns, PLANTED[1]).await;
    let before = ns.replaced(APP, &before).await;
    is_recorded(&ns, 2).await;
    let asked = asked(&ns);
    assert!(asked.iter().all(|(verb, _, allowed)| !allowed || verb == "get"), "{asked:?}");

    // Another one is not in that Role.
    write(&ns, "other", PLANTED[0]).await;
    let sources = json!([{"secret": {"name": "tls"}}, {"secret": {"name": "other"}}]);
    ns.patch("configmonitors", NAME, json!({"spec": {"sources": sources}})).await;
    ns.messages_have(&["the right to", "secrets"]).await;
    assert_eq!(ns.pods(APP).await, before);
}

/// Waits until a later edit of another source has been looked at, and nothing is left to do. Returns how many restarts
/// there have been.
async fn restarts(ns: &TestNamespace) -> usize {
    let newest = ns.get("secrets", "tls").await["metadata"]["resourceVersion"].clone();
    let later = ns.patch("secrets", "later", json!({"stringData": {"key": newest}})).await;
    eventually("the later edit is read", DEADLINE, async || {
        let read = ns.get("configmonitors", "later").await["status"]["sources"][0]["resourceVersion"].clone();
        ensure!(read == later["metadata"]["resourceVersion"], "{read}");
        Ok(())
    })
    .await
    .unwrap();
    is_recorded(ns, 1).await;
    ns.get("configmonitors", NAME).await["status"]["history"].as_array().map_or(0, Vec::len)
}

/// As docs/recipes.md has it.
#[tokio::test]
async fn the_usual_tools_make_as_many_restarts_as_the_recipes_say() {
    let ns = TestNamespace::with_pods(2).await;
    allow(&ns).await;
    let data = |value: &str| json!({"data": {"tls.crt": value, "tls.key": value, "ca.crt": PLANTED[0]}});
    ns.create("secrets", json!({"metadata": {"name": "tls"}, "data": data(PLANTED[0])["data"]})).await;
    let sources = json!([{"secret": {"name": "tls", "keys": ["tls.crt", "tls.key"]}}]);
    let _operator = ns.operator().await;
    ns.create_monitor(NAME, json!({"configMap": null, "sources": sources})).await;
    is_recorded(&ns, 1).await;
    ns.create("secrets", json!({"metadata": {"name": "later"}})).await;
    let sources = json!([{"secret": {"name": "later"}}]);
    ns.create_monitor("later", json!({"configMap": null, "sources": sources, "podSelector": {"app": "none"}})).await;
    // cert-manager renews a certificate by one write, and annotates the Secret by others.
    ns.patch("secrets", "tls", json!({"metadata": {"annotations": {"cert-manager.io/x": "y"}}})).await;
    assert_eq!(restarts(&ns).await, 0);
    ns.patch("secrets", "tls", data(PLANTED[1])).await;
    assert_eq!(restarts(&ns).await, 1);
    // A key that is not named, as by whoever adds a certificate authority.
    let other = ns.patch("secrets", "tls", json!({"data": {"ca.crt": PLANTED[1]}})).await;
    assert_eq!(restarts(&ns).await, 1);
    // Deleted and made anew with the same data, as by a driver that takes it away with the last pod.
    let mut reader = Reader::new(control_plane().await, &ns.namespace).await;
    reader.replace("shop-tls", "tls");
    reader.follow(Section::of("docs/recipes.md", "cert-manager").unwrap().steps()).await;
    ns.messages_have(&["Secret \"tls\" does not exist"]).await;
    let owner = ns.get("deployments", NAME).await["metadata"]["uid"].clone();
    let owners = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": NAME, "uid": owner}]);
    ns.create("secrets", json!({"metadata": {"name": "shop-vault", "ownerReferences": owners}})).await;
    reader.follow(Section::of("docs/recipes.md", "Secrets Store CSI driver").unwrap().steps()).await;
    ns.create("secrets", json!({"metadata": {"name": "tls"}, "data": other["data"]})).await;
    assert_eq!(restarts(&ns).await, 2);
}
