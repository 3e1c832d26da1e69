//! Several sources: each is compared by itself.

use super::*;
use crate::monitor::source::Origin;
use std::collections::BTreeMap;

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
    /// Reads all sources. Each has the content given by a word such as `a=1`, or `a=1/2` if that is `2` under the keys of
    /// the status; a source that is not named does not exist.
    fn read_all(&mut self, contents: &str) -> Finding {
        let found: BTreeMap<&str, &str> = contents.split(' ').filter_map(|word| word.split_once('=')).collect();
        let content = |source: &Source| match found.get(&*source.name.name) {
            Some(text) => {
                let (text, under_recorded) = text.split_once('/').unzip();
                let keys = self.status.keys_of(&source.name).filter(|keys| **keys != source.keys);
                let recorded = keys.cloned().zip(under_recorded.map(hash)).map(Box::new);
                Some(Content { recorded, ..self.content(text.unwrap_or(found[&*source.name.name])) })
            }
            None => source.optional.then(|| Content { hash: ContentHash::absent(), version: None, ..self.content("") }),
        };
        self.look = Look(self.policy.sources.iter().map(content).collect());
        self.observe()
    }

    /// Edits the spec: only one key of this source counts.
    fn take_key(&mut self, source: usize) -> &mut Self {
        self.policy.sources[source].keys = Some(["key".to_owned()].into());
        self
    }

    /// Returns what pods have been restarted for, in words, in the order of the spec.
    fn recorded_of_all(&self) -> String {
        let word = |known: &SourceStatus| {
            let hash = known.hash.as_ref().map_or("-".to_owned(), ToString::to_string);
            format!("{}={}", known.name.name, hash.trim_start_matches("sha256:"))
        };
        self.status.sources.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    /// Returns the contents that the restart brings, in words.
    fn desired_of_all(&self) -> String {
        let word = |(name, hash): (&SourceName, &ContentHash)| {
            format!("{}={}", name.name, hash.to_string().trim_start_matches("sha256:"))
        };
        self.status.desired().iter().map(word).collect::<Vec<_>>().join(" ")
    }
}

impl Desk {
    /// Returns the changes of the restart in words: the content, since when and when it was read, and the list, or `-`.
    fn changes(&self) -> String {
        let word = |change: &Change| {
            let hash = change.hash.to_string();
            let list = change.pods_resource_version.as_ref().map_or("-", ResourceVersion::as_str);
            let (since, read) = (change.since.as_second(), change.observed_at.as_second());
            let back = if change.revert { "<" } else { "" };
            format!("{}={}{back}:{since}-{read}:{list}", change.source.name, hash.trim_start_matches("sha256:"))
        };
        self.restart().changes.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    /// Lists the pods for all changes that have no list, or for the content that interrupts the restart.
    fn list(&mut self, version: &str) {
        let restart = self.status.restart.as_mut().unwrap();
        match &mut self.quiet {
            Some(quiet) if restart.begun.is_some() => quiet.listed = Some(version.into()),
            _ => restart.lists_mut().for_each(|list| _ = list.get_or_insert_with(|| version.into())),
        }
    }
}

/// Since second 0 pods run with these contents.
fn settled(sources: &str, contents: &str) -> Desk {
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

fn missing(name: &str) -> Decision {
    Decision::Missing(about(name).sources.into_iter().map(|source| source.name).collect())
}

#[test]
fn a_change_of_another_source_gets_a_list_of_its_own_and_the_earlier_one_keeps_its_list() {
    let mut desk = settled("a b", "a=1 b=1");
    desk.at(10).read_all("a=2 b=1");
    desk.list("7");
    desk.at(12).read_all("a=2 b=2");
    assert_eq!(desk.changes(), "a=2:10-10:7 b=2:12-12:-");
    desk.list("8");
    desk.at(15).begin();
    desk.at(20).read_all("a=2 b=3");
    desk.list("9");
    desk.at(23).observe();
    assert_eq!((desk.changes(), desk.superseded()), ("a=2:10-10:7 b=3:12-20:9".to_owned(), 1));
    desk.begin();
    desk.at(30).read_all("a=1 b=3");
    desk.list("10");
    desk.at(33).observe();
    assert_eq!(desk.changes(), "b=3:12-20:9 a=1<:10-30:10", "the first list is that of second 10");
    assert!(!desk.restart().is_revert() && desk.restart().lists().any(|list| list.as_str() == "7"));
}

/// Pods may have been created with what was there for the quiet period, whatever other sources do meanwhile.
#[test]
fn a_revert_of_one_source_counts_by_how_long_its_own_content_has_stood() {
    let mut desk = settled("a b", "a=1 b=1");
    desk.at(10).read_all("a=2 b=1");
    desk.at(12).read_all("a=2 b=2");
    assert_eq!(
        (desk.at(14).read_all("a=1 b=2"), desk.changes()),
        (Finding::Modified, "b=2:12-12:- a=1<:10-14:-".into())
    );
    let mut crashed = settled("a b", "a=1 b=1");
    crashed.policy.quiet_period = Duration::from_secs(60);
    crashed.at(10).read_all("a=2 b=1");
    crashed.at(60).read_all("a=2 b=2");
    crashed.crash().at(65).read_all("a=2 b=2");
    assert_eq!((crashed.at(80).read_all("a=1 b=2"), crashed.restart().changes.len()), (Finding::Modified, 2));
    let mut late = settled("a b", "a=1 b=1");
    late.at(10).read_all("a=2 b=1");
    late.at(100).read_all("a=2 b=2");
    assert_eq!((late.at(101).read_all("a=2 b=1"), late.changes()), (Finding::Undone, "a=2:10-10:-".into()));
}

#[test]
fn an_edit_of_keys_in_an_interruption_is_no_other_content() {
    let mut desk = settled("a b c", "a=1 b=1 c=1");
    desk.at(10).read_all("a=2 b=1 c=1");
    desk.at(13).begin();
    desk.at(20).read_all("a=2 b=2 c=1");
    desk.take_key(0).take_key(1).take_key(2).at(21).read_all("a=2key/2 b=2key/2 c=1key/1");
    assert_eq!(desk.interrupted_at(), Some(server(20)));
    desk.at(23).observe();
    assert_eq!(desk.changes(), "a=2key:10-10:- b=2key:20-20:-");
}

/// As when the step ends with a reading, or a list of pods fails.
#[test]
fn keys_that_could_not_be_written_are_taken_once() {
    let mut desk = settled("a b c", "a=1 b=1 c=1");
    desk.at(10).read_all("a=2 b=1 c=1");
    desk.at(13).begin();
    desk.at(20).read_all("a=2 b=2 c=1");
    let status = desk.status.clone();
    desk.take_key(2).at(21).read_all("a=2 b=2 c=1key/1");
    desk.status = status;
    desk.at(23).read_all("a=2 b=2 c=1key/1");
    assert_eq!(desk.changes(), "a=2:10-10:- b=2:20-20:-");
}

/// Whether it changed before or after the edit of the spec, nobody knows.
#[test]
fn an_edit_of_keys_hides_no_change_under_the_recorded_ones() {
    let mut desk = settled("a b", "a=1 b=1");
    desk.take_key(1);
    assert_eq!((desk.at(10).read_all("a=1 b=1/2"), desk.changes()), (Finding::Modified, "b=1:10-10:-".into()));
    assert_eq!(desk.at(11).read_all("a=1 b=1"), Finding::Unchanged);
    desk.at(13).begin();
    assert_eq!(desk.at(20).read_all("a=1 b=3"), Finding::Modified);
}

#[test]
fn an_edit_of_keys_keeps_a_change_as_it_is() {
    let mut desk = settled("a b", "a=1 b=1");
    desk.at(10).read_all("a=1 b=2");
    desk.list("7");
    desk.take_key(1);
    assert_eq!((desk.at(11).read_all("a=1 b=2key/2"), desk.changes()), (Finding::Unchanged, "b=2key:10-10:7".into()));
    assert_eq!(desk.at(12).read_all("a=1 b=3"), Finding::Modified, "a key that the edit has added");
    desk.policy = about("a b");
    assert_eq!((desk.at(13).read_all("a=1 b=4/5"), desk.changes()), (Finding::Modified, "b=4:10-13:-".into()));
}

#[test]
fn content_that_is_back_under_the_recorded_keys_is_undone_whatever_the_spec_names() {
    let mut desk = settled("a", "a=1");
    desk.at(10).read_all("a=2");
    assert_eq!(desk.take_key(0).at(11).read_all("a=1key/1"), Finding::Undone);
    assert_eq!((desk.decide(), desk.recorded_of_all()), (Decision::Settled, "a=1key".into()));
}

/// The content under the recorded keys is not known any more.
#[test]
fn content_that_is_back_after_an_edit_of_keys_is_restarted_for() {
    let mut desk = settled("a", "a=1");
    desk.at(10).read_all("a=2");
    desk.take_key(0).at(11).read_all("a=2key/2");
    assert_eq!((desk.at(12).read_all("a=1"), desk.changes()), (Finding::Modified, "a=1:10-12:-".into()));
    desk.at(15).begin();
    desk.policy = about("a");
    assert_eq!((desk.at(20).read_all("a=1all/3"), desk.interrupted_at()), (Finding::Modified, Some(server(20))));
    assert_eq!((desk.at(21).read_all("a=1"), desk.interrupted_at()), (Finding::Modified, Some(server(21))));
    desk.at(24).observe();
    assert_eq!((desk.changes(), desk.superseded()), ("a=1:10-21:-".into(), 1));
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

/// Another source differed in between, and may have been read.
#[test]
fn a_source_that_went_and_came_back_in_an_interruption_is_a_revert_since_then() {
    let mut desk = settled("a b", "a=1 b=1");
    desk.at(10).read_all("a=2 b=1");
    desk.list("7");
    desk.at(13).begin();
    for (second, contents) in [(20, "a=2 b=2"), (22, "a=3 b=2"), (24, "a=3 b=1")] {
        desk.at(second).read_all(contents);
    }
    desk.list("8");
    desk.at(27).observe();
    assert_eq!(desk.changes(), "a=3:10-24:8 b=1<:20-24:8");
}

/// It does not know which sources differed, nor when.
#[test]
fn a_process_that_ends_the_interruption_of_another_lists_pods_for_every_source() {
    let mut desk = settled("a b c", "a=1 b=1 c=1");
    desk.at(10).read_all("a=2 b=1 c=1");
    desk.list("7");
    desk.at(13).begin();
    desk.at(20).read_all("a=2 b=2 c=1");
    assert_eq!((desk.crash().at(30).read_all("a=2 b=2 c=1"), desk.superseded()), (Finding::Modified, 1));
    assert_eq!(desk.changes(), "a=2:10-30:- b=2:13-30:- c=1<:13-30:-");
}

/// The write in which a source differed has failed, and it is back by the next reading.
#[test]
fn what_could_not_be_recorded_in_an_interruption_has_differed() {
    let mut desk = restarting();
    desk.at(20).read_all("a=3 b=1");
    let (status, before) = (desk.status.clone(), desk.quiet.clone().unwrap());
    desk.at(21).read_all("a=3 b=2");
    let now = desk.moment().now;
    let known = before.with_unrecorded(desk.policy.quiet_period, now).knowing(desk.quiet.as_ref());
    (desk.status, desk.quiet) = (status, Some(known));
    desk.at(22).read_all("a=3 b=1");
    desk.at(25).observe();
    assert_eq!(desk.changes(), "a=3:10-22:- b=1<:20-22:-");
}

#[test]
fn a_revert_of_one_source_keeps_the_change_of_another() {
    let mut desk = settled("a b", "a=1 b=1");
    desk.at(10).read_all("a=2 b=2");
    assert_eq!(desk.at(11).read_all("a=1 b=2"), Finding::Undone);
    assert_eq!((desk.desired_of_all(), desk.at(12).read_all("a=1 b=1")), ("a=1 b=2".into(), Finding::Undone));
    assert_eq!(desk.decide(), Decision::Settled);
}

#[test]
fn a_change_along_with_the_removal_of_the_restarted_source_supersedes_the_restart() {
    let mut desk = restarting();
    desk.policy = about("b");
    assert_eq!((desk.at(20).read_all("b=2"), desk.superseded()), (Finding::Modified, 1));
    assert_eq!((desk.changes(), desk.waits_until(23)), ("b=2:20-20:-".into(), true));
}

/// A pod may have read what was there in between.
#[test]
fn an_interrupted_restart_ends_before_it_is_cut_to_the_sources_of_the_spec() {
    for (left, contents, changes) in [("a", "a=2", "a=2:10-30:-"), ("b", "b=1", "b=1<:13-30:-")] {
        let mut desk = restarting();
        desk.at(20).read_all("a=2 b=2");
        desk.policy = about(left);
        desk.crash().at(30).read_all(contents);
        assert_eq!((desk.changes(), desk.superseded()), (changes.into(), 1));
    }
}

/// The quiet period is that of what is left.
#[test]
fn a_pending_restart_that_is_cut_waits_as_long_in_each_step() {
    let mut desk = settled("a b", "a=1 b=1");
    desk.at(10).read_all("a=2 b=1");
    desk.at(12).read_all("a=2 b=2");
    desk.policy = about("a");
    for second in [12, 13] {
        desk.at(second).read_all("a=2");
        assert!(desk.waits_until(15), "{:?}", desk.decide());
    }
}

#[test]
fn an_edit_of_the_sources_is_no_content_that_extends_an_interruption() {
    let mut desk = restarting();
    desk.at(100).read_all("a=2 b=2");
    desk.policy = about("a b c");
    assert_eq!(desk.at(101).read_all("a=2 b=2 c=1"), Finding::Baseline);
    assert_eq!(desk.interrupted_at(), Some(server(100)));
    desk.policy = about("a c");
    assert_eq!((desk.at(102).read_all("a=2 c=1"), desk.interrupted_at()), (Finding::Undone, None));
}

#[test]
fn a_missing_source_has_the_content_that_it_had_in_the_interruption() {
    let mut desk = restarting();
    desk.at(100).read_all("a=3 b=1");
    assert_eq!((desk.at(101).read_all("b=1"), desk.decide()), (Finding::Unchanged, missing("a")));
    let (status, look) = (desk.status.clone(), desk.look.clone());
    assert_eq!(
        (desk.at(103).observe(), desk.superseded(), desk.desired_of_all()),
        (Finding::Unchanged, 1, "a=3 b=1".into())
    );
    let mut another = Desk { policy: about("a b"), status, look, ..Desk::new(3, false) };
    another.at(110);
    assert_eq!((another.observe(), another.superseded()), (Finding::Unchanged, 0), "another process does not know it");
    assert_eq!((another.read_all("a=2 b=1"), another.superseded()), (Finding::Modified, 1));
}

/// Otherwise the period would count from when the other source was read, long ago.
#[test]
fn a_source_that_went_missing_is_not_read_again_after_content_that_could_not_be_recorded() {
    let mut desk = restarting();
    desk.at(100).read_all("a=3 b=1");
    let unrecorded =
        desk.quiet.as_ref().map(|quiet| quiet.with_unrecorded(desk.policy.quiet_period, desk.moment().now));
    desk.quiet = unrecorded;
    desk.at(101).look.0[0] = None;
    assert_eq!((desk.observe(), desk.interrupted_at()), (Finding::Unchanged, Some(server(100))));
    desk.at(104).observe();
    assert_eq!(desk.times(), (server(10), server(100)), "{:?}", desk.restart());
}

#[test]
fn a_restart_is_kept_as_it_is_when_another_source_is_removed() {
    let mut desk = settled("a b", "a=1 b=1");
    desk.at(10).read_all("a=2 b=1");
    desk.policy = about("a");
    assert_eq!((desk.at(11).read_all("a=2"), desk.recorded_of_all()), (Finding::Unchanged, "a=1".into()));
    assert!(desk.waits_until(13));
    assert_eq!(desk.at(12).read_all("a=1"), Finding::Undone);
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
    desk.at(10).read_all("a=2 b=1");
    let (written, quiet) = (desk.status.clone(), desk.quiet.clone());
    let mut other = settled("a b", "a=1 b=1");
    let came = other.look.0[1].clone();
    other.status = written;
    other.at(10);
    other.look = Look(vec![None, came.clone()]);
    other.observe();
    assert_eq!(other.decide(), missing("a"));
    other.at(11).look = Look(vec![Some(other.content("2")), came]);
    assert_eq!((other.observe(), other.waits_until(13)), (Finding::Unchanged, true), "{:?}", other.decide());
    assert_ne!(quiet, None);
}

#[test]
fn the_first_content_of_a_missing_source_is_a_baseline_even_during_a_restart() {
    let mut desk = Desk { policy: about("a b"), ..Desk::new(3, false) };
    assert_eq!((desk.read_all("a=1"), desk.decide()), (Finding::Baseline, missing("b")));
    assert_eq!((desk.at(10).read_all("a=2"), desk.at(11).read_all("a=2 b=1")), (Finding::Modified, Finding::Baseline));
    assert_eq!((desk.recorded_of_all(), desk.desired_of_all()), ("a=1 b=1".into(), "a=2 b=1".into()));
    assert!(desk.waits_until(13));
}

#[test]
fn the_absence_of_an_optional_source_is_a_content_like_any_other() {
    let mut desk = settled("a b?", "a=1");
    assert_eq!(desk.recorded_of_all(), "a=1 b=absent");
    assert_eq!((desk.at(10).read_all("a=1 b=1"), desk.desired_of_all()), (Finding::Modified, "a=1 b=1".into()));
    desk.at(13).begin();
    desk.complete();
    let changed: Vec<&str> = desk.status.history[0].sources.iter().map(|source| &*source.name).collect();
    assert_eq!(changed, ["b"]);
    assert_eq!((desk.at(20).read_all("a=1"), desk.desired_of_all()), (Finding::Modified, "a=1 b=absent".into()));
}

/// Nobody knows then what the content was that had interrupted it.
#[test]
fn an_interrupted_restart_does_not_go_on_in_another_process_while_a_discovered_source_is_missing() {
    let mut desk = settled("a b", "a=1 b=1");
    desk.policy.sources.iter_mut().for_each(|source| source.origin = Origin::Referred);
    desk.at(10).read_all("a=2 b=1");
    desk.at(13).begin();
    desk.at(20).read_all("a=3 b=1");
    assert!(desk.waits_until(23));
    desk.crash().at(21).read_all("");
    assert_eq!(desk.decide(), missing("a b"));
    desk.at(22).read_all("b=1");
    assert!(desk.interrupted_at().is_some() && desk.waits_until(24));
    desk.at(23).read_all("a=4");
    desk.at(24).read_all("a=2");
    assert!(desk.interrupted_at().is_some() && desk.waits_until(27), "nor after an edit of the other one");
    desk.crash().at(24).read_all("a=2 b=1");
    assert_eq!(desk.decide(), Decision::Resume);
}

#[test]
fn an_interrupted_restart_goes_on_in_another_process_once_no_source_exists_and_no_pod_refers_to_one() {
    for sources in ["a", "a b"] {
        let mut desk = settled(sources, "a=1 b=1");
        desk.policy.sources.iter_mut().for_each(|source| source.origin = Origin::Referred);
        desk.at(10).read_all("a=2 b=1");
        desk.at(13).begin();
        desk.at(20).read_all("a=3 b=1");
        desk.crash().at(21).read_all("");
        assert_eq!(desk.decide(), missing(sources));
        desk.policy.sources.iter_mut().for_each(|source| source.origin = Origin::Unreferred);
        desk.read_all("");
        assert_eq!((desk.decide(), desk.interrupted_at()), (Decision::Resume, None));
    }
}

#[test]
fn a_discovered_source_to_which_no_pod_refers_is_forgotten_after_a_day_or_at_once_if_it_is_gone() {
    let mut desk = settled("a b c", "a=1 b=1 c=1");
    desk.policy.sources[1].origin = Origin::Unreferred;
    desk.policy.sources[2].origin = Origin::Unreferred;
    desk.at(10).read_all("a=1 b=1");
    assert_eq!(desk.recorded_of_all(), "a=1 b=1");
    assert_eq!(forgets_after(&desk.status, server(20)), Some(Duration::from_secs(86_391)));
    desk.policy = about("a b");
    desk.policy.sources[1].origin = Origin::Unreferred;
    let mut changed = Desk { policy: desk.policy.clone(), status: desk.status.clone(), ..Desk::new(3, false) };
    changed.at(20).read_all("a=1 b=2");
    changed.at(86_410).read_all("a=1 b=2");
    assert_eq!(changed.recorded_of_all(), "a=1 b=1", "a restart is about it");
    desk.at(86_409).read_all("a=1 b=1");
    assert_eq!(desk.recorded_of_all(), "a=1 b=1");
    desk.at(86_410).read_all("a=1 b=1");
    assert_eq!((desk.recorded_of_all(), forgets_after(&desk.status, server(0))), ("a=1".into(), None));
}
