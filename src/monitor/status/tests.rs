use super::*;
use crate::monitor::MAX_STATUS_BYTES;
use crate::monitor::content::Kind;
use crate::monitor::discover::MAX_SOURCES;
use crate::monitor::journal::MAX_ALL_CHANGES;

fn at(second: i64) -> ServerTime {
    ServerTime::from_second(second)
}

fn name(name: &str) -> SourceName {
    SourceName { kind: Kind::ConfigMap, name: name.into() }
}

fn begun(number: u64, second: i64) -> Begun {
    Begun::new(number, at(second), "app=web".to_owned(), 3)
}

/// Since this second the content is another one. The list has its number. A star: a restart has begun for it.
fn change(text: &str, second: i64) -> Change {
    let hash = format!("sha256:{}", text.trim_end_matches('*')).as_str().into();
    let list = Some(second.to_string().as_str().into());
    let (since, observed_at) = (at(second), at(second));
    Change { hash, since, observed_at, pods_resource_version: list, begun: text.ends_with('*') }
}

/// A source with these contents, one each second. Pods have the first one.
fn source(source: &str, contents: &str) -> SourceStatus {
    let mut known = SourceStatus { name: name(source), ..SourceStatus::default() };
    for (text, second) in contents.split(' ').zip(0..) {
        match second {
            0 => known.hash = Some(change(text, 0).hash),
            _ => known.append(change(text, second)),
        }
    }
    known
}

fn contents(known: &SourceStatus) -> String {
    let change = |change: &Change| {
        let (hash, star) = (change.hash.to_string(), if change.begun { "*" } else { "" });
        let list = change.pods_resource_version.as_ref().map_or("-", ResourceVersion::as_str);
        format!("{}{star}:{}:{list}", hash.trim_start_matches("sha256:"), change.observed_at.as_second())
    };
    known.changes.iter().map(change).collect::<Vec<_>>().join(" ")
}

fn of(sources: impl IntoIterator<Item = SourceStatus>) -> Status {
    Status { sources: sources.into_iter().collect(), ..Status::default() }
}

#[test]
fn a_restart_has_begun_once_it_has_the_fields_of_that() {
    let pending = r#"{"changingSince":"2026-11-21T10:00:00Z"}"#;
    let begun = r#"{"number":3,"startedAt":"2026-11-21T10:00:03Z","podSelector":"app=web","pods":3,"remaining":1,"deleted":2,"progress":"2/3","lastProgressAt":"2026-11-21T10:00:04Z"}"#;
    for (text, expected) in [(pending, None), (begun, Some(3))] {
        let restart: Restart = serde_json::from_str(text).expect("a restart");
        assert_eq!(restart.begun.as_ref().map(|begun| begun.number), expected);
        assert_eq!(serde_json::to_string(&restart).expect("JSON"), text);
    }
}

#[test]
fn a_journal_survives_a_round_trip() {
    let text = r#"{"kind":"ConfigMap","name":"a","hash":"sha256:1","changes":[{"hash":"other-keys","since":"2026-11-21T10:00:00Z","observedAt":"2026-11-21T10:00:01Z","podsResourceVersion":"7","begun":true},{"hash":"sha256:2","since":"2026-11-21T10:00:02Z","observedAt":"2026-11-21T10:00:02Z"}]}"#;
    let known: SourceStatus = serde_json::from_str(text).expect("a source");
    assert!(known.differs() && known.awaiting() == known.changes.last());
    assert_eq!(serde_json::to_string(&known).expect("JSON"), text);
}

#[test]
fn a_condition_survives_a_round_trip() {
    let text = r#"{"type":"Ready","status":"Unknown","lastTransitionTime":"2026-11-21T10:00:00Z","reason":"Else","message":"why"}"#;
    let condition: Condition = serde_json::from_str(text).expect("a condition");
    assert!(matches!((&condition.r#type, &condition.reason), (Cow::Borrowed("Ready"), Cow::Owned(_))));
    assert_eq!(serde_json::to_string(&condition).expect("JSON"), text);
}

/// The last content and that of the restart under way must stay comparable.
#[test]
fn of_too_many_contents_two_become_one_that_equals_none() {
    for (before, after) in [
        ("0 1 2 3 4 5", "other-keys:1:1 3:3:3 4:4:4 5:5:5"),
        ("0 1 2 3 4 5 6", "other-keys:1:1 4:4:4 5:5:5 6:6:6"),
        ("0 1* 2 3 4 5", "1*:1:1 other-keys:2:2 4:4:4 5:5:5"),
        ("0 1 2* 3 4 5 6", "1:1:1 2*:2:2 other-keys:3:3 6:6:6"),
        ("0 1 2 3* 4 5 6", "other-keys:1:1 3*:3:3 other-keys:4:4 6:6:6"),
        ("0 1 2 3 4* 5", "other-keys:1:1 3:3:3 4*:4:4 5:5:5"),
    ] {
        assert_eq!(contents(&source("a", before)), after, "{before}");
    }
    let mut unlisted = source("a", "0 1 2 3 4");
    unlisted.changes[0].pods_resource_version = None;
    unlisted.append(change("5", 5));
    assert_eq!(contents(&unlisted), "other-keys:1:2 3:3:3 4:4:4 5:5:5");
}

#[test]
fn of_the_changes_of_all_sources_those_of_the_sources_with_most_make_room() {
    let many = |count, of| (0..count).map(move |number| source(&number.to_string(), of));
    for (mut status, count) in [
        (of(many(64, "0 1 2 3 4")), 256),
        (of(many(40, "0 1 2 3 4").chain(many(88, "0 1"))), 248),
        (of(many(80, "0 1 2 3 4").chain(many(48, "0 1"))), 256),
        (of(many(130, "0 1 2 3")), 260),
    ] {
        let last: Vec<_> = status.sources.iter().map(|known| known.last().cloned()).collect();
        status.limit();
        assert_eq!(status.changes().count(), count);
        assert!(status.sources.iter().map(|known| known.last().cloned()).eq(last));
    }
}

#[test]
fn a_restart_begins_for_the_last_contents_and_goes_on_if_they_are_the_last_ones() {
    let mut status = of([source("a", "0 1 2"), source("b", "0")]);
    status.restart = Some(Box::new(Restart { changing_since: Some(at(1)), ..Restart::default() }));
    assert_eq!((status.awaiting().count(), status.is_on_target()), (1, false));
    status.begin(begun(status.next_number(), 5));
    assert_eq!((contents(&status.sources[0]), status.awaiting().count()), ("1:1:1 2*:2:2".to_owned(), 0));
    assert_eq!(status.restart.as_ref().expect("a restart").changing_since, None);
    assert_eq!((status.outdated, status.is_on_target()), (Some(3), true));
    for (known, text, is_on_target) in [(1, "1", false), (1, "0", true), (0, "0", false), (0, "2", true)] {
        status.sources[known].append(change(text, 6));
        assert_eq!((status.awaiting().count(), status.is_on_target()), (2 - known, is_on_target), "{known} {text}");
    }
}

#[test]
fn a_superseded_restart_leaves_a_pending_one_for_what_is_left() {
    let mut status = of([source("a", "0 1"), source("b", "0")]);
    status.supersede(at(5));
    assert_eq!((status.history.len(), &status.restart), (0, &None), "none had begun");
    status.take_up("now".into(), at(2));
    status.begin(begun(4, 5));
    status.sources[1].append(change("1", 6));
    status.supersede(at(9));
    let [Entry { number: 4, sources, completed_at, result: Outcome::Superseded, requested: true, .. }] =
        &status.history[..]
    else {
        panic!("{:?}", status.history)
    };
    assert_eq!((&sources[..], *completed_at), (&[name("a")][..], at(9)));
    assert!(status.begun().is_none() && status.request().is_some_and(|request| request.taken_over));
    assert_eq!((status.awaiting().count(), status.outdated, status.next_number()), (2, None, 5));
}

#[test]
fn the_end_of_a_restart_cuts_the_journal_to_its_last_entry() {
    let changed =
        Status { baselined_at: Some(at(1)), outdated: Some(2), ..of([source("a", "0 1 2"), source("b", "0")]) };
    let reverted = Status { sources: vec![source("a", "0 1 0")], restart: Some(Box::default()), ..changed.clone() };
    for (before, begun, baselined, history) in [
        (&changed, Some(begun(1, 5)), None, 1),
        (&reverted, Some(begun(1, 5)), None, 1),
        (&changed, None, Some(9), 0),
        // No pod has read the other content.
        (&reverted, None, Some(1), 0),
    ] {
        let mut status = before.clone();
        let last = status.sources[0].last().cloned();
        status.complete(begun.as_ref(), (1, "web-1".to_owned()), at(9));
        assert_eq!((&status.sources[0].hash, status.changes().count()), (&last, 0));
        assert_eq!((status.baselined_at, status.settled_at), (baselined.map(at), Some(at(9))));
        assert_eq!((status.outdated, &status.restart, status.history.len()), (None, &None, history));
        assert_eq!((status.skipped, &*status.skipped_pods), (1, "web-1"));
    }
}

#[test]
fn a_list_is_named_wherever_none_is() {
    let mut status = of([source("a", "0 1 2")]);
    status.sources[0].changes[1].pods_resource_version = None;
    assert!(status.lacks_a_list());
    status.take_up("now".into(), at(7));
    assert!(status.fill(&"9".into()) && !status.fill(&"10".into()) && !status.lacks_a_list());
    let lists: Vec<_> = status.lists().map(|(list, at)| (list.as_str(), at.as_second())).collect();
    assert_eq!(lists, [("1", 1), ("9", 2), ("9", 7)]);
}

#[test]
fn a_status_is_baselined_by_a_hash_or_a_restart() {
    for (text, expected) in [
        ("{}", false),
        (r#"{"sources":[{"kind":"ConfigMap","name":"a"}],"restart":null}"#, false),
        (r#"{"sources":[{"kind":"ConfigMap","name":"a","hash":"sha256:1"}]}"#, true),
        (r#"{"restart":{}}"#, true),
    ] {
        let status: Status = serde_json::from_str(text).expect("a status");
        assert_eq!(status.is_baselined(), expected, "{text}");
    }
}

#[test]
fn the_column_counts_the_pods_that_are_gone_or_terminating() {
    let progress = [3, 1, 0, 9].map(|remaining| begun(1, 0).with_remaining(remaining).progress);
    assert_eq!((&*begun(1, 0).progress, progress), ("0/3", ["0/3", "2/3", "3/3", "0/3"].map(str::to_owned)));
}

#[test]
fn the_history_keeps_the_ten_newest_restarts_and_says_how_fast_they_followed_each_other() {
    let mut status = Status::default();
    let since = [9, 10, 12].map(|last| {
        for number in status.next_number()..=last {
            let (before, start) = (status.clone(), i64::try_from(number).unwrap());
            status.complete(Some(&begun(number, start)), (0, String::new()), at(start));
            assert_eq!(status.ended_since(&before).map(|entry| entry.number), Some(number));
            assert_eq!(status.ended_since(&status), None);
        }
        status.ten_restarts_since()
    });
    let numbers: Vec<u64> = status.history.iter().map(|entry| entry.number).collect();
    assert_eq!((&numbers[..], status.next_number()), (&[12, 11, 10, 9, 8, 7, 6, 5, 4, 3][..], 13));
    assert_eq!(since, [None, Some(at(1)), Some(at(3))]);
}

/// Names and keys are as long as they may be, and each source has changed twice.
#[test]
fn a_status_with_as_many_sources_as_there_may_be_fits() {
    let at = at(1_764_000_000);
    let hash = || ContentHash::from(format!("hmac-sha256:{}", "0".repeat(64)).as_str());
    let version = || Some(ResourceVersion::from("1234567890123456789"));
    let long = |number: usize| name(&format!("{number:0>253}"));
    let keys = (0..64).map(|number| format!("{number:0>4}")).collect();
    let new = SourceStatus { keys: Some(keys), ..SourceStatus::default() };
    let change = Change { hash: hash(), since: at, observed_at: at, pods_resource_version: version(), begun: true };
    let source = |number| SourceStatus {
        name: long(number),
        discovered: true,
        unreferenced_since: Some(at),
        resource_version: version(),
        hash: Some(hash()),
        changes: vec![change.clone(); MAX_ALL_CHANGES / MAX_SOURCES],
        restarts: vec![at; 5],
        ..new.clone()
    };
    let entry = Entry {
        number: u64::MAX,
        sources: (0..MAX_SOURCES_OF_ENTRY).map(long).collect(),
        started_at: at,
        completed_at: at,
        pods: 10_000,
        replaced: 10_000,
        result: Outcome::Superseded,
        requested: true,
    };
    let mut status = Status { history: vec![entry; HISTORY], ..of((0..MAX_SOURCES).map(source)) };
    status.take_up("0".repeat(128).into(), at);
    status.begin(begun(u64::MAX, 0));
    let bytes = serde_json::to_string(&status).expect("JSON").len();
    assert!(bytes + 10_000 < 280_000 && 280_000 < MAX_STATUS_BYTES, "{bytes} without conditions");
}
