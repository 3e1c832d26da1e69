//! One operator for several namespaces, or for all of them. A ConfigMonitor concerns its own namespace only.

use std::fs;

use anyhow::ensure;
use serde_json::{Value, json};
use testenv::fixture::{
    APP, Fixture, NAME, apply, create_namespace, install_crd, proxy_args, share_proxy, shipped_deployment,
    start_proxy_of,
};
use testenv::pages::Section;
use testenv::{Client, ControlPlane, DEADLINE, Operator, eventually};

use crate::reader::Reader;
use crate::rights::{assert_refused_by_proxy, do_everything, every_right_is_used_and_none_is_missing};
use crate::test_namespace::{control_plane, pod_of, requests_of};

/// Starts an operator for these namespaces, or with these arguments.
pub(crate) fn start(proxy: &str, namespaces: &str, args: &[&str]) -> Operator {
    let binary = testenv::operator::binary().unwrap();
    Operator::start(&binary, proxy, namespaces, args, &[]).unwrap()
}

/// Creates a ConfigMap, pods and a ConfigMonitor, which have the same names in every namespace.
async fn furnish(fixture: &Fixture) {
    fixture.config_map(NAME, "one").await;
    fixture.deployment(NAME, 2, json!({"app": NAME})).await;
    fixture.monitor(NAME, json!({})).await;
}

/// Checks that an edit in one namespace restarts only the pods there.
async fn edits_concern(one: &Fixture, other: &Fixture, content: &str) {
    let (before, others) = (one.ready_pods(APP, 2).await, other.ready_pods(APP, 2).await);
    one.edit(NAME, content).await;
    one.replaced(APP, &before).await;
    one.settled(NAME, "UpToDate").await;
    assert_eq!(other.pods(APP).await, others);
}

#[tokio::test]
async fn one_operator_serves_all_namespaces_also_new_and_deleted_ones() {
    let control_plane = ControlPlane::start().await.unwrap();
    install_crd(&control_plane).await;
    let components = ["deploy/cluster-wide/secrets", "deploy/high-availability"];
    apply(&control_plane, "configmonitor-system", "deploy/cluster-wide", &components).await;
    let get = ["get", "deployment", "configmonitor-operator", "-n", "configmonitor-system", "--output=json"];
    let deployment: Value = serde_json::from_str(&control_plane.kubectl().ok(&get).await.unwrap()).unwrap();
    let env = &deployment["spec"]["template"]["spec"]["containers"][0]["env"];
    assert!(
        env.as_array().unwrap().contains(&json!({"name": "CONFIGMONITOR_ALL_NAMESPACES", "value": "true"})),
        "{env}"
    );
    let proxy = start_proxy_of(&control_plane, &deployment, "configmonitor-system").await;
    let (one, other) = (Fixture::new(&control_plane).await, Fixture::new(&control_plane).await);
    one.config_map("of-nobody", "one").await;
    let replica = ["--all-namespaces", "--leader-elect", "--pod-namespace", "configmonitor-system", "--pod-uid", "one"];
    let operator = start(&proxy.url(), "default", &replica);
    operator.wait_for_message("became leader").await.unwrap();
    operator.wait_for_message("synced").await.unwrap();
    furnish(&one).await;
    furnish(&other).await;
    edits_concern(&one, &other, "two").await;
    edits_concern(&other, &one, "two").await;
    // Without a selector.
    let namespaces = "/api/v1/namespaces";
    assert_refused_by_proxy(namespaces, Client::new(&proxy.url()).get(namespaces).await);

    let path = format!("/api/v1/namespaces/{}", other.namespace);
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
    other.create("configmaps", held).await;
    control_plane.client().delete(&path).await.unwrap().ok().unwrap();
    eventually("all but what is held is gone", DEADLINE, async || {
        let monitors = other.client.list(&other.collection("configmonitors")).await?;
        ensure!(monitors.is_empty() && other.pods(APP).await.is_empty(), "{monitors:?}");
        Ok(())
    })
    .await
    .unwrap();
    let before = one.ready_pods(APP, 2).await;
    one.edit(NAME, "while another one is terminating").await;
    one.replaced(APP, &before).await;
    other.patch("configmaps", "held", json!({"metadata": {"finalizers": null}})).await;
    eventually("the namespace is gone", DEADLINE, async || {
        let answer = control_plane.client().get(&path).await?;
        ensure!(answer.status == 404, "the namespace still exists");
        Ok(())
    })
    .await
    .unwrap();
    let again = json!({"metadata": {"name": other.namespace}});
    control_plane.client().create("/api/v1/namespaces", &again).await.unwrap().ok().unwrap();
    furnish(&other).await;
    edits_concern(&other, &one, "three").await;
    let log = operator.log().unwrap();
    let mut deleted = log.iter().filter(|line| line["message"] == "pod deleted");
    assert!(deleted.all(|line| line["span"]["namespace"].is_string()), "{log:?}");

    do_everything(&Fixture::new(&control_plane).await).await;
    let mut roles = Vec::new();
    for path in [
        "clusterroles/configmonitor-operator",
        "clusterroles/configmonitor-operator-secrets",
        "namespaces/configmonitor-system/roles/configmonitor-operator-leader",
    ] {
        let path = format!("/apis/rbac.authorization.k8s.io/v1/{path}");
        roles.push(control_plane.client().get(&path).await.unwrap().ok().unwrap());
    }
    let requests = requests_of(&control_plane, "configmonitor-system").unwrap();
    every_right_is_used_and_none_is_missing(&requests, &roles);
}

#[tokio::test]
async fn with_the_component_only_namespaces_with_the_label_are_served_while_they_have_it() {
    let control_plane = ControlPlane::start().await.unwrap();
    install_crd(&control_plane).await;
    let system = "configmonitor-system";
    let components = ["deploy/cluster-wide/namespace-selector", "deploy/cluster-wide/secrets"];
    apply(&control_plane, system, "deploy/cluster-wide", &components).await;
    let operator = Fixture { namespace: system.to_owned(), client: control_plane.client() };
    let deployment = operator.get("deployments", "configmonitor-operator").await;
    let (one, other) = (Fixture::new(&control_plane).await, Fixture::new(&control_plane).await);
    let label = async |fixture: &Fixture, value: Value| {
        let labels = json!({"metadata": {"labels": {"magalix.com/configmonitors": value}}});
        let path = format!("/api/v1/namespaces/{}", fixture.namespace);
        control_plane.client().merge_patch(&path, &labels).await.unwrap().ok().unwrap();
    };
    label(&one, json!("enabled")).await;
    label(&other, json!("disabled")).await;
    let (_proxy, operator) = pod_of(&control_plane, &deployment, system, "one").await;
    furnish(&one).await;
    other.config_map(NAME, "one").await;
    other.deployment(NAME, 2, json!({"app": NAME})).await;
    other.create_monitor(NAME, json!({})).await;
    edits_concern(&one, &other, "two").await;
    assert!(other.get("configmonitors", NAME).await["status"].is_null());

    label(&other, json!("enabled")).await;
    other.settled(NAME, "UpToDate").await;
    edits_concern(&other, &one, "two").await;
    label(&one, Value::Null).await;
    let before = one.ready_pods(APP, 2).await;
    operator.wait_for_message("namespace no longer selected").await.unwrap();
    one.edit(NAME, "three").await;
    edits_concern(&other, &one, "three").await;
    label(&one, json!("enabled")).await;
    one.replaced(APP, &before).await;

    let third = Fixture::new(&control_plane).await;
    label(&third, json!("enabled")).await;
    do_everything(&third).await;
    let mut roles = Vec::new();
    for role in ["configmonitor-operator", "configmonitor-operator-secrets"] {
        let path = format!("/apis/rbac.authorization.k8s.io/v1/clusterroles/{role}");
        roles.push(control_plane.client().get(&path).await.unwrap().ok().unwrap());
    }
    every_right_is_used_and_none_is_missing(&requests_of(&control_plane, system).unwrap(), &roles);
}

#[tokio::test]
async fn missing_rights_in_one_namespace_disturb_no_other_and_it_works_once_they_are_granted() {
    let control_plane = control_plane().await;
    let fixtures = [Fixture::new(control_plane).await, Fixture::new(control_plane).await];
    let proxy = share_proxy(control_plane, &fixtures).await;
    let [one, other] = &fixtures;
    other.delete("rolebindings", "configmonitor-operator-shared").await;
    let operator = start(&proxy.url(), &format!("{}|{}", one.namespace, other.namespace), &[]);
    operator.wait_for_message("synced").await.unwrap();
    let ready = format!("{}/readyz", operator.url().await.unwrap());
    assert_eq!(reqwest::get(&ready).await.unwrap().status(), 200);
    other.config_map(NAME, "one").await;
    other.deployment(NAME, 2, json!({"app": NAME})).await;
    other.create_monitor(NAME, json!({})).await;
    furnish(one).await;
    edits_concern(one, other, "two").await;
    let refused = |line: &&Value| line["message"] == "waiting for the right to do so";
    let log = operator.log().unwrap();
    let refused: Vec<&Value> = log.iter().filter(refused).collect();
    assert!(refused.len() == 2 && refused.iter().all(|line| line["namespace"] == *other.namespace), "{refused:?}");

    other.bind("configmonitor-operator", &one.namespace).await;
    other.settled(NAME, "UpToDate").await;
    edits_concern(other, one, "two").await;
    // The rights are revoked again.
    other.delete("rolebindings", "configmonitor-operator-shared").await;
    edits_concern(one, other, "three").await;
}

#[tokio::test]
async fn whoever_follows_the_page_has_an_operator_for_a_list_of_namespaces() {
    let control_plane = control_plane().await;
    let own = create_namespace(control_plane, json!({})).await;
    let mut fixtures = Vec::new();
    for _ in 0..2 {
        let namespace = create_namespace(control_plane, json!({})).await;
        fixtures.push(Fixture { namespace, client: control_plane.client() });
    }
    let [one, other] = &fixtures[..] else { panic!("two namespaces") };
    let mut reader = Reader::new(control_plane, &own).await;
    reader.replace("OPERATOR_NS", &own);
    let section = Section::of("docs/install.md", "A list of namespaces").unwrap();
    let kustomization = section.yaml[0].replace("shop", &one.namespace).replace("billing", &other.namespace);
    fs::write(reader.file("kustomization.yaml"), kustomization).unwrap();
    let [install, rights] = &section.sessions[..] else { panic!("two blocks of commands") };
    reader.follow(install).await;
    for fixture in &fixtures {
        let kustomization = section.yaml[1].replace("shop", &fixture.namespace).replace("OPERATOR_NS", &own);
        let role = "  - ../configmonitor-operator/deploy/role\n";
        let with_secrets = kustomization.replace(role, &format!("{role}{}", role.replace("/role", "/secrets/role")));
        fs::create_dir(reader.file(&fixture.namespace)).unwrap();
        fs::write(reader.file(&fixture.namespace).join("kustomization.yaml"), with_secrets).unwrap();
        reader.replace("shop", &fixture.namespace);
        reader.follow(rights).await;
        let operator = format!("system:serviceaccount:{own}:configmonitor-operator");
        let watch = format!("kubectl auth can-i watch secrets -n {} --as {operator}", fixture.namespace);
        reader.run(&watch).await.unwrap();
        assert!(
            fixture.client.get(&fixture.path("serviceaccounts", "configmonitor-operator")).await.unwrap().status == 404
        );
    }
    reader.follow(&section.others).await;

    let deployment = Fixture { namespace: own.clone(), client: control_plane.client() };
    let deployment = deployment.get("deployments", "configmonitor-operator").await;
    let served = |containers: &str| {
        let env = deployment["spec"]["template"]["spec"][containers][0]["env"].as_array().unwrap();
        env.iter().find(|variable| variable["name"] == "res_namespace").unwrap()["value"].as_str().unwrap()
    };
    let args = proxy_args(shipped_deployment(control_plane).await, served("initContainers"), &own);
    let token = control_plane.service_account_token(&own, "configmonitor-operator").await.unwrap();
    let proxy = control_plane.proxy_with(&token, &args).await.unwrap();
    let _operator = start(&proxy.url(), served("containers"), &[]);
    furnish(one).await;
    furnish(other).await;
    edits_concern(one, other, "two").await;
    edits_concern(other, one, "two").await;
}
