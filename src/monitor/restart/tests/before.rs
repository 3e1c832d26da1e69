//! Statuses that version 0.1.0 wrote in the middle of a restart, each with the pods of its lists, those that existed then,
//! and the pods that it deleted after a crash at this moment.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::state;
use crate::kube::Uid;
use crate::monitor::decide::{Content, Decision, Look, Moment, decide};
use crate::monitor::pod::Pod;
use crate::monitor::restart::Now;
use crate::monitor::restart::machine::{Do, Machine, News};
use crate::monitor::restart::plan::{Plan, Suspects};
use crate::monitor::spec::Policy;
use crate::monitor::status::{Restart, Status};

#[derive(Deserialize)]
struct Before {
    spec: Box<RawValue>,
    status: Status,
    lists: BTreeMap<String, Vec<Pod>>,
    pods: Vec<Pod>,
    desired: BTreeMap<String, usize>,
}

impl Before {
    fn policy(&self) -> Policy {
        Policy::of(Some(&self.spec)).unwrap()
    }

    fn restart(&self) -> &Restart {
        self.status.restart.as_deref().unwrap()
    }

    /// The plan of the next process, which makes the lists again.
    fn plan(&self) -> Plan {
        let snapshot = |pods: &[Pod]| Arc::new(pods.iter().map(|pod| pod.uid.clone()).collect());
        let lists = self.lists.iter().map(|(version, pods)| (version.as_str().into(), Some(snapshot(pods)))).collect();
        let (suspects, policy) = (Suspects::of(self.restart(), &lists, &Arc::default()), self.policy());
        let last = &self.lists[self.restart().last_list().unwrap().as_str()];
        Plan::new(&policy, &suspects, policy.selector.to_query(), last, self.own_pod().as_ref())
    }

    fn own_pod(&self) -> Option<Uid> {
        self.pods.iter().find(|pod| &*pod.name == "operator").map(|pod| pod.uid.clone())
    }

    fn now(&self) -> Now {
        let begun = self.restart().begun.as_ref();
        let since = begun.map_or(self.restart().observed_at(), |begun| begun.last_progress_at);
        Now { timer: Instant::now(), server: since.plus(Duration::from_secs(20)) }
    }

    fn decide(&self) -> Decision {
        let Now { timer: now, server: server_now } = self.now();
        let hash = self.restart().changes[0].hash.clone();
        let content = Content { hash, version: None, at: server_now, came: now, first: false, recorded: None };
        let moment = Moment { read_at: now, now, server_now };
        decide(&self.policy(), &self.status, &Look(vec![Some(content)]), None, None, moment)
    }

    /// Returns the pods of the first wave of the next process, and how many pods it counts as deleted.
    fn first_wave(&self) -> (Vec<String>, usize) {
        let begun = self.restart().begun.as_ref().unwrap();
        let mut machine = Machine::recall(&self.policy(), self.plan(), self.restart(), begun, self.own_pod(), false);
        let (now, proof) = (self.now(), "unchanged");
        loop {
            let news = match machine.next(now) {
                Do::TakeTurn { owners, .. } => News::Turn(owners),
                Do::List => {
                    let pods = self.pods.iter().cloned().map(Arc::new).collect();
                    News::Listed { pods, at: now.server, took: Duration::ZERO }
                }
                Do::ReadOwners(queries) => {
                    let states = queries.iter().map(|query| {
                        (Arc::clone(&query.owner), state(self.desired.get(&query.owner.name).copied().unwrap_or(1)))
                    });
                    News::OwnersRead { states: states.collect(), took: Duration::ZERO }
                }
                Do::Confirm => News::Confirmed(proof),
                Do::Follow(_) => News::Following { is_open: false, is_new: false },
                Do::Remove(wave, _) => {
                    let names = wave.rows.iter().flatten().map(|attempt| attempt.pod.name.to_string());
                    return (names.collect(), machine.deleted());
                }
                Do::Write(report) => return (Vec::new(), report.begun.deleted),
                _ => panic!("the restart goes on"),
            };
            machine.heard(news, now);
        }
    }
}

fn before(text: &str) -> Before {
    serde_json::from_str(text).unwrap()
}

/// Returns the pods of the plan that exist and are not terminating.
fn left(before: &Before) -> Vec<&str> {
    let plan = before.plan();
    before.pods.iter().filter(|pod| pod.gone_by.is_none() && plan.is_old(pod)).map(|pod| &*pod.name).collect()
}

#[test]
fn a_restart_that_the_version_before_has_begun_goes_on_with_the_same_pods() {
    let cases: [(&str, &[&str], &[&str], usize); 4] = [
        (include_str!("before/all-at-once.json"), &["db-1", "web-105"], &["db-1", "web-105"], 3),
        (include_str!("before/rolling.json"), &["db-0", "db-1", "log-108"], &[], 2),
        (include_str!("before/canary-baking.json"), &["db-0", "db-1", "log-108", "web-105"], &[], 1),
        (include_str!("before/reverted.json"), &["web-110"], &[], 1),
    ];
    for (text, pods, first, deleted) in cases {
        let before = before(text);
        assert_eq!((before.decide(), left(&before)), (Decision::Resume, pods.to_vec()), "{text}");
        let (mut wave, counted) = before.first_wave();
        wave.sort();
        assert_eq!((wave, counted), (first.iter().map(|name| (*name).to_owned()).collect(), deleted), "{text}");
    }
}

#[test]
fn a_restart_that_the_version_before_has_held_is_about_the_same_pods() {
    let held = before(include_str!("before/held.json"));
    assert!(matches!(held.decide(), Decision::Hold(..)), "{:?}", held.decide());
    assert_eq!(left(&held), ["db-0", "db-1", "log-108", "web-105"]);
    let failed = before(include_str!("before/canary-failed.json"));
    assert!(matches!(failed.decide(), Decision::CanaryFailed(_)), "{:?}", failed.decide());
    assert_eq!(left(&failed), ["db-0", "db-1", "log-108", "web-105"]);
}
