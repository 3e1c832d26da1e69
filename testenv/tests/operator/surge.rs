//! With `maxSurge` a pod serves until its successor is available, and is given back whatever happens: on a real control
//! plane, with the shipped rights and the shipped policy.

use std::time::Duration;

use anyhow::ensure;
use serde_json::{Value, json};
use testenv::fixture::{APP, NAME, file, message_of};
use testenv::{Answer, Client, DEADLINE, Operator, eventually};
use tokio::sync::OnceCell;
use tokio::time::sleep;

use crate::availability::Observer;
use crate::policies::is_checked;
use crate::test_namespace::{TestNamespace, control_plane};

const LABEL: &str = "magalix.com/handed-over=true";

static IN_FORCE: OnceCell<()> = OnceCell::const_new();

/// Gives an operator the rights of `deploy/surge`, with the policy in force.
async fn allow(ns: &TestNamespace) {
    IN_FORCE.get_or_init(put_policy_in_force).await;
    let kubectl = control_plane().await.kubectl();
    kubectl.ok(&["apply", "-n", &ns.namespace, "-f", &file("deploy/surge/binding/binding.yml")]).await.unwrap();
}

/// Once for all tests: who applies what another has just created fails.
async fn put_policy_in_force() {
    let control_plane = control_plane().await;
    control_plane.kubectl().ok(&["apply", "-f", &file("deploy/surge/policy/policy.yml")]).await.unwrap();
    for name in ["configmonitor-operator-surge", "configmonitor-operator-surge-marks"] {
        is_checked(control_plane, name).await;
    }
}

fn surging_operator(ns: &TestNamespace) -> Operator {
    ns.operator_at(&ns.proxy.url(), &["--surge"])
}

/// Pods of a Deployment, followed, and a ConfigMonitor that hands over one at a time.
pub(crate) async fn surging(replicas: usize, more: Value) -> (TestNamespace, Observer, Operator) {
    let (ns, observer) = TestNamespace::observed(replicas).await;
    allow(&ns).await;
    let operator = surging_operator(&ns);
    let mut spec = json!({"maxUnavailable": null, "maxSurge": 1, "quietPeriodSeconds": 0});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    ns.monitor(NAME, spec).await;
    // A pod that is as young as the edit may have read it, and a revert would replace it: times are whole seconds.
    sleep(Duration::from_secs(3)).await;
    (ns, observer, operator)
}

/// Waits until so many pods are handed over.
async fn handed_over(ns: &TestNamespace, count: usize) {
    eventually("pods are handed over", DEADLINE, async || {
        let pods = ns.pods(LABEL).await;
        let status = ns.client.get(&ns.path("configmonitors", NAME)).await?.body["status"].clone();
        ensure!(pods.len() == count, "{pods:?}: {status}");
        Ok(())
    })
    .await
    .unwrap();
}

/// Waits until only these pods are left, and none is handed over.
async fn only(ns: &TestNamespace, before: &std::collections::BTreeMap<String, String>) {
    eventually("the pods are back", DEADLINE, async || {
        let pods = ns.pods(APP).await;
        ensure!(pods == *before, "{pods:?}");
        Ok(())
    })
    .await
    .unwrap();
    handed_over(ns, 0).await;
}

#[tokio::test]
async fn no_pod_is_missing_at_any_moment_and_the_deployment_is_left_alone() {
    let (ns, observer, _operator) = surging(3, json!({})).await;
    let (before, generation) =
        (ns.pods(APP).await, ns.get("deployments", NAME).await["metadata"]["generation"].clone());
    ns.edit(NAME, "two").await;
    let settled = ns.settled(NAME, "UpToDate").await;
    ns.replaced(APP, &before).await;
    let seen = observer.end(&settled).await;
    assert_eq!((seen.most_missing(3, ""), seen.gone().len()), (0, 3));
    assert_eq!(ns.get("deployments", NAME).await["metadata"]["generation"], generation);
    let mut patches = ns.requests().unwrap();
    patches.retain(|entry| entry["verb"] == "patch");
    let is_dry = |entry: &Value| entry["requestURI"].as_str().unwrap().contains("dryRun=All");
    assert_eq!(patches.iter().map(is_dry).collect::<Vec<_>>(), [true, false, false, false], "one asks for the right");
    assert_eq!(ns.deletions().unwrap(), 3);
}

#[tokio::test]
async fn content_that_no_pod_gets_ready_with_takes_down_nothing_and_going_back_gives_the_pods_back() {
    let (ns, observer, _operator) = surging(2, json!({"progressDeadlineSeconds": 5})).await;
    let before = ns.pods(APP).await;
    let refusal = ns.keep_new_pods_from_getting_ready().await;
    ns.edit(NAME, "two").await;
    let stalled = ns.settled(NAME, "ProgressDeadlineExceeded").await;
    assert_eq!(stalled["status"]["restart"]["handedOver"], 1);
    assert!(message_of(&stalled, "Stalled").contains("handed over: "), "{}", stalled["status"]);
    ns.edit(NAME, "one").await;
    only(&ns, &before).await;
    for name in before.keys() {
        assert_eq!(
            ns.get("pods", name).await["metadata"]["ownerReferences"][0]["blockOwnerDeletion"],
            true,
            "as before"
        );
    }
    let settled = ns.settled(NAME, "UpToDate").await;
    refusal.lift().await;
    assert_eq!(observer.end(&settled).await.most_missing(2, ""), 0);
}

/// The Deployment lowers its former ReplicaSet by the successors that are not ready.
#[tokio::test]
async fn during_a_rollout_no_pod_is_given_back_to_a_replica_set_that_would_delete_another_one() {
    for is_reverted in [true, false] {
        let (ns, observer, _operator) = surging(4, json!({"maxSurge": "50%"})).await;
        // A rollout takes some seconds for each pod.
        let none = json!({"minReadySeconds": 2, "strategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}});
        ns.patch("deployments", NAME, json!({"spec": none})).await;
        let refusal = ns.keep_new_pods_from_getting_ready().await;
        let former = ns.client.list(&ns.collection("replicasets")).await.unwrap().remove(0);
        let former = former["metadata"]["name"].as_str().unwrap().to_owned();
        ns.edit(NAME, "two").await;
        handed_over(&ns, 2).await;
        let other = json!({"spec": {"template": {"spec": {"containers": [{"name": "app", "image": "other"}]}}}});
        ns.patch("deployments", NAME, other).await;
        let is_other = |pod: &Value| pod["spec"]["containers"][0]["image"] == "other";
        eventually("a pod of the other image is there", DEADLINE, async || {
            let pods = ns.client.list(&ns.path("pods", &format!("?labelSelector={APP}"))).await?;
            ensure!(pods.iter().any(is_other), "{} pods", pods.len());
            Ok(())
        })
        .await
        .unwrap();
        refusal.lift().await;
        // The others stay as they are: kwok does not retry before a pod has changed.
        let touched = json!({"metadata": {"annotations": {"touched": "true"}}});
        for pod in ns.client.list(&ns.path("pods", &format!("?labelSelector={APP}"))).await.unwrap() {
            if is_other(&pod) {
                ns.patch("pods", pod["metadata"]["name"].as_str().unwrap(), touched.clone()).await;
            }
        }
        eventually("the former ReplicaSet is lowered", DEADLINE, async || {
            let set = ns.get("replicasets", &former).await;
            ensure!(set["spec"]["replicas"] == 3, "{}", set["spec"]["replicas"]);
            Ok(())
        })
        .await
        .unwrap();
        match is_reverted {
            true => ns.edit(NAME, "one").await,
            false => ns.delete("configmonitors", NAME).await,
        }
        let deployment = eventually("the rollout is over", DEADLINE, async || {
            let deployment = ns.get("deployments", NAME).await;
            let status = &deployment["status"];
            ensure!(
                status["updatedReplicas"] == 4 && status["availableReplicas"] == 4 && status["replicas"] == 4,
                "{status}"
            );
            Ok(deployment)
        })
        .await
        .unwrap();
        handed_over(&ns, 0).await;
        let seen = observer.end(&deployment).await;
        assert_eq!((seen.most_missing(4, ""), seen.given_back()), (0, 0), "reverted: {is_reverted}");
    }
}

/// Such as the ReplicaSet of an Argo Rollout that has the name of the Deployment.
#[tokio::test]
async fn a_replica_set_that_only_has_the_name_of_one_of_the_deployment_counts_for_nothing() {
    let (ns, observer) = TestNamespace::observed(0).await;
    allow(&ns).await;
    let template = |part: &str| {
        json!({"metadata": {"labels": {"app": NAME, "part": part}},
        "spec": {"containers": [{"name": "app", "image": "app"}]}})
    };
    let own = json!({"replicas": 1, "selector": {"matchLabels": {"app": NAME}}, "template": template("own")});
    let owner = ns.get("configmaps", NAME).await["metadata"].take();
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": NAME, "uid": owner["uid"], "controller": true});
    let foreign = json!({"replicas": 2, "selector": {"matchLabels": {"part": "other"}}, "template": template("other")});
    let metadata = json!({"name": format!("{NAME}-x"), "ownerReferences": [owner]});
    ns.create("replicasets", json!({"metadata": metadata, "spec": foreign})).await;
    ns.create("deployments", json!({"metadata": {"name": NAME}, "spec": own})).await;
    ns.ready_pods(APP, 3).await;
    let _operator = surging_operator(&ns);
    let spec =
        json!({"podSelector": {"part": "own"}, "maxUnavailable": null, "maxSurge": 1, "progressDeadlineSeconds": 5});
    ns.monitor(NAME, spec).await;
    let refusal = ns.keep_new_pods_from_getting_ready().await;
    ns.edit(NAME, "two").await;
    ns.settled(NAME, "ProgressDeadlineExceeded").await;
    handed_over(&ns, 1).await;
    refusal.lift_for_all().await;
    let settled = ns.settled(NAME, "UpToDate").await;
    assert_eq!(observer.end(&settled).await.most_missing(3, ""), 0);
}

/// Whoever has the operator's token can make a pod look so.
#[tokio::test]
async fn a_pod_that_only_looks_handed_over_holds_up_no_restart() {
    for surges in [false, true] {
        let ns = TestNamespace::with_pods(2).await;
        allow(&ns).await;
        let forge = async || {
            let (name, _) = ns.pods(APP).await.pop_last().unwrap();
            let set = ns.get("pods", &name).await["metadata"]["ownerReferences"][0].clone();
            let from = format!("{}/{}", set["name"].as_str().unwrap(), set["uid"].as_str().unwrap());
            let uid = &ns.get("deployments", NAME).await["metadata"]["uid"];
            let to =
                json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": NAME, "uid": uid, "controller": true});
            let looks = json!({"metadata": {
                "labels": {"magalix.com/handed-over": "true"},
                "annotations": {"magalix.com/handed-over-from": from, "magalix.com/handed-over-by": "nobody/u/r/t"},
                "ownerReferences": [to, {"$patch": "delete", "uid": set["uid"]}],
            }});
            Client::new(&ns.proxy.url()).strategic_patch(&ns.path("pods", &name), &looks).await?.ok()
        };
        eventually("the forger has the right", DEADLINE, forge).await.unwrap();
        let _operator = if surges { surging_operator(&ns) } else { ns.operator().await };
        let (most, surge) = if surges { (Value::Null, json!(1)) } else { (json!("100%"), Value::Null) };
        ns.monitor(NAME, json!({"maxUnavailable": most, "maxSurge": surge})).await;
        // An operator that surges gives it back, and the ReplicaSet then deletes a pod. If somebody takes this one from
        // it meanwhile, it waits for the deletion for five minutes.
        let given_back = async || {
            if surges {
                handed_over(&ns, 0).await;
                ns.ready_pods(APP, 2).await;
            }
        };
        given_back().await;
        eventually("another pod looks handed over", DEADLINE, forge).await.unwrap();
        given_back().await;
        ns.edit(NAME, "two").await;
        ns.settled(NAME, "UpToDate").await;
        ns.ready_pods(APP, 2).await;
    }
}

/// Neither adopts a pod that has one controller at every moment.
#[tokio::test]
async fn other_controllers_that_select_the_pods_take_none() {
    let (ns, observer, _operator) = surging(2, json!({})).await;
    let before = ns.pods(APP).await;
    let pod = json!({"nodeSelector": {"is": "nowhere"}, "containers": [{"name": "app", "image": "app"}]});
    for (resource, count) in [("replicasets", json!({"replicas": 0})), ("daemonsets", json!({}))] {
        let mut spec = count;
        spec["selector"] = json!({"matchLabels": {"app": NAME}});
        spec["template"] = json!({"metadata": {"labels": {"app": NAME}}, "spec": pod});
        ns.create(resource, json!({"metadata": {"name": "other"}, "spec": spec})).await;
    }
    ns.edit(NAME, "two").await;
    let settled = ns.settled(NAME, "UpToDate").await;
    ns.replaced(APP, &before).await;
    let seen = observer.end(&settled).await;
    assert_eq!((seen.most_missing(2, ""), seen.gone().len()), (0, 2));
}

#[tokio::test]
async fn what_admission_says_against_handing_over_is_in_the_message() {
    let (ns, _observer, _operator) = surging(2, json!({})).await;
    let before = ns.pods(APP).await;
    let (pod, _) = before.first_key_value().unwrap();
    let refusal = ns.refuse_other_owners(pod).await;
    ns.edit(NAME, "two").await;
    ns.settled(NAME, "DeletionRefused").await;
    ns.messages_have(&["patch pod", "not for now"]).await;
    assert_eq!(ns.pods(APP).await, before, "a pod that may not be handed over is not deleted instead");
    refusal.lift().await;
    ns.settled(NAME, "UpToDate").await;
}

/// Whoever has the operator's token can hand pods over, and nothing else.
#[tokio::test]
async fn the_policy_refuses_every_other_change_of_a_pod() {
    let ns = TestNamespace::with_pods(2).await;
    allow(&ns).await;
    let other = ns.get("deployments", NAME).await;
    ns.create_deployment("other", 1, &json!({"app": "other"})).await;
    let (name, _) = ns.pods(APP).await.pop_first().unwrap();
    let pod = ns.get("pods", &name).await;
    let set = &pod["metadata"]["ownerReferences"][0];
    let owner = |kind: &str, name: &Value, uid: &Value| json!({"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": uid, "controller": true});
    let deployment = owner("Deployment", &other["metadata"]["name"], &other["metadata"]["uid"]);
    let gone = json!({"$patch": "delete", "uid": set["uid"]});
    let operator = Client::new(&ns.proxy.url());
    let path = ns.path("pods", &name);
    let patch = async |metadata: Value| -> anyhow::Result<Answer> {
        operator.strategic_patch(&format!("{path}?dryRun=All"), &json!({"metadata": metadata})).await
    };
    // It takes a moment until the policy is in force.
    eventually("the policy holds", DEADLINE, async || {
        let answer = patch(json!({"labels": {"a": "b"}})).await?;
        ensure!(answer.status == 403, "{} {}", answer.status, answer.body);
        Ok(())
    })
    .await
    .unwrap();
    let refused = [
        (json!({"labels": {"a": "b"}}), "of the labels"),
        (json!({"labels": {"app": null}}), "of the labels"),
        (json!({"labels": {"magalix.com/handed-over": "x"}}), "of the labels"),
        (json!({"annotations": {"a": "b"}}), "of the annotations"),
        (json!({"annotations": {"controller.kubernetes.io/pod-deletion-cost": "1"}}), "of the annotations"),
        (json!({"finalizers": ["a.example.com/b"]}), "the finalizers"),
        (json!({"ownerReferences": [gone]}), "may hand a pod over only"),
        (
            json!({"ownerReferences": [gone, owner("Deployment", &json!("other"), &other["metadata"]["uid"])]}),
            "may hand a pod over only",
        ),
        (
            json!({"ownerReferences": [gone, owner("ReplicaSet", &json!("other-1"), &set["uid"])]}),
            "may hand a pod over only",
        ),
        (
            json!({"ownerReferences": [gone, owner("StatefulSet", &json!(NAME), &other["metadata"]["uid"])]}),
            "may hand a pod over only",
        ),
        (
            json!({"ownerReferences": [json!({"apiVersion": "v1", "kind": "ConfigMap", "name": NAME, "uid": "u"})]}),
            "no owner of a pod but",
        ),
    ];
    for (metadata, why) in refused {
        let answer = patch(metadata.clone()).await.unwrap();
        assert_eq!(answer.status, 403, "{metadata}: {}", answer.body);
        assert!(answer.body["message"].as_str().unwrap().contains(why), "{metadata}: {}", answer.body);
    }
    let image = json!({"spec": {"containers": [{"name": "app", "image": "another"}]}});
    let answer = operator.strategic_patch(&path, &image).await.unwrap();
    assert_eq!(answer.status, 403, "{}", answer.body);
    let rights = "--resource=pods/status,pods/ephemeralcontainers";
    let kubectl = control_plane().await.kubectl();
    kubectl.ok(&["create", "role", "more", "--verb=patch", rights, "-n", &ns.namespace]).await.unwrap();
    ns.bind("more", &ns.namespace).await;
    let token = control_plane().await.service_account_token(&ns.namespace, "configmonitor-operator").await.unwrap();
    let proxy = control_plane().await.proxy_with(&token, &[]).await.unwrap();
    let debugger = json!({"spec": {"ephemeralContainers": [{"name": "a", "image": "another"}]}});
    let subresources = [("status", json!({"status": {"phase": "Failed"}})), ("ephemeralcontainers", debugger)];
    for (subresource, body) in subresources {
        let answer = Client::new(&proxy.url()).strategic_patch(&format!("{path}/{subresource}"), &body).await.unwrap();
        assert_eq!(answer.status, 403, "{}", answer.body);
        assert!(answer.body["message"].as_str().unwrap().contains("no subresource of a pod"), "{}", answer.body);
    }
    let swap = json!({"labels": {"magalix.com/handed-over": "true"}, "ownerReferences": [gone, deployment],
        "annotations": {"magalix.com/handed-over-by": "a/b", "controller.kubernetes.io/pod-deletion-cost": "-2147483648"}});
    patch(swap).await.unwrap().ok().unwrap();
    // Nobody else says that a pod is handed over.
    let marks = [
        json!({"labels": {"magalix.com/handed-over": "true"}}),
        json!({"annotations": {"magalix.com/handed-over-by": "a/b"}}),
        json!({"annotations": {"magalix.com/handed-over-from": "a/b"}}),
    ];
    for metadata in marks {
        let answer = ns.client.merge_patch(&path, &json!({"metadata": metadata})).await.unwrap();
        assert_eq!(answer.status, 403, "{metadata}: {}", answer.body);
        assert!(answer.body["message"].as_str().unwrap().contains("only the operator says"), "{}", answer.body);
        let pod = json!({"metadata": {"name": "marked"}, "spec": {"containers": [{"name": "app", "image": "app"}]}});
        let mut marked = pod.clone();
        marked["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
        let created = ns.client.create(&ns.collection("pods"), &marked).await.unwrap();
        assert_eq!(created.status, 403, "{marked}");
    }
    ns.patch("pods", &name, json!({"metadata": {"labels": {"a": "b"}}})).await;
}
