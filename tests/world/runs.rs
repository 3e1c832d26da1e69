//! Plays many stories, and shows one that breaks a rule so that a person can read it: without the moves that do not matter, and with the
//! requests that were sent.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::exceptions::Exception;
use crate::ledger::Ledger;
use crate::stage::{Played, play};
use crate::story::{Edit, Move, Story, story};
use crate::{judge, stale_pods};

/// So many stories are played, unless `STORIES` says otherwise: fewer where nothing is optimized.
const STORIES: u64 = if cfg!(debug_assertions) { 1000 } else { 10_000 };

/// No more requests of a story are shown, unless `TRACE` says otherwise.
const LONGEST: u64 = 400;

/// What came of many stories.
#[derive(Default)]
struct Tally {
    stories: u64,
    requests: usize,
    deletions: usize,
    restarting: u64,
    excused: u64,
    exceptions: BTreeMap<Exception, u64>,
}

fn variable(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |value| value.parse().expect("a number"))
}

/// By which rules a story is judged.
type Judge = fn(&Ledger) -> Result<(), String>;

/// Plays a story and judges it.
fn try_out(story: &Story, judge: Judge) -> Result<Played, String> {
    let played = catch_unwind(AssertUnwindSafe(|| play(story)));
    let played = played.map_err(|panic| format!("a panic: {:?}", panic.downcast_ref::<String>()))?;
    judge(&played.ledger)?;
    Ok(played)
}

/// The story without the moves that are not needed to break a rule.
fn shrink(mut story: Story, judge: Judge) -> Story {
    loop {
        let before = story.moves.len();
        let mut at = 0;
        while at < story.moves.len() {
            let mut shorter = story.clone();
            shorter.moves.remove(at);
            if try_out(&shorter, judge).is_err() {
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

/// What a person needs to see why a story breaks a rule.
fn describe(story: &Story, judge: Judge) -> String {
    let story = shrink(story.clone(), judge);
    let longest = usize::try_from(variable("TRACE", LONGEST)).unwrap();
    let mut text = format!("{}\n\n{story:?}\n", try_out(&story, judge).err().unwrap_or_default());
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
        self.requests += trace.len();
        self.deletions += ledger.deletions.len();
        self.restarting += u64::from(!ledger.deletions.is_empty());
        self.excused += u64::from(!stale.is_empty());
        stale.into_iter().for_each(|exception| *self.exceptions.entry(exception).or_default() += 1);
    }
}

#[test]
fn whatever_happens_the_rules_hold() {
    play_many(story, judge, 1);
}

/// `minReadySeconds` is left out: it is counted from a time that a kubelet has set.
#[test]
fn whatever_happens_the_rules_hold_with_two_clocks() {
    let story = |seed| {
        let mut story = Story { skew: 3, ..story(seed) };
        story.moves.retain(|one| !matches!(one, Move::Spec(_, Edit::MinReady(_))));
        story
    };
    play_many(story, judge, 4);
}

/// Plays one in so many of the stories.
fn play_many(story: fn(u64) -> Story, judge: Judge, one_in: u64) {
    let (stories, first, most) = (variable("STORIES", STORIES) / one_in, variable("SEED", 0), variable("FAILURES", 1));
    let began = std::time::Instant::now();
    let (mut tally, mut failures) = (Tally::default(), 0);
    for seed in first..first + stories {
        let story = story(seed);
        match try_out(&story, judge) {
            Ok(played) => tally.add(&played),
            Err(broken) if failures >= most => {
                println!("seed {seed}: {broken}");
                failures += 1;
            }
            Err(_) => {
                println!("{}\n", describe(&story, judge));
                failures += 1;
            }
        }
    }
    let Tally { requests, deletions, restarting, excused, exceptions, .. } = &tally;
    println!(
        "{stories} stories in {:?}: {requests} requests, {deletions} deletions; {restarting} restart pods, and {excused} need an exception: {exceptions:?}",
        began.elapsed()
    );
    assert_eq!(failures, 0, "stories that break a rule");
    // The rules would be worth little if stories restarted nothing, or if every other pod were an exception.
    assert!(restarting * 3 > stories, "{restarting} of {stories} stories restart pods");
    assert!(excused * 4 < stories, "{excused} of {stories} stories need an exception: {exceptions:?}");
}

/// A story that is found must be found again.
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
