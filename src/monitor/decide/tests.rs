use super::*;
use crate::monitor::status::Outcome;
use serde_json::value::RawValue;

/// The state of a keeper, and a clock. The status survives a crash, the quiet period does not.
struct Desk {
    policy: Policy,
    status: Status,
    quiet: Option<Quiet>,
    look: Look,
    request: Option<Arc<str>>,
    start: Instant,
    millis: u64,
}

fn policy(source: &str, quiet: u64, suspend: bool) -> Policy {
    let spec = format!(
        r#"{{"configMap":"{source}","podSelector":{{"app":"web"}},"quietPeriodSeconds":{quiet},"suspend":{suspend}}}"#
    );
    Policy::of(Some(&RawValue::from_string(spec).unwrap())).unwrap()
}

/// Returns the content of the only source that a restart is about.
fn brought(restart: &Restart) -> ContentHash {
    let [change] = &restart.changes[..] else { panic!("{restart:?}") };
    change.hash.clone()
}

fn value(restart: &Restart) -> Option<Arc<str>> {
    restart.request.as_ref().map(|request| Arc::clone(&request.value))
}

fn hash(text: &str) -> ContentHash {
    ContentHash::from(format!("sha256:{text}").as_str())
}

fn server(second: u64) -> ServerTime {
    ServerTime::from_second(second.try_into().unwrap())
}

impl Desk {
    fn new(quiet: u64, suspend: bool) -> Self {
        let (policy, start) = (policy("settings", quiet, suspend), Instant::now());
        let (status, look) = (Status::default(), Look(vec![None]));
        Self { policy, status, quiet: None, look, request: None, start, millis: 0 }
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
        assert_eq!(desk.at(10).read("b"), Finding::Modified);
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

    fn read(&mut self, text: &str) -> Finding {
        self.look = Look(vec![Some(self.content(text))]);
        self.observe()
    }

    /// Returns this content, as read now.
    fn content(&self, text: &str) -> Content {
        let (version, at) = (Some(self.millis.to_string().as_str().into()), server(self.millis / 1000));
        Content {
            hash: hash(text),
            version,
            at,
            came: self.start + Duration::from_millis(self.millis),
            first: false,
            recorded: None,
        }
    }

    /// Returns whether all existing contents are recorded.
    fn recorded_all(&self) -> bool {
        let recorded = |(source, content): (&Source, &Option<Content>)| {
            let known = self.status.sources.iter().find(|known| known.name == source.name);
            let is_recorded = |known: &SourceStatus, content: &Content| {
                let under_recorded = content.recorded.as_ref().map(|recorded| &recorded.1);
                let now = under_recorded.or_else(|| is_about(known, source).then_some(&content.hash));
                now.is_none_or(|now| known.hash.as_ref() == Some(now))
            };
            known.is_none_or(|known| content.as_ref().is_none_or(|content| is_recorded(known, content)))
        };
        self.policy.sources.iter().zip(&self.look.0).all(recorded)
    }

    /// Returns what pods have been restarted for, of the only source.
    fn recorded(&self) -> Option<ContentHash> {
        self.status.sources[0].hash.clone()
    }

    /// Returns the content that the restart brings.
    fn desired(&self) -> ContentHash {
        brought(self.restart())
    }

    /// Observes what was read last, and checks what holds at all times.
    fn observe(&mut self) -> Finding {
        let observe = |status: &Status, quiet: &Option<Quiet>| {
            observe(&self.policy, status, quiet.as_ref(), &self.look, self.moment()).unwrap()
        };
        let Observed { status, quiet, finding } = observe(&self.status, &self.quiet);
        let again = Observed { status: status.clone(), quiet: quiet.clone(), finding: Finding::Unchanged };
        assert_eq!(observe(&status, &quiet), again, "what was observed is observed");
        match (&self.status.restart, &status.restart) {
            (Some(before), Some(after)) => {
                assert!(before.begun.is_some() || after.begun.is_none());
                for (before, after) in before.changes.iter().filter_map(|one| Some((one, after.change(&one.source)?))) {
                    assert!(before.since == after.since && before.observed_at <= after.observed_at);
                }
            }
            (None, after) if self.recorded_all() => {
                assert!(after.is_none() && matches!(finding, Finding::Unchanged | Finding::Baseline));
            }
            _ => {}
        }
        (self.status, self.quiet) = (status, quiet);
        finding
    }

    fn crash(&mut self) -> &mut Self {
        self.quiet = None;
        self
    }

    /// Now, with fresh readings.
    fn moment(&self) -> Moment {
        let now = self.start + Duration::from_millis(self.millis);
        Moment { read_at: now, now, server_now: server(self.millis / 1000) }
    }

    fn decide(&self) -> Decision {
        decide(&self.policy, &self.status, &self.look, self.quiet.as_ref(), self.request.as_ref(), self.moment())
    }

    fn begin(&mut self) -> Restart {
        let Decision::Begin(restart) = self.decide() else { panic!("{:?} is no beginning", self.decide()) };
        let at = server(self.millis / 1000);
        let begun = Begun::new(at, "app=web".to_owned(), 2);
        self.status.supersede(Restart { begun: Some(begun), ..restart.clone() }, at);
        restart
    }

    /// Completes the restart that has begun, as a keeper does.
    fn complete(&mut self) {
        let (Decision::Resume, Some(restart)) = (self.decide(), &self.status.restart) else { return };
        let begun = restart.begun.clone().unwrap();
        self.status.complete(Some(&begun), (0, String::new()), begun.started_at);
    }

    fn restart(&self) -> &Restart {
        self.status.restart.as_ref().unwrap()
    }

    /// `since` and `observedAt`.
    fn times(&self) -> (ServerTime, ServerTime) {
        (self.restart().since(), self.restart().observed_at())
    }

    fn waits_until(&self, second: u64) -> bool {
        self.decide() == Decision::Quiet(self.start + Duration::from_secs(second))
    }

    fn superseded(&self) -> usize {
        self.status.history.iter().filter(|entry| entry.result == Outcome::Superseded).count()
    }

    /// Returns since when the restart under way is interrupted.
    fn interrupted_at(&self) -> Option<ServerTime> {
        self.restart().interrupted_at()
    }

    fn missing(&self) -> Decision {
        Decision::Missing(self.policy.sources.iter().map(|source| source.name.clone()).collect())
    }
}

#[test]
fn the_first_content_is_the_baseline_and_restarts_nothing() {
    for suspend in [false, true] {
        let mut desk = Desk::new(0, suspend);
        assert_eq!(desk.decide(), desk.missing());
        let decision = if suspend { Decision::Suspended { requested: false } } else { Decision::Settled };
        assert_eq!((desk.at(50).read("a"), desk.decide()), (Finding::Baseline, decision));
        assert_eq!((desk.recorded(), &desk.status.restart), (Some(hash("a")), &None));
        assert_eq!(desk.status.source.as_deref(), Some("ConfigMap/settings"));
    }
}

#[test]
fn a_request_during_a_pending_change_restarts_all_pods_that_exist_by_then() {
    let mut desk = Desk::pending();
    desk.status.restart.as_mut().unwrap().changes[0].pods_resource_version = Some("7".into());
    desk.request = Some("now".into());
    assert!(desk.at(12).waits_until(13), "it waits for the quiet period");
    let restart = desk.at(20).begin();
    let request = restart.request.clone().unwrap();
    assert_eq!((&*request.value, request.observed_at, request.pods_resource_version), ("now", server(20), None));
    assert_eq!((brought(&restart), restart.changes[0].pods_resource_version.clone()), (hash("b"), Some("7".into())));
    assert!(matches!(desk.decide(), Decision::Resume), "once");
}

#[test]
fn a_change_begins_after_the_quiet_period_and_without_one_at_once() {
    let mut desk = Desk::settled(0);
    desk.at(10).read("b");
    assert_eq!(desk.begin().observed_at(), server(10));
    let mut desk = Desk::pending();
    assert_eq!(desk.times(), (server(10), server(10)));
    assert_eq!(desk.recorded(), Some(hash("a")), "the hash does not advance before the restart is over");
    assert_eq!(desk.at(11).read("b"), Finding::Unchanged);
    assert!(desk.waits_until(13), "an edit of labels does not extend it");
    assert!(!desk.at(13).begin().is_revert() && desk.desired() == hash("b"));
    desk.complete();
    assert_eq!((desk.observe(), desk.decide()), (Finding::Unchanged, Decision::Settled));
}

#[test]
fn edits_extend_the_quiet_period_to_ten_times_its_length_at_most() {
    let mut desk = Desk::settled(3);
    for second in 10..40 {
        desk.at(second).read(&format!("{second}"));
        assert!(desk.waits_until((second + 3).min(40)), "at {second}: {:?}", desk.decide());
    }
    assert_eq!(brought(&desk.at(40).begin()), hash("39"));
}

#[test]
fn an_edit_at_the_end_of_the_extended_quiet_period_does_not_extend_it() {
    let mut desk = Desk::settled(3);
    for second in 10..=40 {
        desk.at(second).read(&format!("{second}"));
    }
    assert_eq!(brought(&desk.begin()), hash("40"));
}

#[test]
fn a_revert_within_the_first_quiet_period_counts_as_unchanged() {
    let mut desk = Desk::pending();
    desk.at(12).read("c");
    assert_eq!((desk.at(14).read("a"), desk.decide()), (Finding::Undone, Decision::Settled));
    assert_eq!((desk.quiet.take(), desk.status.history.len()), (None, 0));
    assert_eq!((desk.at(20).read("b"), desk.times()), (Finding::Modified, (server(20), server(20))));
}

#[test]
fn a_revert_after_the_quiet_period_is_a_restart_since_the_first_change() {
    let mut desk = Desk::pending();
    assert_eq!((desk.at(14).read("a"), desk.times()), (Finding::Reverted, (server(10), server(14))));
    assert!(desk.waits_until(17));
    assert!(desk.at(17).begin().is_revert() && desk.desired() == hash("a"));
    desk.complete();
    assert_eq!((desk.observe(), desk.decide()), (Finding::Unchanged, Decision::Settled));
}

#[test]
fn a_revert_that_lasts_for_the_quiet_period_supersedes_the_restart() {
    let mut desk = Desk::restarting();
    assert_eq!((desk.read("a"), desk.interrupted_at()), (Finding::Reverted, Some(server(100))));
    assert!(desk.waits_until(103) && desk.superseded() == 0);
    assert_eq!((desk.at(103).observe(), desk.superseded()), (Finding::Unchanged, 1));
    assert_eq!(desk.times(), (server(10), server(100)), "of the first reading");
    assert!(desk.begin().is_revert() && desk.desired() == hash("a"));
    assert_eq!((desk.at(104).read("c"), desk.superseded()), (Finding::Modified, 1));
    desk.at(107).observe();
    assert_eq!((desk.superseded(), desk.times()), (2, (server(10), server(104))));
    assert!(!desk.restart().is_revert() && desk.desired() == hash("c"));
}

#[test]
fn further_content_extends_an_interruption() {
    let mut desk = Desk::restarting();
    for (second, text) in [(100, "c"), (102, "a"), (104, "d")] {
        desk.at(second).read(text);
        assert_eq!(desk.interrupted_at(), Some(server(second)));
        assert!(desk.waits_until(second + 3));
    }
    let mut back = Desk { status: desk.status.clone(), quiet: desk.quiet.clone(), ..Desk::restarting() };
    assert_eq!((back.at(106).read("b"), back.superseded()), (Finding::Undone, 0));
    desk.at(107).observe();
    assert_eq!((desk.superseded(), desk.times(), desk.desired()), (1, (server(10), server(104)), hash("d")));
    assert!(matches!(desk.decide(), Decision::Begin(_)), "it has been quiet");
}

#[test]
fn content_that_comes_after_the_end_of_an_interruption_has_a_quiet_period_of_its_own() {
    for (text, finding) in [("d", Finding::Modified), ("a", Finding::Reverted), ("b", Finding::Modified)] {
        let mut desk = Desk::restarting();
        desk.read("c");
        assert_eq!((desk.at(105).read(text), desk.superseded()), (finding, 1), "{text}");
        assert_eq!((desk.times(), desk.desired()), ((server(10), server(105)), hash(text)));
        assert!(desk.waits_until(108) && desk.restart().is_revert() == (text == "a"), "{text}");
    }
}

#[test]
fn a_restart_goes_on_if_its_content_comes_back_within_the_quiet_period() {
    let mut desk = Desk::restarting();
    let before = desk.restart().clone();
    for content in ["c", "a", "d"] {
        desk.read(content);
        assert!(desk.waits_until(103));
        assert_eq!((desk.read("b"), desk.restart()), (Finding::Undone, &before), "{content}");
        assert!(matches!(desk.decide(), Decision::Resume));
    }
    desk.read("c");
    assert_eq!((desk.at(102).crash().read("b"), desk.restart()), (Finding::Undone, &before), "also after a crash");
}

/// As of two operators of which the other one has read the content later, and has written that.
#[test]
fn a_process_waits_for_the_end_of_an_interruption_that_another_one_has_extended() {
    let mut desk = Desk::restarting();
    desk.read("c");
    desk.at(102).status.restart.as_mut().unwrap().begun.as_mut().unwrap().interrupted_at = Some(server(102));
    assert_eq!((desk.observe(), desk.interrupted_at()), (Finding::Unchanged, Some(server(102))));
    assert!(desk.waits_until(105), "{:?}", desk.decide());
}

/// As of two operators that have started during the interruption. The other one has written first.
#[test]
fn the_interruption_says_nothing_about_the_quiet_period_of_the_content_that_another_process_found_at_its_end() {
    let mut desk = Desk::restarting();
    desk.read("c");
    assert_eq!(desk.at(102).crash().read("d"), Finding::Unchanged);
    let mut other = Desk { status: desk.status.clone(), quiet: desk.quiet.clone(), ..Desk::restarting() };
    other.look = desk.look.clone();
    other.at(104).observe();
    assert_eq!(other.times(), (server(10), server(102)));
    desk.status = other.status;
    desk.at(104).observe();
    assert!(desk.waits_until(105), "{:?}", desk.decide());
}

/// When it was read counts, not when that could be written.
#[test]
fn a_restart_goes_on_if_its_content_was_read_in_time() {
    let mut desk = Desk::restarting();
    let before = desk.restart().clone();
    desk.read("c");
    desk.at(102).look = Look(vec![Some(desk.content("b"))]);
    assert_eq!((desk.at(110).observe(), desk.restart()), (Finding::Undone, &before));
}

#[test]
fn a_new_process_that_finds_the_interruption_over_ends_the_restart_whatever_it_reads() {
    for text in ["a", "b", "c", "d"] {
        let mut desk = Desk::restarting();
        desk.read("c");
        desk.at(103).crash().read(text);
        assert_eq!((desk.superseded(), desk.times(), desk.desired()), (1, (server(10), server(103)), hash(text)));
        assert!(desk.waits_until(106) && desk.restart().is_revert() == (text == "a"), "{text}");
        assert_ne!(desk.at(104).crash().read("a"), Finding::Undone, "pods may have other content");
    }
}

/// It cannot tell whether the content has changed again. Times are whole seconds, so one more may have to pass.
#[test]
fn an_interruption_goes_on_in_a_new_process() {
    for text in ["a", "c", "d"] {
        let mut desk = Desk::restarting();
        desk.read("c");
        assert_eq!((desk.at(102).crash().read(text), desk.interrupted_at()), (Finding::Unchanged, Some(server(100))));
        assert!(desk.waits_until(104));
        desk.at(104).observe();
        assert_eq!((desk.superseded(), desk.times(), desk.desired()), (1, (server(10), server(102)), hash(text)));
        assert!(desk.waits_until(105), "the content may have come only now");
    }
    let mut late = Desk::restarting();
    late.read("c");
    late.at(102).crash().read("c");
    late.at(103).read("b");
    assert_eq!(late.superseded(), 1, "by the time in the status it is over");
}

#[test]
fn an_interruption_ends_under_suspend_without_the_source_and_after_a_failed_canary() {
    let failed = |message: &str| Canary { pods: 1, state: CanaryState::Failed { message: message.to_owned() } };
    for (suspend, missing, canary) in
        [(true, false, None), (false, true, None), (true, true, None), (false, false, Some(failed("crash")))]
    {
        let mut desk = Desk::restarting();
        desk.policy.suspend = suspend;
        desk.status.restart.as_mut().unwrap().begun.as_mut().unwrap().canary = canary;
        desk.read("c");
        if missing {
            desk.look = Look(vec![None]);
        }
        let until = desk.start + Duration::from_secs(103);
        assert_eq!(interruption(&desk.policy, &desk.status, desk.quiet.as_ref()), Some(until));
        let held = desk.decide();
        assert!(!matches!(held, Decision::Resume | Decision::CanaryFailed(_)), "{held:?}");
        desk.at(103);
        assert_eq!(desk.decide(), Decision::Read);
        desk.observe();
        assert_eq!((desk.superseded(), desk.times(), desk.desired()), (1, (server(10), server(100)), hash("c")));
        assert_eq!(desk.decide() == held, suspend || missing);
    }
}

/// Otherwise a watch that has stalled would hide that the content has come back.
#[test]
fn the_source_is_read_again_before_an_interruption_ends() {
    let mut desk = Desk::restarting();
    desk.read("c");
    let stale = Moment { read_at: desk.moment().read_at, ..desk.at(103).moment() };
    let observed = observe(&desk.policy, &desk.status, desk.quiet.as_ref(), &desk.look, stale).unwrap();
    assert_eq!((observed.status, observed.finding), (desk.status.clone(), Finding::Unchanged));
    assert_eq!(decide(&desk.policy, &desk.status, &desk.look, desk.quiet.as_ref(), None, stale), Decision::Read);
}

#[test]
fn the_bake_time_begins_anew_after_an_interruption() {
    for (state, after) in [
        (CanaryState::Baking { available_at: server(90) }, CanaryState::Replacing),
        (CanaryState::Passed, CanaryState::Passed),
    ] {
        let mut desk = Desk::restarting();
        desk.status.restart.as_mut().unwrap().begun.as_mut().unwrap().canary = Some(Canary { pods: 1, state });
        desk.read("c");
        desk.at(101).read("b");
        assert_eq!(desk.restart().begun.as_ref().unwrap().canary, Some(Canary { pods: 1, state: after }));
    }
}

#[test]
fn a_revert_after_a_superseded_restart_is_detected_after_a_crash_whatever_the_quiet_period_is_now() {
    let mut desk = Desk::pending();
    desk.at(13).begin();
    desk.at(14).read("c");
    desk.at(17).observe();
    assert_eq!(desk.superseded(), 1);
    desk.policy.quiet_period = Duration::from_secs(3600);
    assert_eq!(desk.at(18).crash().read("a"), Finding::Reverted);
}

/// In second 10 `b` is read. At these seconds other content is read that cannot be recorded.
fn unrecorded(at: &[u64]) -> Desk {
    let mut desk = Desk::pending();
    for second in at {
        let now = desk.start + Duration::from_secs(*second);
        desk.quiet = desk.quiet.map(|quiet| quiet.with_unrecorded(Duration::from_secs(3), now));
    }
    desk
}

#[test]
fn the_quiet_period_starts_anew_after_unrecorded_content() {
    let mut desk = unrecorded(&[12]);
    assert_eq!(desk.at(14).read("b"), Finding::Unchanged);
    assert!(desk.waits_until(17));
}

#[test]
fn unrecorded_content_does_not_undo_a_quiet_period_that_has_passed() {
    assert_eq!(unrecorded(&[13]).at(14).read("a"), Finding::Reverted);
}

#[test]
fn no_quiet_period_passes_while_content_is_unrecorded() {
    assert_eq!(unrecorded(&[11, 20]).at(21).read("a"), Finding::Undone);
}

#[test]
fn the_limit_on_extensions_starts_anew_after_a_long_time_of_unrecorded_content() {
    let mut desk = unrecorded(&[11, 20]);
    assert_eq!(desk.at(60).read("c"), Finding::Modified);
    assert!(desk.waits_until(63));
}

/// Another process knows only what is recorded, and finds the interruption over.
#[test]
fn an_interruption_ends_whatever_cannot_be_recorded_but_content_that_is_read_again_extends_it() {
    let unrecorded = || {
        let mut desk = Desk::restarting();
        desk.read("c");
        let now = desk.start + Duration::from_secs(101);
        desk.quiet = desk.quiet.map(|quiet| quiet.with_unrecorded(Duration::from_secs(3), now));
        desk
    };
    for text in ["b", "c", "d"] {
        let mut desk = unrecorded();
        assert_eq!((desk.at(104).read(text), desk.superseded()), (Finding::Modified, 1));
        assert!(desk.waits_until(107));
    }
    let mut desk = unrecorded();
    assert_eq!((desk.at(102).read("c"), desk.interrupted_at()), (Finding::Modified, Some(server(102))));
    assert!(desk.waits_until(105));
}

#[test]
fn a_revert_under_suspend_is_a_restart_if_the_content_had_been_quiet() {
    for (back, finding) in [(12, Finding::Undone), (14, Finding::Reverted)] {
        let mut desk = Desk::pending();
        desk.policy.suspend = true;
        assert_eq!(desk.at(back).read("a"), finding);
        desk.at(50).policy.suspend = false;
        assert_eq!(desk.observe(), Finding::Unchanged);
        assert_eq!(desk.decide() == Decision::Settled, finding == Finding::Undone);
        if finding == Finding::Reverted {
            assert!(desk.begin().is_revert() && desk.times() == (server(10), server(14)));
        }
    }
}

#[test]
fn a_restart_ends_when_the_spec_no_longer_names_its_source() {
    let mut reverting = Desk::restarting();
    reverting.read("a");
    for (mut desk, superseded) in [(Desk::pending(), 0), (reverting, 1), (Desk::restarting(), 1)] {
        desk.policy = policy("other", 3, false);
        desk.read("x");
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
    assert_eq!(desk.at(14).begin().observed_at(), server(10));
    let mut desk = Desk::pending();
    desk.crash().at(500).read("b");
    assert_eq!(desk.begin().observed_at(), server(10));
}

/// Otherwise the period would be over at each look, and the ConfigMap would be read again for ever.
#[test]
fn the_end_of_a_quiet_period_after_a_crash_does_not_depend_on_the_time_of_the_look() {
    let mut desk = Desk::pending();
    desk.crash().at(12).read("b");
    let quiet = desk.quiet.clone();
    desk.millis += 700;
    desk.crash().observe();
    assert_eq!(desk.quiet, quiet);
}

/// As when the status was written, but the answer was lost.
#[test]
fn a_quiet_period_says_nothing_about_content_that_came_after_it() {
    let mut desk = Desk::pending();
    let before = desk.quiet.clone();
    assert_eq!(desk.at(12).read("c"), Finding::Modified);
    desk.quiet = before;
    assert_eq!(desk.observe(), Finding::Unchanged);
    assert!(desk.waits_until(15), "{:?}", desk.decide());
}

#[test]
fn a_revert_during_downtime_counts_as_unchanged_only_within_the_quiet_period() {
    for (back, finding) in [(12, Finding::Undone), (100, Finding::Reverted)] {
        let mut desk = Desk::pending();
        assert_eq!(desk.crash().at(back).read("a"), finding);
    }
}

#[test]
fn a_hash_of_unknown_framing_is_an_error_and_not_a_change() {
    let (mut settled, mut restarting) = (Desk::settled(3), Desk::restarting());
    settled.status.sources[0].hash = Some("blake9:00".into());
    restarting.status.restart.as_mut().unwrap().changes[0].hash = "blake9:00".into();
    for desk in [settled, restarting] {
        assert!(observe(&desk.policy, &desk.status, desk.quiet.as_ref(), &desk.look, desk.moment()).is_err());
    }
}

mod late;
mod several;

#[test]
fn the_limit_on_extensions_starts_anew_once_content_has_been_quiet_for_the_period() {
    let desk = Desk::settled(3);
    let content = |text: &str| {
        let mut contents = Contents::default();
        contents.set(&desk.policy.sources[0].name, hash(text));
        contents
    };
    let (period, after) = (Duration::from_secs(3), |millis| desk.start + Duration::from_millis(millis));
    let mut quiet = Quiet::begin(&content("a"), &content("b"), server(10), after(0));
    quiet.fresh.insert(desk.policy.sources[0].name.clone(), after(0));
    let early = quiet.extended(&content("c"), server(10), period, after(2999));
    assert_eq!((early.first, early.fresh.is_empty()), (after(0), false));
    let late = quiet.extended(&content("c"), server(10), period, after(3000));
    assert_eq!((late.first, late.fresh.is_empty()), (after(3000), true));
}

#[test]
fn a_request_does_not_let_superseding_content_pass_the_gate() {
    let mut desk = Desk::settled(0);
    desk.request = Some("now".into());
    assert_eq!(value(&desk.at(10).begin()), desk.request);
    assert_eq!(desk.at(12).read("b"), Finding::Modified);
    let restart = desk.begin();
    assert!(!restart.is_requested(), "it waits like any other");
    assert_eq!((value(&restart), &desk.status.last_handled_restart_request), (desk.request.clone(), &None));
    desk.complete();
    assert_eq!((desk.decide(), &desk.status.last_handled_restart_request), (Decision::Settled, &desk.request));
}

#[test]
fn a_change_during_a_requested_restart_counts_from_its_own_time() {
    let mut desk = Desk::settled(3);
    desk.request = Some("now".into());
    desk.at(10).begin();
    assert_eq!(desk.at(18).read("b"), Finding::Modified);
    assert_eq!(desk.at(20).read("c"), Finding::Modified);
    desk.at(23).observe();
    assert_eq!(desk.times(), (server(18), server(20)));
    assert_eq!(desk.at(30).read("a"), Finding::Reverted);
    assert_eq!(desk.times(), (server(18), server(30)));
    assert!(!desk.restart().is_revert(), "all pods were to be restarted");
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
    assert!(matches!(desk.decide(), Decision::Resume));
    desk.complete();
    assert_eq!(value(&desk.begin()), desk.request);
    let mut desk = interrupted();
    desk.at(103).observe();
    let restart = desk.begin();
    assert_eq!((value(&restart), brought(&restart), restart.is_revert()), (desk.request.clone(), hash("c"), false));
    desk.complete();
    assert_eq!((desk.decide(), desk.superseded()), (Decision::Settled, 1));
}

/// Otherwise each of many edits would change the reported reason, and emit an Event.
#[test]
fn a_hold_that_lasts_longer_than_the_quiet_period_is_reported_at_once() {
    let mut desk = Desk::restarting();
    desk.complete();
    desk.policy.min_interval = Duration::from_secs(100);
    assert_eq!(desk.at(110).read("c"), Finding::Modified);
    let until = |second| Some(desk.start + Duration::from_secs(second));
    assert_eq!(desk.decide(), Decision::Hold(Hold::MinInterval(server(113)), until(113)));
    desk.policy.min_interval = Duration::from_secs(99);
    assert!(desk.waits_until(113), "{:?}", desk.decide());
}
