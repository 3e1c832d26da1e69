//! Several sources: each is compared by itself.

use super::*;
use crate::monitor::referrers::Concerns;

/// Returns a policy about these sources. A question mark makes a source optional.
fn about(sources: &str) -> Policy {
    let entry = |name: &str| {
        let optional = name.ends_with('?');
        format!(r#"{{"configMap":{{"name":"{}","optional":{optional}}}}}"#, name.trim_end_matches('?'))
    };
    let sources: Vec<String> = sources.split(' ').map(entry).collect();
    let spec = format!(r#"{{"sources":[{}],"podSelector":{{"app":"web"}},"quietPeriodSeconds":3}}"#, sources.join(","));
    Policy::of(Some(&RawValue::from_string(spec).unwrap())).unwrap()
}

impl Desk {
    /// Edits the spec: only one key of this source counts.
    fn take_key(&mut self, source: usize) -> &mut Self {
        self.policy.sources[source].keys = Some(["key".to_owned()].into());
        self
    }

    fn are_discovered(&mut self, origin: Origin) {
        self.policy.sources.iter_mut().for_each(|source| source.origin = origin);
    }

    /// Returns what pods have been restarted for, in words, in the order of the spec.
    fn recorded_of_all(&self) -> String {
        let word = |known: &SourceStatus| format!("{}={}", known.name.name, word(known.hash.as_ref()));
        self.status.sources.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    /// Returns the last contents, in words.
    fn last_of_all(&self) -> String {
        let word = |known: &SourceStatus| format!("{}={}", known.name.name, word(known.last()));
        self.status.sources.iter().map(word).collect::<Vec<_>>().join(" ")
    }
}

/// Since second 0 pods run with these contents.
pub(super) fn settled(sources: &str, contents: &str) -> Desk {
    let mut desk = Desk { policy: about(sources), ..Desk::new(3, false) };
    assert_eq!((desk.read_all(contents), desk.decide()), (Finding::Baseline, Decision::Settled));
    desk
}

/// Second 13: the restart for `a=2` is under way, of pods that run with `b=1` as well.
fn restarting() -> Desk {
    let mut desk = settled("a b", "a=1 b=1");
    desk.at(10).read_all("a=2 b=1");
    desk.at(13).begin();
    desk
}

pub(super) fn missing(name: &str) -> Decision {
    Decision::Missing(about(name).sources.into_iter().map(|source| source.name).collect())
}

#[test]
fn a_change_of_another_source_gets_a_list_of_its_own_and_the_earlier_one_keeps_its_list() {
    let mut desk = settled("a b", "a=1 b=1");
    desk.at(10).read_all("a=2 b=1");
    desk.list();
    desk.at(12).read_all("a=2 b=2");
    assert_eq!(desk.journal(), "a=1 2:10-10:1, b=1 2:12-12:-");
    desk.list();
    desk.at(15).begin();
    desk.at(20).read_all("a=2 b=3");
    desk.list();
    desk.at(23).observe();
    assert_eq!((desk.journal(), desk.superseded()), ("a=1 2:10-10:1, b=1 2:12-12:2 3:20-20:4".into(), 1));
    desk.begin();
    desk.at(30).read_all("a=1 b=3");
    desk.list();
    desk.at(33).observe();
    assert_eq!(desk.journal(), "a=1 2:10-10:1 1:30-30:6, b=1 2:12-12:2 3:20-20:4");
    assert!(!desk.is_revert() && desk.status.changed().len() == 1);
}

#[test]
fn what_is_discovered_later_says_nothing_about_the_others() {
    let mut desk = settled("a b", "a=1 b=1");
    desk.policy = about("a b c d");
    desk.policy.sources[2..].iter_mut().for_each(|source| source.origin = Origin::Referred);
    assert_eq!(desk.at(100).read_all("a=1 b=1 c=1 d=1"), Finding::Baseline);
    assert_eq!(desk.status.baselined_at, Some(server(0)));
    desk.at(110).read_all("a=2 b=1 c=2 d=1");
    let changed: Vec<String> = Concerns::of(&desk.status).changed.iter().map(ToString::to_string).collect();
    assert_eq!(changed, ["ConfigMap/c"], "the others concern all pods, or have not changed");
}

/// Pods may have read what came and went, however long it has stood.
#[test]
fn a_revert_of_one_source_keeps_the_change_of_another() {
    for second in [12, 100] {
        let mut desk = settled("a b", "a=1 b=1");
        desk.at(10).read_all("a=2 b=2");
        assert_eq!(desk.at(second).read_all("a=1 b=2"), Finding::Changed);
        assert_eq!(desk.journal(), format!("a=1 2:10-10:- 1:{second}-{second}:-, b=1 2:10-10:-"));
        assert!(desk.waits_until(second + 3) && !desk.is_revert());
        assert_eq!((desk.read_all("a=1 b=1"), desk.is_revert()), (Finding::Changed, true));
    }
}

/// Whether it changed before or after the edit of the spec, nobody knows.
#[test]
fn an_edit_of_keys_hides_no_change_under_the_recorded_ones() {
    let mut desk = settled("a b", "a=1 b=1");
    desk.take_key(1);
    let changed = (Finding::Changed, "b=other-keys 1:10-10:-".into());
    assert_eq!((desk.at(10).read_all("a=1 b=1/2"), desk.journal()), changed);
    assert_eq!(desk.at(11).read_all("a=1 b=1"), Finding::Unchanged);
    desk.at(14).begin();
    assert_eq!(desk.at(20).read_all("a=1 b=3"), Finding::Changed);
}

#[test]
fn an_edit_of_keys_keeps_a_change_as_it_is() {
    let mut desk = settled("a b", "a=1 b=1");
    desk.at(10).read_all("a=1 b=2");
    desk.list();
    desk.take_key(1);
    let same = (Finding::Unchanged, "b=other-keys 2key:10-10:1".into());
    assert_eq!((desk.at(11).read_all("a=1 b=2key/2"), desk.journal()), same);
    assert_eq!(desk.at(12).read_all("a=1 b=3"), Finding::Changed, "a key that the edit has added");
    desk.policy = about("a b");
    let changed = (Finding::Changed, "b=other-keys other-keys:10-10:1 other-keys:12-12:- 4:13-13:-".into());
    assert_eq!((desk.at(13).read_all("a=1 b=4/5"), desk.journal()), changed);
}

#[test]
fn content_that_is_back_under_the_recorded_keys_is_a_revert_whatever_the_spec_names() {
    let mut desk = settled("a", "a=1");
    desk.at(10).read_all("a=2");
    assert_eq!(desk.take_key(0).at(11).read_all("a=1key/1"), Finding::Changed);
    assert_eq!((desk.journal(), desk.is_revert()), ("a=1key other-keys:10-10:- 1key:11-11:-".into(), true));
}

/// The content under the recorded keys is not known any more.
#[test]
fn content_that_is_back_after_an_edit_of_keys_is_restarted_for() {
    let mut desk = settled("a", "a=1");
    desk.at(10).read_all("a=2");
    desk.take_key(0).at(11).read_all("a=2key/2");
    assert_eq!(desk.at(12).read_all("a=1"), Finding::Changed);
    assert_eq!((desk.journal(), desk.is_revert()), ("a=other-keys 2key:10-10:- 1:12-12:-".into(), false));
    desk.at(15).begin();
    desk.policy = about("a");
    assert_eq!(desk.at(20).read_all("a=1all/3"), Finding::Changed);
    assert_eq!(desk.at(21).read_all("a=1"), Finding::Changed);
    assert_eq!((desk.at(24).observe(), desk.superseded()), (Finding::Unchanged, 1));
    assert_eq!(desk.journal(), "a=other-keys other-keys:10-10:1 other-keys:12-12:1 1all:20-20:- 1:21-21:-");
}

#[test]
fn keys_that_are_edited_before_the_source_exists_are_those_of_its_baseline() {
    let mut desk = Desk { policy: about("a b"), ..Desk::new(3, false) };
    desk.read_all("a=1");
    assert_eq!(desk.take_key(1).at(10).read_all("a=1 b=1"), Finding::Baseline);
    assert_eq!((desk.decide(), desk.recorded_of_all()), (Decision::Settled, "a=1 b=1".into()));
}

/// Only the content of all keys that were recorded can be compared.
#[test]
fn a_reading_under_other_keys_than_the_recorded_ones_says_nothing() {
    let mut desk = settled("a", "a=1");
    assert_eq!(desk.take_key(0).at(10).read_all("a=2"), Finding::Unchanged);
    assert_eq!((desk.recorded_of_all(), desk.decide()), ("a=1".into(), Decision::Settled));
}

/// A pod may have read what was there in between.
#[test]
fn an_interrupted_restart_is_cut_to_the_sources_of_the_spec_and_goes_on_if_it_was_for_what_is_left() {
    for (left, contents, superseded, journal) in
        [("a", "a=2", 0, "a=1 2*:10-10:1"), ("b", "b=1", 1, "b=1 2:20-20:- 1:20-30:-")]
    {
        let mut desk = restarting();
        desk.at(20).read_all("a=2 b=2");
        desk.policy = about(left);
        desk.crash().at(30).read_all(contents);
        assert_eq!((desk.journal(), desk.superseded()), (journal.into(), superseded));
        assert!(desk.waits_until(33) || desk.decide() == Decision::Resume);
    }
}

#[test]
fn a_restart_goes_on_without_a_discovered_source_that_is_left_out() {
    let mut desk = settled("a b", "a=1 b=1");
    desk.policy.sources[1].origin = Origin::Referred;
    desk.at(10).read_all("a=2 b=2");
    desk.at(13).begin();
    desk.policy = about("a");
    assert_eq!((desk.at(14).read_all("a=2"), desk.decide()), (Finding::Unchanged, Decision::Resume));
    assert_eq!((desk.journal(), desk.superseded()), ("a=1 2*:10-10:1".into(), 0));
}

/// Otherwise an edit of the spec would delete pods, or leave out some that have read other content.
#[test]
fn a_restart_keeps_its_scope_until_it_is_superseded() {
    let mut desk = settled("a", "a=1");
    desk.policy.sources[0].origin = Origin::Referred;
    desk.at(10).read_all("a=2");
    desk.at(13).begin();
    desk.policy.sources[0].origin = Origin::Named;
    desk.at(14).read_all("a=3");
    assert!(desk.status.sources[0].discovered);
    desk.at(17).observe();
    assert_eq!((desk.superseded(), desk.status.sources[0].discovered), (1, false));
}

#[test]
fn an_edit_of_the_sources_is_no_content_that_extends_an_interruption() {
    let mut desk = restarting();
    desk.at(100).read_all("a=2 b=2");
    desk.policy = about("a b c");
    assert_eq!((desk.at(101).read_all("a=2 b=2 c=1"), desk.waits_until(103)), (Finding::Baseline, true));
    desk.policy = about("a c");
    assert_eq!((desk.at(102).read_all("a=2 c=1"), desk.decide()), (Finding::Unchanged, Decision::Resume));
}

#[test]
fn content_that_is_the_same_under_the_recorded_keys_is_recorded_under_those_of_the_spec() {
    let mut desk = settled("a b", "a=1 b=1");
    assert_eq!(desk.take_key(1).at(10).read_all("a=1 b=2/1"), Finding::Unchanged, "nothing was not known before");
    assert_eq!((desk.decide(), desk.recorded_of_all()), (Decision::Settled, "a=1 b=2".into()));
    desk.policy = about("a b");
    assert_eq!(desk.at(20).read_all("a=1 b=3/2"), Finding::Baseline);
    assert_eq!((desk.decide(), desk.recorded_of_all()), (Decision::Settled, "a=1 b=3".into()));
}

/// As when another process has read the source, and recorded that.
#[test]
fn the_quiet_period_of_an_unread_source_does_not_depend_on_the_others() {
    let mut desk = settled("a b", "a=1 b=1");
    let came = desk.look.0[1].clone();
    desk.at(10).read_all("a=2 b=1");
    desk.look = Look(vec![None, came.clone()]);
    assert_eq!((desk.observe(), desk.decide()), (Finding::Unchanged, missing("a")));
    desk.at(11);
    desk.look = Look(vec![Some(desk.content("2")), came]);
    assert_eq!((desk.observe(), desk.waits_until(14)), (Finding::Unchanged, true), "{:?}", desk.decide());
}

#[test]
fn the_first_content_of_a_missing_source_is_a_baseline_even_during_a_restart() {
    let mut desk = Desk { policy: about("a b"), ..Desk::new(3, false) };
    assert_eq!((desk.read_all("a=1"), desk.decide()), (Finding::Baseline, missing("b")));
    assert_eq!((desk.at(10).read_all("a=2"), desk.at(11).read_all("a=2 b=1")), (Finding::Changed, Finding::Baseline));
    assert_eq!((desk.recorded_of_all(), desk.last_of_all()), ("a=1 b=1".into(), "a=2 b=1".into()));
    assert!(desk.waits_until(13));
}

/// What had interrupted it is the last content until another one is read.
#[test]
fn an_interrupted_restart_does_not_go_on_while_the_discovered_source_is_missing() {
    let interrupted = || {
        let mut desk = settled("a b", "a=1 b=1");
        desk.are_discovered(Origin::Referred);
        desk.at(10).read_all("a=2 b=1");
        desk.at(13).begin();
        desk.at(20).read_all("a=3 b=1");
        desk.crash().at(21).read_all("b=1");
        assert!(desk.waits_until(24), "{:?}", desk.decide());
        desk
    };
    let mut back = interrupted();
    back.at(23).read_all("a=2 b=1");
    back.at(26).observe();
    assert_eq!((back.decide(), back.superseded()), (Decision::Resume, 0));
    for origin in [Origin::Referred, Origin::Unreferred] {
        let mut gone = interrupted();
        gone.are_discovered(origin);
        gone.at(24).read_all("");
        assert_eq!((gone.decide(), gone.superseded()), (Decision::Begin(None), 1));
    }
}

#[test]
fn a_discovered_source_to_which_no_pod_refers_is_forgotten_after_a_day_or_at_once_if_it_is_gone() {
    let mut desk = settled("a b c", "a=1 b=1 c=1");
    desk.policy.sources[1].origin = Origin::Unreferred;
    desk.policy.sources[2].origin = Origin::Unreferred;
    desk.at(10).read_all("a=1 b=1");
    assert_eq!(desk.recorded_of_all(), "a=1 b=1");
    let wakes_after = |desk: &Desk| {
        let at = wakes_at(&desk.policy, &desk.status, &desk.look, desk.moment());
        at.map(|at| (at - desk.moment().now).as_secs())
    };
    assert_eq!(wakes_after(desk.at(20)), Some(86_391));
    desk.policy = about("a b");
    desk.policy.sources[1].origin = Origin::Unreferred;
    let mut changed = desk.clone();
    changed.at(20).read_all("a=1 b=2");
    changed.at(86_410).read_all("a=1 b=2");
    assert_eq!(changed.recorded_of_all(), "a=1 b=1", "a restart is about it");
    desk.at(86_409).read_all("a=1 b=1");
    assert_eq!(desk.recorded_of_all(), "a=1 b=1");
    desk.at(86_410).read_all("a=1 b=1");
    assert_eq!((desk.recorded_of_all(), wakes_after(&desk)), ("a=1".into(), None));
}

#[test]
fn the_changes_of_all_sources_are_limited() {
    let names: Vec<String> = (0..128).map(|number| format!("s{number}")).collect();
    let contents = |text: u64| names.iter().map(|name| format!("{name}={text}")).collect::<Vec<_>>().join(" ");
    let mut desk = settled(&names.join(" "), &contents(0));
    for text in 1..6 {
        desk.at(10 * text).read_all(&contents(text));
        assert_eq!(desk.status.changes().count(), 128 * text.min(2) as usize);
    }
    assert!(desk.journal().starts_with("s0=0 other-keys:10-10:- 5:50-50:-, s1="), "{}", desk.journal());
}
