//! Which pods `restartLast` lets go.

use super::*;

const LAST: &str = r#","restartLast":{"matchLabels":{"role":"primary"}}"#;

fn last(name: &str) -> Pod {
    Pod { goes_last: true, ..pod(name) }
}

/// Returns a pod that has replaced another.
fn new(name: &str) -> Pod {
    Pod { ready_since: Some(server(READ + 5)), ..created(name, READ + 3) }
}

fn unready(pod: Pod) -> Pod {
    Pod { ready_since: None, ..pod }
}

fn terminating(pod: Pod) -> Pod {
    Pod { gone_by: Some(server(READ + 30)), ..pod }
}

/// What else decides which pods go.
#[derive(Clone, Copy, Default)]
struct Besides<'a> {
    is_overdue: bool,
    budget: &'a str,
}

/// Returns what is deleted next of the pods that exist now, and what has to wait, in a restart of `before`. The owner
/// desires three pods.
fn next(before: &[Pod], now: &[Pod], besides: Besides<'_>) -> (Vec<String>, Vec<String>) {
    let Besides { is_overdue, budget } = besides;
    let (policy, targets, pods) = (spec(&format!("{LAST}{budget}")), targets(before), by_uid(now));
    let owners = OwnerStates::from([(web(), state(3))]);
    let sight = Sight { is_overdue, ..sight(&targets, &policy, &pods, &owners) };
    let Standing { next, last, is_any_last, .. } = sight.standing();
    let mut removed: Vec<String> = match next {
        Move::Replace { remove, .. } => remove.iter().map(|uid| uid.as_str().to_owned()).collect(),
        Move::Wait(_) => Vec::new(),
        other => panic!("{other:?}"),
    };
    removed.sort();
    let mark = if is_any_last { "" } else { "?" };
    let waiting = last.into_iter().map(|pod| format!("{pod}{mark}")).collect();
    (removed, waiting)
}

/// `?` marks a pod that waits until any has the label.
#[test]
fn a_last_pod_waits_until_the_others_are_gone_and_their_successors_are_available() {
    let before = [pod("a"), pod("b"), last("p")];
    type Case<'a> = (&'a str, &'a [Pod], &'a [&'a str], &'a [&'a str]);
    let cut_off = |pod: Pod| Pod { are_containers_ready: true, ..unready(pod) };
    let cases: [Case<'_>; 17] = [
        ("all exist", &before, &["a", "b"], &["p"]),
        ("one is terminating", &[terminating(pod("a")), new("c"), last("p")], &[], &["p"]),
        ("one is terminating, and replaced", &[terminating(pod("a")), new("c"), new("d"), last("p")], &["p"], &[]),
        ("both are missing", &[last("p")], &[], &["p"]),
        ("one is missing", &[new("c"), last("p")], &[], &["p"]),
        ("one is not available", &[new("c"), unready(new("d")), last("p")], &[], &["p"]),
        ("all are replaced", &[new("c"), new("d"), last("p")], &["p"], &[]),
        ("it is not available itself", &[new("c"), new("d"), unready(last("p"))], &["p"], &[]),
        ("the label has moved to an old pod", &[last("a"), new("d"), pod("p")], &["p"], &["a"]),
        ("it has moved to a new pod", &[pod("a"), Pod { goes_last: true, ..new("d") }, pod("p")], &["a", "p"], &[]),
        ("none has it", &[pod("a"), pod("b"), pod("p")], &[], &["a?", "b?", "p?"]),
        ("none has it, and one is not ready", &[unready(pod("a")), pod("b"), pod("p")], &["a"], &["b?", "p?"]),
        ("none has it, and one is cut off", &[cut_off(pod("a")), pod("b"), pod("p")], &[], &["a?", "b?", "p?"]),
        ("the one that had it is terminating", &[pod("a"), pod("b"), terminating(last("p"))], &[], &["a?", "b?"]),
        ("none has it, and one is left", &[new("c"), new("d"), pod("p")], &[], &["p?"]),
        ("all have it", &[last("a"), last("b"), last("p")], &["a", "b", "p"], &[]),
        ("all have it, and one is missing", &[Pod { goes_last: true, ..new("c") }, last("p")], &[], &["p"]),
    ];
    for (what, now, removed, waiting) in cases {
        let (is_removed, waits) = next(&before, now, Besides::default());
        assert!(is_removed == removed && waits == waiting, "{what}: {is_removed:?} {waits:?}");
    }
}

#[test]
fn if_all_pods_go_last_the_budget_alone_orders_them() {
    let [a, b, p] = ["a", "b", "p"].map(last);
    let new = |ready: bool| Pod { goes_last: true, ..if ready { new("c") } else { unready(new("c")) } };
    let budget = r#","maxUnavailable":2"#;
    let of_all =
        |now: &[Pod]| next(&[a.clone(), b.clone(), p.clone()], now, Besides { budget, ..Besides::default() }).0;
    assert_eq!(of_all(&[a.clone(), b.clone(), p.clone()]), ["a", "b"]);
    assert_eq!(of_all(&[new(false), b.clone(), p.clone()]), ["b"]);
    assert_eq!(of_all(&[new(true), p.clone()]), ["p"]);
    // The others may have been none: what replaces them is not created yet.
    let everything = Besides { budget: r#","maxUnavailable":3"#, ..Besides::default() };
    let all_missing = next(&[pod("a"), pod("b"), p.clone()], &[p], everything).0;
    assert!(all_missing.is_empty(), "{all_missing:?}");
}

/// It uses the budget that the others need, or an ordered StatefulSet creates none of them.
#[test]
fn past_the_deadline_a_pod_that_is_not_ready_does_not_wait() {
    let before = [pod("a"), pod("b"), last("p")];
    let next = |now: &[Pod], is_overdue| next(&before, now, Besides { is_overdue, budget: r#","maxUnavailable":1"# });
    let primary = [pod("a"), pod("b"), unready(last("p"))];
    assert_eq!(next(&primary, false), (vec![], vec!["p".to_owned()]));
    assert_eq!(next(&primary, true), (vec!["p".to_owned()], vec![]));
}

/// Nothing else may go before the canary has passed.
#[test]
fn a_last_pod_is_the_canary_if_no_other_pod_can_prove_the_content() {
    let job = Pod { completes: true, ..of(&owner("Job", "job"), pod("j")) };
    let policy = Policy { canary: policy_canary(0), ..spec(&format!(r#"{LAST},"unmanagedPods":"Delete""#)) };
    let owners = OwnerStates::from([(web(), state(2))]);
    let canary = |pods: &[Pod]| {
        let targets = planned(&policy, pods, None);
        canary_move(1, sight(&targets, &policy, &by_uid(pods), &owners))
    };
    assert_eq!(canary(&[job.clone(), last("a"), pod("p")]), remove(&["p"]));
    assert_eq!(canary(&[job, last("p"), last("q")]), remove(&["p"]));
}
