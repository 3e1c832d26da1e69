//! Plays many stories, and prints one that breaks a rule for a developer: without the moves that do not matter, and
//! with the requests that were sent.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::num::NonZero;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::exceptions::Exception;
use crate::player::{Played, play};
use crate::story::{AT_ONCE, Edit, Move, PodCount, Story, story};
use crate::{judge, stale_pods};
use simulated_cluster::network::Process::First;
use simulated_cluster::network::{Fate, RequestKind};
use simulated_cluster::state::{Owners, Pace};

/// The default of `STORIES`, the number of stories.
pub(crate) const STORIES: u64 = 400;

/// The default of `DEPTH`: all small stories of up to this many moves are played.
const DEPTH: u64 = 1;

/// The default of `TRACE`, the most requests of a story to print.
const LONGEST: u64 = 400;

/// The outcome of many stories.
#[derive(Default)]
struct Tally {
    stories: u64,
    requests: usize,
    deletions: usize,
    restarting: u64,
    excused: u64,
    busiest: usize,
    exceptions: BTreeMap<Exception, u64>,
}

pub(crate) fn variable(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |value| value.parse().expect("a number"))
}

/// Plays a story and judges it.
fn play_and_judge(story: &Story) -> Result<Played, String> {
    let played = catch_unwind(AssertUnwindSafe(|| play(story)));
    let played = played.map_err(|panic| format!("a panic: {:?}", panic.downcast_ref::<String>()))?;
    judge(&played.ledger)?;
    Ok(played)
}

/// Returns the rule that a story breaks, if any.
fn broken_by(story: &Story) -> Option<String> {
    let text = play_and_judge(story).err()?;
    Some(text.split(':').next().unwrap_or_default().to_owned())
}

/// Removes the moves that are not needed to break the rule.
fn shrink(mut story: Story) -> Story {
    let broken = broken_by(&story);
    loop {
        let before = story.moves.len();
        let mut at = 0;
        while at < story.moves.len() {
            let mut shorter = story.clone();
            shorter.moves.remove(at);
            if broken_by(&shorter) == broken {
                story = shorter;
            } else {
                at += 1;
            }
        }
        if story.moves.len() == before {
            return story;
        }
    }
}

/// Describes why a story breaks a rule.
fn describe(story: &Story) -> String {
    let story = shrink(story.clone());
    let longest = usize::try_from(variable("TRACE", LONGEST)).unwrap();
    let mut text = format!("{}\n\n{story:?}\n", play_and_judge(&story).err().unwrap_or_default());
    if let Ok(Played { trace, moves, .. }) = catch_unwind(AssertUnwindSafe(|| play(&story))) {
        for (number, sent) in trace.iter().enumerate().take(longest) {
            for (ms, _, one) in moves.iter().filter(|(_, before, _)| *before == number) {
                let _ = writeln!(text, "{ms:>9} ms  * {one:?}");
            }
            let code = sent.code.map_or("-".to_owned(), |code| code.to_string());
            let (ms, life, method, path, fate) = (sent.ms, sent.life.0, sent.method, &sent.path, sent.fate);
            let _ = writeln!(text, "{ms:>9} ms  life {life}  {code:>3}  {fate:?}  {method} {path}");
        }
    }
    text
}

impl Tally {
    /// Plays these stories and judges them; with `one_is_enough` up to the first that breaks a rule. Returns the seeds
    /// of those that do, each with the rule.
    fn play(
        stories: impl Iterator<Item = u64>,
        story: impl Fn(u64) -> Story,
        one_is_enough: bool,
    ) -> (Self, Vec<(u64, String)>) {
        let (mut tally, mut broken) = (Self::default(), Vec::new());
        for seed in stories {
            match play_and_judge(&story(seed)) {
                Ok(played) => tally.add(&played),
                Err(rule) => broken.push((seed, rule)),
            }
            if one_is_enough && !broken.is_empty() {
                break;
            }
        }
        (tally, broken)
    }

    fn join(mut self, other: Self) -> Self {
        self.stories += other.stories;
        self.requests += other.requests;
        self.deletions += other.deletions;
        self.restarting += other.restarting;
        self.excused += other.excused;
        self.busiest = self.busiest.max(other.busiest);
        other
            .exceptions
            .into_iter()
            .for_each(|(exception, count)| *self.exceptions.entry(exception).or_default() += count);
        self
    }

    fn add(&mut self, Played { ledger, trace, .. }: &Played) {
        let mut stale: Vec<Exception> = ledger
            .books
            .iter()
            .flat_map(|book| stale_pods(ledger, book))
            .filter_map(|(_, exception)| exception)
            .collect();
        stale.sort();
        stale.dedup();
        self.stories += 1;
        self.busiest = self.busiest.max(ledger.busiest_minute());
        self.requests += trace.len();
        self.deletions += ledger.deletions.len();
        self.restarting += u64::from(!ledger.deletions.is_empty());
        self.excused += u64::from(!stale.is_empty());
        stale.into_iter().for_each(|exception| *self.exceptions.entry(exception).or_default() += 1);
    }
}

#[test]
fn whatever_happens_the_rules_hold() {
    let (stories, first) = (variable("STORIES", STORIES), variable("SEED", 0));
    let tally = play_all(first..first + stories, story);
    let Tally { restarting, excused, exceptions, .. } = &tally;
    // The rules would be worth little if stories restarted nothing, or if most pods were exceptions.
    assert!(restarting * 3 > stories, "{restarting} of {stories} stories restart pods");
    assert!(excused * 4 < stories, "{excused} of {stories} stories need an exception: {exceptions:?}");
}

/// Plays stories on all processors. None may break a rule. Prints up to `FAILURES` of those that do; with 0 the first
/// one stops the run.
fn play_all(stories: Range<u64>, story: impl Fn(u64) -> Story + Copy + Send) -> Tally {
    let most = usize::try_from(variable("FAILURES", 1)).unwrap();
    let began = std::time::Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    let (tally, mut broken) = std::thread::scope(|scope| {
        let play = |thread: usize| {
            let its = stories.clone().skip(thread).step_by(threads);
            scope.spawn(move || Tally::play(its, story, most == 0))
        };
        let playing: Vec<_> = (0..threads).map(play).collect();
        let join = |(tally, broken): (Tally, Vec<_>), (more, others)| (tally.join(more), [broken, others].concat());
        playing.into_iter().map(|thread| thread.join().unwrap()).fold(Default::default(), join)
    });
    broken.sort();
    for (number, (seed, rule)) in broken.iter().enumerate() {
        if number < most {
            println!("{}\n", describe(&story(*seed)));
        } else {
            println!("seed {seed}: {rule}");
        }
    }
    let Tally { stories, requests, deletions, restarting, excused, busiest, exceptions } = &tally;
    println!(
        "{stories} stories in {:?}: {requests} requests, at most {busiest} of a process in a minute, {deletions} deletions; {restarting} restart \
         pods, and {excused} need an exception: {exceptions:?}",
        began.elapsed()
    );
    assert_eq!(broken.len(), 0, "stories that break a rule");
    tally
}

/// Returns the moves of small stories. A process that crashes is started again at once.
fn alphabet() -> Vec<Move> {
    let (edit, suspend) =
        (|content| Move::Edit("flaskapp-config", content), |holds| Move::Spec(0, Edit::Suspend(holds)));
    let first =
        [edit('b'), edit('a'), suspend(true), suspend(false), Move::KillPod(0), Move::Wait(20), Move::Wait(3000)];
    let at = |fate| (1..=5).map(move |nth| Move::Request(First, RequestKind::Any, nth, fate));
    first.into_iter().chain(at(Fate::CrashAfter)).chain(at(Fate::AnswerLost)).collect()
}

/// All stories of up to `DEPTH` moves, with one ConfigMap and two pods: without and with a quiet period, and rolling.
#[test]
fn in_every_small_story_the_rules_hold() {
    let depth = u32::try_from(variable("DEPTH", DEPTH)).unwrap();
    let alphabet = &alphabet();
    let letters = u64::try_from(alphabet.len()).unwrap();
    let monitors = [(0, AT_ONCE), (1, AT_ONCE), (0, Some(PodCount::Pods(1)))];
    let of_length = |length| letters.pow(length);
    let all: u64 = (1..=depth).map(of_length).sum();
    let story = |number: u64| {
        let (monitor, mut left, mut length) = (monitors[usize::try_from(number / all).unwrap()], number % all, 1);
        while left >= of_length(length) {
            left -= of_length(length);
            length += 1;
        }
        let moves = (0..length).map(|place| alphabet[usize::try_from(left / of_length(place) % letters).unwrap()]);
        let moves = std::iter::once(Move::Wait(200)).chain(moves).collect();
        let pace = Pace { creation: 50, readiness: 300, termination: 200 };
        Story { seed: number, owners: Owners::One, ..Story::plain(vec![monitor], pace, moves) }
    };
    play_all(0..all * 3, story);
}

/// A failing story can be played again by its seed.
#[test]
fn the_same_seed_gives_the_same_requests() {
    for seed in 0..100 {
        let story = story(seed);
        let [once, again] = [play(&story), play(&story)];
        for (first, second) in once.trace.iter().zip(&again.trace) {
            assert_eq!(first, second, "with seed {seed}");
        }
        assert_eq!(once.trace.len(), again.trace.len(), "with seed {seed}");
    }
}
