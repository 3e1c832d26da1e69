//! The violations that the checker finds in timelines made by hand. Revisions and seconds are the same numbers here.

use rules::Moment;
use rules::pod::Readiness;
use serde_json::{Value, json};

use super::*;
use crate::nightly::chaos::requests::Deletion;
use crate::nightly::chaos::timeline::Desired;

/// A ConfigMap `c`, a Secret `s`, pods and one ConfigMonitor that restarts them for the ConfigMap, or for both.
#[derive(Default)]
struct Scenario {
    timeline: Timeline,
    requests: OperatorRequests,
    /// The additional fields of the spec from now on.
    more: Value,
}

fn at(second: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(second)
}

fn stamp(second: u64) -> String {
    Timestamp::try_from(at(second)).unwrap().to_string()
}

/// Returns a restart for content read at `observed`, as a status has it once the restart has begun.
fn begun(observed: u64) -> Value {
    and(and(pending(observed), "startedAt", json!(stamp(observed))), "podsResourceVersion", json!(observed.to_string()))
}

fn pending(observed: u64) -> Value {
    let at = stamp(observed);
    json!({"sources": [{"kind": "ConfigMap", "name": "c", "hash": "b", "observedAt": at, "since": at}]})
}

/// Returns the restart with this field, which may be one of its change.
fn and(mut restart: Value, field: &str, value: Value) -> Value {
    match field {
        "since" | "podsResourceVersion" => restart["sources"][0][field] = value,
        _ => restart[field] = value,
    }
    restart
}

/// Content `a` at 1, which the ConfigMonitor has read at 2.
fn one(events: &str) -> Scenario {
    Scenario::default().then("c1=a s2:1").then(events)
}

/// Content `a` in both sources, which the ConfigMonitor has read at 2.
fn both(events: &str) -> Scenario {
    let sources = json!([{"configMap": {"name": "c"}}, {"secret": {"name": "s"}}]);
    let scenario = Scenario::default().with(json!({"configMap": null, "sources": sources}));
    scenario.then("c1=a k1=a s2:1,1").then(events)
}

impl Scenario {
    /// Adds events, each in its second: `c1=a` and `k1=a` is new content of the ConfigMap and of the Secret, `p3-13` a
    /// pod and its deletion by the operator, `h12=3` that the pod of second 3 was handed over, `s11:10` a status that
    /// says which versions were read, with a restart that is pending (`?`) or has begun (`+`) for what was read then or
    /// in the second that follows, `l12` a list of pods, `d1=2` the desired pods.
    fn then(mut self, events: &str) -> Self {
        for event in events.split_whitespace() {
            let (kind, rest) = event.split_at(1);
            let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            let (second, more): (u64, &str) =
                (rest[..end].parse().unwrap(), rest[end..].trim_start_matches(['=', '-', ':']));
            self = match kind {
                "c" => self.held("c", second, more),
                "k" => self.held("Secret/s", second, more),
                "p" => self.pod_of("a", second, more.parse().ok()),
                "h" => self.handed_over(second, more),
                "l" => self.lists(second),
                "d" => self.desired(second, more.parse().unwrap()),
                "s" => {
                    let (read, observed) = more.split_once(['?', '+']).unwrap_or((more, ""));
                    let observed = observed.parse().unwrap_or(second);
                    let is_begun = more.contains('+');
                    let restart = if is_begun { begun(observed) } else { pending(observed) };
                    self.status(second, read, if is_begun || more.contains('?') { restart } else { Value::Null })
                }
                _ => panic!("{event}"),
            };
        }
        self
    }

    fn held(mut self, source: &str, revision: u64, content: &str) -> Self {
        self.timeline.sources.entry(source.to_owned()).or_default().push((revision, Some(content.to_owned())));
        self
    }

    /// At `revision` the status says that the sources were read at these versions, and has this restart.
    fn status(self, revision: u64, read: &str, restart: Value) -> Self {
        let name = self.more.get("configMap").filter(|name| name.is_string()).unwrap_or(&json!("c")).clone();
        let source = |(place, version): (usize, &str)| {
            let (kind, name) = if place == 0 { ("ConfigMap", name.clone()) } else { ("Secret", json!("s")) };
            json!({"kind": kind, "name": name, "keys": self.more["keys"], "resourceVersion": version, "hash": "a"})
        };
        let sources = read.split(',').enumerate().map(source).collect();
        self.status_of(revision, sources, restart)
    }

    fn status_of(mut self, revision: u64, sources: Value, restart: Value) -> Self {
        let mut spec =
            json!({"configMap": "c", "podSelector": {"app": "a"}, "quietPeriodSeconds": 3, "maxUnavailable": "100%"});
        for (field, value) in self.more.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        let status = json!({"sources": sources, "restart": restart});
        let version = MonitorVersion { revision, observed: at(revision), spec, status };
        let requests = vec![(Moment { step: 0, ms: 0 }, "now".to_owned())];
        let monitor =
            || Monitor { name: "m".to_owned(), versions: Vec::new(), removed: None, requests, events: Vec::new() };
        self.timeline.monitors.entry("m".to_owned()).or_insert_with(monitor).versions.push(version);
        self
    }

    fn pod_of(mut self, app: &str, born: u64, deleted: Option<u64>) -> Self {
        let name = format!("pod-{born}");
        let mut pod = Pod {
            name: name.clone(),
            labels: json!({"app": app}),
            handed_over: Vec::new(),
            owner: Some("o".to_owned()),
            born,
            created: stamp(born),
            ready: Readiness::default(),
            ready_since: Some(at(born).try_into().unwrap()),
            deleted: deleted.map(|second| (second, at(second))),
        };
        pod.ready.set(true, Moment { step: born, ms: born * 1000 });
        self.requests.deletions.extend(deleted.map(|second| Deletion {
            uid: name.clone(),
            evicted: false,
            sent: at(second),
            received: at(second),
            answered: at(second),
        }));
        self.timeline.pods.insert(name, pod);
        self
    }

    /// Adds this to the spec from now on.
    fn with(mut self, more: Value) -> Self {
        self.more = more;
        self
    }

    /// Sets the desired replicas of the pods' owner.
    fn desired(mut self, second: u64, pods: usize) -> Self {
        let desired = Desired { revision: second, observed: at(second), pods };
        self.timeline.owners.entry("o".to_owned()).or_default().desired.push(desired);
        self
    }

    /// Hands a pod over to the Deployment `d`, or gives it back (`3!`).
    fn handed_over(mut self, second: u64, pod: &str) -> Self {
        let (at, born) = (Moment { step: second, ms: second * 1000 }, pod.trim_end_matches('!'));
        let to = (!pod.ends_with('!')).then(|| "d".to_owned());
        self.timeline.pods.get_mut(&format!("pod-{born}")).unwrap().handed_over.push((at, to));
        self
    }

    fn lists(mut self, second: u64) -> Self {
        self.requests.lists.push((at(second), "app=a".to_owned()));
        self
    }

    fn verdict(&self) -> Verdict {
        let mut verdict = check_end(&self.timeline);
        verdict.add(check_deletions(&self.timeline, &self.requests));
        verdict.add(check_budgets(&self.timeline, &self.requests));
        verdict.add(check_surge(&self.timeline, &self.requests));
        verdict.add(check_accounts(&self.timeline, &self.requests));
        verdict
    }

    fn is_right(&self) {
        let verdict = self.verdict();
        assert!(verdict.violations.is_empty() && verdict.exceptions.is_empty(), "{verdict:?}");
    }

    fn is_excused_by(&self, number: u8) {
        let verdict = self.verdict();
        assert!(verdict.violations.is_empty(), "{verdict:?}");
        assert_eq!(verdict.exceptions, BTreeMap::from([(number, 1)]));
    }

    fn is_wrong(&self, why: &str) {
        let violations = self.verdict().violations;
        assert!(violations.len() == 1 && violations[0].starts_with(why), "{violations:?}");
    }
}

#[test]
fn a_normal_restart_is_right() {
    let scenario = one("p3-13 c10=b s11:10+ p14 s20:10");
    scenario.is_right();
    assert_eq!((scenario.verdict().restarts, scenario.verdict().deleted), (1, 1));
}

#[test]
fn a_change_of_any_source_is_a_restart() {
    both("p3-13 k10=b s11:1,10+ p14 s20:1,10").is_right();
    both("p3-13 c10=b s11:10,1+ p14 s20:10,1").is_right();
    both("p3-13 k10=b s11:1,10+ p14-33 s20:1,10 c30=b s31:30,10+ p34 s40:30,10").is_right();
}

#[test]
fn a_pod_left_with_outdated_content_of_any_source_is_a_lost_change() {
    one("p3 c10=b").is_wrong("lost");
    one("p3 c10=b s11:10+ s20:10").is_wrong("lost");
    both("p3 k10=b").is_wrong("lost");
    both("p3 c10=b").is_wrong("lost");
    both("p3 k10=b s11:1,10+ s20:1,10").is_wrong("lost");
    both("c10=b s11:10,1+ p12 k13=b s20:10,13").is_wrong("lost");
    // The content of a restart was reverted.
    one("c10=b s11:10+ p12 c13=a s14:13+ s20:13").is_wrong("lost");
}

#[test]
fn content_that_came_and_went_unread_or_within_its_quiet_period_is_an_exception() {
    one("c10=b p11 c12=a").is_excused_by(1);
    one("c10=b s10:10? p11 c12=a s12:12").is_excused_by(1);
    one("c10=b s10:10? p11 c40=a s40:40").is_wrong("lost");
    // During a restart for another source.
    both("c10=b s11:10,1+ k12=b p13 k14=a s20:10,1").is_excused_by(1);
    // Nobody has acted on the Secret's content, but on the ConfigMap's, which the pod has.
    both("k10=b p11 k12=a c13=b s14:13,12+ c15=a s16:15,12").is_excused_by(1);
}

#[test]
fn a_pod_that_is_deleted_without_a_change_of_any_source_is_made_up() {
    one("p3-12 s11:1+").is_wrong("made up");
    both("p3-12 s11:1,1+").is_wrong("made up");
    // For the content of its creation, after other content.
    one("p3-33 c10=b s11:10? c12=a s32:12+ s40:12").is_wrong("made up");
    // Twice for one change.
    one("c10=b s11:10+ p12-14 s20:10").is_wrong("made up");
    both("c10=b k10=b s11:10,10+ p12-14 s20:10,10").is_wrong("made up");
}

#[test]
fn deleting_a_new_pod_is_wrong_even_if_the_content_has_changed_again() {
    one("c10=b s11:10+ p13-15 c14=c s20:14").is_wrong("too new");
}

#[test]
fn a_pod_that_nobody_selects_is_a_stranger() {
    one("").pod_of("other", 3, Some(13)).then("c10=b s11:10+ s20:10").is_wrong("stranger");
}

#[test]
fn a_deletion_before_the_intent_is_found() {
    let verdict = one("p3-11 c10=b s12:10").verdict();
    assert!(verdict.violations[0].starts_with("no intent"), "{verdict:?}");
}

/// Two pods, of which one may be missing, and new content, read at 11. They were listed at 12.
fn rolling(more: Value) -> Scenario {
    one("").with(more).then("s2:1 d1=2 c10=b s11:10+ l12")
}

fn most(pods: u64) -> Value {
    json!({"maxUnavailable": pods})
}

/// Asserts that a judged deletion exceeds the budget.
fn is_over_budget(scenario: Scenario) {
    scenario.then("s30:10").is_wrong("over budget");
}

/// Asserts that there is no violation, with `judged` judged deletions.
fn is_within_budget(scenario: Scenario, judged: usize) {
    let scenario = scenario.then("s30:10");
    scenario.is_right();
    assert_eq!(scenario.verdict().judged, judged);
}

#[test]
fn a_budget_is_kept_if_every_pod_waits_for_the_previous_one() {
    is_within_budget(rolling(most(1)).then("p3-13 p14 l15 p4-16 p17"), 2);
    for percent in ["99%", "100%"] {
        let scenario = rolling(json!({"maxUnavailable": percent})).then("p3-13 p4-14");
        if percent == "99%" { is_over_budget(scenario) } else { is_within_budget(scenario, 0) }
    }
    is_over_budget(rolling(most(1)).then("p3-13 p4-14"));
    is_over_budget(rolling(most(1)).then("p3-13 l14 p4-15"));
    // As in a StatefulSet, there is no other pod at all.
    is_over_budget(rolling(most(1)).then("p3-13"));
    is_over_budget(rolling(most(1)).then("d5=3 p3-13 p12"));
}

#[test]
fn a_pod_is_missing_before_it_has_been_ready_for_min_ready_seconds() {
    let new = |seconds: u64| {
        rolling(json!({"maxUnavailable": 1, "minReadySeconds": seconds})).then("p3-13 p14 l17 p4-18 p19")
    };
    is_within_budget(new(3), 2);
    is_over_budget(new(4));
}

/// Two pods of a Deployment with a surge of one, and new content, read at 11. They were listed at 12.
fn surging(events: &str) -> Scenario {
    let mut scenario = one("").with(json!({"maxUnavailable": null, "maxSurge": 1})).then("s2:1 d1=2 c10=b s11:10+ l12");
    let desired = Desired { revision: 1, observed: at(1), pods: 2 };
    scenario.timeline.deployments.entry("d".to_owned()).or_default().desired.push(desired);
    scenario.timeline.owners.get_mut("o").unwrap().controller = Some("d".to_owned());
    scenario.then("p3-16 p4-19").then(events).then("s30:10")
}

#[test]
fn a_pod_that_is_handed_over_goes_once_its_successor_is_available() {
    surging("h13=3 p14 l15 h17=4 p18 l18").is_right();
    surging("h13=3 p14 l15 p18").is_wrong("no successor: 1");
    surging("h13=3 l15 p17 h17=4 p18 l18").is_wrong("no successor: 1");
}

#[test]
fn no_more_pods_are_handed_over_than_max_surge_and_each_for_a_restart() {
    surging("h13=3 h14=4 p14 p15 l15 l18").is_wrong("over maxSurge: 2");
    surging("h13=3 p14 l15 h15=3! h16=3 h17=4 p18 l18").is_right();
    surging("h5=3 p14 l15 h17=4 p18 l18").is_wrong("no intent");
}

#[test]
fn a_pod_that_stays_handed_over_is_found() {
    let left = || one("").with(json!({"maxSurge": 1})).then("c10=b s11:10+ p12");
    left().then("s20:10").is_right();
    let violations = left().then("h13=12 s20:10").verdict().violations;
    assert!(violations.iter().any(|it| it.starts_with("left behind")), "{violations:?}");
}

#[test]
fn a_deletion_against_the_deletion_policy_is_found() {
    for (policy, evicted, is_right) in
        [("Evict", true, true), ("Delete", false, true), ("Evict", false, false), ("Delete", true, false)]
    {
        let scenario = one("").with(json!({"deletionPolicy": policy}));
        let mut scenario = scenario.then("s2:1 c10=b s11:10+ p3-13 p14 s20:10");
        scenario.requests.deletions[0].evicted = evicted;
        if is_right { scenario.is_right() } else { scenario.is_wrong("policy") }
    }
}
