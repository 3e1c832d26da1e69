//! The operator's rights: by its Roles or ClusterRoles, and by the paths that its proxy accepts.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use anyhow::ensure;
use serde_json::{Value, json};
use testenv::control_plane::resource_of;
use testenv::{Client, DEADLINE, Process, RunDir, eventually};

use crate::namespaces::start;
use crate::test_namespace::{TestNamespace, control_plane, requests_of};
use testenv::fixture::{
    APP, Fixture, NAME, deployment_with, file, proxy_args, share_proxy, shipped_deployment, start_proxy_of,
};

/// Returns the rights that these Roles grant, as VERB GROUP/RESOURCE.
fn granted(roles: &[Value]) -> BTreeSet<String> {
    let mut rights = BTreeSet::new();
    for rule in roles.iter().flat_map(|role| role["rules"].as_array().unwrap()) {
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

/// Returns the right that a request needs, in the same form.
fn right(entry: &Value) -> String {
    let [verb, group] = [&entry["verb"], &entry["objectRef"]["apiGroup"]].map(|text| text.as_str().unwrap_or_default());
    format!("{verb} {group}/{}", resource_of(entry))
}

/// Compares the requests of an operator that has done everything with the rights that these Roles grant, in both
/// directions.
pub(crate) fn every_right_is_used_and_none_is_missing(requests: &[Value], roles: &[Value]) {
    assert_eq!(requests.iter().map(right).collect::<BTreeSet<_>>(), granted(roles));
    let is_refused = |entry: &&Value| entry["annotations"]["authorization.k8s.io/decision"] != "allow";
    let refused: Vec<String> = requests.iter().filter(is_refused).map(right).collect();
    assert!(refused.is_empty(), "{refused:?}");
}

/// Makes the operator use all of its rights in this namespace.
pub(crate) async fn do_everything(ns: &Fixture) {
    ns.config_map(NAME, "one").await;
    ns.create("secrets", json!({"metadata": {"name": NAME}})).await;
    let sources = json!([{"secret": {"name": NAME}}]);
    ns.create_monitor("of-secret", json!({"configMap": null, "sources": sources})).await;
    ns.deployment(NAME, 1, json!({"app": NAME})).await;
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
        ns.create(resource, json!({"metadata": {"name": NAME}, "spec": spec})).await;
    }
    ns.ready_pods(APP, 4).await;
    ns.monitor(NAME, json!({"unmanagedPods": "Delete", "deletionPolicy": "Evict"})).await;
    ns.edit(NAME, "two").await;
    ns.settled(NAME, "UpToDate").await;

    ns.patch("configmonitors", NAME, json!({"spec": {"deletionPolicy": "Delete"}})).await;
    // No successor comes, which holds the restart open.
    ns.create("resourcequotas", json!({"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}})).await;
    let used = json!({"status": {"hard": {"pods": "0"}, "used": {"pods": "4"}}});
    ns.patch("resourcequotas", "none/status", used).await;
    ns.edit(NAME, "three").await;
    ns.settled(NAME, "RestartInProgress").await;

    // Scaled down in the middle: only the owners show that no more pods will come.
    for resource in ["deployments", "statefulsets", "replicationcontrollers"] {
        ns.patch(resource, NAME, json!({"spec": {"replicas": 0}})).await;
    }
    let on_no_node = json!({"spec": {"template": {"spec": {"nodeSelector": {"is": "nowhere"}}}}});
    ns.patch("daemonsets", NAME, on_no_node).await;
    eventually("the owners are scaled down", DEADLINE, async || {
        let pods = ns.pods(APP).await;
        ensure!(pods.is_empty(), "left: {pods:?}");
        Ok(())
    })
    .await
    .unwrap();
    ns.settled(NAME, "NoPodsSelected").await;

    let of_secret = ns.get("configmonitors", "of-secret").await;
    assert!(of_secret["status"]["sources"][0]["hash"].is_string(), "{}", of_secret["status"]);
}

#[tokio::test]
async fn every_right_in_its_own_namespace_is_used_and_none_is_missing() {
    let control_plane = control_plane().await;
    let fixture = Fixture::new(control_plane).await;
    let secrets = file("deploy/secrets/role/role.yml");
    control_plane.kubectl().ok(&["apply", "-n", &fixture.namespace, "-f", &secrets]).await.unwrap();
    let fixtures = [fixture];
    let proxy = share_proxy(control_plane, &fixtures).await;
    let [fixture] = &fixtures;
    let _operator = start(&proxy.url(), &fixture.namespace, &[]);
    do_everything(fixture).await;

    let mut requests = requests_of(control_plane, &fixture.namespace).unwrap();
    requests.retain(|entry| entry["objectRef"]["namespace"] == *fixture.namespace);
    let roles = ["configmonitor-operator", "configmonitor-operator-secrets"];
    let roles = [fixture.get("roles", roles[0]).await, fixture.get("roles", roles[1]).await];
    every_right_is_used_and_none_is_missing(&requests, &roles);
}

/// kubectl proxy passes whatever method it is not told to reject, and kubectl itself sends none of these.
fn assert_refused_method(address: &str, method: &str, path: &str) {
    let mut stream = TcpStream::connect(address).unwrap();
    let request =
        format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("Forbidden\n"), "{method}: {answer}");
}

/// Without the Components kubectl proxy passes nothing about Secrets and Leases, and with them what RBAC allows.
#[tokio::test]
async fn the_proxy_passes_secrets_and_the_lease_only_with_their_components() {
    let ns = TestNamespace::new().await;
    let (secret, lease) = (ns.path("secrets", NAME), ns.path("leases", "configmonitor-operator"));
    let plain = deployment_with(control_plane().await, &[]).await;
    let plain = start_proxy_of(control_plane().await, &plain, &ns.namespace).await;
    let (plain, with_components) = (Client::new(&plain.url()), Client::new(&ns.proxy.url()));
    for path in [&ns.collection("secrets"), &secret, &ns.collection("leases"), &lease] {
        assert_refused_by_proxy(path, plain.get(path).await);
        let answer = with_components.get(path).await.unwrap();
        assert_eq!((answer.status, answer.body["kind"].as_str()), (403, Some("Status")), "{path}: {}", answer.body);
    }
}

/// The proxy knows paths and methods, but not which method belongs to which path: only RBAC refuses these.
#[tokio::test]
async fn what_the_proxy_passes_beyond_the_operators_requests_is_refused_by_rbac() {
    let ns = TestNamespace::new().await;
    let client = Client::new(&ns.proxy.url());
    let (map, secret, pods) = (ns.path("configmaps", NAME), ns.path("secrets", NAME), ns.collection("pods"));
    let answers = [
        client.replace(&secret, &json!({"metadata": {"name": NAME}})).await,
        client.delete(&secret).await,
        client.replace(&map, &json!({"metadata": {"name": NAME}})).await,
        client.delete(&pods).await,
        client.create(&pods, &json!({"metadata": {"name": NAME}})).await,
        client.get(&ns.path("pods", NAME)).await,
    ];
    for answer in answers.map(Result::unwrap) {
        assert_eq!((answer.status, &answer.body["reason"]), (403, &json!("Forbidden")), "{}", answer.body);
    }
}

#[tokio::test]
async fn the_proxy_refuses_requests_that_the_operator_never_sends() {
    let ns = TestNamespace::new().await;
    let plain = deployment_with(control_plane().await, &[]).await;
    let plain = start_proxy_of(control_plane().await, &plain, &ns.namespace).await;
    refuses(&ns, &plain.url()).await;
    refuses(&ns, &ns.proxy.url()).await;
    // Only `deploy/surge` lets these pass.
    let client = Client::new(&plain.url());
    assert_refused_by_proxy("deployments", client.get(&ns.path("deployments", NAME)).await);
    assert_refused_by_proxy("PATCH", client.merge_patch(&ns.path("pods", NAME), &json!({})).await);
}

async fn refuses(ns: &TestNamespace, url: &str) {
    let client = Client::new(url);
    let config_maps = &ns.collection("configmaps");
    client.get(config_maps).await.unwrap().ok().unwrap();

    let pod = ns.path("pods", NAME);
    let token = ns.path("serviceaccounts", "configmonitor-operator/token");
    let reads = [
        "/api",
        "/version",
        "/api/v1/configmaps",
        "/api/v1/namespaces/default/configmaps",
        "/api/v1/namespaces/default/secrets",
        &ns.collection("deployments"),
        &ns.collection("replicationcontrollers"),
        &ns.path("leases", "of-somebody"),
        "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/configmonitor-operator",
        &format!("{pod}/exec"),
        &format!("{pod}/log"),
    ];
    for path in reads {
        assert_refused_by_proxy(path, client.get(path).await);
    }
    // Every token has the right to this request.
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    for path in [reviews, &token, &format!("{pod}/binding")] {
        assert_refused_by_proxy(path, client.create(path, &json!({})).await);
    }
    let address = url.trim_start_matches("http://");
    let methods = "OPTIONS TRACE patch get delete Get GE GETS POS POSTS PU PUTS PA PATC PATCHS P D DELET DELETES ODD X";
    methods.split(' ').for_each(|method| assert_refused_method(address, method, &pod));
    // A request that a web page makes from this host's browser names another host than the address.
    let elsewhere = Client::new(&url.replace("127.0.0.1", "localhost"));
    assert_refused_by_proxy("localhost", elsewhere.get(config_maps).await);
}

/// Checks that the proxy refused the request: the API server would answer with a Status object.
pub(crate) fn assert_refused_by_proxy(what: &str, answer: anyhow::Result<testenv::Answer>) {
    let answer = answer.unwrap();
    assert_eq!((answer.status, answer.body), (403, json!("Forbidden\n")), "{what}");
}

#[tokio::test]
async fn an_operator_works_through_a_unix_socket_of_the_proxy() {
    let ns = TestNamespace::with_pods(1).await;
    let dir = RunDir::create().unwrap();
    let socket = fs::canonicalize(dir.path()).unwrap().join("socket");
    let token = control_plane().await.service_account_token(&ns.namespace, "configmonitor-operator").await.unwrap();
    let args = proxy_args(shipped_deployment(control_plane().await).await, &ns.namespace, &ns.namespace);
    let kubectl = control_plane().await.kubectl_with(&token).unwrap();
    let mut command = kubectl.command(&["proxy", &format!("--unix-socket={}", socket.display())]);
    let proxy = Process::start(command.args(args), &dir.path().join("proxy.log")).unwrap();
    proxy.wait_for_line("Starting to serve on", DEADLINE).await.unwrap();
    let _operator = start(&format!("unix://{}", socket.display()), &ns.namespace, &[]);
    ns.monitor(NAME, json!({})).await;
    let before = ns.ready_pods(APP, 1).await;
    ns.edit(NAME, "two").await;
    ns.replaced(APP, &before).await;
}
