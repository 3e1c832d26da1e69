//! The rules about when restarts begin: windows, the interval, the guard against loops, requests.

use std::time::Duration;

use configmonitor_operator::kube::ServerTime;
use configmonitor_operator::monitor::window::WindowSpec;

use crate::status::{Canary, Restart, SourceStatus};
use crate::{A_SECOND, Account, Moment, Write};

/// The guard against loops: after 5 restarts within 10 minutes the next one waits for 5 minutes.
const TEN_MINUTES: Duration = Duration::from_secs(600);
const FIVE_MINUTES: Duration = Duration::from_secs(300);

/// Returns the restarts that begin without a request, or take one over, each with the write that begins it.
fn unrequested<'a>(account: &Account<'a>) -> impl Iterator<Item = (&'a Write, &'a Restart)> {
    let starts = account.writes.iter().filter_map(|write| Some((*write, write.start()?)));
    starts.filter(|(_, restart)| !restart.is_requested())
}

/// A restart without a request of its own begins while a window is open. Clocks show whole seconds.
pub fn a_restart_begins_in_a_window(account: &Account<'_>) -> Result<(), String> {
    for (write, restart) in unrequested(account).filter(|(write, _)| !write.spec.windows.is_empty()) {
        let (start, room) = (started_at(restart), A_SECOND + account.skew);
        let is_open = |second: i64| write.spec.windows.iter().any(|window| is_open(window, second));
        if !(start.minus(room).as_second()..=start.plus(room).as_second()).any(is_open) {
            return Err(format!("at {:?} none of {:?} was open: {restart:?}", write.at, write.spec.windows));
        }
    }
    Ok(())
}

/// Returns whether a window of the tests is open. They all recur at multiples of a minute.
fn is_open(window: &WindowSpec, second: i64) -> bool {
    let (period, offset) = match &*window.schedule {
        "* * * * *" => (60, 0),
        "*/2 * * * *" => (120, 0),
        "1-59/2 * * * *" => (120, 60),
        "0 0 1 1 *" => (365 * 24 * 3600, 0),
        other => unreachable!("no test has {other:?}"),
    };
    (second - offset).rem_euclid(period) < window.duration_seconds.into()
}

/// Returns the starts that the status still shows at this write, and that neither a wipe nor a restore has removed.
fn starts_before<'a>(account: &Account<'a>, write: &'a Write) -> impl Iterator<Item = (&'a Write, &'a Restart)> {
    let is_past = |undone: Option<Moment>| undone.is_none_or(|undone| undone > write.at);
    let wiped = account.wiped.iter().filter(|(at, undone)| *at < write.at && is_past(*undone)).map(|(at, _)| *at).max();
    let is_known = move |before: &&&Write| before.at < write.at && Some(before.at) > wiped && is_past(before.undone);
    account.writes.iter().filter(is_known).filter_map(|before| Some((*before, before.start()?)))
}

/// Returns when the restart began. It has begun.
fn started_at(restart: &Restart) -> ServerTime {
    restart.started_at.unwrap_or(ServerTime::from_second(0))
}

/// The interval counts from the start of one restart to the start of the next one without a request.
pub fn a_restart_begins_once_the_interval_is_over(account: &Account<'_>) -> Result<(), String> {
    for (write, restart) in unrequested(account) {
        let interval = Duration::from_secs(write.spec.min_interval_seconds.unwrap_or(0).into());
        let Some((_, last)) = starts_before(account, write).last().filter(|_| !interval.is_zero()) else { continue };
        if started_at(restart).plus(account.skew) < started_at(last).plus(interval) {
            return Err(format!("at {:?} too early: {restart:?} begins after {last:?}", write.at));
        }
    }
    Ok(())
}

/// The guard against loops, counted from the starts for changes of the same source, as long as the ConfigMonitor has named
/// it. `minIntervalSeconds` replaces it.
pub fn a_loop_of_restarts_is_held(account: &Account<'_>) -> Result<(), String> {
    let guarded = |(write, _): &(&Write, &Restart)| write.spec.min_interval_seconds.unwrap_or(0) == 0;
    for (write, restart) in unrequested(account).filter(guarded) {
        let before: Vec<_> = starts_before(account, write).filter(|(_, restart)| !restart.is_requested()).collect();
        for source in write.after.sources.iter().filter(|known| known.differs()) {
            let is_left = |its: &&&Write| its.at <= write.at && its.after.of(source).is_none();
            let named_since = account.writes.iter().filter(is_left).map(|its| its.at).max();
            let mut starts = Vec::new();
            for (its, start) in before.iter().filter(|(its, _)| Some(its.at) > named_since) {
                let is_counted = its.after.of(source).is_some_and(|known| counted_since(&starts, known).is_some());
                starts.extend(is_counted.then(|| started_at(start)));
            }
            let Some(since) = counted_since(&starts, source) else { continue };
            let [.., first, _, _, _, last] = starts[..] else { continue };
            let due = last.max(since).plus(FIVE_MINUTES);
            if since.since(first) < TEN_MINUTES && started_at(restart).plus(account.skew) < due {
                return Err(format!("at {:?}, but due at {due:?}: {restart:?} begins after {starts:?}", write.at));
            }
        }
    }
    Ok(())
}

/// Returns when the content of a source first changed, if pods have other content and no restart has begun for it: another
/// one only goes on with that.
fn counted_since(starts: &[ServerTime], known: &SourceStatus) -> Option<ServerTime> {
    let (first, last) = (known.changes.first()?, known.changes.last().filter(|_| known.differs())?);
    let is_new = starts.last().is_none_or(|start| last.observed_at >= *start);
    is_new.then_some(first.observed_at)
}

/// The number of canaries is fixed when the restart begins. `Passed` and `Failed` are final. Other content ends the bake
/// time at once.
pub fn the_outcome_of_canaries_is_final(account: &Account<'_>) -> Result<(), String> {
    let order = |state: &str| ["Replacing", "Baking", "Passed"].iter().position(|known| *known == state);
    for write in &account.writes {
        let (Some(before), Some(after)) = (write.before.begun(), write.after.begun()) else { continue };
        let is_right = |before: &Canary, after: &Canary| {
            let goes_on = match (&*before.state, &*after.state) {
                (one, other) if one == other => one != "Baking" || !write.appends(),
                ("Failed" | "Passed", _) => false,
                (_, "Failed") => true,
                // Other content has come.
                ("Baking", "Replacing") => write.appends(),
                (one, other) => order(one) < order(other),
            };
            after.pods == before.pods && goes_on
        };
        let is_right = match (&before.canary, &after.canary) {
            (Some(before), Some(after)) => is_right(before, after),
            (before, after) => before.is_none() && after.is_none(),
        };
        if write.before.which() == write.after.which() && !is_right {
            return Err(format!("at {:?} from {before:?} to {after:?}", write.at));
        }
    }
    Ok(())
}

/// A restart begins once for each value: the value was requested and is not the last one handled. A value recorded as
/// handled was requested, and no restart is left to be made for it.
pub fn a_request_is_handled_once(account: &Account<'_>) -> Result<(), String> {
    for write in &account.writes {
        let is_requested = |value: &str| account.requests.iter().any(|(at, asked)| *at < write.at && value == asked);
        let handled = write.before.last_handled_restart_request.as_deref();
        let started = write.start().and_then(|restart| Some(&*restart.request.as_ref()?.value));
        let is_again = started.is_some() && started == handled;
        let done = write.after.last_handled_restart_request.as_deref();
        let is_early = done != handled && write.before.is_baselined() && write.after.restart.is_some();
        if is_again || is_early || started.into_iter().chain(done).any(|value| !is_requested(value)) {
            return Err(format!("at {:?}, after {handled:?}: {:?}", write.at, write.after));
        }
    }
    Ok(())
}

/// A restart begins, is superseded or ends once the last content that no restart has begun for has been there for the quiet
/// period, or ten periods after the first of many changes.
pub fn other_content_counts_after_its_quiet_period(account: &Account<'_>) -> Result<(), String> {
    // What the spec no longer names needs no quiet period.
    let is_over = |write: &Write| (write.result().is_some() || write.settles()) && !write.leaves_some_out();
    let counts = |write: &&&Write| write.start().is_some() || is_over(write);
    for write in account.writes.iter().filter(counts) {
        let quiet = Duration::from_secs(write.spec.quiet_period_seconds.unwrap_or(3).into());
        let last = if quiet.is_zero() { None } else { write.unmarked_at() };
        let due = last.map(|last| write.before.limited(last.plus(quiet), quiet));
        if due.is_some_and(|due| write.at.second().plus(account.skew) < due) {
            return Err(format!("at {:?}, but due at {due:?}: {:?}, then {:?}", write.at, write.before, write.after));
        }
    }
    Ok(())
}
