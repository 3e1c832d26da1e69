//! What the API server refuses by `deploy/policies`, whoever has the operator's token or writes a ConfigMonitor.

use std::fs;

use anyhow::ensure;
use serde_json::{Value, json};
use testenv::fixture::{Fixture, NAME, apply, create_namespace, file, install_crd};
use testenv::pages::Section;
use testenv::{Answer, Client, ControlPlane, DEADLINE, Proxy, RunDir, eventually};

use crate::reader::Reader;

const SYSTEM: &str = "configmonitor-system";

/// Applies the policies, and waits until they are in force.
async fn enforce(control_plane: &ControlPlane) {
    let section = Section::of("docs/security.md", "Policies").unwrap();
    Reader::new(control_plane, "default").await.follow(section.steps()).await;
    for name in ["configmonitor-operator", "configmonitors.magalix.com"] {
        is_checked(control_plane, name).await;
    }
}

/// Waits until the API server has checked the expressions of a policy, and found nothing.
pub(crate) async fn is_checked(control_plane: &ControlPlane, name: &str) {
    let path = format!("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{name}");
    eventually("the policy is checked", DEADLINE, async || {
        let policy = control_plane.client().get(&path).await?.ok()?;
        let status = &policy["status"];
        ensure!(status["observedGeneration"] == policy["metadata"]["generation"], "{status}");
        assert!(status["typeChecking"]["expressionWarnings"].is_null(), "{status}");
        Ok(())
    })
    .await
    .unwrap();
}

/// A proxy for whoever has a token of this ServiceAccount.
async fn with_token_of(control_plane: &ControlPlane, namespace: &str, name: &str) -> Proxy {
    let token = control_plane.service_account_token(namespace, name).await.unwrap();
    control_plane.proxy_with(&token, &[]).await.unwrap()
}

async fn assert_refused(what: &str, why: &str, request: impl AsyncFn() -> anyhow::Result<Answer>) {
    eventually(what, DEADLINE, async || {
        let answer = request().await?;
        ensure!(answer.status == 403, "{}: {}", answer.status, answer.body);
        ensure!(answer.body["message"].as_str().is_some_and(|message| message.contains(why)), "{}", answer.body);
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn the_token_of_the_operator_deletes_no_pod_of_an_excluded_namespace_and_none_of_its_own() {
    let control_plane = ControlPlane::start().await.unwrap();
    install_crd(&control_plane).await;
    apply(&control_plane, SYSTEM, "deploy/cluster-wide", &[]).await;
    enforce(&control_plane).await;
    let other = create_namespace(&control_plane, json!({})).await;
    let admin = control_plane.client();
    // The operator's namespace takes no other pods.
    let context = json!({"allowPrivilegeEscalation": false, "runAsNonRoot": true, "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"}});
    let spec = json!({"containers": [{"name": "app", "image": "app", "securityContext": context}]});
    let pod = |name: &str| json!({"metadata": {"name": name}, "spec": spec});
    let pods = [("kube-system", "coredns"), (SYSTEM, "configmonitor-operator-0"), (SYSTEM, "web"), (&*other, "web")];
    for (namespace, name) in pods {
        admin.create(&format!("/api/v1/namespaces/{namespace}/pods"), &pod(name)).await.unwrap().ok().unwrap();
    }
    let proxy = with_token_of(&control_plane, SYSTEM, "configmonitor-operator").await;
    let operator = Client::new(&proxy.url());
    let why = [
        "the operator may delete or change no pod in the namespace kube-system",
        "the operator may not delete or change its own pods",
    ];
    for ((namespace, name), why) in pods.iter().zip(why) {
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
        let eviction =
            json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}});
        // First with `dryRun`: a policy takes a moment until it is in force.
        for dry_run in ["?dryRun=All", ""] {
            assert_refused("a deletion is refused", why, async || operator.delete(&format!("{path}{dry_run}")).await)
                .await;
            let evict = async || operator.create(&format!("{path}/eviction{dry_run}"), &eviction).await;
            assert_refused("an eviction is refused", why, evict).await;
        }
    }
    for (namespace, name) in &pods[2..] {
        operator.delete(&format!("/api/v1/namespaces/{namespace}/pods/{name}")).await.unwrap().ok().unwrap();
    }
    // The page says to edit the file.
    let policy = fs::read_to_string(file("deploy/policies/operator.yml")).unwrap();
    let selector = "expression: \"['example.com/team=shop', 'stage!=test', '!legacy', 'known', 'tier=', 'size!=']\"";
    assert!(policy.contains("expression: \"[]\""));
    let dir = RunDir::create().unwrap();
    let edited = dir.path().join("operator.yml");
    fs::write(&edited, policy.replace("expression: \"[]\"", selector)).unwrap();
    control_plane.kubectl().ok(&["apply", "-f", edited.to_str().unwrap()]).await.unwrap();
    is_checked(&control_plane, "configmonitor-operator").await;
    let namespace = format!("/api/v1/namespaces/{other}");
    admin.create(&format!("{namespace}/pods"), &pod("web")).await.unwrap().ok().unwrap();
    let delete = async || operator.delete(&format!("{namespace}/pods/web?dryRun=All")).await;
    let label = async |labels: Value| {
        let labels = json!({"metadata": {"labels": labels}});
        admin.merge_patch(&namespace, &labels).await.unwrap().ok().unwrap();
    };
    let why = format!("the operator may delete or change no pod in the namespace {other}: it lacks the labels");
    assert_refused("without labels a deletion is refused", &why, delete).await;
    let right =
        json!({"example.com/team": "shop", "stage": null, "legacy": null, "known": "", "tier": "", "size": "1"});
    for (key, wrong) in [
        ("example.com/team", json!("billing")),
        ("example.com/team", json!(null)),
        ("stage", json!("test")),
        ("legacy", json!("")),
        ("known", json!(null)),
        ("tier", json!("front")),
        ("size", json!("")),
    ] {
        // Otherwise the API server may still refuse by the labels before.
        label(right.clone()).await;
        eventually("the labels are right", DEADLINE, async || delete().await?.ok()).await.unwrap();
        label(json!({key: wrong})).await;
        assert_refused("a deletion is refused", &why, delete).await;
    }
    // The policy is about the operator only.
    admin.delete("/api/v1/namespaces/kube-system/pods/coredns").await.unwrap().ok().unwrap();
}

/// Somebody with rights in a namespace.
struct Tenant {
    fixture: Fixture,
    client: Client,
    _proxy: Proxy,
}

impl Tenant {
    async fn new(control_plane: &ControlPlane) -> Self {
        let fixture =
            Fixture { namespace: create_namespace(control_plane, json!({})).await, client: control_plane.client() };
        fixture.create("serviceaccounts", json!({"metadata": {"name": "tenant"}})).await;
        let subject = json!({"kind": "ServiceAccount", "name": "tenant", "namespace": fixture.namespace});
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "tenant"});
        fixture.create("roles", json!({"metadata": {"name": "tenant"}, "rules": []})).await;
        fixture
            .create("rolebindings", json!({"metadata": {"name": "tenant"}, "roleRef": role, "subjects": [subject]}))
            .await;
        let proxy = with_token_of(control_plane, &fixture.namespace, "tenant").await;
        Self { fixture, client: Client::new(&proxy.url()), _proxy: proxy }
    }

    /// Lets the tenant write ConfigMonitors, and do this.
    async fn allow(&self, more: &[Value]) {
        let verbs = ["get", "create", "update", "patch", "delete"];
        let write = json!({"apiGroups": ["magalix.com"], "resources": ["configmonitors"], "verbs": verbs});
        let rules: Vec<&Value> = [&write].into_iter().chain(more).collect();
        self.fixture.patch("roles", "tenant", json!({"rules": rules})).await;
    }

    async fn create(&self, name: &str, sources: &Value, query: &str) -> anyhow::Result<Answer> {
        let spec = json!({"sources": sources, "podSelector": {"app": NAME}});
        let object =
            json!({"apiVersion": "magalix.com/v1", "kind": "ConfigMonitor", "metadata": {"name": name}, "spec": spec});
        self.client.create(&format!("{}{query}", self.fixture.collection("configmonitors")), &object).await
    }

    async fn patch(&self, name: &str, patch: &Value, query: &str) -> anyhow::Result<Answer> {
        self.client.merge_patch(&format!("{}{query}", self.fixture.path("configmonitors", name)), patch).await
    }

    /// Asserts that the tenant cannot create this. With `dryRun`, since a policy or a right takes a moment until it is in
    /// force, and what got through before that would stay.
    async fn cannot_create(&self, name: &str, sources: &Value, why: &str) {
        assert_refused(name, why, async || self.create(name, sources, "?dryRun=All").await).await;
    }

    async fn cannot_patch(&self, name: &str, patch: Value, why: &str) {
        assert_refused(&patch.to_string(), why, async || self.patch(name, &patch, "?dryRun=All").await).await;
    }
}

#[tokio::test]
async fn who_writes_a_config_monitor_may_delete_pods_and_get_what_it_names() {
    let control_plane = ControlPlane::start().await.unwrap();
    install_crd(&control_plane).await;
    enforce(&control_plane).await;
    let tenant = Tenant::new(&control_plane).await;
    let right = |resource: &str, verb: &str, name: Option<&str>| json!({"apiGroups": [""], "resources": [resource], "verbs": [verb], "resourceNames": name.into_iter().collect::<Vec<_>>()});
    let (pods, maps, no_pods) =
        (right("pods", "delete", None), right("configmaps", "get", None), "needs the right to delete pods");
    let of_maps: Value = (0..16).map(|number| json!({"configMap": {"name": format!("map-{number}")}})).collect();
    let secret = json!([{"secret": {"name": "key"}}]);

    // Without the right to delete pods, to the second ConfigMap, to a Secret.
    tenant.allow(std::slice::from_ref(&maps)).await;
    tenant.cannot_create("a", &of_maps, no_pods).await;
    tenant.allow(&[pods.clone(), right("configmaps", "get", Some("map-0"))]).await;
    let last = json!([of_maps[0], of_maps[15]]);
    tenant.cannot_create("a", &last, "needs the right to get it: configmaps/map-15").await;
    tenant.allow(&[pods.clone(), maps.clone()]).await;
    tenant.cannot_create("a", &secret, "needs the right to get it: secrets/key").await;
    eventually("all rights", DEADLINE, async || tenant.create("a", &of_maps, "").await?.ok()).await.unwrap();
    let short = json!({"spec": {"sources": null, "configMap": "map-0"}});
    tenant.patch("a", &short, "").await.unwrap().ok().unwrap();

    let of_admin = json!({"configMap": null, "sources": secret});
    tenant.fixture.create_monitor("b", of_admin).await;
    tenant.patch("b", &json!({"spec": {"maxUnavailable": 1}}), "").await.unwrap().ok().unwrap();
    let more = json!({"spec": {"sources": [{"secret": {"name": "key"}}, {"secret": {"name": "other"}}]}});
    tenant.cannot_patch("b", more, "needs the right to get it: secrets/other").await;
    let keys = json!({"spec": {"sources": [{"secret": {"name": "key", "keys": ["password"]}}]}});
    tenant.cannot_patch("b", keys, "needs the right to get it: secrets/key").await;
    for (kind, right) in [("ConfigMap", "discovers ConfigMaps"), ("Secret", "discovers Secrets")] {
        let discover = json!({"spec": {"discover": {"kinds": [kind]}}});
        tenant.cannot_patch("a", discover, &format!("who {right} needs the right to list them")).await;
    }

    tenant.allow(&[maps]).await;
    let request = json!({"metadata": {"annotations": {"magalix.com/restart-requested-at": "now"}}});
    tenant.cannot_patch("a", request, no_pods).await;
    tenant.cannot_patch("a", json!({"spec": {"podSelector": {"app": "other"}}}), no_pods).await;
    tenant.patch("a", &json!({"metadata": {"labels": {"team": "web"}}}), "").await.unwrap().ok().unwrap();
    tenant.client.delete(&tenant.fixture.path("configmonitors", "a")).await.unwrap().ok().unwrap();
}
