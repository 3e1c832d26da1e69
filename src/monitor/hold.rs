//! When a pending restart may begin: in a window, after the interval since the previous start, and, without an
//! interval, when the guard against loops allows it.
//!
//! Every time is the API server's, and earlier starts are read from the status, so the rules hold across crashes.

use std::time::Duration;

use jiff::Zoned;

use super::spec::Policy;
use super::status::{SourceStatus, Status};
use super::window::open_since;
use crate::kube::ServerTime;

/// The number of restarts for changes of a source after which one more makes a loop.
const LOOP: usize = 5;
/// Restarts that began longer before a change do not count for it.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);
/// How long a restart waits in a loop. With this, never more than six begin within `FORGOTTEN_AFTER`.
const BACK_OFF: Duration = Duration::from_secs(300);

/// Why a pending restart may not begin yet.
#[derive(Clone, Debug, PartialEq)]
pub enum Hold {
    /// No window is open. The next one opens at this time, if one will.
    OutsideWindow(Option<Zoned>),
    /// The previous restart began less than the interval ago. The interval ends at this time.
    MinInterval(ServerTime),
    /// Restarts follow each other too fast. This one may begin at this time.
    BackOff(ServerTime),
}

impl Hold {
    pub(crate) fn until(&self) -> Option<ServerTime> {
        match self {
            Self::OutsideWindow(opens) => {
                opens.as_ref().map(|opens| ServerTime::from_second(opens.timestamp().as_second()))
            }
            Self::MinInterval(until) | Self::BackOff(until) => Some(*until),
        }
    }
}

/// Returns since when the pending restart may begin, or the one that is requested now. `None`: no window, interval or guard
/// applies to it.
///
/// # Errors
/// What holds the restart now.
pub(crate) fn may_begin(
    policy: &Policy,
    status: &Status,
    is_requested: bool,
    now: ServerTime,
) -> Result<Option<ServerTime>, Hold> {
    if is_requested {
        return Ok(None);
    }
    let opened = open_since(&policy.windows, now).map_err(Hold::OutsideWindow)?;
    let hold = if policy.min_interval.is_zero() {
        status.sources.iter().filter_map(held_back_until).max().map(Hold::BackOff)
    } else {
        status.last_start().map(|last| Hold::MinInterval(last.plus(policy.min_interval)))
    };
    let until = hold.as_ref().and_then(Hold::until);
    match hold {
        Some(hold) if until > Some(now) => Err(hold),
        _ => Ok(opened.max(until)),
    }
}

/// Returns when the content first changed. `None` after a revert, which people make, and once a restart has begun for
/// the change.
fn counted_since(known: &SourceStatus) -> Option<ServerTime> {
    let last = known.changes.last().filter(|_| known.differs())?;
    let is_new = known.restarts.first().is_none_or(|start| last.observed_at >= *start);
    is_new.then(|| known.changes.first().map_or(last.observed_at, |first| first.observed_at))
}

/// Returns until when the guard against loops holds a change: one that follows too many restarts for changes of its source.
fn held_back_until(known: &SourceStatus) -> Option<ServerTime> {
    let since = counted_since(known)?;
    let (last, first) = (known.restarts.first()?, known.restarts.get(LOOP - 1)?);
    // Counted from the start alone, a change that comes some minutes later would not wait. Counted from the change alone,
    // content that supersedes a restart would not wait, as it first changed before that restart.
    (since.since(*first) < FORGOTTEN_AFTER).then(|| since.max(*last).plus(BACK_OFF))
}

/// Records for each changed source that a restart begins, unless somebody has requested the restart.
pub(crate) fn record_start(status: &mut Status, start: ServerTime) {
    let is_requested = status.is_requested();
    for known in status.sources.iter_mut().filter(|known| !is_requested && counted_since(known).is_some()) {
        known.restarts.insert(0, start);
        known.restarts.truncate(LOOP);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::super::status::{Begun, Change};
    use super::*;

    fn at(second: i64) -> ServerTime {
        ServerTime::from_second(second)
    }

    fn policy(more: &str) -> Policy {
        let spec = format!(r#"{{"configMap":"c","podSelector":{{"app":"web"}}{more}}}"#);
        Policy::of(Some(&RawValue::from_string(spec).expect("JSON"))).expect("a policy")
    }

    /// A status whose restarts for changes of `c` began at these times, newest first.
    fn status(starts: &[i64]) -> Status {
        let starts: Vec<ServerTime> = starts.iter().map(|start| at(*start)).collect();
        let entry = |at| serde_json::json!({"number":1,"startedAt":at,"completedAt":at,"pods":1,"result":"Completed"});
        let history: Vec<_> = starts.iter().map(entry).collect();
        let source = |name: &str| serde_json::json!({"kind":"ConfigMap","name":name,"hash":"sha256:"});
        let (mut c, d) = (source("c"), source("d"));
        c["restarts"] = serde_json::json!(starts[..starts.len().min(LOOP)]);
        serde_json::from_value(serde_json::json!({ "sources": [c, d], "history": history })).expect("a status")
    }

    /// The same status when other content of this source has been read at a time.
    fn read_of(status: &Status, source: usize, second: i64) -> Status {
        let mut status = status.clone();
        let (known, at) = (&mut status.sources[source], at(second));
        let hash = format!("{}1", known.last().expect("a hash")).as_str().into();
        known.append(Change { hash, since: at, observed_at: at, pods_resource_version: None, begun: false });
        status
    }

    fn read(status: &Status, second: i64) -> Status {
        read_of(status, 0, second)
    }

    fn reverted(status: &Status, second: i64) -> Status {
        let mut status = read(&read(status, second), second);
        status.sources[0].changes[1].hash = status.sources[0].hash.clone().expect("a hash");
        status
    }

    fn requested(status: &Status, second: i64) -> Status {
        let mut status = read(status, second);
        status.take_up("now".into(), at(second));
        status
    }

    fn begins(policy: &Policy, status: &Status, second: i64) -> Result<Option<ServerTime>, Hold> {
        may_begin(policy, status, status.is_requested(), at(second))
    }

    /// Restarts pods for what was read.
    fn restarted(mut status: Status, start: i64) -> Status {
        record_start(&mut status, at(start));
        let begun = Begun::new(status.next_number(), at(start), "app=web".to_owned(), 1);
        status.begin(begun.clone());
        status.complete(Some(&begun), (0, String::new()), at(start));
        status
    }

    const NIGHTLY: &str = r#","windows":[{"schedule":"0 2 * * *","durationSeconds":3600}]"#;

    #[test]
    fn without_windows_an_interval_or_a_loop_a_restart_may_begin() {
        assert_eq!(begins(&policy(""), &read(&status(&[100]), 101), 101), Ok(None));
    }

    #[test]
    fn a_restart_begins_in_a_window_once_the_interval_is_over() {
        let (policy, changed) =
            (policy(&format!(r#"{NIGHTLY},"minIntervalSeconds":600"#)), read(&status(&[7000]), 7001));
        let begins = |second| begins(&policy, &changed, second);
        assert!(matches!(begins(7199), Err(Hold::OutsideWindow(Some(_)))));
        assert_eq!(begins(7199).unwrap_err().until(), Some(at(7200)));
        assert_eq!(begins(7200), Err(Hold::MinInterval(at(7600))));
        assert_eq!(begins(7600), Ok(Some(at(7600))));
        assert_eq!(begins(10_800).unwrap_err().until(), Some(at(24 * 3600 + 7200)));
    }

    #[test]
    fn a_request_passes_windows_the_interval_and_the_guard() {
        let policy = policy(&format!(r#"{NIGHTLY},"minIntervalSeconds":600"#));
        assert_eq!(begins(&policy, &requested(&status(&[100]), 101), 101), Ok(None));
    }

    /// If a clock was set back, the last start is in the future.
    #[test]
    fn the_interval_counts_from_the_last_start_whatever_clocks_say() {
        let policy = policy(r#","minIntervalSeconds":60"#);
        let held = begins(&policy, &read(&status(&[1000, 2000]), 500), 500);
        assert_eq!(held, Err(Hold::MinInterval(at(1060))));
        let mut under_way = status(&[]);
        under_way.begin(Begun::new(1, at(90), "app=web".to_owned(), 1));
        assert_eq!(begins(&policy, &read(&under_way, 100), 110), Err(Hold::MinInterval(at(150))));
    }

    /// Returns when each restart begins, and how long after its change, if a change comes `after` seconds after each start.
    fn starts(policy: &Policy, after: i64, changes: usize) -> (Vec<i64>, Vec<i64>) {
        let (mut status, mut now, mut starts) = (status(&[]), 0, Vec::new());
        for _ in 0..changes {
            status = read(&status, now);
            let start = match begins(policy, &status, now) {
                Ok(_) => now,
                Err(hold) => hold.until().expect("it ends").as_second(),
            };
            starts.push((start, start - now));
            assert!(begins(policy, &status, start).is_ok());
            status = restarted(status, start);
            now = start + after;
        }
        starts.into_iter().unzip()
    }

    #[test]
    fn people_who_revert_or_request_make_no_loop() {
        for other in [reverted, requested] {
            let (policy, looped) = (policy(""), status(&[990, 980, 970, 960]));
            let looped = restarted(other(&looped, 995), 996);
            assert_eq!(begins(&policy, &read(&looped, 1000), 1000), Ok(None), "the fifth change");
            let looped = restarted(read(&looped, 1000), 1000);
            assert_eq!(begins(&policy, &other(&looped, 1000), 1000), Ok(None), "nobody is in a loop who does that");
            let looped = restarted(other(&looped, 1000), 1000);
            assert_eq!(begins(&policy, &read(&looped, 1000), 1000), Err(Hold::BackOff(at(1300))), "the sixth change");
        }
    }

    /// As after an upgrade that edits them one after the other.
    #[test]
    fn restarts_for_other_sources_make_no_loop() {
        let both = |status: &Status, second| read_of(&read(status, second), 1, second);
        let (policy, upgraded) = (policy(""), status(&[990, 980, 970, 960]));
        let upgraded = restarted(read_of(&upgraded, 1, 1000), 1000);
        assert_eq!(begins(&policy, &both(&upgraded, 1001), 1001), Ok(None));
        let looped = restarted(both(&upgraded, 1001), 1001);
        assert_eq!(begins(&policy, &read_of(&looped, 1, 1002), 1002), Ok(None));
        assert_eq!(begins(&policy, &both(&looped, 1002), 1002), Err(Hold::BackOff(at(1302))));
    }

    /// The restart for it is superseded again and again.
    #[test]
    fn a_change_that_others_take_over_counts_once_and_other_content_of_the_same_source_counts_again() {
        let (policy, mut superseded) = (policy(""), read(&status(&[]), 995));
        for start in 1000..1006 {
            record_start(&mut superseded, at(start));
        }
        assert_eq!(superseded.sources[0].restarts, [at(1000)]);
        let looped = read(&status(&[990, 980, 970, 960, 950]), 985);
        assert_eq!(begins(&policy, &looped, 1000), Ok(None));
        assert_eq!(begins(&policy, &read(&looped, 1000), 1000), Err(Hold::BackOff(at(1290))));
    }

    #[test]
    fn a_restart_after_five_within_ten_minutes_waits_so_that_never_more_than_six_begin_in_that_time() {
        let expected = [
            (1, [0, 0, 0, 0, 0, 300, 300, 0, 0, 0, 300, 300, 0, 0, 0, 300]),
            (119, [0, 0, 0, 0, 0, 300, 0, 0, 0, 0, 300, 0, 0, 0, 0, 300]),
            (120, [0; 16]),
        ];
        for (after, expected) in expected {
            let (starts, waits) = starts(&policy(""), after, 16);
            assert_eq!(waits, expected, "after {after} s");
            assert!(starts.windows(7).all(|seven| seven[6] - seven[0] >= 600), "after {after} s: {starts:?}");
        }
    }

    #[test]
    fn a_restart_that_began_ten_minutes_before_the_change_is_forgotten() {
        let (policy, looped) = (policy(""), status(&[1000, 990, 980, 970, 960]));
        let begins = |since| begins(&policy, &read(&looped, since), since);
        assert_eq!((begins(1559), begins(1560)), (Err(Hold::BackOff(at(1859))), Ok(None)));
    }

    #[test]
    fn an_interval_replaces_the_guard() {
        let policy = policy(r#","minIntervalSeconds":10"#);
        assert_eq!(starts(&policy, 1, 9).1, [0, 9, 9, 9, 9, 9, 9, 9, 9]);
    }
}
