use super::*;
use crate::monitor::hold::record_start;
use crate::monitor::status::{Begun, Canary, Outcome, Why};
use proptest::prelude::*;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// The state of a keeper, and a clock. A crash loses the readings.
#[derive(Clone)]
struct Desk {
    policy: Policy,
    status: Status,
    look: Look,
    /// The sources of the look.
    read: Vec<Source>,
    request: Option<Arc<str>>,
    start: Instant,
    millis: u64,
    /// The next reading is the first one of its process.
    is_new: bool,
    lists: usize,
}

fn policy(source: &str, quiet: u64, suspend: bool) -> Policy {
    let spec = format!(
        r#"{{"configMap":"{source}","podSelector":{{"app":"web"}},"quietPeriodSeconds":{quiet},"suspend":{suspend}}}"#
    );
    Policy::of(Some(&RawValue::from_string(spec).unwrap())).unwrap()
}

fn hash(text: &str) -> ContentHash {
    ContentHash::from(format!("sha256:{text}").as_str())
}

fn word(hash: Option<&ContentHash>) -> String {
    hash.map_or("-".to_owned(), |hash| hash.to_string().trim_start_matches("sha256:").to_owned())
}

fn server(second: u64) -> ServerTime {
    ServerTime::from_second(second.try_into().unwrap())
}

impl Desk {
    fn new(quiet: u64, suspend: bool) -> Self {
        let (policy, start) = (policy("settings", quiet, suspend), Instant::now());
        let (status, look, read) = (Status::default(), Look(vec![None]), Vec::new());
        Self { policy, status, look, read, request: None, start, millis: 0, is_new: true, lists: 0 }
    }

    /// Since second 0 pods run with the content `a`.
    fn settled(quiet: u64) -> Self {
        let mut desk = Self::new(quiet, false);
        assert_eq!(desk.read("a"), Finding::Baseline);
        desk
    }

    /// Second 10: `b` is read, and the quiet period is 3 seconds.
    fn pending() -> Self {
        let mut desk = Self::settled(3);
        assert_eq!(desk.at(10).read("b"), Finding::Changed);
        desk
    }

    /// Second 100: the restart for `b` is under way.
    fn restarting() -> Self {
        let mut desk = Self::pending();
        desk.at(13).begin();
        desk.at(100);
        desk
    }

    fn at(&mut self, second: u64) -> &mut Self {
        self.millis = second * 1000;
        self
    }

    fn crash(&mut self) -> &mut Self {
        self.is_new = true;
        self
    }

    fn read(&mut self, text: &str) -> Finding {
        self.read_all(&format!("settings={text}"))
    }

    /// Reads all sources. Each has the content given by a word such as `a=1`, or `a=1/2` if that is `2` under the keys of
    /// the status; a source that is not named does not exist. What has not changed keeps the time of its first reading.
    fn read_all(&mut self, contents: &str) -> Finding {
        let found: BTreeMap<&str, &str> = contents.split(' ').filter_map(|word| word.split_once('=')).collect();
        let content = |source: &Source| match found.get(&*source.name.name) {
            Some(text) => {
                let (text, under_recorded) = text.split_once('/').map_or((*text, None), |(one, two)| (one, Some(two)));
                let keys = self.status.source(&source.name).map(|known| &known.keys);
                let keys = keys.filter(|keys| **keys != source.keys);
                let recorded = keys.cloned().zip(under_recorded.map(hash)).map(Box::new);
                Some(Content { recorded, ..self.content(text) })
            }
            None => source.optional.then(|| Content { hash: ContentHash::absent(), version: None, ..self.content("") }),
        };
        let kept = |source: &Source| {
            let new = content(source)?;
            let place = self.read.iter().position(|read| read.reads_like(source)).filter(|_| !self.is_new);
            let before = place.and_then(|place| self.look.0[place].clone());
            let is_same = |before: &Content| (&before.hash, &before.recorded) == (&new.hash, &new.recorded);
            Some(before.filter(is_same).unwrap_or(new))
        };
        self.look = Look(self.policy.sources.iter().map(kept).collect());
        self.read = self.policy.sources.clone();
        self.observe()
    }

    /// Returns this content, as read now.
    fn content(&self, text: &str) -> Content {
        let Moment { now: came, server_now: at, .. } = self.moment();
        let (version, since) = (Some(self.millis.to_string().as_str().into()), (!self.is_new).then_some(at));
        Content { hash: hash(text), recorded: None, version, at, came, since }
    }

    /// Observes what was read last, and checks what holds at all times.
    fn observe(&mut self) -> Finding {
        let request = self.request.as_ref();
        let observe = |status: &Status| observe(&self.policy, status.clone(), &self.look, request, self.moment());
        let (status, finding) = observe(&self.status);
        assert_eq!(observe(&status), (status.clone(), Finding::Unchanged), "what was observed is observed");
        assert_eq!(status.restart.is_some(), status.has_work());
        for known in &status.sources {
            assert!(known.changes.len() <= 4 && known.changes.is_sorted_by_key(|change| change.observed_at));
            assert!(known.changes.iter().all(|change| change.since <= change.observed_at), "{known:?}");
            let before = self.status.source(&known.name).filter(|before| before.keys == known.keys);
            let before = before.and_then(|before| before.hash.as_ref());
            assert!(before.is_none() || before == known.hash.as_ref(), "only the end of a restart advances it");
        }
        (self.status, self.is_new) = (status, false);
        finding
    }

    /// Now, with fresh readings.
    fn moment(&self) -> Moment {
        let now = self.start + Duration::from_millis(self.millis);
        Moment { read_at: now, now, server_now: server(self.millis / 1000) }
    }

    fn decide(&self) -> Decision {
        decide(&self.policy, &self.status, &self.look, self.request.as_ref(), self.moment())
    }

    fn quiet_until(&self) -> Option<Instant> {
        quiet_until(&self.policy, &self.status, &self.look, self.moment())
    }

    fn waits_until(&self, second: u64) -> bool {
        self.decide() == Decision::Quiet(self.start + Duration::from_secs(second))
    }

    /// Lists the pods, as a keeper does after a reading.
    fn list(&mut self) {
        self.lists += 1;
        self.status.fill(&self.lists.to_string().as_str().into());
    }

    /// Begins a restart, as a keeper does.
    fn begin(&mut self) -> &mut Self {
        let Decision::Begin(request) = self.decide() else { panic!("{:?} is no beginning", self.decide()) };
        let at = self.moment().server_now;
        if let Some(value) = request {
            self.status.take_up(value, at);
        }
        self.list();
        record_start(&mut self.status, at);
        self.status.begin(Begun::new(self.status.next_number(), at, "app=web".to_owned(), 2));
        self
    }

    /// Completes the restart that is under way.
    fn complete(&mut self) {
        assert_eq!(self.decide(), Decision::Resume);
        self.end(self.status.begun().cloned());
    }

    /// Ends the restart that has begun, or the pending one, as no pod has other content.
    fn end(&mut self, begun: Option<Begun>) {
        self.status.complete(begun.as_ref(), (0, String::new()), self.moment().server_now);
    }

    fn canary(&mut self) -> &mut Option<Canary> {
        &mut self.status.restart.as_mut().unwrap().begun.as_mut().unwrap().canary
    }

    fn superseded(&self) -> usize {
        self.status.history.iter().filter(|entry| entry.result == Outcome::Superseded).count()
    }

    fn is_revert(&self) -> bool {
        self.status.why() == Why::Reverted
    }

    /// Returns the journal in words: for each source that has changed its contents, each with since when, when it was read
    /// and the list, or `-`. A star marks the one that the restart has begun for.
    fn journal(&self) -> String {
        let change = |change: &Change| {
            let list = change.pods_resource_version.as_ref().map_or("-", ResourceVersion::as_str);
            let (since, read) = (change.since.as_second(), change.observed_at.as_second());
            format!(" {}{}:{since}-{read}:{list}", word(Some(&change.hash)), if change.begun { "*" } else { "" })
        };
        let source = |known: &SourceStatus| {
            let changes: String = known.changes.iter().map(change).collect();
            format!("{}={}{changes}", known.name.name, word(known.hash.as_ref()))
        };
        let changed = self.status.sources.iter().filter(|known| !known.changes.is_empty());
        changed.map(source).collect::<Vec<_>>().join(", ")
    }

    /// Returns what pods have been restarted for, of the only source.
    fn recorded(&self) -> Option<ContentHash> {
        self.status.sources[0].hash.clone()
    }

    fn last(&self) -> String {
        word(self.status.sources[0].last())
    }

    /// Does what is decided, or lists the pods.
    fn act(&mut self) {
        match self.decide() {
            Decision::Begin(None) if self.millis.is_multiple_of(5) => self.end(None),
            Decision::Begin(_) => _ = self.begin(),
            Decision::Resume => self.complete(),
            Decision::Count => self.status.outdated = Some(1),
            _ => self.list(),
        }
    }

    /// Checks that a process that has just started decides as this one. It knows of earlier readings only the second.
    fn compare_with_a_new_process(&self) {
        let mut new = self.clone();
        let Moment { now, server_now, .. } = self.moment();
        let anew = |content: &mut Content| (content.at, content.came, content.since) = (server_now, now, None);
        new.look.0.iter_mut().flatten().for_each(anew);
        assert_eq!(new.observe(), Finding::Unchanged);
        let until = [self, &new].map(|desk| desk.quiet_until().filter(|until| *until > now));
        match (until, self.decide(), new.decide()) {
            ([Some(old), Some(new)], ..) if old.max(new) - old.min(new) > Duration::from_secs(2) => {
                panic!("{:?}, but anew {:?}", old - now, new - now);
            }
            // Which wait is longer depends on a second.
            (_, Decision::Hold(..) | Decision::Quiet(_), Decision::Hold(..) | Decision::Quiet(_)) => {}
            ([Some(until), None] | [None, Some(until)], ..) => assert!(until - now <= Duration::from_secs(2)),
            (_, decision, anew) => assert_eq!((decision, &self.status), (anew, &new.status)),
        }
    }
}

mod several;

#[test]
fn the_first_content_is_the_baseline_and_restarts_nothing() {
    for suspend in [false, true] {
        let mut desk = Desk::new(0, suspend);
        assert_eq!(desk.decide(), several::missing("settings"));
        let decision = if suspend { Decision::Suspended { requested: false } } else { Decision::Settled };
        assert_eq!((desk.at(50).read("a"), desk.decide()), (Finding::Baseline, decision));
        assert_eq!((desk.recorded(), &desk.status.restart), (Some(hash("a")), &None));
        assert_eq!((desk.status.baselined_at, desk.status.settled_at), (Some(server(50)), Some(server(50))));
        assert_eq!(desk.status.source.as_deref(), Some("ConfigMap/settings"));
    }
}

#[test]
fn a_request_during_a_pending_change_restarts_all_pods_that_exist_by_then() {
    let mut desk = Desk::pending();
    desk.list();
    desk.request = Some("now".into());
    assert!(desk.at(12).waits_until(13), "it waits for the quiet period");
    let request = desk.at(20).begin().status.request().cloned().unwrap();
    assert_eq!((&*request.value, request.observed_at), ("now", server(20)));
    assert_eq!((request.pods_resource_version, desk.journal()), (Some("2".into()), "settings=a b*:10-10:1".into()));
    assert_eq!(desk.decide(), Decision::Resume, "once");
}

#[test]
fn a_change_begins_after_the_quiet_period_and_without_one_at_once() {
    let mut desk = Desk::settled(0);
    desk.at(10).read("b");
    desk.begin();
    let mut desk = Desk::pending();
    assert_eq!(desk.journal(), "settings=a b:10-10:-");
    assert_eq!(desk.recorded(), Some(hash("a")), "the hash does not advance before the restart is over");
    desk.at(11);
    desk.look = Look(vec![Some(desk.content("b"))]);
    let version = desk.status.sources[0].resource_version.clone();
    assert_eq!((desk.observe(), desk.waits_until(14)), (Finding::Unchanged, true), "an edit of labels");
    assert_eq!((version, &desk.status.sources[0].resource_version), (Some("10000".into()), &Some("10000".into())));
    let mut desk = Desk::pending();
    assert!(desk.waits_until(13));
    assert!(!desk.at(13).begin().is_revert() && desk.last() == "b");
    desk.complete();
    assert_eq!(
        (desk.observe(), desk.decide(), desk.recorded()),
        (Finding::Unchanged, Decision::Settled, Some(hash("b")))
    );
}

/// Of the first content only the second is known. After the start there is another period.
#[test]
fn edits_extend_the_quiet_period_to_ten_times_its_length_at_most() {
    let mut desk = Desk::settled(3);
    for second in 10..41 {
        desk.at(second).read(&second.to_string());
        assert!(desk.waits_until((second + 3).min(41)), "at {second}: {:?}", desk.decide());
    }
    let mut late = desk.clone();
    assert_eq!(desk.at(41).begin().journal(), "settings=a other-keys:10-10:1 38:38-38:1 39:39-39:1 40*:40-40:1");
    late.at(41).read("41");
    assert_eq!(late.begin().last(), "41", "it is over, whatever comes at its end");
    late.at(42).read("42");
    assert!(late.waits_until(45), "{:?}", late.decide());
}

#[test]
fn the_limit_on_extensions_starts_anew_once_content_has_been_quiet_for_the_period_or_is_back() {
    for (second, text, since) in [(12, "c", 10), (13, "c", 13), (12, "a", 12)] {
        let mut desk = Desk::pending();
        desk.at(second).read(text);
        assert_eq!(desk.status.restart.unwrap().changing_since, Some(server(since)));
    }
}

/// As of two controllers that fight about a source.
#[test]
fn content_that_comes_and_goes_within_the_quiet_period_for_ever_restarts_nothing() {
    for (mut desk, back, decision) in
        [(Desk::settled(3), "a", Decision::Begin(None)), (Desk::restarting(), "b", Decision::Resume)]
    {
        for second in 100..200 {
            desk.at(second).read(if second % 2 == 0 { "c" } else { back });
            assert!(desk.waits_until(second + 3), "{:?}", desk.decide());
        }
        desk.at(202).observe();
        assert_eq!((desk.decide(), desk.superseded()), (decision, 0));
    }
}

/// For the pods that may have read the other content. Without any, nothing has happened.
#[test]
fn a_revert_is_a_change_like_any_other_however_long_the_other_content_has_stood() {
    for (crash, back) in [(false, 12), (false, 14), (true, 12), (true, 100)] {
        let mut desk = Desk::pending();
        desk.is_new = crash;
        assert_eq!((desk.at(back).read("a"), desk.is_revert()), (Finding::Changed, true));
        let since = if crash { 10 } else { back };
        assert_eq!(desk.journal(), format!("settings=a b:10-10:- a:{since}-{back}:-"));
        assert!(desk.waits_until(back + 3));
        let mut unread = desk.clone();
        unread.at(back + 3).end(None);
        assert_eq!((unread.observe(), unread.decide()), (Finding::Unchanged, Decision::Settled));
        assert_eq!((unread.status.history.len(), unread.status.baselined_at), (0, Some(server(0))));
        desk.at(back + 3).begin().complete();
        assert_eq!((desk.observe(), desk.decide(), desk.last()), (Finding::Unchanged, Decision::Settled, "a".into()));
    }
}

#[test]
fn a_revert_that_lasts_for_the_quiet_period_supersedes_the_restart() {
    let mut desk = Desk::restarting();
    assert_eq!((desk.read("a"), desk.superseded()), (Finding::Changed, 0));
    assert!(desk.waits_until(103));
    assert_eq!((desk.at(103).observe(), desk.superseded()), (Finding::Unchanged, 1));
    assert_eq!(desk.journal(), "settings=a b:10-10:1 a:100-100:-");
    assert!(desk.begin().is_revert() && desk.status.begun().unwrap().number == 2);
    assert_eq!((desk.at(104).read("c"), desk.superseded()), (Finding::Changed, 1));
    desk.at(107).observe();
    assert_eq!((desk.superseded(), desk.journal()), (2, "settings=a b:10-10:1 a:100-100:2 c:104-104:-".into()));
    assert!(!desk.is_revert());
}

/// Until then kubelets may still serve the other one.
#[test]
fn a_restart_goes_on_once_its_content_has_been_back_for_the_quiet_period() {
    for (crash, back, content) in [(false, 101, "c"), (false, 105, "a"), (true, 102, "d"), (true, 110, "c")] {
        let mut desk = Desk::restarting();
        desk.read(content);
        assert!(desk.waits_until(103));
        desk.is_new = crash;
        assert_eq!((desk.at(back).read("b"), desk.waits_until(back + 3)), (Finding::Changed, true), "{content}");
        desk.at(back + 3).observe();
        assert_eq!((desk.decide(), desk.superseded()), (Decision::Resume, 0));
        let since = if crash { 100 } else { back };
        assert_eq!(desk.journal(), format!("settings=a b*:10-10:1 {content}:100-100:- b:{since}-{back}:-"));
        desk.policy.suspend = true;
        assert_eq!(desk.decide(), Decision::Suspended { requested: false });
    }
}

#[test]
fn content_that_comes_after_the_end_of_an_interruption_has_a_quiet_period_of_its_own() {
    for text in ["d", "a"] {
        let mut desk = Desk::restarting();
        desk.read("c");
        assert_eq!((desk.at(105).read(text), desk.superseded()), (Finding::Changed, 0), "{text}");
        assert!(desk.waits_until(108) && desk.is_revert() == (text == "a"), "{text}");
        desk.at(108).observe();
        assert_eq!((desk.superseded(), desk.decide()), (1, Decision::Begin(None)), "{text}");
    }
}

/// As of two operators of which the other one has read the content later, and has written that.
#[test]
fn a_process_waits_for_the_end_of_an_interruption_that_another_one_has_extended() {
    let mut desk = Desk::restarting();
    desk.read("c");
    desk.status.sources[0].changes[1].observed_at = server(102);
    assert_eq!((desk.at(102).observe(), desk.waits_until(106)), (Finding::Unchanged, true), "{:?}", desk.decide());
}

/// Only content that it is the first to read has a quiet period of its own. Of the other one only the second is known.
#[test]
fn an_interruption_goes_on_in_a_new_process() {
    for (second, text, until) in
        [(102, "a", 105), (102, "c", 104), (102, "d", 105), (103, "a", 106), (103, "c", 104), (110, "c", 110)]
    {
        let mut desk = Desk::restarting();
        desk.read("c");
        desk.at(second).crash().read(text);
        assert!(desk.waits_until(until) || second == until, "{text} {:?}", desk.decide());
        desk.at(until).observe();
        assert_eq!((desk.superseded(), desk.last(), desk.decide()), (1, text.into(), Decision::Begin(None)));
    }
}

/// If nothing wakes a restart that is held, it ends when it is looked at again.
#[test]
fn an_interruption_ends_under_suspend_without_the_source_and_after_a_failed_canary() {
    let failed = |message: &str| Canary { pods: 1, state: CanaryState::Failed { message: message.to_owned() } };
    for (suspend, missing, canary) in
        [(true, false, None), (false, true, None), (true, true, None), (false, false, Some(failed("crash")))]
    {
        let mut desk = Desk::restarting();
        desk.policy.suspend = suspend;
        *desk.canary() = canary;
        desk.read("c");
        if missing {
            desk.look = Look(vec![None]);
        }
        let held = desk.decide();
        assert!(!matches!(held, Decision::Resume | Decision::CanaryFailed(_)), "{held:?}");
        desk.at(104).observe();
        assert_eq!((desk.superseded(), desk.last()), (1, "c".into()));
        assert_eq!(desk.decide() == held, missing, "{:?}", desk.decide());
    }
}

#[test]
fn a_longer_quiet_period_does_not_stop_a_restart_under_way() {
    let mut desk = Desk::restarting();
    desk.policy.quiet_period = Duration::from_secs(3600);
    assert_eq!(desk.decide(), Decision::Resume);
}

/// Otherwise a watch that has stalled would hide that the content has come back.
#[test]
fn the_source_is_read_again_before_an_interruption_ends_and_before_a_restart_begins() {
    let (mut interrupted, mut held) = (Desk::restarting(), Desk::restarting());
    interrupted.read("c");
    held.complete();
    held.policy.min_interval = Duration::from_secs(103);
    held.at(110).read("c");
    for (mut desk, read, until) in [(Desk::pending(), 10, 13), (interrupted, 100, 103), (held, 114, 116)] {
        let read_at = desk.at(read).moment().read_at;
        let stale = Moment { read_at, ..desk.at(until).moment() };
        let observed = observe(&desk.policy, desk.status.clone(), &desk.look, None, stale);
        assert_eq!(observed, (desk.status.clone(), Finding::Unchanged));
        assert_eq!(decide(&desk.policy, &desk.status, &desk.look, None, stale), Decision::Read);
    }
}

#[test]
fn the_bake_time_begins_anew_after_an_interruption() {
    for (state, after) in [
        (CanaryState::Baking { available_at: server(90) }, CanaryState::Replacing),
        (CanaryState::Passed, CanaryState::Passed),
    ] {
        let mut desk = Desk::restarting();
        *desk.canary() = Some(Canary { pods: 1, state });
        desk.read("c");
        assert_eq!(*desk.canary(), Some(Canary { pods: 1, state: after }));
    }
}

/// Which pods have other content is known then, and without any nothing waits.
#[test]
fn a_change_that_is_held_is_counted_once_its_quiet_period_is_over() {
    for suspend in [true, false] {
        let mut desk = Desk::restarting();
        desk.complete();
        (desk.policy.suspend, desk.policy.min_interval) = (suspend, Duration::from_secs(1000));
        let is_held = |decision| matches!(decision, Decision::Suspended { requested: false } | Decision::Hold(..));
        for (second, text) in [(110, "c"), (112, "b")] {
            desk.at(second).read(text);
            assert!(is_held(desk.decide()));
        }
        let stale = Moment { read_at: desk.start, ..desk.at(115).moment() };
        assert_eq!(decide(&desk.policy, &desk.status, &desk.look, None, stale), Decision::Read);
        assert_eq!(desk.decide(), Decision::Count);
        desk.status.outdated = Some(1);
        assert!(is_held(desk.decide()));
        (desk.policy.suspend, desk.policy.min_interval) = (false, Duration::ZERO);
        assert!(desk.clone().begin().is_revert());
        assert_eq!((desk.at(116).read("d"), desk.status.outdated), (Finding::Changed, None), "they count anew");
    }
}

#[test]
fn a_restart_ends_when_the_spec_no_longer_names_its_source() {
    let mut reverting = Desk::restarting();
    reverting.read("a");
    for (mut desk, superseded) in [(Desk::pending(), 0), (reverting, 1), (Desk::restarting(), 1)] {
        desk.policy = policy("other", 3, false);
        desk.read_all("other=x");
        assert_eq!((desk.recorded(), desk.status.source.as_deref()), (Some(hash("x")), Some("ConfigMap/other")));
        assert_eq!((desk.decide(), desk.superseded()), (Decision::Settled, superseded));
    }
}

#[test]
fn after_a_crash_the_quiet_period_goes_on_from_when_the_content_was_first_read() {
    let mut desk = Desk::pending();
    assert_eq!(desk.crash().at(12).read("b"), Finding::Unchanged);
    // Times are whole seconds: only one second is sure to have passed.
    assert!(desk.waits_until(14));
    desk.millis += 700;
    assert!(desk.waits_until(14), "by the reading, or the period would be over at each look, and be read for ever");
    desk.at(14).begin();
    let mut desk = Desk::pending();
    desk.crash().at(500).read("b");
    assert_eq!(desk.begin().journal(), "settings=a b*:10-10:1");
}

/// An absence has no version that shows it, nor has what a restore from backup brings back.
#[test]
fn content_that_is_older_than_what_another_process_has_read_has_come_now() {
    let mut desk = Desk::restarting();
    let old = desk.look.clone();
    desk.read("c");
    desk.look = old;
    assert_eq!((desk.at(102).observe(), desk.waits_until(106)), (Finding::Changed, true), "{:?}", desk.decide());
    assert_eq!(desk.journal(), "settings=a b*:10-10:1 c:100-100:- b:100-102:-");
}

#[test]
fn a_hash_of_unknown_framing_is_found_wherever_it_is() {
    let (mut settled, mut restarting) = (Desk::settled(3).status, Desk::restarting().status);
    assert_eq!((settled.unknown_hash(), restarting.unknown_hash()), (None, None));
    let unknown: ContentHash = "blake9:00".into();
    settled.sources[0].hash = Some(unknown.clone());
    restarting.sources[0].changes[0].hash = unknown.clone();
    assert_eq!([settled.unknown_hash(), restarting.unknown_hash()], [Some(&unknown); 2]);
}

/// A clock that is set back by more must not stretch it.
#[test]
fn a_quiet_period_is_not_cut_short_by_an_api_server_whose_clock_is_behind() {
    let Desk { policy, status, .. } = Desk::pending();
    let read_at = Instant::now();
    for (server_now, expected) in [(10, 4), (7, 7), (-1, 4)] {
        let moment = Moment { read_at, now: read_at, server_now: ServerTime::from_second(server_now) };
        let until = quiet_until(&policy, &status, &Look(vec![None]), moment);
        assert_eq!(until, Some(read_at + Duration::from_secs(expected)), "{server_now}");
    }
}

/// Of two clocks the earlier one counts.
#[test]
fn content_at_the_first_look_may_have_existed_since_all_pods_had_the_content_before() {
    for (second, first, since) in [(160, true, 100), (50, true, 50), (160, false, 160)] {
        let mut desk = Desk::restarting();
        desk.complete();
        desk.is_new = first;
        desk.at(second).read("c");
        assert_eq!(desk.journal(), format!("settings=b c:{since}-{second}:-"));
    }
}

#[test]
fn a_request_does_not_let_superseding_content_pass_the_gate() {
    let mut desk = Desk::settled(0);
    desk.request = Some("now".into());
    desk.at(10).begin();
    assert_eq!(desk.at(12).read("b"), Finding::Changed);
    assert!(!desk.status.is_requested(), "it waits like any other");
    let request = desk.begin().status.request().cloned().unwrap();
    assert_eq!((Some(request.value), request.pods_resource_version), (desk.request.clone(), Some("1".into())));
    assert!(request.taken_over && desk.status.last_handled_restart_request.is_none());
    desk.complete();
    assert_eq!((desk.decide(), &desk.status.last_handled_restart_request), (Decision::Settled, &desk.request));
}

#[test]
fn a_change_during_a_requested_restart_counts_from_its_own_time() {
    let mut desk = Desk::settled(3);
    desk.request = Some("now".into());
    desk.at(10).begin();
    assert_eq!(desk.at(18).read("b"), Finding::Changed);
    assert_eq!(desk.at(20).read("c"), Finding::Changed);
    desk.at(23).observe();
    assert_eq!((desk.journal(), desk.superseded()), ("settings=a b:18-18:- c:20-20:-".into(), 1));
    assert_eq!(desk.at(30).read("a"), Finding::Changed);
    assert_eq!(desk.status.why(), Why::Requested, "all pods were to be restarted");
}

/// Either the restart that goes on ends first, or the one that takes its place is for the request, too.
#[test]
fn a_request_during_an_interruption_waits_for_its_end() {
    let interrupted = || {
        let mut desk = Desk::restarting();
        desk.read("c");
        desk.request = Some("now".into());
        assert!(desk.waits_until(103));
        desk
    };
    let mut desk = interrupted();
    desk.at(102).read("b");
    desk.at(105).complete();
    assert_eq!(desk.begin().status.why(), Why::Requested);
    let mut desk = interrupted();
    desk.at(103).observe();
    desk.begin();
    assert_eq!((desk.last(), desk.status.why(), desk.status.is_requested()), ("c".into(), Why::Changed, true));
    desk.complete();
    assert_eq!((desk.decide(), desk.superseded()), (Decision::Settled, 1));
}

#[test]
fn a_request_takes_the_place_of_a_restart_whose_canary_has_failed() {
    let mut desk = Desk::restarting();
    *desk.canary() = Some(Canary { pods: 1, state: CanaryState::Failed { message: "crash".to_owned() } });
    assert_eq!(desk.decide(), Decision::CanaryFailed("crash".to_owned()));
    desk.request = Some("now".into());
    let numbers = (desk.begin().superseded(), desk.status.begun().unwrap().number, desk.status.history[0].number);
    assert_eq!((numbers, desk.decide(), desk.status.is_requested()), ((1, 2, 1), Decision::Resume, true));
}

/// Otherwise each of many edits would change the reported reason, and emit an Event.
#[test]
fn a_hold_that_lasts_longer_than_the_quiet_period_is_reported_at_once() {
    let mut desk = Desk::restarting();
    desk.complete();
    desk.policy.min_interval = Duration::from_secs(100);
    assert_eq!(desk.at(110).read("c"), Finding::Changed);
    let until = |second| Some(desk.start + Duration::from_secs(second));
    assert_eq!(desk.decide(), Decision::Hold(Hold::MinInterval(server(113)), until(113)));
    desk.policy.min_interval = Duration::from_secs(99);
    assert!(desk.waits_until(113), "{:?}", desk.decide());
}

proptest! {
    #[test]
    fn a_new_process_decides_what_the_old_one_would_have(
        (quiet, interval) in (0..4_u64, prop::sample::select(vec![0, 20])),
        steps in prop::collection::vec((0..4000_u64, 0..9, "[123]", "[12-]"), 1..40),
    ) {
        let mut desk = several::settled("a b?", "a=1 b=1");
        (desk.policy.quiet_period, desk.policy.min_interval) = (Duration::from_secs(quiet), Duration::from_secs(interval));
        for (wait, act, a, b) in steps {
            desk.millis += wait;
            match act {
                0..=3 => _ = desk.read_all(&format!("a={a} b={b}").replace(" b=-", "")),
                4 => desk.is_new = true,
                5 => desk.policy.suspend = !desk.policy.suspend,
                6 => desk.request = Some(a.as_str().into()),
                _ => desk.act(),
            }
            desk.observe();
            desk.compare_with_a_new_process();
        }
    }

    /// Also of other keys, and by a process that has read it before the others.
    #[test]
    fn what_was_observed_is_observed_whatever_is_read(
        readings in prop::collection::vec(
            (0..9_u64, 0..9_u64, prop::option::of(0..9_u64), "[1-4]", prop::option::of("[1-4]"), any::<[bool; 2]>()),
            1..30,
        ),
    ) {
        let mut desk = Desk::settled(3);
        desk.at(100);
        for (wait, age, since, text, recorded, [is_edited, acts]) in readings {
            desk.millis += wait * 1000;
            let keys = desk.status.sources[0].keys.clone();
            if is_edited {
                desk.policy.sources[0].keys = keys.is_none().then(|| ["key".to_owned()].into());
            }
            let Moment { now, server_now, .. } = desk.moment();
            let age = Duration::from_secs(age);
            let (at, came) = (server_now.minus(age), now - age);
            let since = since.map(|since| at.minus(Duration::from_secs(since)));
            let recorded = recorded.filter(|_| keys != desk.policy.sources[0].keys).map(|text| Box::new((keys, hash(&text))));
            desk.look = Look(vec![Some(Content { recorded, at, came, since, ..desk.content(&text) })]);
            desk.observe();
            if acts {
                desk.act();
            }
        }
    }
}
