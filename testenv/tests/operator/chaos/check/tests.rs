//! What the checker finds wrong in stories that are told by hand. Revisions and seconds are the same numbers here.

use serde_json::{Value, json};

use super::*;

/// A ConfigMap `c`, pods and one ConfigMonitor that restarts them for it.
#[derive(Default)]
struct Tale {
    story: Story,
    deleted: Vec<String>,
}

fn at(second: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(second)
}

fn stamp(second: u64) -> String {
    Timestamp::try_from(at(second)).unwrap().to_string()
}

/// A restart for what was read at `observed`, as a status has it once it has begun.
fn begun(observed: u64) -> Value {
    let at = stamp(observed);
    json!({"observedAt": at, "since": at, "startedAt": at, "podsResourceVersion": observed.to_string()})
}

fn pending(observed: u64) -> Value {
    json!({"observedAt": stamp(observed), "since": stamp(observed)})
}

impl Tale {
    /// Content `a` at 1, and the ConfigMonitor has read it at 2.
    fn new() -> Self {
        Self::default().content(1, "a").said(2, 1, Value::Null)
    }

    fn content(mut self, revision: u64, content: &str) -> Self {
        self.story.config_maps.entry("c".to_owned()).or_default().push((revision, Some(content.to_owned())));
        self
    }

    /// At `revision` the ConfigMonitor says that it has read the ConfigMap of version `read`, and which restart there is.
    fn said(mut self, revision: u64, read: u64, restart: Value) -> Self {
        let said = Said {
            revision,
            heard: at(revision),
            spec: json!({"configMap": "c", "podSelector": {"app": "a"}, "quietPeriodSeconds": 3}),
            status: json!({"source": "ConfigMap/c", "sourceResourceVersion": read.to_string(), "configHash": "a", "restart": restart}),
        };
        let monitor = || Monitor { name: "m".to_owned(), said: Vec::new(), removed: None };
        self.story.monitors.entry("m".to_owned()).or_insert_with(monitor).said.push(said);
        self
    }

    fn pod(self, born: u64, deleted: Option<u64>) -> Self {
        self.pod_of("a", born, deleted)
    }

    fn pod_of(mut self, app: &str, born: u64, deleted: Option<u64>) -> Self {
        let name = format!("pod-{born}");
        let pod = Pod {
            name: name.clone(),
            labels: json!({"app": app}),
            controlled: true,
            born,
            created: stamp(born),
            deleted: deleted.map(|second| (second, at(second))),
        };
        self.deleted.extend(deleted.map(|_| name.clone()));
        self.story.pods.insert(name, pod);
        self
    }

    fn verdict(&self) -> Verdict {
        let mut verdict = check_end(&self.story);
        verdict.add(check_deletions(&self.story, &self.deleted));
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
fn a_restart_as_it_should_be() {
    let tale =
        Tale::new().pod(3, Some(13)).content(10, "b").said(11, 10, begun(11)).pod(14, None).said(20, 10, Value::Null);
    tale.is_right();
    assert_eq!((tale.verdict().restarts, tale.verdict().deleted), (1, 1));
}

#[test]
fn a_pod_that_was_left_with_other_content_is_lost() {
    let tale = Tale::new().pod(3, None).content(10, "b");
    tale.is_wrong("lost");
    Tale::new().pod(3, None).content(10, "b").said(11, 10, begun(11)).said(20, 10, Value::Null).is_wrong("lost");
}

#[test]
fn a_pod_of_content_that_was_restarted_for_and_taken_back_is_lost() {
    let tale = Tale::new().content(10, "b").said(11, 10, begun(11)).pod(12, None).content(13, "a");
    tale.said(14, 13, begun(14)).said(20, 13, Value::Null).is_wrong("lost");
}

#[test]
fn content_that_came_and_went_unread_or_before_it_was_at_rest_is_an_exception() {
    let unread = Tale::new().content(10, "b").pod(11, None).content(12, "a");
    unread.is_excused_by(1);
    let pending = Tale::new().content(10, "b").said(10, 10, pending(10)).pod(11, None).content(12, "a");
    pending.said(12, 12, Value::Null).is_excused_by(1);
}

#[test]
fn content_that_was_at_rest_for_long_before_it_was_taken_back_is_none() {
    let tale = Tale::new().content(10, "b").said(10, 10, pending(10)).pod(11, None).content(40, "a");
    tale.said(40, 40, Value::Null).is_wrong("lost");
}

#[test]
fn content_that_was_read_late_before_it_was_taken_back_is_an_exception() {
    let tale = Tale::new().content(10, "b").pod(11, None).said(20, 10, pending(20)).content(40, "a");
    tale.said(40, 40, Value::Null).is_excused_by(8);
    let tale = Tale::new().content(10, "b").pod(11, None).said(20, 10, begun(20)).content(40, "a");
    tale.said(40, 40, Value::Null).is_excused_by(8);
}

#[test]
fn what_was_before_the_first_look_is_an_exception() {
    Tale::default().content(1, "z").pod(2, None).content(3, "a").said(4, 3, Value::Null).is_excused_by(2);
}

#[test]
fn a_pod_that_is_deleted_without_a_change_is_made_up() {
    Tale::new().pod(3, Some(12)).said(11, 1, begun(11)).is_wrong("made up");
}

#[test]
fn a_pod_that_is_deleted_for_content_that_it_was_born_with_is_made_up_even_if_there_was_other_content_since() {
    let tale = Tale::new().pod(3, Some(33)).content(10, "b").said(11, 10, pending(11)).content(12, "a");
    tale.said(32, 12, begun(32)).said(40, 12, Value::Null).is_wrong("made up");
}

#[test]
fn a_pod_of_a_restart_that_other_content_has_made_begin_anew_is_an_exception() {
    let of_second_11 = |mut restart: Value| {
        restart["since"] = json!(stamp(11));
        restart
    };
    let middle = Tale::new().content(10, "b").said(11, 10, begun(11)).pod(12, Some(33)).content(13, "c");
    let again = middle.said(14, 13, of_second_11(pending(14))).content(15, "b").said(30, 15, of_second_11(begun(30)));
    again.said(40, 15, Value::Null).is_excused_by(7);
}

#[test]
fn a_pod_that_is_deleted_twice_for_one_change_is_made_up() {
    let tale = Tale::new().content(10, "b").said(11, 10, begun(11)).pod(12, Some(14)).said(20, 10, Value::Null);
    tale.is_wrong("made up");
}

#[test]
fn a_pod_that_was_born_before_its_content_was_read_is_an_exception() {
    let tale = Tale::new().content(10, "b").pod(11, Some(14)).said(12, 10, begun(12)).said(20, 10, Value::Null);
    tale.is_excused_by(7);
}

#[test]
fn a_pod_that_was_born_in_the_second_of_the_reading_is_an_exception() {
    let mut restart = begun(20);
    restart["podsResourceVersion"] = json!("22");
    let tale = Tale::new().content(10, "b").said(11, 10, pending(11)).content(12, "a").said(20, 12, pending(20));
    tale.pod(21, Some(24)).said(23, 12, restart).said(30, 12, Value::Null).is_excused_by(7);
}

#[test]
fn a_pod_that_is_too_new_is_not_to_be_deleted_even_if_the_content_has_changed_again() {
    let tale = Tale::new().content(10, "b").said(11, 10, begun(11)).pod(13, Some(15)).content(14, "c");
    tale.said(20, 14, Value::Null).is_wrong("too new");
}

#[test]
fn a_pod_that_nobody_selects_is_a_stranger() {
    let tale =
        Tale::new().pod_of("other", 3, Some(13)).content(10, "b").said(11, 10, begun(11)).said(20, 10, Value::Null);
    tale.is_wrong("stranger");
}

#[test]
fn a_pod_that_is_deleted_before_the_intent_is_told() {
    let verdict = Tale::new().pod(3, Some(11)).content(10, "b").said(12, 10, Value::Null).verdict();
    assert!(verdict.violations[0].starts_with("no intent"), "{verdict:?}");
}
