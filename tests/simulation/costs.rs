//! What the operator costs the API server: the requests of a restart without failures, and those during a lasting
//! fault.

use fastrand::Rng;

use crate::judge;
use crate::player::{Played, play};
use crate::story::Move::{self, Edit, Lasting, NewPodsStayUnready, Scale, Wait};
use crate::story::{self, AT_ONCE, PodCount, Story};
use simulated_cluster::ledger::{Write, busiest_minute};
use simulated_cluster::network::{Fate, RequestKind};
use simulated_cluster::state::{Owners, Pace};

/// The latency of the write about a wave, and of the deletion before it, in milliseconds.
const LATENCY: u64 = 40;

/// The number of stories without failures.
const STORIES: u64 = 300;

/// The interval of passes of a restart that waits for pods, in milliseconds.
const PASSES: u64 = 10_000;

/// The most requests per minute of an idle process, whatever fails. The highest seen is 24, for a refused watch.
const MAX_AT_REST: usize = 30;
/// The most requests per minute in a restart of 5 pods. The highest seen is 105.
const MAX_IN_A_RESTART: usize = 120;

/// The kinds of requests that fail, and their faults.
const KINDS: [RequestKind; 10] = [
    RequestKind::Any,
    RequestKind::GetConfigMap,
    RequestKind::GetMonitor,
    RequestKind::GetOwner,
    RequestKind::ListPods,
    RequestKind::ListAll,
    RequestKind::PutStatus,
    RequestKind::Delete,
    RequestKind::Event,
    RequestKind::Watch,
];
const FATES: [Fate; 16] = [
    Fate::NotSent,
    Fate::AnswerLost,
    Fate::NeverAnswered,
    Fate::LateAnswer(3000),
    Fate::Conflict,
    Fate::Busy(None),
    Fate::Busy(Some(10)),
    Fate::Forbidden,
    Fate::ProxyError,
    Fate::Refused,
    Fate::Denied(403),
    Fate::Denied(404),
    Fate::Denied(409),
    Fate::Timeout,
    Fate::Truncated,
    Fate::Panic,
];

const EDIT: Move = Edit("flaskapp-config", 'b');

/// Returns a story without failures: one edit, and all pods at once.
fn calm(seed: u64) -> Story {
    let mut rng = Rng::with_seed(seed);
    let mut one_of = |values: &[u64]| values[rng.usize(..values.len())];
    let pace = Pace {
        creation: one_of(&[0, 50, 700, 2000]),
        readiness: one_of(&[0, 300, 5000, 15_000]),
        termination: one_of(&[0, 200, 3000, 20_000]),
    };
    let quiet = if rng.bool() { 0 } else { 3 };
    let owners = if rng.bool() { Owners::One } else { Owners::Usual };
    let moves = vec![Wait(1000), EDIT, Wait(100_000), Wait(1)];
    Story { seed, owners, ..Story::plain(vec![(quiet, AT_ONCE)], pace, moves) }
}

/// The formula of BENCHMARKS.md: N + 7 for N pods of one owner, three more with a quiet period, one if it takes
/// longer than a second, and one for each further owner. A pass that waits for pods is a list, a GET of each owner and
/// a PUT.
#[test]
fn a_restart_takes_no_more_requests_than_it_needs() {
    for seed in 0..STORIES {
        let story = calm(seed);
        let Played { ledger, trace, moves } = play(&story);
        assert_eq!(judge(&ledger), Ok(()), "{story:?}");
        let sent = || trace[moves[1].1..moves[3].1].iter().filter(|sent| sent.is_of_keeper);
        let events = sent().filter(|sent| sent.path.ends_with("/events")).count();
        let requests = sent().count() - events;
        let writes = &ledger.books[0].writes;
        let began = writes.iter().find(|write| write.start().is_some()).expect("a restart begins").at;
        let ended = writes.iter().find(|write| write.ends()).expect("a restart ends").at;
        let passes = usize::try_from((ended.ms - began.ms) / PASSES).unwrap();
        let owners = if story.owners == Owners::One { 1 } else { 3 };
        let quiet = if story.monitors[0].0 == 0 { 0 } else { 3 };
        let late = usize::from(ended.ms > began.ms + 1000);
        let most = ledger.deletions.len() + 7 + quiet + late + (owners - 1) + passes * (2 + owners);
        assert!(requests <= most, "{requests} requests, but at most {most} are needed: {story:?}");
        let last = ledger.deletions.iter().map(|deletion| deletion.at).max().expect("pods are deleted");
        let all = Some(format!("{0}/{0}", ledger.deletions.len()));
        let is_shown = |write: &&Write| write.ends() || write.after.begun().is_some_and(|begun| begun.progress == all);
        let shown =
            writes.iter().filter(|write| write.at > last).find(is_shown).expect("the deletions are in the status").at;
        assert!(
            shown.ms <= last.ms + 1000 + LATENCY,
            "the last deletion is at {last:?}, and in the status only at {shown:?}: {story:?}"
        );
        // One at the start, one for the skipped pods, and at the end one about the ConfigMonitor and one about the
        // ConfigMap. The start and the end also at each owner.
        assert_eq!(events, 4 + 2 * owners, "{story:?}");
    }
}

/// Returns the keeper's requests, without Events, of a restart of two pods in which one goes first and must stay
/// available for `bake` seconds.
fn with_canary(bake: Option<u32>) -> usize {
    let canary = Move::Spec(0, story::Edit::Canary(bake.map(|bake| (PodCount::Pods(1), bake))));
    let moves = vec![canary, Wait(1000), EDIT, Wait(100_000), Wait(1)];
    let pace = Pace { creation: 50, readiness: 300, termination: 200 };
    let story = Story { owners: Owners::One, ..Story::plain(vec![(0, AT_ONCE)], pace, moves) };
    let Played { ledger, trace, moves } = play(&story);
    assert_eq!((judge(&ledger), ledger.deletions.len()), (Ok(()), 2), "{story:?}");
    let sent = trace[moves[2].1..moves[4].1].iter().filter(|sent| sent.is_of_keeper);
    sent.filter(|sent| !sent.path.ends_with("/events")).count()
}

/// Each pass GETs the owner, the state of the canary is written, and a list lets it pass. While it must stay available
/// there is a pass every 10 s: a list and a GET of the owner.
#[test]
fn a_canary_costs_few_more_requests() {
    let without = with_canary(None);
    assert_eq!([0, 5, 15, 80].map(|bake| with_canary(Some(bake)) - without), [7, 13, 15, 29]);
}

/// Returns the most requests in one of the ten minutes of a fault, with these moves before and during it.
fn busiest(
    monitor: (u32, Option<PodCount>),
    before: &[Move],
    (what, fate): (RequestKind, Fate),
    after: &[Move],
) -> usize {
    let pace = Pace { creation: 50, readiness: 300, termination: 200 };
    let begins = 1 + before.len();
    let fault = [&[Lasting(what, Some(fate))][..], after, &[Wait(600_000), Wait(1)]].concat();
    let moves = [&[Wait(1000)][..], before, &fault].concat();
    // Lists take longer than other requests.
    let story = Story { page: 2, ..Story::plain(vec![monitor], pace, moves) };
    let Played { ledger, trace, moves } = play(&story);
    assert_eq!(judge(&ledger), Ok(()), "{story:?}");
    let (from, to) = (moves[begins].1, moves[moves.len() - 1].1);
    let sent = trace[from..to].iter().filter(|sent| !sent.path.contains("continue="));
    busiest_minute(&sent.map(|sent| sent.ms).collect::<Vec<u64>>())
}

#[test]
fn requests_back_off_during_a_lasting_fault() {
    let halted = [NewPodsStayUnready(true), EDIT, Wait(2000)];
    for fault in KINDS.into_iter().flat_map(|what| FATES.map(|fate| (what, fate))) {
        let at_rest = busiest((0, AT_ONCE), &[], fault, &[]);
        assert!(at_rest <= MAX_AT_REST, "{at_rest} requests in a minute at rest, with {fault:?}");
        for monitor in [(0, AT_ONCE), (3, AT_ONCE), (0, Some(PodCount::Pods(1)))] {
            let most = busiest(monitor, &halted, fault, &[]).max(busiest(monitor, &[], fault, &[EDIT]));
            assert!(most <= MAX_IN_A_RESTART, "{most} requests in a minute in a restart, with {fault:?}: {monitor:?}");
        }
    }
}

/// Returns the most DELETEs in a minute of a restart of 200 pods, if every DELETE gets this answer.
fn refused_deletions(fate: Fate) -> usize {
    let pace = Pace { creation: 50, readiness: 300, termination: 200 };
    let moves = [Scale(0, 200), Wait(5000), Lasting(RequestKind::Delete, Some(fate)), EDIT, Wait(300_000), Wait(1)];
    let story = Story { owners: Owners::One, deletions: 32, ..Story::plain(vec![(0, AT_ONCE)], pace, moves.to_vec()) };
    let Played { ledger, trace, moves } = play(&story);
    assert_eq!(judge(&ledger), Ok(()), "{story:?}");
    let sent = trace[..moves[moves.len() - 1].1].iter().filter(|sent| sent.method == "DELETE");
    busiest_minute(&sent.map(|sent| sent.ms).collect::<Vec<u64>>())
}

/// The first wave has sent 30 DELETEs before it meets a refusal. Each later one risks three at a time, and ends at the
/// third refusal by a webhook, or at the first if the API server is busy or a right is missing. The highest seen are 59
/// and 51.
#[test]
fn a_restart_of_many_pods_sends_few_deletions_that_are_refused() {
    for (fate, most) in [(Fate::Denied(403), 65), (Fate::Refused, 65), (Fate::Busy(None), 55), (Fate::Forbidden, 55)] {
        let sent = refused_deletions(fate);
        assert!((30..=most).contains(&sent), "{sent} DELETEs in a minute, with {fate:?}");
    }
}
