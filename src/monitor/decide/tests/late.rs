//! Content that was found late: it is unknown since when it has existed, and which pods were created with it.

use super::*;
use crate::monitor::report::Situation;

/// Second 10: pods run with `a`, and the conditions say so. In this second, a process reads `b`: at its first look or later.
fn found(second: u64, first: bool) -> Desk {
    let mut desk = Desk::settled(3);
    let settled =
        Situation::Settled { selector: &desk.policy.selector, missing_keys: None, has_sources: true, why_rarely: None };
    crate::monitor::report::report(&settled, &mut desk.status, 1, server(10));
    desk.crash().at(second);
    desk.look = Look(vec![Some(Content { first, ..desk.content("b") })]);
    assert_eq!(desk.observe(), Finding::Modified);
    desk
}

/// Second 100: a process that has just started reads `b`.
fn late() -> Desk {
    found(100, true)
}

/// Of two clocks the earlier one counts.
#[test]
fn content_at_the_first_look_may_have_existed_since_the_last_reconciled_status() {
    for (second, first, since) in [(100, true, 10), (5, true, 5), (100, false, 100)] {
        assert_eq!(found(second, first).times(), (server(since), server(second)), "{second}, {first}");
    }
}

#[test]
fn a_revert_at_once_counts_as_unchanged() {
    assert_eq!(late().at(101).read("a"), Finding::Undone);
}

#[test]
fn a_revert_during_the_restart_replaces_all_pods_that_may_have_the_late_content() {
    let mut desk = late();
    desk.at(103).begin();
    assert_eq!(desk.at(104).read("a"), Finding::Reverted);
    desk.at(107).observe();
    assert_eq!((desk.restart().is_revert(), desk.times()), (true, (server(10), server(104))));
}
