//! Content that was found late: nobody knows since when it was there, or who was born with it.

use super::*;
use crate::monitor::report::Situation;

/// Second 10: pods run with `a`, and the conditions say so. Second 100: a process that has just started reads `b`.
fn late() -> Desk {
    let mut desk = Desk::settled(3);
    let settled = Situation::Settled { selector: &desk.policy.selector, missing_keys: None };
    crate::monitor::report::report(&settled, &mut desk.status, 1, server(10));
    desk.crash().at(100);
    desk.look = Look(vec![Some(Content { first: true, ..desk.content("b") })]);
    assert_eq!(desk.observe(), Finding::Modified);
    desk
}

#[test]
fn it_may_have_been_there_since_things_were_last_known_to_be_well() {
    assert_eq!(late().times(), (server(10), server(100)));
}

#[test]
fn going_back_at_once_is_as_if_nothing_had_been() {
    assert_eq!(late().at(101).read("a"), Finding::Undone);
}

#[test]
fn going_back_in_the_middle_replaces_all_who_may_have_been_born_with_it() {
    let mut desk = late();
    desk.at(103).begin();
    assert_eq!((desk.at(104).read("a"), desk.times()), (Finding::Reverted, (server(10), server(104))));
}
