//! What becomes of a restart when something happens in the middle of it, for both kinds: all at once and rolling.
//! `fields`, `crashes` and `halting` have more of it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::ensure;
use serde_json::{Value, json};
use testenv::{ControlPlane, DEADLINE, Operator, eventually};
use tokio::time::sleep;

use crate::availability::{EVER, revision};
use crate::bad_input::lax_crd;
use crate::refusal::{Refusal, not_ready, wait_for_not_ready};
use crate::world::World;
use testenv::fixture::{APP, NAME};

/// All at once, or rolling with a budget of one.
const KINDS: [Kind; 2] = [Kind::AllAtOnce, Kind::Rolling];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    AllAtOnce,
    Rolling,
}

/// A restart that is held in its middle. All at once no pod may be deleted; rolling, one has gone and the one that has come in its
/// place does not get Ready.
struct Held<'a> {
    world: &'a World,
    operator: Operator,
    refusal: Option<Refusal<'a>>,
    before: BTreeMap<String, String>,
    /// The UIDs of those of before that have gone.
    gone: Vec<String>,
}

impl<'a> Held<'a> {
    /// Restarts the pods that there are.
    async fn begin(world: &'a World, kind: Kind) -> Self {
        let operator = world.operator().await;
        let before = world.pods(APP).await;
        let refusal = match kind {
            Kind::AllAtOnce => {
                world.monitor(NAME, json!({})).await;
                world.revoke("pods", "delete").await;
                None
            }
            Kind::Rolling => {
                world.monitor(NAME, json!({"maxUnavailable": 1})).await;
                Some(world.keep_new_pods_from_getting_ready().await)
            }
        };
        world.edit(NAME, "two").await;
        let mut held = Self { world, operator, refusal, before, gone: Vec::new() };
        match kind {
            Kind::AllAtOnce => drop(world.settled(NAME, "Forbidden").await),
            Kind::Rolling => held.one_has_gone().await,
        }
        held
    }

    async fn one_has_gone(&mut self) {
        wait_for_not_ready(self.world, 1).await;
        self.gone = self.gone().await;
    }

    /// What held it up is no more.
    async fn release(self) -> (Operator, BTreeMap<String, String>) {
        match self.refusal {
            Some(refusal) => refusal.lift_for_all().await,
            None => self.world.grant("pods", "delete").await,
        }
        (self.operator, self.before)
    }

    /// The UIDs of those of before that have gone by now.
    async fn gone(&self) -> Vec<String> {
        gone(&self.before, &self.world.pods(APP).await)
    }
}

/// The UIDs of those of before that are not there now.
fn gone(before: &BTreeMap<String, String>, now: &BTreeMap<String, String>) -> Vec<String> {
    before.values().filter(|uid| !now.values().any(|left| left == *uid)).cloned().collect()
}

/// The ConfigMonitor of another application gets its baseline: the operator has seen all that was before, and had its time.
async fn operator_goes_on(world: &World, name: &str) {
    world.monitor(name, json!({"configMap": "kube-root-ca.crt", "podSelector": {"app": "another"}})).await;
    // Nor does anything happen a little later, on a machine that is fast.
    sleep(Duration::from_secs(1)).await;
}

#[tokio::test]
async fn new_content_supersedes_it_and_replaces_what_it_has_brought() {
    for kind in KINDS {
        let (world, observer) = World::observed(3).await;
        let held = Held::begin(&world, kind).await;
        let with_two = world.pods(APP).await;
        world.edit(NAME, "three").await;
        let (_operator, before) = held.release().await;
        let settled = world.settled(NAME, "UpToDate").await;
        let results: Vec<&Value> =
            settled["status"]["history"].as_array().unwrap().iter().map(|entry| &entry["result"]).collect();
        assert_eq!(results, ["Completed", "Superseded"], "{kind:?}");
        world.replaced(APP, &with_two).await;
        world.replaced(APP, &before).await;
        let most = observer.end(&settled).await.most_missing(EVER);
        assert!(kind == Kind::AllAtOnce || most == 1, "{kind:?}: {most}");
    }
}

/// Of the pods of before, all at once none has gone, and rolling the one that has.
#[tokio::test]
async fn content_that_goes_back_replaces_only_what_it_has_brought() {
    for kind in KINDS {
        let (world, observer) = World::observed(3).await;
        // When pods were created and content came is known in whole seconds.
        sleep(Duration::from_secs(3)).await;
        let held = Held::begin(&world, kind).await;
        let brought = not_ready(&world).await;
        world.edit(NAME, "one").await;
        let (_operator, _) = held.release().await;
        let settled = world.settled(NAME, "UpToDate").await;
        world.ready_pods(APP, 3).await;
        let seen = observer.end(&settled).await;
        let after: Vec<String> =
            seen.gone(EVER).into_iter().skip(brought.len()).map(|gone| gone.name.clone()).collect();
        assert_eq!(after, brought, "{kind:?}");
    }
}

/// As if it had never been away.
#[tokio::test]
async fn content_that_goes_and_comes_back_within_its_quiet_period_lets_it_go_on() {
    for kind in KINDS {
        let (world, observer) = World::observed(3).await;
        let held = Held::begin(&world, kind).await;
        world.patch("configmonitors", NAME, json!({"spec": {"quietPeriodSeconds": 600}})).await;
        world.edit(NAME, "three").await;
        world.settled(NAME, "QuietPeriod").await;
        world.edit(NAME, "two").await;
        let (_operator, before) = held.release().await;
        let settled = world.settled(NAME, "UpToDate").await;
        world.replaced(APP, &before).await;
        assert_eq!(observer.end(&settled).await.gone(EVER).len(), 3, "{kind:?}: a pod was replaced twice");
        let history = settled["status"]["history"].as_array().unwrap();
        assert_eq!((history.len(), &history[0]["result"]), (1, &json!("Completed")), "{kind:?}");
    }
}

#[tokio::test]
async fn a_status_that_is_wiped_is_first_sight() {
    for kind in KINDS {
        let (world, _) = World::observed(3).await;
        let held = Held::begin(&world, kind).await;
        let went = held.gone.len();
        let path = world.path("configmonitors", NAME) + "/status";
        world.client.merge_patch(&path, &json!({"status": null})).await.unwrap().ok().unwrap();
        world.settled(NAME, "UpToDate").await;
        let (_operator, before) = held.release().await;
        let now = world.ready_pods(APP, 3).await;
        operator_goes_on(&world, "another").await;
        assert_eq!(world.pods(APP).await, now, "{kind:?}");
        assert_eq!(gone(&before, &now).len(), went, "{kind:?}");
    }
}

#[tokio::test]
async fn it_is_held_while_the_config_map_does_not_exist_or_it_is_suspended_and_then_goes_on() {
    for (kind, reason) in KINDS.into_iter().flat_map(|kind| [(kind, "ConfigMapNotFound"), (kind, "Suspended")]) {
        let (world, observer) = World::observed(3).await;
        let held = Held::begin(&world, kind).await;
        match reason {
            "Suspended" => drop(world.patch("configmonitors", NAME, json!({"spec": {"suspend": true}})).await),
            _ => world.delete("configmaps", NAME).await,
        }
        let stopped = world.settled(NAME, reason).await;
        let (_operator, before) = held.release().await;
        world.ready_pods(APP, 3).await;
        operator_goes_on(&world, "another").await;
        let resumed = match reason {
            "Suspended" => world.patch("configmonitors", NAME, json!({"spec": {"suspend": false}})).await,
            _ => world.create("configmaps", json!({"metadata": {"name": NAME}, "data": {"config.cfg": "two"}})).await,
        };
        let settled = world.settled(NAME, "UpToDate").await;
        world.replaced(APP, &before).await;
        let seen = observer.end(&settled).await;
        assert_eq!(seen.gone(revision(&stopped)..=revision(&resumed)).len(), 0, "{kind:?}, {reason}");
        assert_eq!(seen.gone(EVER).len(), 3, "{kind:?}, {reason}");
        assert_eq!(settled["status"]["history"].as_array().unwrap().len(), 1, "{kind:?}, {reason}");
    }
}

#[tokio::test]
async fn an_edit_of_the_selector_leaves_the_pods_alone_that_are_not_selected_any_more() {
    for kind in KINDS {
        let (world, observer) = World::observed(0).await;
        for of in ["one", "two"] {
            world.deployment(of, 3, json!({"app": NAME, "of": of})).await;
        }
        let others = world.pods("of=two").await;
        let held = Held::begin(&world, kind).await;
        world.patch("configmonitors", NAME, json!({"spec": {"podSelector": {"of": "one"}}})).await;
        // It has been seen when something is said about it.
        eventually("the new selector is seen", DEADLINE, async || {
            let monitor = world.get("configmonitors", NAME).await;
            ensure!(monitor["status"]["observedGeneration"] == monitor["metadata"]["generation"], "an older one");
            Ok(())
        })
        .await
        .unwrap();
        let gone_before = held.gone.clone();
        let (_operator, before) = held.release().await;
        let settled = world.settled(NAME, "UpToDate").await;
        let (one, two) = (world.ready_pods("of=one", 3).await, world.ready_pods("of=two", 3).await);
        assert!(one.values().all(|uid| !before.values().any(|old| old == uid)), "{kind:?}: an old pod is left");
        let kept = others.values().filter(|uid| two.values().any(|left| left == *uid)).count();
        let gone = others.values().filter(|uid| gone_before.contains(uid)).count();
        assert_eq!(kept + gone, 3, "{kind:?}: a pod that is not selected was deleted");
        let most = observer.end(&settled).await.most_missing(EVER);
        assert!(kind == Kind::AllAtOnce || most == 1, "{kind:?}: {most}");
    }
}

#[tokio::test]
async fn another_source_is_a_baseline_and_it_goes_on_with_its_pods() {
    for kind in KINDS {
        let (world, observer) = World::observed(3).await;
        world.config_map("second", "other content").await;
        let held = Held::begin(&world, kind).await;
        world.patch("configmonitors", NAME, json!({"spec": {"configMap": "second"}})).await;
        let (_operator, before) = held.release().await;
        let settled = world.settled(NAME, "UpToDate").await;
        assert_eq!(settled["status"]["source"], "ConfigMap/second");
        world.replaced(APP, &before).await;
        let seen = observer.end(&settled).await;
        assert_eq!(seen.gone(EVER).len(), 3, "{kind:?}");
        assert!(kind == Kind::AllAtOnce || seen.most_missing(EVER) == 1, "{kind:?}");
    }
}

/// The schema takes no such spec, so there is none here.
#[tokio::test]
async fn a_spec_that_becomes_invalid_holds_it_until_it_is_mended() {
    let control_plane = ControlPlane::start().await.unwrap();
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    control_plane.client().create(crds, &lax_crd()).await.unwrap().ok().unwrap();
    for kind in KINDS {
        let world = World::on(&control_plane).await;
        world.config_map(NAME, "one").await;
        world.deployment(NAME, 3, json!({"app": NAME})).await;
        let held = Held::begin(&world, kind).await;
        world.patch("configmonitors", NAME, json!({"spec": {"podSelector": {"app": ""}, "suspend": "perhaps"}})).await;
        world.settled(NAME, "InvalidSpec").await;
        let went = held.gone.clone();
        let (_operator, before) = held.release().await;
        let now = world.ready_pods(APP, 3).await;
        operator_goes_on(&world, "another").await;
        assert_eq!(world.pods(APP).await, now, "{kind:?}");
        assert_eq!(gone(&before, &now).len(), went.len(), "{kind:?}");
        world.patch("configmonitors", NAME, json!({"spec": {"podSelector": {"app": NAME}, "suspend": null}})).await;
        world.settled(NAME, "UpToDate").await;
        world.replaced(APP, &before).await;
    }
}

#[tokio::test]
async fn nothing_more_goes_when_the_config_monitor_is_deleted() {
    for kind in KINDS {
        let (world, _) = World::observed(3).await;
        let held = Held::begin(&world, kind).await;
        world.delete("configmonitors", NAME).await;
        operator_goes_on(&world, "another").await;
        let went = held.gone.len();
        let (_operator, before) = held.release().await;
        let now = world.ready_pods(APP, 3).await;
        operator_goes_on(&world, "yet-another").await;
        assert_eq!(world.pods(APP).await, now, "{kind:?}");
        assert_eq!(gone(&before, &now).len(), went, "{kind:?}");
    }
}

#[tokio::test]
async fn after_a_crash_it_goes_on_with_the_same_pods() {
    for kind in KINDS {
        let (world, observer) = World::observed(3).await;
        let mut held = Held::begin(&world, kind).await;
        held.operator.kill();
        let (_dead, before) = held.release().await;
        world.ready_pods(APP, 3).await;
        let operator = world.operator().await;
        operator.wait_for_message("restart resumed").await.unwrap();
        let settled = world.settled(NAME, "UpToDate").await;
        world.replaced(APP, &before).await;
        let seen = observer.end(&settled).await;
        assert_eq!(seen.gone(EVER).len(), 3, "{kind:?}: a pod was replaced twice");
        assert!(kind == Kind::AllAtOnce || seen.most_missing(EVER) == 1, "{kind:?}");
        assert_eq!(settled["status"]["history"].as_array().unwrap().len(), 1, "{kind:?}");
    }
}
