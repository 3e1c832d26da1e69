mod explore;
mod last;
mod machine;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU8;
use std::slice::from_ref;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;

use super::canary::CanarySight;
use super::sight::Deployments;
use super::sight::{OwnerState, OwnerStates, Sight, Undeleted};
use super::standing::{Move, Standing};
use super::targets::Targets;
use crate::kube::objects::Owner;
use crate::kube::{ServerTime, Uid};
use crate::monitor::content::Kind;
use crate::monitor::exempt::Exempt;
use crate::monitor::pod::Pod;
use crate::monitor::referrers::Snapshot;
use crate::monitor::source::SourceName;
use crate::monitor::spec::{CanaryPolicy, PodCount, Policy};
use crate::monitor::status::{Canary, CanaryState, Change, SourceStatus, Status};

/// The second in which the new content was first read. Pods are older by default.
const READ: i64 = 1000;

fn server(second: i64) -> ServerTime {
    ServerTime::from_second(second)
}

fn policy(unmanaged: &str) -> Policy {
    spec(&format!(r#","unmanagedPods":"{unmanaged}""#))
}

/// All pods may be unavailable at once.
const AT_ONCE: &str = r#","maxUnavailable":"100%""#;

/// Returns the policy of a spec with these fields besides the source and the selector.
fn spec(more: &str) -> Policy {
    let budget = if more.contains("maxUnavailable") { "" } else { AT_ONCE };
    let spec = format!(r#"{{"configMap":"a","podSelector":{{"app":"web"}}{more}{budget}}}"#);
    Policy::of(Some(&RawValue::from_string(spec).unwrap())).unwrap()
}

/// Returns a source whose content has changed.
fn changed(name: &str) -> SourceStatus {
    let change = Change {
        hash: "sha256:b".into(),
        since: server(READ),
        observed_at: server(READ),
        pods_resource_version: Some("7".into()),
        begun: false,
    };
    let name = SourceName { kind: Kind::ConfigMap, name: name.into() };
    SourceStatus { hash: Some("sha256:a".into()), changes: vec![change], name, ..SourceStatus::default() }
}

/// Returns the status of a restart that is pending.
fn status() -> Status {
    Status { sources: vec![changed("a")], restart: Some(Box::default()), ..Status::default() }
}

fn owner(kind: &str, name: &str) -> Arc<Owner> {
    let (api_version, kind, name, uid) = ("apps/v1".to_owned(), kind.to_owned(), name.to_owned(), name.into());
    Arc::new(Owner { api_version, kind, name, uid })
}

fn web() -> Arc<Owner> {
    owner("ReplicaSet", "web")
}

/// Returns an old and ready pod of the ReplicaSet `web`.
fn pod(name: &str) -> Pod {
    Pod {
        name: name.into(),
        uid: name.into(),
        version: "7".into(),
        created: server(READ - 500),
        gone_by: None,
        controller: Some(web()),
        handed_over: None,
        has_cost: false,
        goes_last: false,
        mirror: false,
        completes: false,
        finished: false,
        ready_since: Some(server(READ - 480)),
        are_containers_ready: false,
        is_disrupted: false,
        started: Some(server(READ - 490)),
        trouble: None,
        crash: None,
    }
}

fn created(name: &str, second: i64) -> Pod {
    Pod { created: server(second), started: Some(server(second)), ..pod(name) }
}

/// Plans the restart of the pods that were created before the content was read, or in the second after that.
fn planned(policy: &Policy, pods: &[Pod], own_pod: Option<&Uid>) -> Targets {
    Targets::new(policy, (|pod: &Pod| pod.created <= server(READ + 1), false), query(), pods, own_pod)
}

fn query() -> String {
    policy("Skip").selector.to_query()
}

fn targets(pods: &[Pod]) -> Targets {
    planned(&policy("Skip"), pods, None)
}

/// Returns the state in second 1010, without any owner's state.
fn stands(targets: &Targets, pods: &[Pod]) -> Shown {
    stands_with(targets, pods, &[])
}

fn stands_with(targets: &Targets, pods: &[Pod], owners: &[(Arc<Owner>, usize)]) -> Shown {
    let owners = owners.iter().map(|(owner, pods)| (owner.clone(), state(*pods))).collect();
    seen(targets, &policy("Skip"), pods, None, &owners, READ + 10)
}

/// Returns the state of an owner whose pods are all selected.
fn state(desired: usize) -> OwnerState {
    OwnerState { desired, ..OwnerState::default() }
}

/// Returns the state of a restart, for all inputs.
fn seen(
    targets: &Targets,
    policy: &Policy,
    pods: &[Pod],
    own: Option<&Uid>,
    owners: &OwnerStates,
    second: i64,
) -> Shown {
    let pods = by_uid(pods);
    let sight = sight(targets, policy, &pods, owners);
    let standing = Sight { own_pod: own, at: server(second), ..sight }.standing();
    let Standing { next, remaining, lacking, .. } = standing;
    Shown { next, remaining, lacking }
}

/// A sight of these pods and owners in second 1010: no deletion was tried, and there is no canary.
fn sight<'a>(
    targets: &'a Targets,
    policy: &'a Policy,
    pods: &'a BTreeMap<Uid, Arc<Pod>>,
    owners: &'a OwnerStates,
) -> Sight<'a> {
    static UNDELETED: BTreeMap<Uid, Undeleted> = BTreeMap::new();
    static NO_DEPLOYMENTS: Deployments = Deployments::new();
    static NONE: Snapshot = Snapshot::new();
    Sight {
        targets,
        policy,
        pods,
        at: server(READ + 10),
        owners,
        deployments: &NO_DEPLOYMENTS,
        undeleted: &UNDELETED,
        unstartable: &NONE,
        own_pod: None,
        canary: None,
        is_overdue: false,
    }
}

/// A policy with a canary that need not stay available.
fn canary_policy(unmanaged: &str) -> Policy {
    Policy { canary: policy_canary(0), ..policy(unmanaged) }
}

fn policy_canary(bake: u64) -> Option<CanaryPolicy> {
    let pods = PodCount::Percent(NonZeroU8::new(100).unwrap());
    Some(CanaryPolicy { pods, bake: Duration::from_secs(bake) })
}

/// Returns the next move while a canary of `first` pods is being replaced.
fn canary_move(first: usize, sight: Sight<'_>) -> Move {
    let (canary, seen_ready) = (Canary { pods: first, state: CanaryState::Replacing }, BTreeSet::new());
    let canary = Some(CanarySight { canary: &canary, since: server(READ), seen_ready: &seen_ready, failed: None });
    Sight { canary, ..sight }.standing().next
}

/// The state of a restart, in part.
#[derive(Debug)]
struct Shown {
    next: Move,
    remaining: usize,
    lacking: usize,
}

fn by_uid(pods: &[Pod]) -> BTreeMap<Uid, Arc<Pod>> {
    pods.iter().map(|pod| (pod.uid.clone(), Arc::new(pod.clone()))).collect()
}

fn remove(names: &[&str]) -> Move {
    Move::Replace { remove: names.iter().map(|name| Uid::from(*name)).collect(), hand_over: Vec::new() }
}

fn old(targets: &Targets) -> Vec<&str> {
    targets.old.iter().map(Uid::as_str).collect()
}

#[test]
fn exempt_pods_are_skipped_and_listed() {
    let (job, workflow) = (Some(owner("Job", "job")), Some(owner("Workflow", "flow")));
    let pods = [
        pod("own"),
        Pod { mirror: true, ..pod("mirror") },
        Pod { controller: None, ..pod("bare") },
        Pod { controller: job, completes: true, ..pod("job") },
        Pod { controller: workflow, completes: true, ..pod("step") },
        created("new", READ + 2),
        Pod { finished: true, ..pod("finished") },
        pod("web"),
    ];
    let own = Some(Uid::from("own"));
    let skipped = |targets: &Targets| -> Vec<(String, Exempt)> {
        targets.skipped.iter().map(|skipped| (skipped.pod.to_string(), skipped.why)).collect()
    };
    let always = [("own".to_owned(), Exempt::Own), ("mirror".to_owned(), Exempt::Mirror)];
    let completes = ["job", "step"].map(|name| (name.to_owned(), Exempt::Completes));
    let unmanaged = [&[("bare".to_owned(), Exempt::Bare)][..], &completes].concat();
    let targets = planned(&policy("Skip"), &pods, own.as_ref());
    assert_eq!((old(&targets), skipped(&targets)), (vec!["web"], [&always[..], &unmanaged].concat()));
    let targets = planned(&policy("Delete"), &pods, own.as_ref());
    assert_eq!((old(&targets), skipped(&targets)), (vec!["bare", "job", "step", "web"], always.to_vec()));
}

#[test]
fn a_pod_that_becomes_exempt_during_a_restart_is_neither_deleted_nor_waited_for() {
    let pods = [Pod { controller: None, ..pod("bare") }, pod("own")];
    let targets = planned(&policy("Delete"), &pods, None);
    assert_eq!((old(&targets), targets.is_empty()), (vec!["bare", "own"], false));
    assert!(self::targets(&[created("later", READ + 5)]).is_empty());
    let own = Some(Uid::from("own"));
    let standing = seen(&targets, &policy("Skip"), &pods, own.as_ref(), &OwnerStates::new(), READ);
    assert_eq!((standing.next, standing.remaining), (Move::Done, 0));
}

/// As with a rollout: a ReplicaSet does not wait for its end, either. A StatefulSet creates no successor until then.
#[test]
fn a_pod_that_is_terminating_is_gone_and_its_successor_is_waited_for() {
    for kind in ["ReplicaSet", "StatefulSet"] {
        let set = owner(kind, "set");
        let leaving = Pod { gone_by: Some(server(READ + 3600)), ..of(&set, pod("set-0")) };
        let targets = targets(&[of(&set, pod("set-0"))]);
        let at = |pods: &[Pod]| seen(&targets, &policy("Skip"), pods, None, &states(&[(&set, 1)]), READ + 10);
        let alone = at(from_ref(&leaving));
        assert!(matches!(alone.next, Move::Wait(Some(_))) && (alone.remaining, alone.lacking) == (0, 1), "{alone:?}");
        let stuck = Pod { gone_by: Some(server(READ - 100)), ..leaving.clone() };
        assert_eq!(at(from_ref(&stuck)).next, Move::Wait(None), "time alone changes nothing");
        assert_eq!(at(&[leaving, of(&set, created("set-1", READ + 5))]).next, Move::Done);
    }
}

/// Other content came while it was terminating: the successor may fail with it.
#[test]
fn a_restart_of_which_all_pods_are_terminating_waits_for_their_successors() {
    let set = owner("StatefulSet", "set");
    let leaving = Pod { gone_by: Some(server(READ + 60)), ..of(&set, pod("set-0")) };
    let targets = targets(from_ref(&leaving));
    assert_eq!((targets.is_empty(), targets.len()), (false, 0));
    let owners = states(&[(&set, 1)]);
    let next = |pods: &[Pod]| seen(&targets, &policy("Skip"), pods, None, &owners, READ + 10).next;
    let new = of(&set, created("new", READ + 5));
    assert!(matches!(next(&[leaving]), Move::Wait(_)));
    assert!(matches!(next(&[Pod { ready_since: None, ..new.clone() }]), Move::Wait(_)));
    assert_eq!(next(&[new]), Move::Done);
}

/// As one for a backup, or a worker that has succeeded.
#[test]
fn a_pod_that_runs_to_completion_says_nothing_about_the_other_pods_of_its_owner() {
    let cluster = owner("RayCluster", "ray");
    let lasting = ["a", "b", "c", "d"].map(|name| of(&cluster, pod(name)));
    let policy = spec(r#","maxUnavailable":1"#);
    for finished in [false, true] {
        let backup = Pod { completes: true, finished, ..of(&cluster, pod("backup")) };
        let next = |pods: &[Pod]| {
            let targets = targets(&[&lasting[..], from_ref(&backup)].concat());
            seen(&targets, &policy, pods, None, &OwnerStates::new(), READ + 10).next
        };
        assert_eq!(next(&[&lasting[..], from_ref(&backup)].concat()), remove(&["a"]));
        assert_eq!(next(&[&lasting[1..], from_ref(&backup)].concat()), Move::Wait(None), "one is missing");
    }
}

/// It may be of the same application.
#[test]
fn by_default_a_stateful_set_that_lacks_a_pod_holds_up_another_one_and_is_named() {
    let (one, other) = (owner("StatefulSet", "one"), owner("StatefulSet", "other"));
    let member = of(&one, pod("one-0"));
    let targets = targets(from_ref(&member));
    let broken = Pod { ready_since: None, ..of(&other, created("other-0", READ + 5)) };
    let (policy, pods) = (spec(r#","maxUnavailableTotal":"100%""#), by_uid(&[member, broken]));
    let owners = states(&[(&one, 1), (&other, 1)]);
    let standing = sight(&targets, &policy, &pods, &owners).standing();
    assert_eq!(standing.next, Move::Wait(None));
    assert_eq!(standing.unsettled.iter().map(|it| &*it.owner.name).collect::<Vec<_>>(), ["other"]);
}

/// Its node is cut off, or a readiness gate is closed.
#[test]
fn a_pod_that_is_not_ready_although_its_containers_are_uses_the_budget_and_is_named() {
    let broken = |name| Pod { ready_since: None, ..pod(name) };
    let cut_off = |name| Pod { are_containers_ready: true, ..broken(name) };
    let policy = spec(r#","maxUnavailable":2"#);
    let standing = |pods: &[Pod]| {
        let (targets, by_uid, owners) = (targets(pods), by_uid(pods), states(&[(&web(), pods.len())]));
        let standing = sight(&targets, &policy, &by_uid, &owners).standing();
        (standing.next, standing.unavailable.iter().map(|pod| pod.name.to_string()).collect::<Vec<_>>())
    };
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let all = ["a", "b", "c"];
    assert_eq!(standing(&all.map(cut_off)), (Move::Wait(None), names(&all)));
    assert_eq!(standing(&[cut_off("a"), broken("b"), pod("c")]).0, remove(&["b"]));
    assert_eq!(standing(&[cut_off("a"), pod("b"), pod("c")]), (remove(&["a", "b"]), names(&["a"])));
}

/// Its pod on that node is not ready, and once it is deleted, it stays until somebody deletes the node.
#[test]
fn a_daemon_set_with_a_dead_node_restarts_its_other_pods_if_the_budget_allows_and_then_lacks_one() {
    let set = owner("DaemonSet", "agent");
    let names = ["a", "b", "c", "dead"];
    let before = names.map(|name| match name {
        "dead" => Pod { ready_since: None, are_containers_ready: true, ..of(&set, pod(name)) },
        _ => of(&set, pod(name)),
    });
    let targets = targets(&before);
    let at = |most: u32, pods: &[Pod]| {
        let policy = spec(&format!(r#","maxUnavailable":{most}"#));
        let (by_uid, owners) = (by_uid(pods), states(&[(&set, 4)]));
        let standing = sight(&targets, &policy, &by_uid, &owners).standing();
        (standing.next, standing.lacking)
    };
    assert_eq!(at(1, &before).0, Move::Wait(None));
    assert_eq!(at(2, &before).0, remove(&["a"]));
    let stays = Pod { gone_by: Some(server(READ - 100)), ..before[3].clone() };
    let new = |name| of(&set, created(name, READ + 3));
    let (next, lacking) = at(2, &[new("x"), new("y"), new("z"), stays]);
    assert!(matches!(next, Move::Wait(_)) && lacking == 1, "{next:?} {lacking}");
}

/// They may be members of one application.
#[test]
fn by_default_one_member_of_all_stateful_sets_goes_at_a_time_with_the_highest_ordinal_first() {
    let (one, two) = (owner("StatefulSet", "one"), owner("StatefulSet", "two"));
    let member = |set: &Arc<Owner>, name| of(set, pod(name));
    let pods =
        [member(&one, "one-0"), member(&one, "one-10"), member(&one, "one-9"), member(&two, "two-3"), pod("web")];
    let policy = spec(r#","maxUnavailableTotal":"100%""#);
    let owners = states(&[(&one, 3), (&two, 1), (&web(), 1)]);
    let next = |policy: &Policy, pods: &[Pod], owners: &OwnerStates| {
        seen(&targets(pods), policy, pods, None, owners, READ).next
    };
    assert_eq!(next(&policy, &pods, &owners), remove(&["web", "one-10"]));
    let lacking = states(&[(&one, 3), (&two, 2), (&web(), 1)]);
    assert_eq!(next(&policy, &pods, &lacking), remove(&["web"]), "one is missing");
    let broken = |pod: &Pod| Pod { ready_since: None, ..pod.clone() };
    let unready: Vec<Pod> = pods.iter().map(broken).collect();
    assert_eq!(next(&policy, &unready, &owners), remove(&["web", "one-0"]), "without it the others are not created");
    let decided = spec(r#","maxUnavailable":1"#);
    assert_eq!(next(&decided, &pods, &owners), remove(&["web", "one-10", "two-3"]));
}

#[test]
fn a_restart_is_over_when_the_owner_has_its_desired_replicas_even_if_it_had_fewer_at_the_start() {
    let broken = |name| Pod { ready_since: None, ..pod(name) };
    let targets = targets(&[broken("a"), broken("b")]);
    let new = |name, ready: bool| Pod { ready_since: ready.then(|| server(READ + 9)), ..created(name, READ + 9) };
    for owners in [vec![], vec![(web(), 2)]] {
        let standing = stands_with(&targets, &[new("x", true), new("y", false)], &owners);
        assert_eq!((standing.next, standing.remaining, standing.lacking), (Move::Wait(None), 0, 1));
        assert_eq!(stands_with(&targets, &[new("x", true), new("y", true)], &owners).next, Move::Done);
        let leaving = Pod { gone_by: Some(server(READ + 30)), ..new("y", true) };
        assert_eq!(
            stands_with(&targets, &[new("x", true), leaving], &owners).lacking,
            1,
            "who leaves is not available"
        );
        let finished = Pod { finished: true, ..new("y", true) };
        assert_eq!(stands_with(&targets, &[new("x", true), finished], &owners).lacking, 1, "who has finished is not");
    }
}

#[test]
fn pods_of_an_owner_that_are_not_selected_count_as_available() {
    let targets = targets(&[pod("a"), pod("b")]);
    let held = |others: &[Pod]| others.iter().cloned().map(Arc::new).collect();
    let owners = |others: &[Pod]| OwnerStates::from([(web(), OwnerState { others: held(others), ..state(3) })]);
    let next = |policy: &Policy, pods: &[Pod], others: &[Pod]| {
        seen(&targets, policy, pods, None, &owners(others), READ + 10).next
    };
    // One of three pods has lost its label. One of the others may go all the same.
    assert_eq!(next(&one_at_a_time(), &[pod("a"), pod("b")], &[pod("c")]), remove(&["a"]));
    // The new pods lack the label.
    let new = |ready: bool| Pod { ready_since: ready.then(|| server(READ + 9)), ..created("x", READ + 9) };
    assert_eq!(next(&one_at_a_time(), &[pod("b")], &[pod("c"), new(false)]), Move::Wait(None));
    assert_eq!(next(&one_at_a_time(), &[pod("b")], &[pod("c"), new(true)]), remove(&["b"]));
    let last = Pod { name: "y".into(), uid: "y".into(), ..new(true) };
    assert_eq!(next(&policy("Skip"), &[], &[pod("c"), new(true)]), Move::Wait(None));
    assert_eq!(next(&policy("Skip"), &[], &[pod("c"), new(true), last]), Move::Done);
}

#[test]
fn after_the_deadline_an_owner_of_an_unknown_kind_is_expected_to_keep_its_pods() {
    let custom = owner("CloneSet", "custom");
    let targets = targets(&[of(&custom, pod("a")), of(&custom, pod("b")), of(&custom, pod("c"))]);
    let pods = [of(&custom, created("x", READ + 9)), of(&custom, created("y", READ + 9))];
    let next = |targets: &Targets, pods: &[Pod]| stands(targets, pods).next;
    let after_the_deadline = |pods: &[Pod]| {
        let mut targets = targets.clone();
        targets.lower_expectations(&by_uid(pods));
        targets
    };
    assert_eq!((next(&targets, &pods), next(&after_the_deadline(&pods), &pods)), (Move::Wait(None), Move::Done));
    let starting = [pods[0].clone(), Pod { ready_since: None, ..pods[1].clone() }];
    assert_eq!(
        next(&after_the_deadline(&starting), &starting),
        Move::Wait(None),
        "what is there is to become available"
    );
    assert_eq!(next(&after_the_deadline(&pods), &pods[..1]), Move::Wait(None), "what goes later is missed");
    let mut known = planned(&policy("Skip"), &[pod("a")], None);
    known.lower_expectations(&BTreeMap::new());
    assert_eq!(next(&known, &[]), Move::Wait(None), "who can be asked is not given up");
}

#[test]
fn expectations_of_an_owner_of_an_unknown_kind_are_lowered_once() {
    let custom = owner("CloneSet", "custom");
    let mut targets = targets(&[of(&custom, pod("a")), of(&custom, pod("b")), of(&custom, pod("c"))]);
    let new = |name| of(&custom, created(name, READ + 9));
    let all = [pod("another"), new("x"), new("y"), new("z")];
    let mut lacking_of = |number, lacking_after| {
        let pods = &all[..=number];
        targets.lower_expectations(&by_uid(pods));
        assert_eq!(stands(&targets, pods).lacking, lacking_after, "with {number} pods");
    };
    lacking_of(3, 0);
    lacking_of(2, 0);
    lacking_of(1, 1);
}

/// Another ConfigMonitor has deleted its pods since the content was read, or they have the content.
#[test]
fn an_owner_of_which_no_pod_is_replaced_uses_no_budget() {
    let db = owner("StatefulSet", "db");
    let pods = [pod("a"), pod("b")];
    let targets = planned(&one_at_a_time(), &pods, None);
    let next = |db_has: &[Pod]| {
        let owners = states(&[(&web(), 2), (&db, 1)]);
        seen(&targets, &one_at_a_time(), &[&pods[..], db_has].concat(), None, &owners, READ + 10).next
    };
    assert_eq!(next(&[]), remove(&["a"]));
    assert_eq!(next(&[of(&db, Pod { ready_since: None, ..created("x", READ + 9) })]), remove(&["a"]));
}

/// The owner was deleted without its pods, and created again.
#[test]
fn the_pods_that_another_owner_has_adopted_are_within_its_budget() {
    let (before, after) = (owner("StatefulSet", "db"), owner("StatefulSet", "db-again"));
    let targets = targets(&["a", "b", "c"].map(|name| of(&before, pod(name))));
    let adopted = ["a", "b", "c"].map(|name| of(&after, pod(name)));
    let owners = states(&[(&before, 0), (&after, 3)]);
    assert_eq!(seen(&targets, &rolling(), &adopted, None, &owners, READ + 10).next, remove(&["a"]));
    assert_eq!(seen(&targets, &rolling(), &adopted[1..], None, &owners, READ + 10).next, Move::Wait(None));
}

/// Nobody has promised to create them again.
#[test]
fn of_the_pods_without_an_owner_the_next_ones_go_once_the_progress_deadline_has_passed() {
    let policy = spec(r#","unmanagedPods":"Delete","maxUnavailable":"25%""#);
    let pods = ["a", "b", "c", "d"].map(|name| Pod { controller: None, ..pod(name) });
    let mut targets = planned(&policy, &pods, None);
    let next =
        |targets: &Targets, pods: &[Pod]| seen(targets, &policy, pods, None, &OwnerStates::new(), READ + 10).next;
    assert_eq!(next(&targets, &pods), remove(&["a"]));
    assert_eq!(next(&targets, &pods[1..]), Move::Wait(None));
    let and_others = [&pods[1..], &[of(&owner("ReplicaSet", "web"), pod("web"))]].concat();
    targets.lower_expectations(&by_uid(&and_others));
    assert_eq!(next(&targets, &pods[1..]), remove(&["b"]));
}

/// Unready members may still vote.
#[test]
fn the_budget_limits_the_pods_of_a_stateful_set_in_transition_ready_or_not() {
    [rolling(), one_at_a_time()].iter().for_each(limits_the_pods_in_transition);
}

fn limits_the_pods_in_transition(policy: &Policy) {
    let db = owner("StatefulSet", "db");
    let broken = |name| Pod { ready_since: None, ..of(&db, pod(name)) };
    let pods = ["a", "b", "c"].map(broken);
    let targets = targets(&pods);
    let next = |is_overdue, pods: &[Pod]| {
        let owners = OwnerStates::from([(db.clone(), state(3))]);
        let pods = by_uid(pods);
        Sight { is_overdue, ..sight(&targets, policy, &pods, &owners) }.standing().next
    };
    assert_eq!(next(false, &pods), remove(&["a"]));
    let [a, rest @ ..] = pods;
    let leaving = Pod { gone_by: Some(server(READ + 30)), ..a };
    assert!(matches!(next(false, &[&rest[..], &[leaving]].concat()), Move::Wait(Some(_))));
    assert_eq!(next(false, &rest), Move::Wait(None), "in no list until it is created again");
    let new = |ready: bool| {
        let ready_since = ready.then(|| server(READ + 9));
        [&rest[..], &[Pod { ready_since, ..of(&db, created("x", READ + 8)) }]].concat()
    };
    assert_eq!(next(false, &new(false)), Move::Wait(None));
    assert_eq!(next(false, &new(true)), remove(&["b"]));
    assert_eq!(next(true, &new(false)), remove(&["b"]), "it may need the others to become ready");
    assert_eq!(next(true, &rest), remove(&["b"]), "or to be created");
    let scaled_down = OwnerStates::from([(db.clone(), state(2))]);
    let standing = seen(&targets, policy, &rest, None, &scaled_down, READ + 10);
    assert_eq!(standing.next, remove(&["b"]), "nothing comes for a member that is not desired any more");
    // A member that never existed is not waited for: an ordered StatefulSet creates it once the previous one is ready.
    let ordered = planned(policy, &rest[..1], None);
    let owners = OwnerStates::from([(db.clone(), state(3))]);
    let standing = seen(&ordered, policy, &rest[..1], None, &owners, READ + 10);
    assert_eq!(standing.next, remove(&["b"]));
}

#[test]
fn the_pods_and_owners_that_a_restart_waits_for_are_named_and_counted() {
    let (db, full, more, none) = (
        owner("StatefulSet", "db"),
        owner("ReplicaSet", "full"),
        owner("ReplicaSet", "more"),
        owner("ReplicaSet", "none"),
    );
    let targets = targets(&[pod("a"), of(&db, pod("b"))]);
    let new = |name, owner| of(owner, created(name, READ + 5));
    let unready = |pod| Pod { ready_since: None, ..pod };
    let ending = Pod { gone_by: Some(server(READ + 30)), ..pod("a") };
    let others = [new("c", &full), new("d", &more), new("e", &more), new("f", &none)];
    let pods = by_uid(&[&[ending, unready(new("n", &web()))][..], &others].concat());
    let owners = states(&[(&web(), 2), (&db, 1), (&full, 1), (&more, 1), (&none, 0)]);
    let policy = policy("Skip");
    let standing = sight(&targets, &policy, &pods, &owners).standing();
    let unsettled: Vec<_> =
        standing.unsettled.iter().map(|its| (&*its.owner.name, its.available, its.expected)).collect();
    assert_eq!(unsettled, [("web", 0, 2), ("db", 0, 1)], "the others are not replaced");
    let unavailable: Vec<&str> = standing.unavailable.iter().map(|pod| &*pod.name).collect();
    assert_eq!((standing.terminating, unavailable), (vec!["a"], vec!["n"]));
    // One coming pod of the ReplicaSet, and one missing pod of the StatefulSet.
    assert_eq!((standing.remaining, standing.lacking, standing.on_their_way), (0, 3, 2));
}

#[test]
fn a_restart_removes_its_old_pods_and_waits_for_what_their_owners_desire() {
    let (db, newer) = (owner("StatefulSet", "db"), owner("ReplicaSet", "web-2"));
    let new = |name| created(name, READ + 9);
    let (two, both) = (targets(&[pod("a"), pod("b")]), targets(&[pod("a"), of(&db, pod("b"))]));
    type Case<'a> = (&'a str, &'a Targets, Vec<Pod>, &'a [(Arc<Owner>, usize)], Move, usize);
    let cases: [Case<'_>; 10] = [
        ("not selected any more", &two, vec![pod("b"), pod("selected only later")], &[], remove(&["b"]), 0),
        ("of a newer ReplicaSet", &two, vec![pod("b"), of(&newer, new("x"))], &[(web(), 0)], remove(&["b"]), 0),
        ("in no list until it is created again", &two, vec![new("x")], &[], Move::Wait(None), 1),
        ("gone or scaled down", &two, vec![], &[(web(), 0)], Move::Done, 0),
        ("scaled down to one", &two, vec![new("x")], &[(web(), 1)], Move::Done, 0),
        ("scaled up", &two, vec![new("x"), new("y")], &[(web(), 3)], Move::Wait(None), 1),
        ("scaled up, and there", &two, vec![new("x"), new("y"), new("z")], &[(web(), 3)], Move::Done, 0),
        ("of the other owner", &both, vec![new("x"), new("y")], &[], Move::Wait(None), 1),
        ("of each owner", &both, vec![new("x"), of(&db, new("y"))], &[], Move::Done, 0),
        ("of an owner that desires one", &both, vec![new("x")], &[(db.clone(), 1)], Move::Wait(None), 1),
    ];
    for (name, targets, pods, owners, next, lacking) in cases {
        let standing = stands_with(targets, &pods, owners);
        assert_eq!(standing.next, next, "{name}");
        assert!(matches!(next, Move::Replace { .. }) || standing.lacking == lacking, "{name}: {standing:?}");
    }
    let job = Pod { completes: true, ..of(&owner("Job", "job"), pod("job")) };
    let pods = [Pod { controller: None, ..pod("bare") }, job];
    let targets = planned(&policy("Delete"), &pods, None);
    assert_eq!(stands(&targets, &[]).next, Move::Done, "nobody creates them again");
}

fn rolling() -> Policy {
    spec(r#","maxUnavailable":"1%""#)
}

/// A policy with a budget of one pod of all owners together.
fn one_at_a_time() -> Policy {
    spec(r#","maxUnavailable":"100%","maxUnavailableTotal":1"#)
}

fn of(owner: &Arc<Owner>, pod: Pod) -> Pod {
    Pod { controller: Some(owner.clone()), ..pod }
}

fn states(owners: &[(&Arc<Owner>, usize)]) -> OwnerStates {
    owners.iter().map(|(owner, pods)| (Arc::clone(owner), state(*pods))).collect()
}

/// A node got a NoSchedule taint after its pod had started: the pod runs on, but the DaemonSet no longer counts the
/// node.
#[test]
fn a_daemon_set_with_a_misscheduled_pod_is_restarted_all_the_same() {
    let set = owner("DaemonSet", "ds");
    let pods = ["a", "b", "c"].map(|name| of(&set, pod(name)));
    let targets = targets(&pods);
    let standing = seen(&targets, &one_at_a_time(), &pods, None, &states(&[(&set, 2)]), READ + 10);
    assert!(matches!(standing.next, Move::Replace { .. }), "{standing:?}");
    // Any other owner with a surplus is scaling down.
    let pods = ["a", "b", "c"].map(pod);
    let standing = seen(&self::targets(&pods), &one_at_a_time(), &pods, None, &states(&[(&web(), 2)]), READ + 10);
    assert_eq!(standing.next, Move::Wait(None));
}

fn select(targets: &mut Targets, most: &str, pods: &[Pod]) -> Policy {
    let spec = format!(
        r#"{{"configMap":"a","podSelector":{{"app":"another"}},"maxUnavailable":"100%","maxUnavailableTotal":"{most}"}}"#
    );
    let policy = Policy::of(Some(&RawValue::from_string(spec).unwrap())).unwrap();
    targets.select(&policy, &by_uid(pods));
    policy
}

/// None of its pods is selected any more, or the last one has gone since.
#[test]
fn a_former_owner_does_not_count_once_it_has_its_desired_replicas() {
    let db = owner("StatefulSet", "db");
    let left = ["b", "c"].map(|name| of(&db, pod(name)));
    let leaving = Pod { gone_by: Some(server(READ + 30)), ..pod("a") };
    for at_the_edit in [left.to_vec(), [&[leaving], &left[..]].concat()] {
        let mut targets = targets(&[&[pod("a")], &left[..]].concat());
        let policy = select(&mut targets, "50%", &at_the_edit);
        let next = |others: &[&str], pods: &[Pod]| {
            let others = others.iter().map(|name| Arc::new(created(name, READ + 5))).collect();
            let owners = OwnerStates::from([(db.clone(), state(2)), (web(), OwnerState { others, ..state(4) })]);
            seen(&targets, &policy, pods, None, &owners, READ + 10).next
        };
        assert_eq!(next(&["w", "x", "y", "z"], &left), remove(&["b"]), "half of the two");
        assert_eq!(next(&["w", "x", "y"], &left), Move::Wait(None), "half of the two, and one is missing");
        let with_one_of_it = [&left[..], &[pod("a")]].concat();
        assert_eq!(next(&["x", "y", "z"], &with_one_of_it), remove(&["a", "b", "c"]), "half of the six");
    }
}

/// It replaces pods that nobody selects any more.
#[test]
fn nothing_waits_for_a_former_owner_that_has_its_desired_replicas() {
    let db = owner("StatefulSet", "db");
    let left = of(&db, pod("b"));
    let mut targets = targets(&[pod("a"), left.clone()]);
    let policy = select(&mut targets, "50%", from_ref(&left));
    let leaving = Pod { gone_by: Some(server(READ + 30)), ..pod("v") };
    let others = vec![created("w", READ + 5).into(), leaving.into()];
    let owners = OwnerStates::from([(db, state(1)), (web(), OwnerState { others, ..state(1) })]);
    assert_eq!(sight(&targets, &policy, &by_uid(&[left]), &owners).standing().on_their_way, 0);
}

#[test]
fn an_owner_of_an_unknown_kind_is_expected_to_have_the_pods_selected_at_the_edit() {
    let custom = owner("CloneSet", "custom");
    let mut targets = targets(&[of(&custom, pod("a"))]);
    let finished = Pod { finished: true, ..pod("d") };
    let pods = [of(&custom, pod("a")), of(&custom, pod("b")), of(&custom, pod("c")), of(&custom, finished)];
    select(&mut targets, "50%", &pods);
    assert_eq!(stands(&targets, &pods[1..2]).lacking, 2);
}

#[test]
fn an_owner_of_an_unknown_kind_that_scales_up_is_expected_to_have_the_pods_that_exist() {
    let custom = owner("CloneSet", "custom");
    let targets = targets(&[of(&custom, pod("a")), of(&custom, pod("b"))]);
    let new = |ready: bool| of(&custom, Pod { ready_since: ready.then(|| server(READ + 6)), ..created("n", READ + 5) });
    let next = |ready| {
        let pods = [of(&custom, pod("a")), of(&custom, pod("b")), new(ready)];
        seen(&targets, &spec(r#","maxUnavailable":1"#), &pods, None, &OwnerStates::new(), READ + 60).next
    };
    assert_eq!((next(false), next(true)), (Move::Wait(None), remove(&["a"])));
}

/// Without an edit, it may only lack its pods.
#[test]
fn an_owner_whose_pods_are_all_gone_is_no_former_one() {
    let total = r#","maxUnavailable":"100%","maxUnavailableTotal":"40%""#;
    let (db, policy) = (owner("StatefulSet", "db"), spec(total));
    let members = ["b", "c", "d", "e"].map(|name| of(&db, pod(name)));
    let targets = targets(&[&[pod("a")], &members[..]].concat());
    let next = seen(&targets, &policy, &members, None, &states(&[(&db, 4), (&web(), 1)]), READ + 10).next;
    assert_eq!(next, remove(&["b"]), "two of five, of which one is gone");
}

#[test]
fn after_an_edit_of_the_selector_the_owners_of_the_selected_pods_count() {
    let (custom, db) = (owner("CloneSet", "custom"), owner("StatefulSet", "db"));
    let mut targets = targets(&[of(&custom, pod("a")), of(&db, pod("b")), of(&db, pod("c"))]);
    let pods = ["b", "c"].map(|name| of(&db, pod(name)));
    let policy = select(&mut targets, "40%", &pods);
    let next = |pods: &[Pod]| seen(&targets, &policy, pods, None, &states(&[(&db, 2)]), READ + 10).next;
    assert_eq!(next(&pods), remove(&["b"]), "40 % of two");
    assert_eq!(next(&pods[1..]), Move::Wait(None), "the first one is not there again");
    let mut none = targets.clone();
    none.select(&self::policy("Skip"), &BTreeMap::new());
    assert_eq!(stands(&none, &[]).next, Move::Done, "none is selected any more");
}

/// The state of the owner is unknown. When the restart begins, it has replaced a pod that is still terminating.
#[test]
fn a_pod_that_was_terminating_at_the_start_is_not_expected_to_come_back() {
    let other = owner("CloneSet", "other");
    let leaving = Pod { gone_by: Some(server(READ + 5)), ..pod("z") };
    let pods = ["a", "b", "c"].map(|name| of(&other, pod(name)));
    let targets = targets(&[&pods[..], &[of(&other, leaving)]].concat());
    let standing = seen(&targets, &one_at_a_time(), &pods, None, &OwnerStates::new(), READ + 3000);
    assert!(matches!(standing.next, Move::Replace { .. }), "{standing:?}");
}

#[test]
fn pods_that_are_not_ready_go_first_and_then_the_oldest() {
    let broken = |name| Pod { ready_since: None, ..created(name, READ - 5) };
    let pods = [created("a", READ - 10), created("b", READ - 20), broken("c"), broken("d"), created("e", READ - 30)];
    let targets = targets(&pods);
    assert_eq!(stands(&targets, &pods).next, remove(&["c", "d", "e", "b", "a"]));
    let next = |pods: &[Pod]| seen(&targets, &one_at_a_time(), pods, None, &states(&[(&web(), 5)]), READ + 10).next;
    assert_eq!(next(&pods), remove(&["c", "d"]));
    let [a, b, _, _, e] = pods;
    let new = |name| Pod { ready_since: Some(server(READ + 9)), ..created(name, READ + 8) };
    assert_eq!(next(&[a, b, e, new("x"), new("y")]), remove(&["e"]));
}

/// A PodDisruptionBudget that refuses one pod of an owner is likely to refuse the others.
#[test]
fn pods_of_other_owners_go_before_those_of_an_owner_whose_pod_was_refused() {
    let blocked = owner("ReplicaSet", "blocked");
    let pods = ["a", "b", "c"].map(|name| of(&blocked, created(name, READ - 600)));
    let pods = [&pods[..], &[pod("free")]].concat();
    let targets = targets(&pods);
    let pods = by_uid(&pods);
    let owners = states(&[(&blocked, 3), (&web(), 1)]);
    let undeleted = BTreeMap::from([("a".into(), Undeleted::Refused), ("free".into(), Undeleted::Unanswered)]);
    let policy = one_at_a_time();
    let sight = Sight { undeleted: &undeleted, ..sight(&targets, &policy, &pods, &owners) };
    assert_eq!(sight.standing().next, remove(&["free"]));
}

/// One pod goes first, and none has gone yet.
#[test]
fn a_canary_consists_of_pods_with_a_successor() {
    let policy = canary_policy("Delete");
    let (bare, job) =
        (Pod { controller: None, ..pod("bare") }, Pod { completes: true, ..of(&owner("Job", "j"), pod("job")) });
    let moves = |pods: &[Pod], first: usize| {
        let targets = planned(&policy, pods, None);
        let next = |pods: &[Pod]| canary_move(first, sight(&targets, &policy, &by_uid(pods), &OwnerStates::new()));
        (next(pods), next(&[bare.clone(), job.clone(), created("new", READ + 5)]))
    };
    let pods = [bare.clone(), job.clone(), pod("web")];
    let passed = Move::Canary(CanaryState::Passed);
    assert_eq!(moves(&pods, 1), (remove(&["web"]), passed.clone()));
    assert_eq!(moves(&pods, 3), (remove(&["web"]), passed), "the others could prove nothing");
    assert_eq!(moves(&pods[..2], 1).0, remove(&["bare"]), "none of them has a successor");
    let targets = planned(&policy, &pods[..2], None);
    let none = canary_move(1, sight(&targets, &policy, &by_uid(&[job]), &OwnerStates::new()));
    assert_eq!(none, Move::Canary(CanaryState::Passed), "no pod proves anything");
}

#[test]
fn a_pod_that_runs_to_completion_is_no_successor() {
    let new = created("n", READ + 5);
    let backup =
        Pod { completes: true, ready_since: None, crash: Some("exit code 1".into()), ..created("x", READ + 5) };
    let (policy, targets) = (canary_policy("Skip"), targets(&[pod("a"), pod("b")]));
    let pods = by_uid(&[pod("b"), new, backup]);
    let next = canary_move(1, sight(&targets, &policy, &pods, &states(&[(&web(), 2)])));
    assert_eq!(next, Move::Canary(CanaryState::Passed));
    assert!(sight(&targets, &policy, &pods, &states(&[(&web(), 2)])).standing().unavailable.is_empty());
}

/// A ReplicaSet does not wait for the end of the pod, but may be unable to create pods.
#[test]
fn a_canary_waits_for_the_successor_of_a_terminating_pod() {
    let (policy, targets) = (canary_policy("Skip"), targets(&[pod("a"), pod("b")]));
    let leaving = Pod { gone_by: Some(server(READ + 300)), ..pod("a") };
    let next = |others: &[Pod]| {
        let pods = [from_ref(&leaving), others].concat();
        canary_move(1, sight(&targets, &policy, &by_uid(&pods), &states(&[(&web(), 2)])))
    };
    let new = created("n", READ + 5);
    assert!(matches!(next(&[pod("b")]), Move::Wait(_)));
    assert!(matches!(next(from_ref(&new)), Move::Wait(_)), "somebody else has deleted b");
    assert_eq!(next(&[pod("b"), new]), Move::Canary(CanaryState::Passed));
}

#[test]
fn a_canary_shows_until_when_it_bakes() {
    let policy = Policy { canary: policy_canary(30), ..policy("Skip") };
    let (targets, owners) = (targets(&[pod("a"), pod("b")]), states(&[(&web(), 2)]));
    let baking = Canary { pods: 1, state: CanaryState::Baking { available_at: server(READ + 5) } };
    let pods = by_uid(&[pod("b"), Pod { ready_since: Some(server(READ + 4)), ..created("n", READ + 1) }]);
    let canary = CanarySight { canary: &baking, since: server(READ), seen_ready: &BTreeSet::new(), failed: None };
    let standing = Sight { canary: Some(canary), ..sight(&targets, &policy, &pods, &owners) }.standing();
    assert_eq!(standing.canary, Some((1, Some(server(READ + 35)))));
}

/// It was created after the content was read, and before the restart began.
#[test]
fn a_pod_that_need_not_be_replaced_is_no_successor_of_a_canary() {
    let (policy, newer) = (canary_policy("Skip"), created("newer", READ + 2));
    let targets = targets(&[pod("a"), pod("b"), newer.clone()]);
    assert_eq!(old(&targets), ["a", "b"]);
    let owners = OwnerStates::from([(web(), state(3))]);
    let next = |pods: &[Pod]| canary_move(1, sight(&targets, &policy, &by_uid(pods), &owners));
    assert_eq!(next(&[pod("b"), newer.clone()]), Move::Wait(None));
    let passed = Move::Canary(CanaryState::Passed);
    assert_eq!(next(&[pod("b"), newer, created("successor", READ + 5)]), passed);
}

/// The pod was created between the list of the selected pods and that of its owner.
#[test]
fn a_canary_does_not_pass_while_a_new_pod_may_have_been_missed() {
    let policy = canary_policy("Skip");
    let targets = targets(&[pod("a")]);
    let next = |listed: i64| {
        let others = vec![Arc::new(created("b", READ + 5))];
        let owners = OwnerStates::from([(web(), OwnerState { others, ..state(1) })]);
        let pods = BTreeMap::new();
        canary_move(1, Sight { at: server(listed), ..sight(&targets, &policy, &pods, &owners) })
    };
    assert_eq!(next(READ + 15), Move::Wait(None), "by another clock");
    assert_eq!(next(READ + 16), Move::Canary(CanaryState::Passed), "it is not selected");
}
