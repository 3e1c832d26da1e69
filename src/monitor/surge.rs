//! Surge: a pod is handed over from its ReplicaSet to the Deployment, and serves until successors are available. Then it is
//! deleted, or it is given back.
//!
//! The ReplicaSet creates another pod at once, and the Deployment's controller leaves alone what it controls directly.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::ConfigMonitor;
use super::reason::Reason;
use super::restart::budget::is_available;
use super::restart::sight::DeploymentState;
use super::restart::{SKEW, SLACK};
use super::source::SourceName;
use super::spec::Policy;
use super::status::{Begun, SourceStatus, Status};
use crate::kube::ServerTime;
use crate::kube::objects::{Owner, REPLICA_SETS};
use crate::monitor::pod::{DELETION_COST, HANDED_OVER, HANDED_OVER_BY, HANDED_OVER_FROM, LOWEST_COST, Pod};
use crate::monitor::referrers::refers;

/// What the ConfigMonitor that has handed a pod over says about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// Its restart is on hold, or the ConfigMonitor is suspended.
    Held,
    /// Its restart is under way, and deletes what its budget allows. `has_budget`: the successor of the pod has all that it needs
    /// to start. Otherwise the pod waits for it.
    UnderWay { has_budget: bool },
    /// Its restart is over, or other content has ended it.
    Over,
    /// The content is back to that of the pod. Pods created since then may have read other content.
    Reverted(ServerTime),
    /// There is no such ConfigMonitor, it does not select the pod any more, or it knows of no such restart.
    None,
}

/// What to do with a pod that is handed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Stay,
    Delete,
    /// Give it back. If its ReplicaSet has too many pods then, these ready ones are to go, not others.
    GiveBack(Vec<Arc<Pod>>),
}

impl Claim {
    /// Returns the claim on a pod with these labels and references, created at this time, of the ConfigMonitor that has
    /// handed it over. The UID and the number of the restart come from the pod's annotations. `found` has its name.
    pub(crate) fn of(
        found: Option<&ConfigMonitor>,
        (uid, number): (&str, Option<u64>),
        (labels, referred, created): (&BTreeMap<String, String>, Option<&BTreeSet<SourceName>>, ServerTime),
    ) -> Self {
        let Some(monitor) = found.filter(|monitor| monitor.metadata.uid.as_str() == uid) else { return Self::None };
        let status = monitor.status.as_deref().map_or(Ok(Status::default()), |text| serde_json::from_str(text.get()));
        // Somebody must mend what cannot be read. Until then the pod serves.
        let (Ok(policy), Ok(status)) = (Policy::of(monitor.spec.as_deref()), status) else { return Self::Held };
        // It replaces no pod that is younger, or younger than its last content, whatever annotations say.
        let is_of = |begun: &Begun| {
            let last = status.observed_at().map_or(begun.started_at, |at| at.max(begun.started_at));
            Some(begun.number) == number && created <= last.plus(SKEW)
        };
        if !policy.selector.matches(labels) {
            return Self::None;
        }
        if policy.suspend {
            return Self::Held;
        }
        let of_restart = if goes_on(&policy, &status) { Self::UnderWay { has_budget: true } } else { Self::Held };
        if status.begun().is_some_and(is_of) {
            return of_restart;
        }
        if status.restart.is_none() {
            // Somebody may have made the operator forget it: then the pods count as having the content as of now.
            let is_over = status.history.iter().any(|entry| Some(entry.number) == number);
            return if is_over { Self::Over } else { Self::None };
        }
        let sources = || {
            let of_pod = |known: &&SourceStatus| !known.discovered || refers(referred, &known.name);
            status.sources.iter().filter(of_pod).filter_map(|known| Some((known, known.changes.first()?)))
        };
        // Which pods the restart replaces, only its lists say, which are later than these times.
        let listed_after = || {
            let of_changes = sources().filter(|(known, _)| known.differs()).map(|(_, first)| first.observed_at);
            of_changes.chain(status.request().map(|request| request.observed_at))
        };
        let back = sources().filter(|(known, _)| !known.differs()).map(|(_, first)| first.since).min();
        match back {
            _ if status.begun().is_some() && listed_after().any(|at| created.plus(SKEW) < at) => of_restart,
            Some(since) if !listed_after().any(|at| created <= at.plus(SKEW)) => Self::Reverted(since),
            _ => Self::Over,
        }
    }
}

/// Returns whether the restart under way goes on for all its pods, as last written: no content has changed since, no
/// named source is missing, and no canary is unproven or has failed.
fn goes_on(policy: &Policy, status: &Status) -> bool {
    let is_missing = status.conditions.first().is_some_and(|ready| ready.reason == Reason::SourceNotFound.word());
    let canary = status.begun().and_then(|begun| begun.canary.as_ref()).filter(|_| policy.canary.is_some());
    let is_proving = canary.is_some_and(|canary| canary.state.is_proving());
    status.is_on_target() && !is_missing && !is_proving && status.canary_failure().is_none()
}

/// Decides about a pod, by all pods of its Deployment and the desired replicas of its ReplicaSet, 0 if that is gone. A pod
/// is available once it has been ready for as long as the policy says, or the Deployment if that is longer.
///
/// It is given back only if its ReplicaSet then desires it. A Deployment that is rolling out may lower its ReplicaSets at any
/// moment, and by one more for each pod that one of them has beyond what it desires. (deployment/rolling.go)
pub(crate) fn fate(
    (pod, handed_over_at): (&Pod, ServerTime),
    claim: Claim,
    deployment: &DeploymentState,
    of_set: usize,
    (policy, now): (Option<&Policy>, ServerTime),
) -> Fate {
    let min_ready = policy.map_or(Duration::ZERO, |policy| policy.min_ready).max(deployment.min_ready);
    let allowed = policy.filter(|_| claim == Claim::UnderWay { has_budget: true });
    let allowed = allowed.map_or(0, |policy| policy.may_be_missing(deployment.desired));
    let is_available = |pod: &Arc<Pod>| is_available(pod, min_ready, now);
    let own = || deployment.others.iter().filter(|other| other.handed_over.is_none() && other.is_present());
    let is_enough = own().filter(|other| is_available(other)).count() + allowed >= deployment.desired;
    // The status of the Deployment may be older than its pods.
    let is_rolling = deployment.is_rolling || own().any(|other| other.controller != pod.controller);
    // Its successors are to go: those that may have read other content, all, or those that are unproven.
    let since = if let Claim::Reverted(since) = claim { since } else { handed_over_at };
    let is_to_go =
        |other: &Arc<Pod>| other.created >= since.minus(SLACK) && !(claim == Claim::Over && is_available(other));
    // A ReplicaSet asks whether pods are ready, and not for how long.
    let of_its_set = own().filter(|other| other.controller == pod.controller);
    let (ready, unready): (Vec<_>, Vec<_>) = of_its_set.partition(|other| other.ready_since.is_some());
    let (mut to_go, stay): (Vec<_>, Vec<_>) = ready.into_iter().cloned().partition(is_to_go);
    match claim {
        Claim::Held => Fate::Stay,
        _ if pod.finished => Fate::Delete,
        Claim::UnderWay { .. } if is_enough || !pod.may_serve() => Fate::Delete,
        Claim::UnderWay { .. } => Fate::Stay,
        Claim::Over if is_enough => Fate::Delete,
        _ if !is_rolling && stay.len() < of_set => {
            let too_many = (stay.len() + to_go.len() + unready.len() + 1).saturating_sub(of_set);
            to_go.sort_by_key(|other| (!other.has_cost, Reverse(other.created)));
            let go_anyway = unready.len() + usize::from(pod.ready_since.is_none());
            to_go.truncate(too_many.saturating_sub(go_anyway));
            // The cost of somebody else stays as it is.
            to_go.retain(|other| !other.has_cost);
            Fate::GiveBack(to_go)
        }
        _ if is_enough => Fate::Delete,
        _ => Fate::Stay,
    }
}

/// The PATCH that hands a pod over to a Deployment, if the pod has not changed.
pub(crate) fn hand_over(pod: &Pod, to: &Owner, by: &str) -> Value {
    let from = pod.controller.as_deref();
    let source = from.map(|from| format!("{}/{}", from.name, from.uid.as_str()));
    let labels = json!({ HANDED_OVER: "true" });
    let annotations = json!({ HANDED_OVER_FROM: source, HANDED_OVER_BY: by });
    swap(pod, from, to, &labels, &annotations)
}

/// The PATCH that gives a pod that is handed over back to its ReplicaSet, if the pod has not changed.
pub(crate) fn give_back(pod: &Pod) -> Option<Value> {
    let (from, to) = (&pod.handed_over.as_ref()?.to, pod.controller.as_ref()?);
    let (labels, annotations) = (json!({ HANDED_OVER: null }), json!({ HANDED_OVER_FROM: null, HANDED_OVER_BY: null }));
    Some(swap(pod, Some(from), to, &labels, &annotations))
}

/// The PATCH by which a ReplicaSet with too many pods deletes this one before other ready ones.
pub(crate) fn go_first(pod: &Pod) -> Value {
    let annotations = json!({ DELETION_COST: LOWEST_COST });
    json!({ "metadata": { "uid": pod.uid, "annotations": annotations } })
}

fn swap(pod: &Pod, from: Option<&Owner>, to: &Owner, labels: &Value, annotations: &Value) -> Value {
    let Owner { api_version, kind, name, uid } = to;
    let mut owners =
        vec![json!({ "apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true,
        "blockOwnerDeletion": to.is_of(REPLICA_SETS) })];
    owners.extend(from.map(|from| json!({ "$patch": "delete", "uid": from.uid })));
    json!({ "metadata": {
        "uid": pod.uid,
        "resourceVersion": pod.version,
        "labels": labels,
        "annotations": annotations,
        "ownerReferences": owners,
    } })
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;
    use serde_json::{Value, json};

    use super::*;
    use crate::kube::objects::Owner;
    use crate::monitor::pod::HandedOver;
    use crate::monitor::status::Restart;

    const UNDER_WAY: Claim = Claim::UnderWay { has_budget: true };
    const BEGAN: &str = "2026-11-21T10:00:00Z";

    fn at(second: i64) -> ServerTime {
        ServerTime::from_second(second)
    }

    fn claim(spec: &Value, status: &Value, number: u64) -> Claim {
        let metadata = json!({ "name": "m", "uid": "u", "resourceVersion": "1" });
        let monitor = serde_json::from_value(json!({ "metadata": metadata, "spec": spec, "status": status })).unwrap();
        let referred = serde_json::from_value(json!([{ "kind": "ConfigMap", "name": "d" }])).unwrap();
        let labels = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
        Claim::of(Some(&monitor), ("u", Some(number)), (&labels, Some(&referred), at(40)))
    }

    /// A source whose content has changed, and may be back.
    fn source(name: &str, is_back: bool) -> Value {
        let change = |hash, at| json!({ "hash": hash, "since": "1970-01-01T00:00:50Z", "observedAt": at });
        let changes = [change("sha256:2", BEGAN), change("sha256:1", BEGAN)];
        let changes = &changes[..1 + usize::from(is_back)];
        json!({ "kind": "ConfigMap", "name": name, "hash": "sha256:1", "changes": changes })
    }

    /// The status with these sources and a restart that is pending, or is the second one.
    fn status(sources: &[Value], begun: bool) -> Value {
        let mut sources = sources.to_vec();
        sources
            .iter_mut()
            .for_each(|source| source["changes"].as_array_mut().unwrap().last_mut().unwrap()["begun"] = json!(begun));
        let begun = begun.then(|| Begun::new(2, BEGAN.parse().unwrap(), "app=web".to_owned(), 1));
        json!({ "sources": sources, "restart": Restart { begun, ..Restart::default() } })
    }

    #[test]
    fn a_restart_that_is_under_way_has_its_pods_and_those_of_the_one_before_unless_it_is_a_revert() {
        let spec = json!({ "configMap": "c", "podSelector": { "app": "web" } });
        let restart = |is_back, begun| status(&[source("c", is_back)], begun);
        let (before, own) = (1, 2);
        assert_eq!(claim(&spec, &restart(false, true), own), UNDER_WAY);
        assert_eq!(claim(&spec, &restart(false, true), before), UNDER_WAY);
        assert_eq!(claim(&spec, &restart(false, false), before), Claim::Over);
        assert_eq!(claim(&spec, &restart(true, true), before), Claim::Reverted(at(50)));
        assert_eq!(claim(&spec, &restart(true, true), own), UNDER_WAY);
        assert_eq!(claim(&spec, &restart(true, false), before), Claim::Reverted(at(50)));
        let mixed = status(&[source("c", true), source("e", false)], false);
        assert_eq!(claim(&spec, &mixed, before), Claim::Over, "it has not read the other source's content");
        let discovered = |name, is_back| {
            let mut source = source(name, is_back);
            source["discovered"] = json!(true);
            source
        };
        let unreferred = status(&[discovered("c", false)], true);
        assert_eq!((claim(&spec, &unreferred, own), claim(&spec, &unreferred, before)), (UNDER_WAY, Claim::Over));
        // Of two changes the one counts to whose source the pod refers.
        let both = |is_back: bool| status(&[discovered("c", !is_back), discovered("d", is_back)], true);
        let of_both = [true, false].map(|is_back| claim(&spec, &both(is_back), before));
        assert_eq!(of_both, [Claim::Reverted(at(50)), UNDER_WAY]);
        let mut forged = restart(false, true);
        forged["restart"]["startedAt"] = json!("1970-01-01T00:00:29Z");
        forged["sources"][0]["changes"][0]["observedAt"] = json!("1970-01-01T00:00:29Z");
        assert_eq!(claim(&spec, &forged, own), Claim::Over, "it is younger than the restart");
        forged["sources"][0]["changes"][0]["observedAt"] = json!("1970-01-01T00:00:31Z");
        assert_eq!(claim(&spec, &forged, own), UNDER_WAY, "other content has come and gone since");
        let held = |more: Value| {
            let mut held = restart(false, true);
            held.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            claim(&spec, &held, own)
        };
        let condition = |reason| json!([{ "type": "Ready", "status": "False", "lastTransitionTime": BEGAN, "reason": reason, "message": "" }]);
        assert_eq!(held(json!({ "conditions": condition("EvictionBlocked") })), UNDER_WAY);
        assert_eq!(held(json!({ "conditions": condition("SourceNotFound") })), Claim::Held);
        let mut changed = restart(false, true);
        changed["sources"][0]["changes"][0]["begun"] = json!(false);
        assert_eq!(claim(&spec, &changed, own), Claim::Held, "content has come since it began");
        let entry =
            json!({ "number": own, "startedAt": BEGAN, "completedAt": BEGAN, "result": "Completed", "pods": 1 });
        let over = json!({ "history": [entry] });
        assert_eq!((claim(&spec, &over, own), claim(&spec, &over, before)), (Claim::Over, Claim::None));
        assert_eq!(claim(&spec, &json!({}), own), Claim::None, "the status has been wiped");
        let others = json!({ "configMap": "c", "podSelector": { "app": "api" } });
        assert_eq!(claim(&others, &restart(false, true), own), Claim::None);
        let suspended = json!({ "configMap": "c", "podSelector": { "app": "web" }, "suspend": true });
        assert_eq!(claim(&suspended, &restart(false, false), before), Claim::Held);
        assert_eq!(claim(&json!({ "podSelector": {} }), &json!({}), own), Claim::Held, "somebody must mend it");
        assert_eq!(claim(&spec, &json!({ "restart": 1 }), own), Claim::Held);
        assert_eq!(Claim::of(None, ("u", Some(own)), (&BTreeMap::new(), None, at(40))), Claim::None);
    }

    fn owner(kind: &str) -> Arc<Owner> {
        Arc::new(Owner {
            api_version: "apps/v1".to_owned(),
            kind: kind.to_owned(),
            name: "web".to_owned(),
            uid: kind.into(),
        })
    }

    /// A Deployment that desires two pods, with so many that are available, created at second 100.
    fn deployment(available: usize) -> DeploymentState {
        let pod = |number: usize| Pod {
            controller: Some(owner("ReplicaSet")),
            created: at(100),
            ready_since: (number < available).then(|| at(105)),
            ..Pod::named(&format!("web-{number}"))
        };
        let others = (0..2).map(|number| Arc::new(pod(number))).collect();
        DeploymentState { desired: 2, min_ready: Duration::ZERO, others, may_surge: true, is_rolling: false }
    }

    fn policy(more: &str) -> Policy {
        let spec = format!(r#"{{"configMap":"c","podSelector":{{"app":"web"}}{more}}}"#);
        Policy::of(Some(&RawValue::from_string(spec).unwrap())).unwrap()
    }

    #[test]
    fn a_pod_that_nobody_holds_is_given_back_only_if_its_set_desires_it_and_deleted_only_if_enough_others_are_available()
     {
        let handed_over = HandedOver { to: owner("Deployment"), by: "m/u/x".into() };
        let old = Pod {
            controller: Some(owner("ReplicaSet")),
            handed_over: Some(Arc::new(handed_over)),
            ready_since: Some(at(10)),
            ..Pod::named("old")
        };
        let of = |claim, deployment: &DeploymentState, of_set| {
            fate((&old, at(100)), claim, deployment, of_set, (Some(&policy("")), at(200)))
        };
        let fate = |claim, available, of_set| of(claim, &deployment(available), of_set);
        assert_eq!([Claim::Held, Claim::Over].map(|claim| fate(claim, 2, 2)), [Fate::Stay, Fate::Delete]);
        let first = |fate: Fate| match fate {
            Fate::GiveBack(first) => first.iter().map(|pod| pod.name.to_string()).collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        };
        assert_eq!(first(fate(Claim::Over, 1, 2)), [""; 0], "its set deletes the one that is not ready");
        let unproven = super::fate(
            (&old, at(100)),
            Claim::Over,
            &deployment(2),
            2,
            (Some(&policy(r#","minReadySeconds":300"#)), at(200)),
        );
        assert_eq!(first(unproven), ["web-0"], "not for long enough");
        assert_eq!(first(fate(Claim::None, 2, 2)), ["web-0"]);
        assert_eq!(first(fate(Claim::None, 2, 3)), [""; 0], "its set lacks one");
        let unready = Pod { ready_since: None, ..old.clone() };
        let fate_of_unready = super::fate((&unready, at(100)), Claim::None, &deployment(2), 2, (None, at(200)));
        assert_eq!(first(fate_of_unready), [""; 0], "its set deletes it again");
        let mut with_costs = deployment(2);
        with_costs.others =
            with_costs.others.iter().map(|pod| Arc::new(Pod { has_cost: true, ..(**pod).clone() })).collect();
        assert_eq!(first(of(Claim::None, &with_costs, 2)), [""; 0], "their costs are those of somebody else");
        // Its ReplicaSet would delete one that serves, or the Deployment would lower that once more.
        assert_eq!([1, 2].map(|available| fate(Claim::None, available, 0)), [Fate::Stay, Fate::Delete]);
        let reverted = |since, deployment: DeploymentState| of(Claim::Reverted(at(since)), &deployment, 2);
        assert_eq!([99, 101].map(|since| first(reverted(since, deployment(2)))), [["web-0"], ["web-0"]]);
        assert_eq!(reverted(102, deployment(2)), Fate::Delete, "times are whole seconds");
        let rolling = |available| DeploymentState { is_rolling: true, ..deployment(available) };
        assert_eq!([1, 2].map(|available| reverted(99, rolling(available))), [Fate::Stay, Fate::Delete]);
        let with_new = |available| {
            let new = Pod { controller: Some(owner("another ReplicaSet")), ..Pod::named("new") };
            let mut state = deployment(available);
            state.others.push(Arc::new(new));
            state
        };
        assert_eq!([1, 2].map(|available| reverted(99, with_new(available))), [Fate::Stay, Fate::Delete]);
        let recreate = DeploymentState { may_surge: false, ..deployment(0) };
        assert_eq!(first(of(Claim::Over, &recreate, 2)), [""; 0], "its strategy changes nothing");
        let finished = Pod { finished: true, ..old.clone() };
        let fate = super::fate((&finished, at(100)), Claim::None, &deployment(0), 2, (None, at(200)));
        assert_eq!(fate, Fate::Delete);
        let under_way = |pod: &Pod, spec: &str, available| {
            let policy = policy(spec);
            super::fate((pod, at(100)), UNDER_WAY, &deployment(available), 2, (Some(&policy), at(200)))
        };
        let alone = r#","maxSurge":1"#;
        assert_eq!([1, 2].map(|available| under_way(&old, alone, available)), [Fate::Stay, Fate::Delete]);
        assert_eq!(under_way(&unready, alone, 1), Fate::Delete, "it serves nobody");
        let both = r#","maxSurge":1,"maxUnavailable":1"#;
        assert_eq!([0, 1].map(|available| under_way(&old, both, available)), [Fate::Stay, Fate::Delete]);
        let lacking = Claim::UnderWay { has_budget: false };
        let without = |available| {
            super::fate((&old, at(100)), lacking, &deployment(available), 2, (Some(&policy(both)), at(200)))
        };
        assert_eq!([1, 2].map(without), [Fate::Stay, Fate::Delete], "its successor would lack a source");
        let all = r#","maxUnavailable":"100%""#;
        assert_eq!(under_way(&old, all, 0), Fate::Delete, "maxSurge is gone from the spec");
    }
}
