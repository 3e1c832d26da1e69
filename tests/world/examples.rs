//! The exceptions, each by the shortest story that needs it: whoever removes one from ARCHITECTURE.md finds its story here. And a
//! story that chance comes upon too rarely.

use crate::exceptions::Exception;
use crate::line::Fate;
use crate::stage::play;
use crate::story::Move::{
    Calm, DeleteConfigMap, Edit, EditLabels, EditSecondKey, KillPod, ListAgain, NewPodsDoNotBecomeReady, OneKey, Pass,
    QuietPeriod, Request, Requests, Scale, Select, Source, StallConfigMaps, Start, Stop, Suspend, WipeStatus,
};
use crate::story::Process::First;
use crate::story::{Most, Move, Pods, Story};
use crate::world::Pace;
use crate::{RULES, stale_pods};

const SETTINGS: &str = "settings";
const OTHER: &str = "other";

/// Why pods keep other content than there is after this story, in which everything happens at once unless it says otherwise.
fn exceptions(moves: &[Move]) -> Vec<Option<Exception>> {
    let pace = Pace { creation: 0, readiness: 0, termination: 0 };
    let ledger = play(&Story { quiet: 0, most: None, pace, moves: moves.to_vec() });
    let mut exceptions: Vec<_> = stale_pods(&ledger).into_iter().map(|(_, exception)| exception).collect();
    exceptions.dedup();
    exceptions
}

fn assert_needs(exception: Exception, moves: &[Move]) {
    assert_eq!(exceptions(moves), [Some(exception)], "{moves:#?}");
}

#[test]
fn content_that_goes_before_it_is_read_stays_in_the_pods_of_that_time() {
    let story = [Calm(200), Edit(SETTINGS, 'b'), KillPod(0), Pass(100), Edit(SETTINGS, 'a')];
    assert_needs(Exception::CameAndWentUnread, &story);
}

#[test]
fn content_that_goes_before_it_is_written_down_is_as_if_it_had_not_been_read() {
    let read = [Calm(200), Edit(SETTINGS, 'b'), KillPod(0), Requests(First, 1), Request(First, Fate::CrashBefore)];
    assert_needs(Exception::CameAndWentUnnoted, &[&read[..], &[Edit(SETTINGS, 'a')]].concat());
}

#[test]
fn content_that_goes_inside_its_quiet_period_stays_in_the_pods_of_that_time() {
    let story = |ms| [QuietPeriod(3), Calm(200), Edit(SETTINGS, 'b'), KillPod(0), Calm(ms), Edit(SETTINGS, 'a')];
    assert_needs(Exception::CameAndWentInQuietPeriod, &story(1000));
    assert_eq!(exceptions(&story(5000)), []);
}

/// Rule 2, in the middle of a restart: there and back within one quiet period, and what the restart has brought is left alone.
#[test]
fn a_restart_goes_on_when_content_comes_back_within_its_quiet_period() {
    let halted = [QuietPeriod(3), Calm(200), NewPodsDoNotBecomeReady(true), Edit(SETTINGS, 'b'), Calm(8000)];
    let there_and_back = [Edit(SETTINGS, 'c'), Calm(1000), Edit(SETTINGS, 'b'), Calm(8000)];
    let pace = Pace { creation: 0, readiness: 0, termination: 0 };
    for crash in [&[][..], &[Stop(First), Start(First), Calm(200)]] {
        let moves = [&halted[..], &there_and_back[..2], crash, &there_and_back[2..]].concat();
        let ledger = play(&Story { quiet: 3, most: Some(Most::Pods(1)), pace, moves });
        assert_eq!(ledger.deletions.len(), 5, "each pod is deleted once");
    }
}

#[test]
fn what_was_before_the_first_look_or_before_another_one_stays() {
    let moves = [Edit(SETTINGS, 'b'), Calm(200)];
    assert_needs(Exception::BeforeFirstLook, &moves);
    assert_needs(Exception::StatusWiped, &[Calm(200), Stop(First), WipeStatus, Edit(SETTINGS, 'b'), Start(First)]);
    assert_needs(Exception::AnotherSource, &[Edit(OTHER, 'b'), Calm(200), Source(OTHER)]);
    let one_key = [OneKey(true), Calm(200), EditSecondKey(SETTINGS, 'b'), Calm(200)];
    assert_eq!(exceptions(&one_key), []);
    assert_needs(Exception::AnotherSource, &[&one_key[..], &[OneKey(false)]].concat());
}

#[test]
fn a_pod_that_is_selected_only_later_is_left_alone() {
    assert_needs(
        Exception::LeftAlone,
        &[Select(Pods::Back), Calm(200), Edit(SETTINGS, 'b'), Calm(200), Select(Pods::All)],
    );
}

#[test]
fn content_that_is_read_late_and_goes_in_the_middle_stays_in_the_pods_of_before_the_reading() {
    let born = [Suspend(true), Calm(200), StallConfigMaps(First), Edit(SETTINGS, 'b'), KillPod(0)];
    let back = [ListAgain(First), Calm(200), Edit(SETTINGS, 'a')];
    assert_eq!(exceptions(&[&born[..], &back].concat()), []);
    assert_needs(Exception::ReadLateAndWent, &[&born[..], &[Pass(2500)], &back].concat());
}

#[test]
fn a_process_that_has_just_started_goes_by_when_the_conditions_last_changed() {
    let born = [
        Calm(200),
        Suspend(true),
        Calm(200),
        Stop(First),
        Edit(SETTINGS, 'b'),
        Pass(2500),
        KillPod(0),
        Pass(2500),
        Start(First),
    ];
    let back = [Calm(2500), Edit(SETTINGS, 'a')];
    assert_eq!(exceptions(&[&born[..], &back].concat()), []);
    let forbidden = [Requests(First, 1), Request(First, Fate::Forbidden), Requests(First, 1)];
    assert_eq!(exceptions(&[&born[..], &forbidden, &back].concat()), []);
}

#[test]
fn a_pod_that_waited_for_the_config_map_is_none_of_before() {
    let moves = [Calm(200), Suspend(true), DeleteConfigMap(SETTINGS), Calm(200), KillPod(0), Pass(2500)];
    let back = [Edit(SETTINGS, 'b'), Calm(200), Edit(SETTINGS, 'a')];
    assert_eq!(exceptions(&[&moves[..], &back].concat()), []);
}

/// A write of the status that is not about what was read last does not write that down.
#[test]
fn content_that_goes_back_and_is_written_down_late_is_a_change_of_that_time() {
    let there_and_back = [Calm(200), Edit(SETTINGS, 'b'), Requests(First, 2), Edit(SETTINGS, 'a'), Requests(First, 1)];
    let not_written = [EditLabels(SETTINGS), Scale(2, 2), Request(First, Fate::NeverArrives), Requests(First, 1)];
    let forbidden = [Request(First, Fate::Forbidden), Pass(2500), Request(First, Fate::AnswerIsLost)];
    let moves = [&there_and_back[..], &not_written, &forbidden, &[EditLabels(SETTINGS), QuietPeriod(0)]].concat();
    let ledger =
        play(&Story { quiet: 1, most: None, pace: Pace { creation: 2000, readiness: 0, termination: 0 }, moves });
    RULES.iter().for_each(|(name, rule)| assert_eq!(rule(&ledger), Ok(()), "{name}"));
}

/// When no pod was ready at the start, nothing but the list of pods tells that the restart is not over.
#[test]
fn a_list_that_does_not_come_is_not_an_empty_one() {
    let not_ready = [Calm(200), Select(Pods::Back), NewPodsDoNotBecomeReady(true), KillPod(2), KillPod(2), Calm(200)];
    let not_deleted = [Request(First, Fate::NeverArrives), Request(First, Fate::NeverArrives)];
    let again = [Pass(1000), Requests(First, 1), Request(First, Fate::NeverArrives), Requests(First, 1)];
    let begins = [Edit(SETTINGS, 'b'), Requests(First, 3)];
    let moves = [&not_ready[..], &begins, &not_deleted, &again].concat();
    let pace = Pace { creation: 0, readiness: 0, termination: 0 };
    let ledger = play(&Story { quiet: 0, most: None, pace, moves });
    assert_eq!(ledger.deletions.len(), 2, "both pods are deleted in the end");
    RULES.iter().for_each(|(name, rule)| assert_eq!(rule(&ledger), Ok(()), "{name}"));
}
