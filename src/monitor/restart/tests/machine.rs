//! What a restart asks for and says, step by step.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{READ, canary_policy, created, planned, pod, policy, server, spec, state, status, web};
use crate::kube::error::Cause;
use crate::kube::{Action, PODS};
use crate::monitor::exempt::Exempt;
use crate::monitor::pod::Pod;
use crate::monitor::restart::Now;
use crate::monitor::restart::machine::{Do, Machine, News, Report};
use crate::monitor::restart::sight::{OwnerState, OwnerStates};
use crate::monitor::restart::wave::Reply;
use crate::monitor::source::{Origin, Source};
use crate::monitor::spec::Policy;
use crate::monitor::status::{Begun, Canary, CanaryState, Change, Status, Why};

fn pods() -> Vec<Pod> {
    vec![pod("a"), pod("b")]
}

/// Returns a restart of two pods that begins in second 1000.
fn begin(policy: &Policy) -> Machine<()> {
    begin_of(policy, &status(), &pods())
}

fn begin_of(policy: &Policy, status: &Status, pods: &[Pod]) -> Machine<()> {
    Machine::begin(policy, planned(policy, pods, None), status, None, server(READ))
}

fn recall(begun: &Begun) -> Machine<()> {
    recall_with(&policy("Skip"), begun)
}

fn recall_with(policy: &Policy, begun: &Begun) -> Machine<()> {
    Machine::of(policy, planned(policy, &pods(), None), &status(), begun.clone(), None)
}

fn begun() -> Begun {
    Begun::new(1, server(READ), "app=web".to_owned(), 2)
}

fn at(second: i64) -> Now {
    let timer = Instant::now() + Duration::from_secs(u64::try_from(second - READ).unwrap());
    Now { timer, server: server(second) }
}

fn lists(machine: &mut Machine<()>, now: Now) {
    let pods = pods().into_iter().map(Arc::new).collect();
    machine.heard(News::Listed { pods, at: now.server, took: Duration::ZERO }, now);
}

#[test]
fn a_restart_has_a_canary_unless_it_is_a_revert() {
    let (mut requested, mut reverted) = (Status::default(), status());
    requested.take_up("now".into(), server(READ));
    let change = reverted.sources[0].changes[0].clone();
    reverted.sources[0].append(Change { hash: "sha256:a".into(), ..change });
    let cases =
        [(status(), Why::Changed, Some(2)), (requested, Why::Requested, Some(2)), (reverted, Why::Reverted, None)];
    for (status, why, canary) in cases {
        assert_eq!(status.why(), why);
        let mut machine = begin_of(&canary_policy("Skip"), &status, &pods());
        lists(&mut machine, at(READ));
        if let Do::ReadOwners(_) = machine.next(at(READ)) {
            machine.heard(News::OwnersRead { states: OwnerStates::new(), took: Duration::ZERO }, at(READ));
        }
        let Do::Intend(begun) = machine.next(at(READ)) else { panic!("nothing is intended") };
        assert_eq!((begun.canary.map(|canary| canary.pods), begun.pods), (canary, 2));
        assert!(!machine.is_intended());
        machine.heard(News::Confirmed(()), at(READ));
        assert!(machine.is_intended());
    }
}

#[test]
fn the_first_deletion_is_told_once_by_the_process_that_began_the_restart() {
    let mut told = [begin(&policy("Skip")), recall(&begun())];
    assert_eq!(told.each_mut().map(|machine| machine.first_deletion().is_some()), [true, false]);
    assert_eq!(told[0].first_deletion(), None);
}

/// Of each change it does not matter whether the restart has begun for it.
#[test]
fn a_plan_is_known_by_the_journal() {
    let (machine, mut marked) = (recall(&begun()), status());
    marked.begin(begun());
    assert!(machine.is_of(&status()) && machine.is_of(&marked));
    let change = marked.sources[0].changes[0].clone();
    marked.sources[0].append(change);
    assert!(!machine.is_of(&marked));
}

/// A later restart counts up from the newest in the history.
#[test]
fn a_restart_has_the_number_after_the_last_one() {
    let mut status = status();
    for number in 1..=2 {
        let begun = Begun { number, ..begun() };
        assert_eq!(begin_of(&policy("Skip"), &status, &pods()).number(), number);
        status.begin(begun);
        status.supersede(server(READ));
    }
}

/// The other process has deleted a pod, and this one could not list any.
#[test]
fn a_process_that_has_deleted_nothing_leaves_the_count_of_another_as_it_is() {
    let of_another = Begun { deleted: 1, ..begun() }.with_remaining(1);
    assert_eq!(recall(&begun()).unwritten_deletions(&of_another), None);
}

/// Those that may have read other content that came and went meanwhile.
#[test]
fn the_pods_that_have_become_old_are_pods_of_the_restart() {
    let one = Begun { deleted: 1, ..begun() };
    let mut asked = Asked::of("", |policy| recall_with(policy, &one));
    asked.asks(|_| accepted());
    asked.pods = vec![new("c", Some(0)), new("d", Some(0))];
    assert_eq!(asked.resumes(500).last().unwrap(), "complete 3 of 3");
}

#[test]
fn an_edit_of_the_spec_waits_for_no_pause() {
    let mut asked = Asked::begin(ROLLING, Duration::from_secs(4));
    asked.waits(accepted);
    let mut pauses = |policy: &Policy| {
        asked.machine.resume(policy, &begun());
        matches!(asked.machine.next(asked.now()), Do::Pause(_))
    };
    let mut discovered = spec(ROLLING);
    let found = Source { origin: Origin::Referred, ..discovered.sources[0].clone() };
    discovered.sources.push(found);
    assert!(pauses(&spec(ROLLING)) && pauses(&discovered), "what pods refer to is no edit");
    assert!(!pauses(&policy("Delete")));
}

#[test]
fn without_a_budget_owners_that_may_not_be_read_are_guessed() {
    let failed = |cause: fn(String) -> Cause| Action::new("get", PODS).failed(cause("x".to_owned()));
    let tolerates = |policy: &Policy, cause| begin(policy).tolerates(&failed(cause));
    let (whole, rolling) = (policy("Skip"), super::one_at_a_time());
    assert_eq!((tolerates(&whole, Cause::Forbidden), tolerates(&whole, Cause::Unreachable)), (true, false));
    assert_eq!((tolerates(&rolling, Cause::Forbidden), tolerates(&rolling, Cause::Unreachable)), (false, false));
}

/// A restart that makes no progress needs no watch. Another process may have made some later.
#[test]
fn a_restart_is_stalled_once_its_deadline_has_passed_and_listens_to_no_watch() {
    let policy = policy("Skip");
    let deadline = i64::try_from(policy.progress_deadline.as_secs()).unwrap();
    for (late, progress, listens) in [(deadline - 1, 0, true), (deadline, 0, false), (deadline, 1, true)] {
        let mut machine = begin(&policy);
        machine.resume(&policy, &Begun { last_progress_at: server(READ + progress), ..begun() });
        lists(&mut machine, at(READ));
        machine.heard(News::Confirmed(()), at(READ));
        let Do::Remove(wave, ()) = machine.next(at(READ)) else { panic!("nothing is removed") };
        for pod in wave.attempts().map(|attempt| &attempt.pod) {
            machine.replied(pod, Reply::Failed(Action::new("delete", PODS).failed(Cause::Refused("x".to_owned()))));
        }
        machine.heard(News::WaveOver { is_whole: true }, at(READ + late));
        assert!(matches!(machine.next(at(READ + late)), Do::Listen(is_wanted) if is_wanted == listens));
        machine.heard(News::Listening(listens), at(READ + late));
        let Do::Write(report) = machine.next(at(READ + late)) else { panic!("nothing is written") };
        assert!(report.refusal.is_some_and(|refusal| !refusal.is_expected));
    }
}

/// One pod at a time.
const ROLLING: &str = r#","maxUnavailable":1"#;

/// A restart, asked at one moment after the other.
struct Asked {
    machine: Machine<()>,
    policy: Policy,
    base: Instant,
    ms: u64,
    /// What a list shows.
    pods: Vec<Pod>,
    /// The pods of the owner that a list does not show.
    others: Vec<Pod>,
    /// How many pods the owner desires.
    desired: usize,
    /// There is no permit for a watch.
    is_unwatched: bool,
    /// The next wave is cut short.
    cuts_short: bool,
    /// What was written last.
    written: Option<Report>,
}

impl Asked {
    /// Begins a restart of two pods, whose list took this long.
    fn begin(more: &str, took: Duration) -> Self {
        let mut asked = Self::of(more, begin);
        asked.hear(News::Listed { pods: pods().into_iter().map(Arc::new).collect(), at: server(READ), took });
        asked
    }

    fn of(more: &str, machine: impl Fn(&Policy) -> Machine<()>) -> Self {
        let policy = spec(more);
        let (machine, base, pods) = (machine(&policy), Instant::now(), pods());
        Self {
            machine,
            policy,
            base,
            ms: 0,
            pods,
            others: Vec::new(),
            desired: 2,
            is_unwatched: false,
            cuts_short: false,
            written: None,
        }
    }

    fn now(&self) -> Now {
        let second = READ + i64::try_from(self.ms / 1000).unwrap();
        Now { timer: self.base + Duration::from_millis(self.ms), server: server(second) }
    }

    fn hear(&mut self, news: News<()>) {
        let now = self.now();
        self.machine.heard(news, now);
    }

    /// Answers until the restart waits or ends its step. Returns what it asked for. Deletions get this reply.
    fn asks(&mut self, reply: impl Fn(&Pod) -> Reply) -> Vec<String> {
        let mut asked = Vec::new();
        loop {
            assert!(asked.len() < 50, "it never waits: {asked:?}");
            let now = self.now();
            let (what, news) = match self.machine.next(now) {
                Do::TakeTurn { owners, is_listed } => {
                    (format!("take turn with {}, listed: {is_listed}", owners.len()), News::Turn(owners))
                }
                Do::List => {
                    let pods = self.pods.iter().cloned().map(Arc::new).collect();
                    ("list".to_owned(), News::Listed { pods, at: now.server, took: Duration::ZERO })
                }
                Do::Intend(_) => ("intend".to_owned(), News::Confirmed(())),
                Do::Confirm => ("confirm".to_owned(), News::Confirmed(())),
                Do::ReadOwners(queries) => {
                    let owners = queries.iter().map(|query| format!(" {} {}", query.owner.name, query.selected));
                    let others: Vec<_> = self.others.iter().cloned().map(Arc::new).collect();
                    let state = |others| OwnerState { others, ..state(self.desired) };
                    let states =
                        queries.iter().map(|query| (Arc::clone(&query.owner), state(others.clone()))).collect();
                    let what = format!("read owners{}", owners.collect::<String>());
                    (what, News::OwnersRead { states, took: Duration::ZERO })
                }
                Do::Remove(wave, ()) => {
                    let pods: Vec<_> = wave.attempts().map(|attempt| &attempt.pod).collect();
                    pods.iter().for_each(|pod| _ = self.machine.replied(pod, reply(pod)));
                    let names: String = pods.iter().map(|pod| format!(" {}", pod.name)).collect();
                    let is_whole = !std::mem::take(&mut self.cuts_short);
                    (format!("remove{names}"), News::WaveOver { is_whole })
                }
                Do::Listen(is_wanted) => {
                    (format!("listen: {is_wanted}"), News::Listening(is_wanted && !self.is_unwatched))
                }
                Do::Write(report) => {
                    let what = format!("write {}", report.begun.deleted);
                    self.written = Some(report);
                    (what, News::Written)
                }
                last => {
                    asked.push(match last {
                        Do::Wait(until) => format!("wait {}", millis(until.saturating_duration_since(now.timer))),
                        Do::Pause(until) => format!("pause {}", millis(until.saturating_duration_since(now.timer))),
                        Do::Complete(over) => format!("complete {} of {}", over.begun.deleted, over.begun.pods),
                        Do::Decide => "decide".to_owned(),
                        _ => panic!("it fails"),
                    });
                    return asked;
                }
            };
            asked.push(what);
            self.hear(news);
        }
    }

    /// Answers until the restart waits, and returns for how many milliseconds. Deletions get this reply.
    fn waits(&mut self, reply: impl Fn() -> Reply) -> u64 {
        let asked = self.asks(|_| reply());
        let wait = asked.last().and_then(|last| last.strip_prefix("wait ")?.parse().ok());
        wait.unwrap_or_else(|| panic!("it does not wait: {asked:?}"))
    }

    /// Begins another step, this long after the start, and returns what it asks for. Nothing is deleted.
    fn resumes(&mut self, ms: u64) -> Vec<String> {
        self.ms = ms;
        self.machine.resume(&self.policy, &begun());
        self.asks(|_| panic!("nothing is deleted"))
    }

    /// Lets the watch ring, this long after the start, once so many pods have become ready. Returns for how many milliseconds
    /// the restart waits then.
    fn rings(&mut self, ms: u64, ready: usize, failed: &[&Pod]) -> u64 {
        self.ms = ms;
        let failed = failed.iter().map(|pod| Arc::new((*pod).clone())).collect();
        self.hear(News::Rang { ready, failed });
        self.waits(|| panic!("nothing is deleted"))
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap()
}

fn accepted() -> Reply {
    Reply::Deleted { by: server(READ + 30), here: true }
}

fn blocked() -> Reply {
    Reply::Failed(Action::new("evict", PODS).failed(Cause::Blocked("x".to_owned())))
}

/// A new pod that is ready since this second after the reading.
fn new(name: &str, ready: Option<i64>) -> Pod {
    Pod { ready_since: ready.map(|second| server(READ + second)), ..created(name, READ + 1) }
}

/// While old pods are left, each that becomes ready may let another one go. Of the last successors all are waited for.
#[test]
fn a_ring_makes_another_pass_worth_making_once_enough_pods_are_ready() {
    for (more, needs) in [(ROLLING, 1), ("", 2)] {
        let mut asked = Asked::begin(more, Duration::ZERO);
        let wait = asked.waits(accepted);
        assert_eq!(asked.rings(500, needs - 1, &[]), wait - 500, "{more}");
        assert_eq!(asked.rings(600, needs, &[]), 0, "{more}");
        asked.ms = 700;
        assert_eq!(asked.waits(|| panic!("nothing is deleted")), 0, "a step follows");
    }
}

#[test]
fn a_pass_comes_no_earlier_than_the_pause_after_a_list() {
    let mut asked = Asked::begin(ROLLING, Duration::from_secs(1));
    assert_eq!(asked.waits(accepted), 10_000);
    assert_eq!(asked.rings(3000, 1, &[]), 5700);
    let mut asked = Asked::begin(ROLLING, Duration::from_secs(4));
    assert_eq!(asked.waits(accepted), 35_700);
}

/// The disruption controller takes a moment to count a pod that has become available.
#[test]
fn after_a_refused_eviction_another_pass_is_worth_making_once_more_pods_are_ready() {
    let mut asked = Asked::begin(r#","deletionPolicy":"Evict""#, Duration::ZERO);
    let until = asked.waits(blocked);
    assert!((1000..10_000).contains(&until), "{until}");
    assert_eq!(asked.rings(100, 0, &[]), until - 100);
    assert_eq!(asked.rings(200, 1, &[]), 500);
}

#[test]
fn a_restart_wakes_when_a_new_pod_will_have_been_ready_for_long_enough() {
    let more = r#","maxUnavailable":1,"minReadySeconds":3"#;
    let mut listed = Asked::of(more, |policy| recall_with(policy, &begun()));
    listed.pods = vec![new("c", Some(0)), new("d", Some(0))];
    assert_eq!(listed.waits(accepted), 5000);
}

fn failed(cause: fn(String) -> Cause) -> impl Fn() -> Reply {
    move || Reply::Failed(Action::new("delete", PODS).failed(cause("x".to_owned())))
}

/// Each pod that was not sent yet would be refused in its turn, one list after the other.
#[test]
fn a_restart_whose_deletions_may_not_be_made_waits_for_its_time_whatever_rings() {
    for more in [ROLLING, r#","canary":{"pods":1,"bakeSeconds":0}"#] {
        for cause in [Cause::Forbidden as fn(String) -> Cause, Cause::Invalid] {
            let mut asked = Asked::begin(more, Duration::ZERO);
            let wait = asked.waits(failed(cause));
            assert!(wait >= 400, "{more}: {wait} ms");
            assert_eq!(asked.rings(100, 1, &[]), wait - 100, "{more}");
        }
    }
}

/// The next pass waits for the pause after a long list.
#[test]
fn a_late_write_waits_for_no_pause() {
    let mut asked = Asked::begin(r#","canary":{"pods":"100%","bakeSeconds":0}"#, Duration::from_secs(4));
    assert_eq!(asked.waits(accepted), 1000);
    assert_eq!(asked.rings(500, 2, &[]), 500);
}

#[test]
fn without_a_budget_all_pods_go_at_once_and_another_list_shows_the_end() {
    let mut asked = Asked::begin("", Duration::ZERO);
    assert_eq!(asked.asks(|_| accepted()), ["intend", "remove a b", "listen: true", "wait 1000"]);
    asked.pods = vec![new("c", Some(0)), new("d", Some(0))];
    assert_eq!(asked.resumes(500), ["list", "read owners web 2", "complete 2 of 2"]);
}

#[test]
fn what_the_last_wave_deleted_is_written_a_second_later_if_the_restart_is_not_over() {
    let mut asked = Asked::begin("", Duration::ZERO);
    assert_eq!(asked.waits(accepted), 1000);
    assert_eq!(asked.resumes(1000), ["write 2", "wait 9000"]);
}

#[test]
fn with_a_budget_a_pass_takes_a_turn_reads_the_owners_and_is_written_at_once() {
    let mut asked = Asked::begin(ROLLING, Duration::ZERO);
    let begins = ["take turn with 1, listed: true", "read owners web 2", "intend"];
    let passes = ["remove a", "listen: true", "write 1", "wait 10000"];
    assert_eq!(asked.asks(|_| accepted()), [&begins[..], &passes].concat());
    assert!(asked.machine.undeleted().is_empty(), "the other pod was not tried");
    asked.pods = vec![pod("b"), new("c", Some(3))];
    asked.ms = 3000;
    asked.machine.resume(&asked.policy, &begun());
    let begins = ["take turn with 1, listed: false", "list", "read owners web 2", "confirm"];
    let passes = ["remove b", "listen: true", "write 2", "wait 10000"];
    assert_eq!(asked.asks(|_| accepted()), [&begins[..], &passes].concat());
}

#[test]
fn a_pass_that_deletes_nothing_is_written_at_once() {
    let mut asked = Asked::of("", begin);
    asked.pods = pods().into_iter().map(|pod| Pod { gone_by: Some(server(READ + 30)), ..pod }).collect();
    assert_eq!(asked.asks(|_| accepted())[..5], ["list", "read owners web 0", "intend", "listen: true", "write 0"]);
}

#[test]
fn a_wave_that_was_cut_short_is_written_if_it_has_deleted_and_the_next_step_follows_at_once() {
    let gone = |pod: &Pod| Reply::ReportedGone {
        about_version: false,
        error: Action::on("delete", PODS, &pod.name).failed(Cause::NotFound("x".to_owned())),
    };
    let mut asked = Asked::begin("", Duration::ZERO);
    asked.cuts_short = true;
    assert_eq!(asked.asks(|_| accepted()), ["intend", "remove a b", "listen: true", "write 2", "decide"]);
    let mut asked = Asked::begin("", Duration::ZERO);
    let one_gone = |pod: &Pod| if &*pod.name == "a" { gone(pod) } else { accepted() };
    assert_eq!(asked.asks(one_gone), ["intend", "remove a b", "listen: true", "write 1", "decide"]);
    let mut asked = Asked::begin("", Duration::ZERO);
    assert_eq!(asked.asks(gone), ["intend", "remove a b", "decide"]);
}

#[test]
fn without_a_watch_the_next_pass_comes_sooner() {
    let mut asked = Asked::begin(ROLLING, Duration::ZERO);
    asked.is_unwatched = true;
    let wait = asked.waits(accepted);
    assert!(wait < 10_000, "{wait} ms");
}

#[test]
fn the_controllers_are_those_of_the_owners_or_the_owners_themselves() {
    let mut asked = Asked::begin(ROLLING, Duration::ZERO);
    assert!(asked.machine.controllers().is_empty(), "the owners were not read");
    let (deployment, other) = (super::owner("Deployment", "web"), super::owner("ReplicaSet", "other"));
    let state = |controller| OwnerState { controller, ..state(2) };
    for (controller, is) in [(None, web()), (Some(Arc::clone(&deployment)), deployment)] {
        let states = [(web(), state(controller)), (Arc::clone(&other), state(None))].into();
        asked.hear(News::OwnersRead { states, took: Duration::ZERO });
        assert_eq!(asked.machine.controllers(), [is].into());
    }
}

#[test]
fn a_pod_that_has_become_exempt_is_skipped_at_the_end() {
    let bare = Pod { controller: None, ..pod("a") };
    let targets = planned(&policy("Delete"), &[bare.clone(), pod("b")], None);
    let mut asked = Asked::of("", |policy| Machine::begin(policy, targets.clone(), &status(), None, server(READ)));
    let pods = [bare, new("c", Some(0)), Pod { controller: None, ..created("new", READ + 5) }];
    let pods = pods.map(Arc::new).to_vec();
    asked.hear(News::Listed { pods, at: server(READ), took: Duration::ZERO });
    let Do::ReadOwners(_) = asked.machine.next(asked.now()) else { panic!("no owners are read") };
    asked.hear(News::OwnersRead { states: [].into(), took: Duration::ZERO });
    let Do::Intend(_) = asked.machine.next(asked.now()) else { panic!("nothing is intended") };
    asked.hear(News::Confirmed(()));
    let Do::Complete(over) = asked.machine.next(asked.now()) else { panic!("the restart is not over") };
    let skipped: Vec<_> = over.skipped.iter().map(|skipped| (&*skipped.pod, skipped.why)).collect();
    assert_eq!((skipped, over.begun.pods), (vec![("a", Exempt::Bare)], 1));
}

/// A restart whose canary of one pod bakes, or has this state.
fn canary(state: CanaryState) -> Begun {
    Begun { canary: Some(Canary { pods: 1, state }), ..begun() }
}

const BAKING: &str = r#","canary":{"pods":1,"bakeSeconds":30}"#;

fn with_canary(begun: &Begun) -> Asked {
    Asked::of(BAKING, |policy| recall_with(policy, begun))
}

fn crashed(name: &str, second: i64) -> Pod {
    Pod { crash: Some("exited".into()), ready_since: None, ..created(name, second) }
}

/// They would take turns, and each turn would be another pass.
#[test]
fn of_two_pods_that_have_failed_and_are_as_old_the_first_one_counts() {
    let [first, second] = ["n1", "n2"].map(|name| crashed(name, READ - 100));
    let mut asked = with_canary(&canary(CanaryState::Replacing));
    asked.pods = vec![pod("b"), new("c", None), first.clone()];
    asked.waits(accepted);
    assert_ne!(asked.rings(100, 0, &[&first, &second]), 0);
}

#[test]
fn a_new_pod_that_has_failed_fails_the_canary_though_it_is_gone_and_one_from_before_hides_it_not() {
    let (before, after) = (crashed("n1", READ - 100), crashed("n2", READ + 1));
    let fails = |pods: &[&Pod]| {
        let mut asked = with_canary(&canary(CanaryState::Replacing));
        asked.pods = vec![pod("b"), new("c", None)];
        assert_ne!(asked.waits(accepted), 0);
        if asked.rings(100, 0, pods) == 0 {
            asked.machine.resume(&asked.policy, &canary(CanaryState::Replacing));
            asked.asks(|_| accepted());
        }
        asked.written.is_some_and(|report| matches!(report.begun.canary.unwrap().state, CanaryState::Failed { .. }))
    };
    assert!(fails(&[&before, &after]) && fails(&[&after, &before]));
    assert!(!fails(&[&before]), "it is from before the restart");
    let old = Pod { crash: after.crash, created: server(READ), ..pod("b") };
    assert!(!fails(&[&old]), "an old pod proves nothing");
}

#[test]
fn a_restart_whose_canary_has_failed_may_be_over_once_all_others_are_replaced_and_have_baked() {
    let failed = || CanaryState::Failed { message: "x".to_owned() };
    let at = |second: i64, pods: &[Pod], begun: &Begun| {
        let mut asked = with_canary(begun);
        for (at, pods) in [(READ + 1, &[pod("b")][..]), (READ + second, pods)] {
            asked.hear(News::Listed {
                pods: pods.iter().cloned().map(Arc::new).collect(),
                at: server(at),
                took: Duration::ZERO,
            });
        }
        asked.machine.may_be_over()
    };
    let (one, all) = (canary(failed()), Begun { canary: Some(Canary { pods: 2, state: failed() }), ..begun() });
    let done = [new("c", Some(2)), new("d", Some(4))];
    let crashed = [new("c", Some(2)), Pod { crash: Some("exited".into()), ..new("d", Some(4)) }];
    let stranger = Pod { controller: None, ready_since: None, ..created("z", READ) };
    let ending = Pod { gone_by: Some(server(READ + 90)), ready_since: None, ..new("e", None) };
    assert_eq!([34, 35].map(|second| at(second, &done, &one)), [false, true]);
    assert!(!at(35, &[new("c", Some(2)), new("d", None)], &one));
    assert!(!at(35, &[&done[..], &[pod("b")]].concat(), &one), "an old pod is left");
    assert!(at(35, &[&done[..], &[stranger, ending]].concat(), &one), "neither is a new pod of the restart");
    let edited = Begun { pod_selector: "app=other".to_owned(), ..canary(failed()) };
    assert!(!at(35, &done, &edited), "nobody knows about the pods that are not selected any more");
    assert!(at(35, &crashed, &one), "it has replaced another pod than the canary");
    assert!(!at(35, &crashed, &all), "it may be the canary");
    assert!(at(35, &done, &all));
}

#[test]
fn a_restart_whose_canary_has_failed_is_over_once_its_owners_have_what_they_desire() {
    let mut asked = with_canary(&canary(CanaryState::Failed { message: "x".to_owned() }));
    let pods = [new("c", Some(2)), new("d", Some(4))].map(Arc::new);
    asked.hear(News::Listed { pods: pods.to_vec(), at: server(READ + 40), took: Duration::ZERO });
    for (desired, is_over) in [(3, false), (2, true)] {
        asked.hear(News::OwnersRead { states: [(web(), state(desired))].into(), took: Duration::ZERO });
        assert_eq!(asked.machine.over_without_canary().is_some(), is_over);
    }
}

#[test]
fn when_the_operator_stops_the_step_ends() {
    let mut asked = Asked::begin("", Duration::ZERO);
    let stopped = || Action::new("delete", PODS).failed(Cause::Stopped);
    let Do::Intend(_) = asked.machine.next(asked.now()) else { panic!("nothing is intended") };
    asked.hear(News::Confirmed(()));
    let Do::Remove(..) = asked.machine.next(asked.now()) else { panic!("nothing is removed") };
    asked.machine.replied(&pod("a"), Reply::Failed(stopped()));
    asked.hear(News::WaveOver { is_whole: false });
    assert!(matches!(asked.machine.next(asked.now()), Do::Decide));
}

/// Its owner was read after the list.
#[test]
fn a_selected_pod_counts_once_though_it_is_among_the_other_pods_of_its_owner() {
    let mut asked = Asked::begin(ROLLING, Duration::ZERO);
    asked.others = pods();
    assert!(asked.asks(|_| accepted()).contains(&"remove a".to_owned()));
}

#[test]
fn only_another_process_counts_pods_that_are_gone_as_its_deletions() {
    let deleted = |machine: &dyn Fn(&Policy) -> Machine<()>| {
        let mut asked = Asked::of("", machine);
        asked.pods = vec![pod("b")];
        asked.asks(|_| failed(Cause::Refused)());
        asked.written.unwrap().begun.deleted
    };
    let edited = Begun { pod_selector: "app=other".to_owned(), ..begun() };
    let recalled = [begun(), edited].map(|begun| deleted(&|_| recall(&begun)));
    assert_eq!((deleted(&begin), recalled), (0, [1, 0]));
}

#[test]
fn after_an_edit_of_the_selector_only_deleted_pods_count() {
    let mut asked = Asked::of("", |_| recall(&Begun { pod_selector: "app=other".to_owned(), ..begun() }));
    (asked.pods, asked.desired) = (Vec::new(), 0);
    assert_eq!(asked.asks(|_| accepted()), ["list", "read owners web 0", "complete 0 of 0"]);
}

#[test]
fn what_is_written_has_the_deletions_that_no_status_has_yet() {
    let mut asked = Asked::begin("", Duration::ZERO);
    asked.waits(accepted);
    let unwritten = |begun: &Begun| asked.machine.unwritten_deletions(begun).map(|begun| begun.deleted);
    assert_eq!((unwritten(&begun()), unwritten(&Begun { number: 2, ..begun() })), (Some(2), None));
}

/// As one of a Job.
#[test]
fn a_pod_that_a_restart_does_not_wait_for_does_not_put_its_deadline_off() {
    let deadline = |kind, completes| {
        let leaving =
            Pod { gone_by: Some(server(READ + 3600)), completes, ..super::of(&super::owner(kind, "x"), pod("x")) };
        let mut asked = Asked::of(r#","maxUnavailable":1,"progressDeadlineSeconds":5"#, begin);
        asked.pods.push(leaving);
        asked.waits(accepted)
    };
    assert_eq!([deadline("Job", true), deadline("StatefulSet", false)], [5000, 5000]);
}

/// It may still fail.
#[test]
fn the_deletion_of_another_keeper_counts_once_it_is_shown() {
    let pods = [Pod { controller: None, ..pod("a") }];
    let more = r#","unmanagedPods":"Delete""#;
    let mut asked = Asked::of(more, |policy| begin_of(policy, &status(), &pods));
    asked.pods = pods.to_vec();
    assert_eq!(
        asked.waits(|| Reply::Deleted { by: server(READ + 30), here: false }),
        10_000,
        "no pass follows at once"
    );
}

/// At the deadline the owner is no longer expected to make it available.
#[test]
fn after_the_deadline_an_unready_pod_of_a_stateful_set_goes_though_a_successor_is_not_available() {
    let set = super::owner("StatefulSet", "web");
    let old = super::of(&set, Pod { ready_since: None, ..pod("b") });
    let both = [super::of(&set, pod("a")), old.clone()];
    let next = |second: i64| {
        let more = r#","maxUnavailable":1,"progressDeadlineSeconds":60"#;
        let mut asked = Asked::of(more, |policy| begin_of(policy, &status(), &both));
        asked.pods = vec![old.clone(), super::of(&set, new("c", None))];
        asked.asks(|_| accepted());
        asked.ms = u64::try_from(second * 1000).unwrap();
        asked.machine.resume(&asked.policy, &begun());
        asked.asks(|_| accepted()).contains(&"remove b".to_owned())
    };
    assert_eq!([next(59), next(60)], [false, true]);
}
