//! `deploy/monitoring`: Prometheus finds the operator by it, and each alert fires when it should.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use testenv::binaries::tool;
use testenv::control_plane::free_port;
use testenv::pages::blocks;
use testenv::prometheus::promtool;
use testenv::{Client, DEADLINE, Process, RunDir, eventually, project};
use tokio::sync::OnceCell;

use super::metrics::is_accepted;
use crate::test_namespace::{TestNamespace, control_plane};
use testenv::fixture::{NAME, create_crd, create_namespace, relative, shipped_deployment};

/// Returns the groups of the PrometheusRule, as Prometheus reads them.
fn rules() -> String {
    let text = fs::read_to_string(project("deploy/monitoring/rules.yml")).unwrap();
    let (_, spec) = text.split_once("\nspec:\n").unwrap();
    spec.lines().map(|line| format!("{}\n", line.strip_prefix("  ").unwrap())).collect()
}

/// Returns the operator's metrics that a text names, without the suffixes of histograms.
pub(super) fn names_of_metrics(text: &str) -> Vec<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let names = words.filter(|word| word.starts_with("configmonitor_"));
    names.map(|name| ["_bucket", "_sum", "_count"].iter().fold(name, |name, end| name.trim_end_matches(end))).collect()
}

/// Returns whether the operator has a metric of this name. A test of `src/metrics.rs` compares the page with the code.
pub(super) fn is_known(name: &str) -> bool {
    fs::read_to_string(project("docs/operations.md")).unwrap().contains(&format!("\n| `{name}` |"))
}

#[tokio::test]
async fn each_alert_fires_when_it_should_and_is_explained() {
    let dir = RunDir::create().unwrap();
    let rules = rules();
    fs::write(dir.path().join("groups.yml"), &rules).unwrap();
    fs::copy(project("deploy/monitoring/tests/alerts.yml"), dir.path().join("alerts.yml")).unwrap();
    for arguments in [&["check", "rules", "groups.yml"][..], &["test", "rules", "alerts.yml"]] {
        let output = promtool(dir.path(), arguments, "/dev/null").await.unwrap();
        let output_text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{output_text}");
    }
    let (docs, tests) = ["docs/operations.md", "deploy/monitoring/tests/alerts.yml"]
        .map(|name| fs::read_to_string(project(name)).unwrap())
        .into();
    let alerts: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert_eq!(alerts.len(), 11);
    for alert in alerts {
        let anchor = format!("runbook_url: docs/operations.md#{}\n", alert.to_lowercase());
        assert!(docs.contains(&format!("\n### {alert}\n")) && rules.contains(&anchor), "{alert} is not explained");
        let is_tested = |expected: &str| {
            let of_alert = tests.split("eval_time: ").filter(|test| test.contains(&format!("alertname: {alert}")));
            of_alert.filter(|test| test.contains(expected)).count() > 0
        };
        assert!(is_tested("exp_alerts: []") && is_tested("exp_labels"), "{alert} is not tested");
    }
    for name in names_of_metrics(&rules) {
        assert!(is_known(name), "there is no metric {name}");
    }
}

/// Returns a CustomResourceDefinition that accepts any spec, because the Prometheus Operator's own would be large.
fn of_prometheus_operator(kind: &str) -> Value {
    let plural = format!("{}s", kind.to_lowercase());
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    let names =
        json!({"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")});
    let spec = json!({"group": "monitoring.coreos.com", "names": names, "scope": "Namespaced", "versions": [version]});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.monitoring.coreos.com")}, "spec": spec})
}

/// Installs what `deploy/monitoring` needs of the Prometheus Operator, once.
pub(crate) async fn prometheus_operator() {
    static INSTALLED: OnceCell<()> = OnceCell::const_new();
    let install = async || {
        let control_plane = control_plane().await;
        for kind in ["PodMonitor", "PrometheusRule", "ServiceMonitor"] {
            create_crd(control_plane, &of_prometheus_operator(kind)).await;
        }
    };
    INSTALLED.get_or_init(install).await;
}

#[tokio::test]
async fn the_component_scrapes_the_pod_of_the_deployment() {
    let control_plane = control_plane().await;
    let namespace = create_namespace(control_plane, json!({})).await;
    let kubectl = control_plane.kubectl();
    prometheus_operator().await;
    let dir = RunDir::create().unwrap();
    let folder = fs::canonicalize(dir.path()).unwrap();
    let [operator, monitoring] = ["deploy", "deploy/monitoring"].map(|part| relative(&folder, part));
    let page = fs::read_to_string(project("docs/operations.md")).unwrap();
    let runbooks = blocks(&page, "yaml").into_iter().find(|block| block.contains("replacements:")).unwrap();
    let kustomization = format!("resources: [{operator}]\ncomponents: [{monitoring}]\n{runbooks}");
    fs::write(folder.join("kustomization.yaml"), kustomization).unwrap();
    let output = kubectl.run(&["apply", "-n", &namespace, "-k", folder.to_str().unwrap()]).await.unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));

    let get = async |what: &str| -> Value {
        let name = format!("{what}/configmonitor-operator");
        serde_json::from_str(&kubectl.ok(&["get", "-n", &namespace, &name, "--output=json"]).await.unwrap()).unwrap()
    };
    let template = &shipped_deployment(control_plane).await["spec"]["template"];
    let (pod_monitor, service) = (get("podmonitor").await, get("service").await);
    for selector in [&pod_monitor["spec"]["selector"]["matchLabels"], &service["spec"]["selector"]] {
        assert_eq!(selector, &template["metadata"]["labels"]);
    }
    let port = &template["spec"]["containers"][0]["ports"][0]["name"];
    assert_eq!(&pod_monitor["spec"]["podMetricsEndpoints"][0]["port"], port);
    assert_eq!(&service["spec"]["ports"][0]["targetPort"], port);
    let dashboard = ["get", "configmap", "-n", &namespace, "--selector=grafana_dashboard=1", "--output=name"];
    assert_eq!(kubectl.ok(&dashboard).await.unwrap(), "configmap/configmonitor-operator-dashboard\n");
    let rules = get("prometheusrule").await["spec"]["groups"][0]["rules"].to_string();
    assert_eq!(rules.matches("\"runbook_url\":\"https://docs.example.com/operations.md#configmonitor").count(), 11);
}

#[tokio::test]
async fn kube_state_metrics_has_series_for_each_config_monitor() {
    let ns = TestNamespace::with_pods(1).await;
    let _operator = ns.operator().await;
    ns.monitor(NAME, json!({})).await;
    ns.edit(NAME, "two").await;
    ns.settled(NAME, "UpToDate").await;
    ns.monitor("patient", json!({"quietPeriodSeconds": 3600})).await;
    ns.edit(NAME, "three").await;
    ns.settled("patient", "QuietPeriod").await;

    // With the rights that docs/operations.md names, and no others.
    let (control_plane, namespace) = (control_plane().await, &*ns.namespace);
    let (role, account) =
        (format!("--clusterrole={namespace}"), format!("--serviceaccount={namespace}:kube-state-metrics"));
    let resources = "--resource=configmonitors.magalix.com,customresourcedefinitions.apiextensions.k8s.io";
    for create in [
        &["serviceaccount", "kube-state-metrics", "--namespace", namespace][..],
        &["clusterrole", namespace, "--verb=list,watch", resources],
        &["clusterrolebinding", namespace, &role, &account],
    ] {
        control_plane.kubectl().ok(&[&["create"], create].concat()).await.unwrap();
    }
    let token = control_plane.service_account_token(namespace, "kube-state-metrics").await.unwrap();
    let kubectl = control_plane.kubectl_with(&token).unwrap();

    let [port, telemetry_port] = [free_port().unwrap(), free_port().unwrap()].map(|port| port.to_string());
    let dir = RunDir::create().unwrap();
    let mut command = Command::new(tool("kube-state-metrics").await.unwrap());
    command
        .args(["--custom-resource-state-only", "--custom-resource-state-config-file"])
        .arg(project("deploy/monitoring/kube-state-metrics.yml"))
        .arg("--kubeconfig")
        .arg(kubectl.kubeconfig())
        .args(["--host=127.0.0.1", "--telemetry-host=127.0.0.1", "--port", &port, "--telemetry-port", &telemetry_port]);
    let process = Process::start(&command, &dir.path().join("kube-state-metrics.log")).unwrap();
    let client = Client::new(&format!("http://127.0.0.1:{port}"));
    let of = |name: &str| format!("namespace=\"{}\",name=\"{name}\"", ns.namespace);
    let (settled, pending) = (of(NAME), of("patient"));
    let metrics = eventually("the series are there", DEADLINE, async || {
        let answer = client.get("/metrics").await.with_context(|| process.failure("does not answer"))?.ok()?;
        let metrics = answer.as_str().unwrap_or_default().to_owned();
        let has = |metric: &str, labels: &[&str], value: &str| {
            let is_it = |line: &str| {
                line.starts_with(&format!("kube_configmonitor_{metric}{{"))
                    && labels.iter().all(|label| line.split(['{', '}', ',']).any(|part| part == *label))
                    && (value.is_empty() || line.ends_with(&format!(" {value}")))
            };
            ensure!(metrics.lines().any(is_it), "no {metric} with {labels:?} and {value:?} in {metrics}");
            anyhow::Ok(())
        };
        // The ConfigMonitor that waits may have counted the terminating pod of the other one's restart.
        for (who, ready, pods) in [(&settled, "1", "1"), (&pending, "0", "")] {
            let who: Vec<&str> = who.split(',').collect();
            has("status_condition", &[&who[..], &["type=\"Ready\""]].concat(), ready)?;
            has("status_pods", &who, pods)?;
        }
        let (settled, pending): (Vec<&str>, Vec<&str>) = (settled.split(',').collect(), pending.split(',').collect());
        has("status_last_restart_timestamp", &settled, "")?;
        has("status_restart_observed_timestamp", &pending, "")?;
        has("status_condition", &[&pending[..], &["reason=\"QuietPeriod\"", "type=\"Ready\""]].concat(), "0")?;
        Ok(metrics)
    })
    .await
    .unwrap();
    let helps = metrics.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split_once(' '));
    let helps: BTreeSet<(String, String)> = helps.map(|(name, help)| (name.to_owned(), help.to_owned())).collect();
    let docs = fs::read_to_string(project("docs/operations.md")).unwrap();
    let rows = docs.lines().filter_map(|line| line.strip_prefix("| `kube_")?.strip_suffix(" |")?.split_once("` | "));
    let rows = rows.map(|(name, rest)| (format!("kube_{name}"), rest.split_once(" | ").unwrap().1.to_owned()));
    assert_eq!(rows.collect::<BTreeSet<_>>(), helps);
    is_accepted(&metrics).await;
}
