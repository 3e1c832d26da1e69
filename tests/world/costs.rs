//! What the operator costs the API server: the requests of a restart in which nothing fails, and those under a fault that lasts.

use fastrand::Rng;

use crate::judge;
use crate::stage::{Played, play};
use crate::story::Move::{self, Edit, Pass};
use crate::story::{Owners, Story};
use crate::world::Pace;

/// The number of stories in which nothing fails.
const STORIES: u64 = 300;

/// A restart that waits for pods makes a pass every so many milliseconds.
const PASSES: u64 = 10_000;

const EDIT: Move = Edit("settings", 'b');

/// A story in which nothing fails: one edit, and all pods at once.
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
    let moves = vec![Pass(1000), EDIT, Pass(100_000), Pass(1)];
    Story { seed, monitors: vec![(quiet, None)], pace, owners, skew: 0, lag: 0, page: 500, moves }
}

/// The formula of ARCHITECTURE.md: N + 6 for N pods of one owner, three more with a quiet period, and one for each further owner. A pass that waits for
/// pods is a list, a GET of each owner and a PUT.
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
        let began = writes.iter().find(|write| write.begins()).expect("a restart begins").at;
        let ended = writes.iter().find(|write| write.ends()).expect("a restart ends").at;
        let passes = usize::try_from((ended.ms - began.ms) / PASSES).unwrap();
        let (owners, skipped) = if story.owners == Owners::One { (1, 1) } else { (3, 4) };
        let quiet = if story.monitors[0].0 == 0 { 0 } else { 3 };
        let most = ledger.deletions.len() + 6 + quiet + (owners - 1) + passes * (2 + owners);
        assert!(requests <= most, "{requests} requests, and at most {most} are needed: {story:?}");
        // One for the start, one for each pod that is skipped, and for the end one about the ConfigMonitor and one about the ConfigMap.
        assert!(events <= 3 + skipped, "{events} Events: {story:?}");
    }
}
