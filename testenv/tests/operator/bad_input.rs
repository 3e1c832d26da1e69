//! Invalid input is reported at the object, harms no other ConfigMonitor, and is no obstacle once it is fixed.

use serde_json::{Value, json};
use testenv::ControlPlane;

use crate::test_namespace::TestNamespace;
use testenv::fixture::{APP, NAME, condition, install_crd};

/// Returns the CRD of an early installation without a schema.
fn lax_crd() -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "configmonitors.magalix.com"},
        "spec": {
            "group": "magalix.com",
            "scope": "Namespaced",
            "names": {"kind": "ConfigMonitor", "plural": "configmonitors", "singular": "configmonitor"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema, "subresources": {"status": {}}}],
        },
    })
}

#[tokio::test]
async fn the_operator_waits_for_the_crd_and_reports_objects_older_than_the_schema() {
    let control_plane = ControlPlane::start().await.unwrap();
    let ns = TestNamespace::on(&control_plane).await;
    ns.config_map(NAME, "one").await;
    ns.deployment(NAME, 1, json!({"app": NAME})).await;
    let operator = ns.unsynced_operator();
    let line = operator.wait_for_message("waiting for the CustomResourceDefinition").await.unwrap();
    assert_eq!(line["resource"], "configmonitors");

    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    ns.client.create(crds, &lax_crd()).await.unwrap().ok().unwrap();
    operator.wait_for_message("synced").await.unwrap();
    let selector = json!({"app": NAME});
    let invalid = [
        ("no-source", json!({"podSelector": selector})),
        ("two-sources", json!({"configMap": NAME, "configmap": NAME, "podSelector": selector})),
        ("everything", json!({"configMap": NAME, "podSelector": {}})),
        ("no-map", json!({"configMap": NAME, "podSelector": "app=frontend"})),
        ("no-number", json!({"configMap": NAME, "podSelector": selector, "quietPeriodSeconds": "soon"})),
        ("no-spec", Value::Null),
    ];
    for (name, spec) in &invalid {
        let object =
            json!({"apiVersion": "magalix.com/v1", "kind": "ConfigMonitor", "metadata": {"name": name}, "spec": spec});
        ns.create("configmonitors", object).await;
    }
    ns.monitor(NAME, json!({})).await;
    for (name, _) in &invalid {
        let monitor = ns.settled(name, "InvalidSpec").await;
        assert_eq!(condition(&monitor, "Stalled")["status"], "True", "{name}");
        assert!(condition(&monitor, "Ready")["message"].as_str().unwrap().contains("spec"), "{name}");
    }

    assert_eq!(ns.events("ConfigMonitor", "InvalidSpec").await.len(), invalid.len());

    let odd = json!({"configMap": "none", "podSelector": selector});
    let odd =
        json!({"apiVersion": "magalix.com/v1", "kind": "ConfigMonitor", "metadata": {"name": "odd"}, "spec": odd});
    ns.create("configmonitors", odd).await;
    ns.settled("odd", "SourceNotFound").await;
    ns.patch("configmonitors", "odd/status", json!({"status": {"history": "none"}})).await;
    ns.patch("configmonitors", "odd", json!({"spec": {"suspend": true}})).await;
    let refused = ns.event("ConfigMonitor", "Refused").await;
    let note = refused["note"].as_str().unwrap();
    assert!(note.contains("it cannot be decoded: unexpected shape at line"), "{note}");
    ns.patch("configmonitors", "odd/status", json!({"status": null})).await;
    ns.settled("odd", "SourceNotFound").await;
    ns.delete("configmonitors", "odd").await;

    // Installing the schema ends every watch, and the valid ConfigMonitor keeps working.
    install_crd(&control_plane).await;
    let before = ns.pods(APP).await;
    ns.edit(NAME, "two").await;
    ns.replaced(APP, &before).await;
    ns.settled(NAME, "UpToDate").await;
    ns.patch("configmonitors", "no-source", json!({"spec": {"configMap": NAME}})).await;
    ns.settled("no-source", "UpToDate").await;
}
