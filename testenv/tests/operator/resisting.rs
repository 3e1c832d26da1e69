//! A pod that does not go holds up no pods of other owners, and it is named.

use serde_json::{Value, json};
use testenv::{DEADLINE, Fault, FaultProxy, eventually};

use crate::availability::EVER;
use crate::world::World;
use testenv::fixture::{APP, NAME, condition};

/// Waits until every word is in the message of the condition Ready.
async fn told(world: &World, words: &[&str]) -> Value {
    // A pod that should have ended a minute ago is stuck.
    eventually(&format!("{words:?} are in the message"), 2 * DEADLINE, async || {
        let monitor = world.get("configmonitors", NAME).await;
        let message = condition(&monitor, "Ready")["message"].as_str().unwrap_or_default();
        anyhow::ensure!(words.iter().all(|word| message.contains(word)), "{}", monitor["status"]);
        Ok(monitor)
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn a_pod_whose_deletion_is_refused_is_named_and_asked_last_and_all_others_go() {
    let (world, observer) = World::observed(0).await;
    for of in ["one", "two"] {
        world.deployment(of, 3, json!({"app": NAME, "of": of})).await;
    }
    let before = world.pods(APP).await;
    let (resists, _) = world.pods("of=one").await.pop_first().unwrap();
    let refusal = world.refuse_deletion(&resists).await;
    let _operator = world.operator().await;
    world.monitor(NAME, json!({"maxUnavailable": 1})).await;
    world.edit(NAME, "two").await;
    eventually("all others are replaced", DEADLINE, async || {
        let now = world.pods(APP).await;
        let left: Vec<&String> = now.keys().filter(|name| before.contains_key(*name)).collect();
        anyhow::ensure!(now.len() == 6 && left == [&resists], "left: {left:?}, of {now:?}");
        Ok(())
    })
    .await
    .unwrap();
    let refused = told(&world, &[&resists, "not for now"]).await;
    assert_eq!(condition(&refused, "Ready")["reason"], "DeletionRefused");
    // The first time it may have had its turn, and after that all others go before.
    let asked = world.asked_to_go();
    let others_end = asked.iter().rposition(|name| *name != resists).unwrap();
    assert!(asked[..others_end].iter().filter(|name| **name == resists).count() <= 1, "{resists}: {asked:?}");

    refusal.lift().await;
    let settled = world.settled(NAME, "UpToDate").await;
    world.replaced(APP, &before).await;
    let seen = observer.end(&settled).await;
    assert_eq!((seen.most_missing(EVER), seen.gone(EVER).len()), (1, 6));
}

#[tokio::test]
async fn a_pod_that_does_not_end_holds_up_only_what_it_takes_of_the_budget() {
    let (world, observer) = World::observed(0).await;
    let labels = json!({"app": NAME, "of": "set"});
    // The others do not wait for the one, and a pod of a StatefulSet does not return before it has gone.
    let spec = json!({"replicas": 3, "podManagementPolicy": "Parallel", "selector": {"matchLabels": labels}, "template": {
        "metadata": {"labels": labels}, "spec": {"containers": [{"name": "app", "image": "app"}]},
    }});
    world.create("statefulsets", json!({"metadata": {"name": NAME}, "spec": spec})).await;
    let set = world.ready_pods("of=set", 3).await;
    let (resists, _) = set.first_key_value().unwrap();
    world.patch("pods", resists, json!({"metadata": {"finalizers": ["example.com/held"]}})).await;
    world.deployment("others", 4, json!({"app": NAME, "of": "others"})).await;
    let others = world.pods("of=others").await;
    let _operator = world.operator().await;
    world.monitor(NAME, json!({"maxUnavailable": 2, "progressDeadlineSeconds": 2})).await;
    world.edit(NAME, "two").await;
    world.replaced("of=others", &others).await;
    told(&world, &[resists, "no progress"]).await;

    world.patch("pods", resists, json!({"metadata": {"finalizers": null}})).await;
    let settled = world.settled(NAME, "UpToDate").await;
    world.replaced("of=set", &set).await;
    let seen = observer.end(&settled).await;
    assert_eq!((seen.most_missing(EVER), seen.gone(EVER).len()), (2, 7));
}

/// A webhook may deny a request with any code and reason. A policy may not: the API server takes the reasons Forbidden, Invalid and
/// RequestEntityTooLarge only. So the answer is made up here, between the operator and its proxy.
async fn denied_as(code: u16, reason: &'static str) {
    for policy in [json!({}), json!({"maxUnavailable": 1})] {
        let (world, observer) = World::observed(3).await;
        let before = world.pods(APP).await;
        let (resists, uid) = before.first_key_value().unwrap();
        let faults = FaultProxy::start(&world.proxy.url()).await.unwrap();
        let path = world.path("pods", resists);
        faults.rule(move |request| {
            let is_denied = request.method == "DELETE" && request.target == path;
            if is_denied { Fault::Answered(denial(code, reason)) } else { Fault::None }
        });
        let _operator = world.operator_behind(&faults.url());
        world.monitor(NAME, policy).await;
        world.edit(NAME, "two").await;
        let refused = told(&world, &[resists, "not for now"]).await;
        assert_eq!(condition(&refused, "Ready")["reason"], "DeletionRefused");
        eventually("all others are replaced", DEADLINE, async || {
            let now = world.pods(APP).await;
            let left: Vec<&String> = now.values().filter(|now| before.values().any(|old| old == *now)).collect();
            anyhow::ensure!(now.len() == 3 && left == [uid], "left: {left:?}, of {now:?}");
            Ok(())
        })
        .await
        .unwrap();

        world.patch("configmonitors", NAME, json!({"spec": {"progressDeadlineSeconds": 1}})).await;
        world.settled(NAME, "ProgressDeadlineExceeded").await;
        told(&world, &[resists, "no progress", "not for now"]).await;
        faults.rule(|_| Fault::None);
        let settled = world.settled(NAME, "UpToDate").await;
        world.replaced(APP, &before).await;
        assert_eq!(observer.end(&settled).await.gone(EVER).len(), 3);
    }
}

/// What the API server answers when a webhook denies a request.
fn denial(code: u16, reason: &str) -> String {
    let message = r#"admission webhook "keeper.example.com" denied the request: not for now"#;
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": reason, "code": code,
    });
    let (body, head) = (body.to_string(), format!("HTTP/1.1 {code} {reason}\r\nContent-Type: application/json"));
    format!("{head}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
}

#[tokio::test]
async fn a_deletion_that_is_denied_as_a_conflict_is_refused() {
    denied_as(409, "Conflict").await;
}

#[tokio::test]
async fn a_deletion_that_is_denied_as_not_found_is_refused() {
    denied_as(404, "NotFound").await;
}
