//! What becomes of a pod that is handed over: its restart deletes it, or it is given back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::ConfigMonitor;
use super::restart::plan::refers;
use super::restart::surge::DeploymentState;
use super::restart::{SKEW, SLACK, is_available};
use super::source::SourceName;
use super::spec::{PodScope, Policy};
use super::status::{Change, Status};
use crate::kube::ServerTime;
use crate::monitor::pod::Pod;

/// What the ConfigMonitor that has handed a pod over says about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// Its restart is under way or on hold, or the ConfigMonitor is suspended.
    Held,
    /// Its restart is over, or other content has ended it.
    Over,
    /// The content is back to that of the pod. Pods created since then may have read other content.
    Reverted(ServerTime),
    /// There is no such ConfigMonitor, or it does not select the pod any more.
    None,
}

/// What to do with a pod that is handed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Stay,
    Delete,
    /// Give it back. If too many pods are left then, these go first.
    GiveBack(Vec<Arc<Pod>>),
}

impl Claim {
    /// Returns the claim on a pod with these labels and references, created at this time, of the ConfigMonitor with this
    /// UID, which has handed it over in this restart. `found` has its name.
    pub(crate) fn of(
        found: Option<&ConfigMonitor>,
        (uid, identity): (&str, &str),
        (labels, referred, created): (&BTreeMap<String, String>, Option<&BTreeSet<SourceName>>, ServerTime),
    ) -> Self {
        let Some(monitor) = found.filter(|monitor| monitor.metadata.uid.as_str() == uid) else { return Self::None };
        let status = monitor.status.as_deref().map_or(Ok(Status::default()), |text| serde_json::from_str(text.get()));
        // Somebody must mend what cannot be read. Until then the pod serves.
        let (Ok(policy), Ok(status)) = (Policy::of(monitor.spec.as_deref()), status) else { return Self::Held };
        match status.restart.as_deref() {
            _ if !policy.selector.matches(labels) => Self::None,
            _ if policy.suspend => Self::Held,
            Some(restart) if restart.identity().as_deref() == Some(identity) => Self::Held,
            Some(restart) => {
                let scope_of = |change: &Change| match restart.begun {
                    Some(_) => change.pod_scope,
                    None => status.scope_of(policy.pod_scope, change),
                };
                let concerns =
                    |change: &&Change| scope_of(change) == PodScope::Selected || refers(referred, &change.source);
                let (back, other): (Vec<&Change>, Vec<&Change>) =
                    restart.changes.iter().filter(concerns).partition(|change| change.revert);
                // Only the lists say which pods the restart replaces. It waits for no pod that somebody else holds.
                let of_request = restart.request.iter().map(|request| request.observed_at);
                let listed: Vec<ServerTime> = other.iter().map(|change| change.observed_at).chain(of_request).collect();
                let (is_replaced, may_be) = (
                    listed.iter().any(|at| created.plus(SKEW) < *at),
                    listed.iter().any(|at| created <= at.plus(SKEW)),
                );
                match back.iter().map(|change| change.since).min() {
                    _ if is_replaced && restart.begun.is_some() => Self::Held,
                    Some(since) if !may_be => Self::Reverted(since),
                    _ => Self::Over,
                }
            }
            None => Self::Over,
        }
    }
}

/// Decides about a pod, by all pods of its Deployment and the desired replicas of its ReplicaSet, 0 if that is gone. A pod
/// is available once it has been ready for `min_ready`, or for what the Deployment says if that is longer.
pub(crate) fn fate(
    (pod, handed_over_at): (&Pod, ServerTime),
    claim: Claim,
    deployment: &DeploymentState,
    of_set: usize,
    (min_ready, now): (Duration, ServerTime),
) -> Fate {
    let DeploymentState { desired, may_surge, .. } = *deployment;
    let min_ready = min_ready.max(deployment.min_ready);
    let is_available = |pod: &Arc<Pod>| is_available(pod, min_ready, now);
    let own = || deployment.others.iter().filter(|other| other.handed_over.is_none() && other.is_present());
    let is_enough = own().filter(|other| is_available(other)).count() >= desired;
    let younger = |since: ServerTime| {
        let its = own().filter(|other| other.controller == pod.controller);
        its.filter(move |other| other.created >= since.minus(SLACK)).cloned()
    };
    // A ReplicaSet asks whether pods are ready, and not for how long.
    let unproven = || younger(handed_over_at).filter(|other| !is_available(other)).collect();
    match claim {
        Claim::Held => Fate::Stay,
        // The Deployment's owner does not want two at once.
        _ if pod.finished || !may_surge => Fate::Delete,
        // Its ReplicaSet would delete it, or the garbage collector.
        _ if of_set == 0 && is_enough => Fate::Delete,
        _ if of_set == 0 => Fate::Stay,
        Claim::Over if is_enough => Fate::Delete,
        Claim::Reverted(since) => Fate::GiveBack(younger(since).collect()),
        Claim::Over | Claim::None => Fate::GiveBack(unproven()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::kube::objects::Owner;
    use crate::monitor::pod::HandedOver;

    const BEGAN: &str = "2026-11-21T10:00:00Z";

    fn at(second: i64) -> ServerTime {
        ServerTime::from_second(second)
    }

    fn claim(spec: &Value, status: &Value, identity: &str) -> Claim {
        let metadata = json!({ "name": "m", "uid": "u", "resourceVersion": "1" });
        let monitor = serde_json::from_value(json!({ "metadata": metadata, "spec": spec, "status": status })).unwrap();
        let referred = serde_json::from_value(json!([{ "kind": "ConfigMap", "name": "d" }])).unwrap();
        let labels = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
        Claim::of(Some(&monitor), ("u", identity), (&labels, Some(&referred), at(40)))
    }

    #[test]
    fn a_restart_that_is_under_way_holds_its_pods_and_those_of_the_one_before_unless_it_is_a_revert() {
        let spec = json!({ "configMap": "c", "podSelector": { "app": "web" } });
        let restart = |revert: bool, begun: bool| {
            let change = json!({ "kind": "ConfigMap", "name": "c", "hash": "sha256:1", "observedAt": BEGAN,
                "since": "1970-01-01T00:00:50Z", "podsResourceVersion": "7", "revert": revert });
            let mut restart = json!({ "sources": [change] });
            if begun {
                let begun = json!({ "startedAt": BEGAN, "podSelector": "app=web", "pods": 1, "remaining": 1, "lastProgressAt": BEGAN });
                restart.as_object_mut().unwrap().extend(begun.as_object().unwrap().clone());
            }
            json!({ "restart": restart })
        };
        let (own, before) = (format!("{BEGAN}/7/1"), format!("{BEGAN}/6/1"));
        assert_eq!(claim(&spec, &restart(false, true), &own), Claim::Held);
        assert_eq!(claim(&spec, &restart(false, true), &before), Claim::Held);
        assert_eq!(claim(&spec, &restart(false, false), &before), Claim::Over);
        assert_eq!(claim(&spec, &restart(true, true), &own), Claim::Reverted(at(50)));
        assert_eq!(claim(&spec, &restart(true, true), &format!("{own}/revert")), Claim::Held);
        assert_eq!(claim(&spec, &restart(true, false), &own), Claim::Reverted(at(50)));
        let mut referring = restart(false, true);
        referring["restart"]["sources"][0]["podScope"] = json!("Referring");
        assert_eq!(claim(&spec, &referring, &own), Claim::Held);
        assert_eq!(claim(&spec, &referring, &before), Claim::Over);
        // Of two changes the one counts to whose source the pod refers.
        let mut both = |revert: bool, begun: bool| {
            referring["restart"] = restart(!revert, begun)["restart"].clone();
            referring["restart"]["sources"][0]["podScope"] = json!("Referring");
            let mut own = referring["restart"]["sources"][0].clone();
            (own["name"], own["revert"]) = (json!("d"), json!(revert));
            referring["restart"]["sources"].as_array_mut().unwrap().push(own);
            claim(&spec, &referring, &before)
        };
        assert_eq!((both(true, true), both(false, true)), (Claim::Reverted(at(50)), Claim::Held));
        assert_eq!(claim(&spec, &json!({}), &own), Claim::Over);
        let others = json!({ "configMap": "c", "podSelector": { "app": "api" } });
        assert_eq!(claim(&others, &restart(false, true), &own), Claim::None);
        let suspended = json!({ "configMap": "c", "podSelector": { "app": "web" }, "suspend": true });
        assert_eq!(claim(&suspended, &restart(false, false), &before), Claim::Held);
        assert_eq!(claim(&json!({ "podSelector": {} }), &json!({}), &own), Claim::Held, "somebody must mend it");
        assert_eq!(claim(&spec, &json!({ "restart": 1 }), &own), Claim::Held);
        assert_eq!(Claim::of(None, ("u", &own), (&BTreeMap::new(), None, at(40))), Claim::None);
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

    #[test]
    fn a_pod_that_nobody_holds_is_given_back_or_deleted_and_never_while_too_few_others_are_available() {
        let handed_over = HandedOver { to: owner("Deployment"), by: "m/u/x".into() };
        let old = Pod {
            controller: Some(owner("ReplicaSet")),
            handed_over: Some(Arc::new(handed_over)),
            ..Pod::named("old")
        };
        let fate = |claim, available, of_set| {
            fate((&old, at(100)), claim, &deployment(available), of_set, (Duration::ZERO, at(200)))
        };
        assert_eq!(fate(Claim::Held, 2, 2), Fate::Stay);
        assert_eq!(fate(Claim::Over, 2, 2), Fate::Delete);
        let given_back = |fate: Fate| match fate {
            Fate::GiveBack(first) => first.iter().map(|pod| pod.name.to_string()).collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        };
        assert_eq!(given_back(fate(Claim::Over, 1, 2)), ["web-1"], "it is not ready");
        let unproven =
            super::fate((&old, at(100)), Claim::Over, &deployment(2), 2, (Duration::from_secs(300), at(200)));
        assert_eq!(given_back(unproven), ["web-0", "web-1"], "not for long enough");
        assert_eq!(fate(Claim::None, 2, 2), Fate::GiveBack(Vec::new()));
        // Its ReplicaSet would delete it.
        assert_eq!([1, 2].map(|available| fate(Claim::None, available, 0)), [Fate::Stay, Fate::Delete]);
        let younger = |since| match fate(Claim::Reverted(at(since)), 2, 2) {
            Fate::GiveBack(first) => first.len(),
            other => panic!("{other:?}"),
        };
        assert_eq!([99, 101, 102].map(younger), [2, 2, 0], "times are whole seconds");
        let finished = Pod { finished: true, ..old.clone() };
        assert_eq!(
            super::fate((&finished, at(100)), Claim::None, &deployment(0), 2, (Duration::ZERO, at(200))),
            Fate::Delete
        );
        let recreate = DeploymentState { may_surge: false, ..deployment(0) };
        assert_eq!(super::fate((&old, at(100)), Claim::Over, &recreate, 2, (Duration::ZERO, at(200))), Fate::Delete);
    }
}
