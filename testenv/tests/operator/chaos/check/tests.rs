//! The violations that the checker finds in timelines made by hand. Revisions and seconds are the same numbers here.

use rules::Moment;
use rules::pod::Readiness;
use serde_json::{Value, json};
use testenv::history::Version;

use super::*;
use crate::chaos::requests::Deletion;
use crate::timeline::Desired;

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
    let at = stamp(observed);
    json!({"sources": [], "observedAt": at, "since": at, "startedAt": at, "podsResourceVersion": observed.to_string()})
}

fn pending(observed: u64) -> Value {
    json!({"sources": [], "observedAt": stamp(observed), "since": stamp(observed)})
}

impl Scenario {
    /// Content `a` at 1, which the ConfigMonitor has read at 2.
    fn new() -> Self {
        Self::default().content(1, "a").status(2, 1, Value::Null)
    }

    /// Content `a` in both sources, which the ConfigMonitor has read at 2.
    fn of_both() -> Self {
        let scenario = Self::default().content(1, "a").secret(1, "a");
        scenario
            .with(json!({"configMap": null, "sources": [{"configMap": {"name": "c"}}, {"secret": {"name": "s"}}]}))
            .status_of_both(2, (1, 1), Value::Null)
    }

    fn content(self, revision: u64, content: &str) -> Self {
        self.held("c", revision, content)
    }

    fn secret(self, revision: u64, content: &str) -> Self {
        self.held("Secret/s", revision, content)
    }

    fn held(mut self, source: &str, revision: u64, content: &str) -> Self {
        self.timeline.sources.entry(source.to_owned()).or_default().push((revision, Some(content.to_owned())));
        self
    }

    /// At `revision` the status says that the ConfigMap was read at version `read`, and has this restart.
    fn status(self, revision: u64, read: u64, restart: Value) -> Self {
        let name = self.more.get("configMap").unwrap_or(&json!("c")).clone();
        let source = json!({"kind": "ConfigMap", "name": name, "keys": self.more["keys"],
            "resourceVersion": read.to_string(), "hash": "a"});
        self.status_of(revision, json!([source]), restart)
    }

    /// As `status`, with the versions of the ConfigMap and the Secret.
    fn status_of_both(self, revision: u64, (config_map, secret): (u64, u64), restart: Value) -> Self {
        let source = |kind, name, version: u64| json!({"kind": kind, "name": name, "resourceVersion": version.to_string(), "hash": "a"});
        let sources = json!([source("ConfigMap", "c", config_map), source("Secret", "s", secret)]);
        self.status_of(revision, sources, restart)
    }

    fn status_of(mut self, revision: u64, sources: Value, restart: Value) -> Self {
        let mut spec = json!({"configMap": "c", "podSelector": {"app": "a"}, "quietPeriodSeconds": 3});
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

    fn pod(self, born: u64, deleted: Option<u64>) -> Self {
        self.pod_of("a", born, deleted)
    }

    fn pod_of(mut self, app: &str, born: u64, deleted: Option<u64>) -> Self {
        let name = format!("pod-{born}");
        let mut pod = Pod {
            name: name.clone(),
            labels: json!({"app": app}),
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

    fn lists(mut self, second: u64) -> Self {
        self.requests.lists.push((at(second), "app=a".to_owned()));
        self
    }

    fn verdict(&self) -> Verdict {
        let mut verdict = check_end(&self.timeline);
        verdict.add(check_deletions(&self.timeline, &self.requests));
        verdict.add(check_budgets(&self.timeline, &self.requests));
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
    let scenario = Scenario::new().pod(3, Some(13)).content(10, "b").status(11, 10, begun(11)).pod(14, None).status(
        20,
        10,
        Value::Null,
    );
    scenario.is_right();
    assert_eq!((scenario.verdict().restarts, scenario.verdict().deleted), (1, 1));
}

#[test]
fn a_pod_left_with_outdated_content_is_a_lost_change() {
    let scenario = Scenario::new().pod(3, None).content(10, "b");
    scenario.is_wrong("lost");
    Scenario::new()
        .pod(3, None)
        .content(10, "b")
        .status(11, 10, begun(11))
        .status(20, 10, Value::Null)
        .is_wrong("lost");
}

#[test]
fn a_pod_left_with_reverted_content_of_a_restart_is_a_lost_change() {
    let scenario = Scenario::new().content(10, "b").status(11, 10, begun(11)).pod(12, None).content(13, "a");
    scenario.status(14, 13, begun(14)).status(20, 13, Value::Null).is_wrong("lost");
}

#[test]
fn content_that_came_and_went_unread_or_within_its_quiet_period_is_an_exception() {
    let unread = Scenario::new().content(10, "b").pod(11, None).content(12, "a");
    unread.is_excused_by(1);
    let pending = Scenario::new().content(10, "b").status(10, 10, pending(10)).pod(11, None).content(12, "a");
    pending.status(12, 12, Value::Null).is_excused_by(1);
}

#[test]
fn content_that_was_reverted_after_its_quiet_period_is_no_exception() {
    let scenario = Scenario::new().content(10, "b").status(10, 10, pending(10)).pod(11, None).content(40, "a");
    scenario.status(40, 40, Value::Null).is_wrong("lost");
}

#[test]
fn content_that_was_read_late_and_reverted_is_an_exception() {
    let scenario = Scenario::new().content(10, "b").pod(11, None).status(20, 10, pending(20)).content(40, "a");
    scenario.status(40, 40, Value::Null).is_excused_by(8);
    let scenario = Scenario::new().content(10, "b").pod(11, None).status(20, 10, begun(20)).content(40, "a");
    scenario.status(40, 40, Value::Null).is_excused_by(8);
}

#[test]
fn a_baseline_after_the_source_was_edited_back_is_an_exception() {
    let middle = || Scenario::new().content(10, "b").status(11, 10, begun(11)).pod(12, None).content(13, "c");
    let edited = middle().with(json!({"configMap": "d"})).status(14, 14, begun(11)).with(Value::Null);
    edited.status(15, 13, begun(11)).status(20, 13, Value::Null).is_excused_by(3);
    middle().status(15, 13, begun(15)).status(20, 13, Value::Null).is_wrong("lost");
    let edited = middle().with(json!({"configMap": "d"})).status(14, 14, begun(11)).with(Value::Null);
    edited.status(15, 13, begun(11)).content(16, "d").status(20, 16, Value::Null).is_wrong("lost");
    // A pending restart continues.
    let waits = Scenario::new().pod(3, None).content(10, "b").status(11, 10, pending(11));
    let other = json!([{"kind": "ConfigMap", "name": "d", "resourceVersion": "14", "hash": null}]);
    let edited = waits.with(json!({"configMap": "d"})).status_of(14, other, pending(11)).with(Value::Null);
    edited.status(15, 10, Value::Null).is_wrong("lost");
}

#[test]
fn content_from_before_the_first_look_is_an_exception() {
    Scenario::default().content(1, "z").pod(2, None).content(3, "a").status(4, 3, Value::Null).is_excused_by(2);
}

#[test]
fn a_pod_that_is_deleted_without_a_change_is_made_up() {
    Scenario::new().pod(3, Some(12)).status(11, 1, begun(11)).is_wrong("made up");
}

#[test]
fn a_pod_deleted_for_the_content_of_its_creation_is_made_up_even_after_other_content() {
    let scenario = Scenario::new().pod(3, Some(33)).content(10, "b").status(11, 10, pending(11)).content(12, "a");
    scenario.status(32, 12, begun(32)).status(40, 12, Value::Null).is_wrong("made up");
}

#[test]
fn a_pod_of_a_restart_that_began_anew_for_other_content_is_an_exception() {
    let of_second_11 = |mut restart: Value| {
        restart["since"] = json!(stamp(11));
        restart
    };
    let middle = Scenario::new().content(10, "b").status(11, 10, begun(11)).pod(12, Some(33)).content(13, "c");
    let again =
        middle.status(14, 13, of_second_11(pending(14))).content(15, "b").status(30, 15, of_second_11(begun(30)));
    again.status(40, 15, Value::Null).is_excused_by(7);
}

/// A requested restart that has begun.
fn requested(observed: u64) -> Value {
    let mut restart = begun(observed);
    restart["request"] = json!("now");
    restart
}

#[test]
fn a_requested_restart_may_delete_the_pods_that_existed_at_the_request() {
    Scenario::new().pod(3, Some(12)).status(11, 1, requested(11)).pod(13, None).status(20, 1, Value::Null).is_right();
    Scenario::new().status(11, 1, requested(11)).pod(13, Some(14)).status(20, 1, Value::Null).is_wrong("too new");
}

#[test]
fn a_restart_begins_within_a_window_unless_it_is_requested() {
    let window = |schedule, seconds: u64| json!({"windows": [{"schedule": schedule, "durationSeconds": seconds}]});
    let scenario = |more: Value, restart: Value| {
        let scenario = Scenario::new().with(more).pod(3, Some(13)).content(10, "b").status(11, 10, restart);
        scenario.pod(14, None).status(20, 10, Value::Null)
    };
    scenario(window("* * * * *", 30), begun(11)).is_right();
    scenario(window("* * * * *", 5), begun(11)).is_wrong("a restart begins in a window");
    scenario(window("1-59/2 * * * *", 50), begun(11)).is_wrong("a restart begins in a window");
    scenario(window("1-59/2 * * * *", 50), requested(11)).is_right();
}

#[test]
fn a_restart_begins_no_sooner_than_the_interval_after_the_previous_one() {
    let scenario = |seconds: u64, restart: Value| {
        let first = Scenario::new().pod(3, Some(13)).content(10, "b").status(11, 10, begun(11)).pod(14, Some(33));
        let first = first.with(json!({"minIntervalSeconds": seconds})).status(20, 10, Value::Null).content(30, "c");
        let mut scenario = first.status(31, 30, restart).pod(34, None);
        let versions = &mut scenario.timeline.monitors.get_mut("m").unwrap().versions;
        versions
            .iter_mut()
            .rev()
            .take(2)
            .for_each(|version| version.status["history"] = json!([{"startedAt": stamp(11)}]));
        scenario.status(40, 30, Value::Null)
    };
    scenario(20, begun(31)).is_right();
    scenario(25, begun(31)).is_wrong("a restart begins once the interval is over");
    scenario(25, requested(31)).is_right();
}

#[test]
fn no_other_pod_goes_before_the_canary_has_passed() {
    let canary = |state| {
        let mut restart = begun(11);
        restart["canary"] = json!({"pods": 1, "state": state});
        restart
    };
    let scenario = |state| {
        let scenario =
            Scenario::new().with(json!({"canary": {"pods": 1, "bakeSeconds": 9}})).pod(3, Some(13)).pod(4, Some(17));
        let scenario = scenario.content(10, "b").status(11, 10, canary("Replacing")).pod(14, None).status(
            15,
            10,
            canary("Baking"),
        );
        scenario.status(16, 10, canary(state)).status(18, 10, canary(state)).pod(19, None).status(20, 10, Value::Null)
    };
    scenario("Passed").is_right();
    scenario("Baking").is_wrong("2 pods before the canary of 1 has passed");
}

#[test]
fn a_pod_that_is_deleted_twice_for_one_change_is_made_up() {
    let scenario =
        Scenario::new().content(10, "b").status(11, 10, begun(11)).pod(12, Some(14)).status(20, 10, Value::Null);
    scenario.is_wrong("made up");
}

#[test]
fn a_pod_created_before_its_content_was_read_is_an_exception() {
    let scenario =
        Scenario::new().content(10, "b").pod(11, Some(14)).status(12, 10, begun(12)).status(20, 10, Value::Null);
    scenario.is_excused_by(7);
}

#[test]
fn a_pod_created_before_a_retried_list_is_an_exception() {
    let scenario = || {
        let mut restart = begun(11);
        restart["podsResourceVersion"] = json!("16");
        let scenario = Scenario::new().content(10, "b").pod(15, Some(18)).status(17, 10, restart);
        scenario.status(30, 10, Value::Null)
    };
    scenario().lists(11).lists(16).is_excused_by(7);
    // The operator never tried to list the pods in time.
    scenario().lists(16).is_wrong("too new");
}

#[test]
fn a_pod_created_in_the_second_of_the_reading_is_an_exception() {
    let mut restart = begun(20);
    restart["podsResourceVersion"] = json!("22");
    let scenario =
        Scenario::new().content(10, "b").status(11, 10, pending(11)).content(12, "a").status(20, 12, pending(20));
    scenario.pod(21, Some(24)).status(23, 12, restart).status(30, 12, Value::Null).is_excused_by(7);
}

#[test]
fn deleting_a_new_pod_is_wrong_even_if_the_content_has_changed_again() {
    let scenario = Scenario::new().content(10, "b").status(11, 10, begun(11)).pod(13, Some(15)).content(14, "c");
    scenario.status(20, 14, Value::Null).is_wrong("too new");
}

#[test]
fn a_pod_that_nobody_selects_is_a_stranger() {
    let scenario = Scenario::new().pod_of("other", 3, Some(13)).content(10, "b").status(11, 10, begun(11)).status(
        20,
        10,
        Value::Null,
    );
    scenario.is_wrong("stranger");
}

#[test]
fn a_deletion_before_the_intent_is_found() {
    let verdict = Scenario::new().pod(3, Some(11)).content(10, "b").status(12, 10, Value::Null).verdict();
    assert!(verdict.violations[0].starts_with("no intent"), "{verdict:?}");
}

#[test]
fn a_change_of_any_source_is_a_restart() {
    let of_secret = Scenario::of_both().pod(3, Some(13)).secret(10, "b").status_of_both(11, (1, 10), begun(11));
    of_secret.pod(14, None).status_of_both(20, (1, 10), Value::Null).is_right();
    let of_config_map = Scenario::of_both().pod(3, Some(13)).content(10, "b").status_of_both(11, (10, 1), begun(11));
    of_config_map.pod(14, None).status_of_both(20, (10, 1), Value::Null).is_right();
    let one_after_the_other =
        Scenario::of_both().pod(3, Some(13)).secret(10, "b").status_of_both(11, (1, 10), begun(11));
    let other = one_after_the_other.pod(14, Some(33)).status_of_both(20, (1, 10), Value::Null).content(30, "b");
    other.status_of_both(31, (30, 10), begun(31)).pod(34, None).status_of_both(40, (30, 10), Value::Null).is_right();
}

#[test]
fn a_pod_left_with_outdated_content_of_any_source_is_a_lost_change() {
    Scenario::of_both().pod(3, None).secret(10, "b").is_wrong("lost");
    Scenario::of_both().pod(3, None).content(10, "b").is_wrong("lost");
    let read = Scenario::of_both().pod(3, None).secret(10, "b").status_of_both(11, (1, 10), begun(11));
    read.status_of_both(20, (1, 10), Value::Null).is_wrong("lost");
    let only_one =
        Scenario::of_both().content(10, "b").status_of_both(11, (10, 1), begun(11)).pod(12, None).secret(13, "b");
    only_one.status_of_both(20, (10, 13), Value::Null).is_wrong("lost");
}

#[test]
fn a_pod_deleted_without_a_change_of_any_source_is_made_up() {
    Scenario::of_both().pod(3, Some(12)).status_of_both(11, (1, 1), begun(11)).is_wrong("made up");
    let both = Scenario::of_both().content(10, "b").secret(10, "b").status_of_both(11, (10, 10), begun(11));
    both.pod(12, Some(14)).status_of_both(20, (10, 10), Value::Null).is_wrong("made up");
}

#[test]
fn content_that_came_and_went_during_a_restart_for_another_source_is_an_exception() {
    let middle =
        Scenario::of_both().content(10, "b").status_of_both(11, (10, 1), begun(11)).secret(12, "b").pod(13, None);
    middle.secret(14, "a").status_of_both(20, (10, 1), Value::Null).is_excused_by(1);
    // Nobody has acted on the Secret's content, but on the ConfigMap's, which the pod has.
    let twice = Scenario::of_both().secret(10, "b").pod(11, None).secret(12, "a").content(13, "b");
    twice
        .status_of_both(14, (13, 12), begun(14))
        .content(15, "a")
        .status_of_both(16, (15, 12), Value::Null)
        .is_excused_by(1);
}

/// Two pods, of which one may be missing, and new content, read at 11. They were listed at 12.
fn rolling(more: Value) -> Scenario {
    Scenario::new()
        .with(more)
        .status(2, 1, Value::Null)
        .desired(1, 2)
        .content(10, "b")
        .status(11, 10, begun(11))
        .lists(12)
}

fn one() -> Value {
    json!({"maxUnavailable": 1})
}

/// Asserts that a judged deletion exceeds the budget.
fn is_over_budget(scenario: Scenario) {
    scenario.status(30, 10, Value::Null).is_wrong("over budget");
}

/// Asserts that there is no violation, with `judged` judged deletions.
fn is_within_budget(scenario: Scenario, judged: usize) {
    let scenario = scenario.status(30, 10, Value::Null);
    scenario.is_right();
    assert_eq!(scenario.verdict().judged, judged);
}

#[test]
fn a_budget_is_kept_if_every_pod_waits_for_the_previous_one() {
    is_within_budget(rolling(one()).pod(3, Some(13)).pod(14, None).lists(15).pod(4, Some(16)).pod(17, None), 2);
}

#[test]
fn two_deletions_at_once_exceed_a_budget_of_one() {
    is_over_budget(rolling(one()).pod(3, Some(13)).pod(4, Some(14)));
    is_over_budget(rolling(json!({"maxUnavailable": "99%"})).pod(3, Some(13)).pod(4, Some(14)));
    is_within_budget(rolling(json!({"maxUnavailable": "100%"})).pod(3, Some(13)).pod(4, Some(14)), 2);
}

#[test]
fn a_deletion_exceeds_a_budget_of_one_while_another_pod_is_missing() {
    is_over_budget(rolling(one()).pod(3, Some(13)).lists(14).pod(4, Some(15)));
    // As in a StatefulSet, there is no other pod at all.
    is_over_budget(rolling(one()).pod(3, Some(13)));
    is_over_budget(rolling(one()).desired(5, 3).pod(3, Some(13)).pod(12, None));
}

#[test]
fn a_pod_is_missing_before_it_has_been_ready_for_min_ready_seconds() {
    let new = |seconds: u64| {
        let more = json!({"maxUnavailable": 1, "minReadySeconds": seconds});
        rolling(more).pod(3, Some(13)).pod(14, None).lists(17).pod(4, Some(18)).pod(19, None)
    };
    is_within_budget(new(3), 2);
    is_over_budget(new(4));
}

#[test]
fn changes_that_the_operator_cannot_know_do_not_count() {
    let other = |scenario: Scenario| {
        let mut scenario = scenario.pod(3, Some(13));
        scenario.requests.deletions.clear();
        scenario.pod(4, Some(14))
    };
    // Somebody else has deleted the other pod since the list.
    is_within_budget(other(rolling(one())), 1);
    // Somebody else has deleted the other pod before the list.
    is_over_budget(other(rolling(one())).lists(14));
    // The answer has not come.
    let mut lost = rolling(one()).pod(3, Some(15)).pod(4, Some(17)).lists(16);
    (lost.requests.deletions[0].sent, lost.requests.deletions[0].answered) = (at(13), at(17));
    is_within_budget(lost, 2);
}

#[test]
fn an_edit_of_a_budget_counts_after_some_seconds() {
    let edited = |second| rolling(json!({"maxUnavailable": 2})).with(one()).status(second, 10, begun(11));
    let twice = |scenario: Scenario| scenario.lists(24).pod(3, Some(25)).pod(4, Some(26));
    is_within_budget(twice(edited(17)), 2);
    is_over_budget(twice(edited(12)).status(13, 10, begun(11)));
    let none = rolling(json!({})).with(one()).status(12, 10, begun(11)).pod(3, Some(13)).pod(4, Some(14));
    is_within_budget(none, 0);
}

#[test]
fn deletions_by_two_operators_at_once_are_not_judged() {
    let mut scenario = rolling(one()).pod(3, Some(13)).pod(4, Some(14));
    scenario.requests.overlaps = vec![(at(5), at(12))];
    is_within_budget(scenario, 0);
}

#[test]
fn a_deletion_against_the_deletion_policy_is_found() {
    let evicted = |policy: &str, evicted: bool| {
        let scenario =
            Scenario::new().with(json!({"deletionPolicy": policy})).status(2, 1, Value::Null).content(10, "b");
        let mut scenario =
            scenario.status(11, 10, begun(11)).pod(3, Some(13)).pod(14, None).status(20, 10, Value::Null);
        scenario.requests.deletions[0].evicted = evicted;
        scenario
    };
    evicted("Evict", true).is_right();
    evicted("Delete", false).is_right();
    evicted("Evict", false).is_wrong("policy");
    evicted("Delete", true).is_wrong("policy");
}

#[test]
fn other_keys_are_not_part_of_the_content() {
    let config_map = |revision, data: Value| Version {
        revision,
        key: "/registry/configmaps/n/c".to_owned(),
        observed: at(revision),
        object: Some(json!({"data": data})),
    };
    let monitor = json!({"metadata": {"uid": "m"}, "spec": {"configMap": "c", "keys": ["b", "a"]}, "status": {"sources": [{"kind": "ConfigMap", "name": "c"}]}});
    let key = "/registry/magalix.com/configmonitors/n/m".to_owned();
    let past = [
        config_map(1, json!({"a": "1"})),
        Version { revision: 2, key, observed: at(2), object: Some(monitor) },
        config_map(3, json!({"a": "1", "c": "1"})),
        config_map(4, json!({"a": "1", "b": "1"})),
    ];
    let timeline = Timeline::of(past.iter(), "n");
    let since = |source| timeline.sources[source].iter().map(|(since, _)| *since).collect::<Vec<_>>();
    assert_eq!((since("c[a,b]"), since("c")), (vec![1, 4], vec![1, 3, 4]));
}

#[test]
fn a_recreated_secret_has_changed_and_a_relabelled_one_has_not() {
    let version = |revision, object: Option<Value>| {
        let key = "/registry/secrets/n/s".to_owned();
        Version { revision, key, observed: at(revision), object }
    };
    let secret = |uid: &str, label: &str| {
        let metadata = json!({"uid": uid, "labels": {"l": label}});
        Some(json!({"kind": "Secret", "metadata": metadata, "data": {"a": "MQ=="}}))
    };
    let source = json!({"kind": "Secret", "name": "s"});
    let monitor = json!({"metadata": {"uid": "m"}, "spec": {"sources": [{"secret": {"name": "s"}}]}, "status": {"sources": [source]}});
    let key = "/registry/magalix.com/configmonitors/n/m".to_owned();
    let past = [
        version(1, secret("u", "1")),
        Version { revision: 2, key, observed: at(2), object: Some(monitor) },
        version(3, secret("u", "2")),
        version(4, None),
        version(5, secret("v", "2")),
    ];
    let timeline = Timeline::of(past.iter(), "n");
    let since: Vec<u64> = timeline.sources["Secret/s"].iter().map(|(since, _)| *since).collect();
    assert_eq!(since, vec![1, 4, 5]);
    assert_ne!(timeline.content("Secret/s", 3), timeline.content("Secret/s", 5));
}

#[test]
fn each_operator_of_an_expression_selects_as_documented() {
    let select = |expression: Value| MonitorVersion {
        revision: 1,
        observed: at(1),
        spec: json!({"podSelector": {"app": "a"}, "podSelectorExpressions": [expression]}),
        status: Value::Null,
    };
    for (operator, values, query, matches) in [
        ("In", json!(["y", "x"]), "app=a,t in (x,y)", [true, false, false]),
        ("NotIn", json!(["x"]), "app=a,t notin (x)", [false, true, true]),
        ("Exists", Value::Null, "app=a,t", [true, true, false]),
        ("DoesNotExist", Value::Null, "app=a,!t", [false, false, true]),
    ] {
        let version = select(json!({"key": "t", "operator": operator, "values": values}));
        assert_eq!(version.query(), query);
        let pods = [json!({"app": "a", "t": "x"}), json!({"app": "a", "t": "z"}), json!({"app": "a"})];
        assert_eq!(pods.map(|labels| version.selects(&labels)), matches, "{operator}");
        assert!(!version.selects(&json!({"app": "b", "t": "x"})));
    }
}
