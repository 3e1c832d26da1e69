//! Maintenance windows: when restarts may begin.

use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use serde::{Deserialize, Serialize};

use super::schedule::Schedule;
use crate::kube::ServerTime;

/// A window as its author wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WindowSpec {
    /// When the window opens: a cron line with five fields, or an alias such as `@daily`.
    pub schedule: String,
    /// How long the window stays open, in seconds.
    pub duration_seconds: u32,
    /// The time zone of the schedule, as an IANA name. Absent: UTC.
    pub time_zone: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    schedule: Schedule,
    duration: Duration,
    zone: TimeZone,
}

/// The error says what is wrong, for the author of the spec.
pub(super) fn windows(written: &[WindowSpec]) -> Result<Vec<Window>, String> {
    let check = |(place, window)| Window::of(window).map_err(|what| format!("spec.windows[{place}].{what}"));
    written.iter().enumerate().map(check).collect()
}

/// Returns since when a window has been open. `None`: there are no windows, and restarts may always begin.
///
/// # Errors
/// When the next window opens, in its time zone. `None` if no window will open again.
pub(crate) fn open_since(windows: &[Window], now: ServerTime) -> Result<Option<ServerTime>, Option<Zoned>> {
    if windows.is_empty() {
        return Ok(None);
    }
    if let Some(since) = windows.iter().filter_map(|window| window.open_since(now)).min() {
        return Ok(Some(since));
    }
    Err(windows.iter().filter_map(|window| window.opens_after(now)).min_by_key(Zoned::timestamp))
}

impl Window {
    fn of(written: &WindowSpec) -> Result<Self, String> {
        let WindowSpec { schedule, duration_seconds, time_zone } = written;
        let parsed = Schedule::parse(schedule).map_err(|what| format!("schedule: {schedule:?} {what}"))?;
        let zone = match time_zone {
            None => TimeZone::UTC,
            Some(name) => TimeZone::get(name).map_err(|_| {
                format!("timeZone: {name:?} is not the name of an IANA time zone, such as Europe/Berlin")
            })?,
        };
        Ok(Self { schedule: parsed, duration: Duration::from_secs((*duration_seconds).into()), zone })
    }

    fn open_since(&self, now: ServerTime) -> Option<ServerTime> {
        let opened = self.opens_after(now.minus(self.duration))?;
        Some(ServerTime::from_second(opened.timestamp().as_second())).filter(|opened| *opened <= now)
    }

    fn opens_after(&self, now: ServerTime) -> Option<Zoned> {
        self.schedule.next_after(&self.zoned(now)?)
    }

    fn zoned(&self, at: ServerTime) -> Option<Zoned> {
        Some(Timestamp::from_second(at.as_second()).ok()?.to_zoned(self.zone.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(schedule: &str, minutes: u32, zone: Option<&str>) -> WindowSpec {
        WindowSpec { schedule: schedule.to_owned(), duration_seconds: 60 * minutes, time_zone: zone.map(str::to_owned) }
    }

    fn at(text: &str) -> ServerTime {
        ServerTime::from_second(text.parse::<Timestamp>().expect("a time").as_second())
    }

    /// Returns since when a window is open, or when the next one opens.
    fn state(written: &[WindowSpec], now: &str) -> String {
        let windows = windows(written).expect("windows");
        match open_since(&windows, at(now)) {
            Ok(since) => format!("since {}", since.expect("there are windows")),
            Err(next) => format!("at {}", next.expect("one comes").strftime("%F %H:%M %Z")),
        }
    }

    #[test]
    fn without_a_window_it_is_always_time() {
        assert_eq!(open_since(&[], at("2026-11-23T00:00:00Z")), Ok(None));
    }

    #[test]
    fn a_window_is_open_from_its_first_second_to_its_last() {
        let nightly = [window("0 2 * * *", 60, None)];
        assert_eq!(state(&nightly, "2026-11-23T01:59:59Z"), "at 2026-11-23 02:00 UTC");
        for inside in ["02:00:00", "02:30:00", "02:59:59"] {
            assert_eq!(state(&nightly, &format!("2026-11-23T{inside}Z")), "since 2026-11-23T02:00:00Z");
        }
        assert_eq!(state(&nightly, "2026-11-23T03:00:00Z"), "at 2026-11-24 02:00 UTC");
    }

    #[test]
    fn a_window_may_span_midnight_and_windows_may_overlap() {
        let late = window("30 23 * * SUN", 90, Some("Europe/Berlin"));
        assert_eq!(state(std::slice::from_ref(&late), "2026-11-22T23:45:00Z"), "since 2026-11-22T22:30:00Z");
        assert_eq!(state(std::slice::from_ref(&late), "2026-11-23T00:00:00Z"), "at 2026-11-29 23:30 CET");
        let early = window("@midnight", 10, Some("Europe/Berlin"));
        let both = [late, early];
        assert_eq!(state(&both, "2026-11-22T23:05:00Z"), "since 2026-11-22T22:30:00Z", "since the first of them");
        assert_eq!(state(&both, "2026-11-23T00:00:00Z"), "at 2026-11-24 00:00 CET", "whichever comes first");
        let always = [window("* * * * *", 60, None)];
        assert_eq!(
            state(&always, "2026-11-23T00:00:59Z"),
            "since 2026-11-22T23:01:00Z",
            "since the first time less than its duration ago"
        );
    }

    #[test]
    fn when_clocks_change_a_window_opens_once_and_stays_open_for_as_long_as_it_says() {
        let berlin = Some("Europe/Berlin");
        let nightly = [window("30 2 * * *", 60, berlin)];
        // 02:30 does not exist: the window opens as the clock jumps to 03:00.
        assert_eq!(state(&nightly, "2026-03-29T00:59:59Z"), "at 2026-03-29 03:00 CEST");
        assert_eq!(state(&nightly, "2026-03-29T01:00:00Z"), "since 2026-03-29T01:00:00Z");
        assert_eq!(state(&nightly, "2026-03-29T02:00:00Z"), "at 2026-03-30 02:30 CEST");
        // 02:30 comes twice: the window opens at the first one and stays open for 60 min.
        assert_eq!(state(&nightly, "2026-10-25T00:29:59Z"), "at 2026-10-25 02:30 CEST");
        assert_eq!(state(&nightly, "2026-10-25T01:29:59Z"), "since 2026-10-25T00:30:00Z");
        assert_eq!(state(&nightly, "2026-10-25T01:30:00Z"), "at 2026-10-26 02:30 CET");
        let long = [window("0 1 * * *", 180, berlin)];
        assert_eq!(state(&long, "2026-10-25T01:59:59Z"), "since 2026-10-24T23:00:00Z");
        assert_eq!(state(&long, "2026-10-25T02:00:00Z"), "at 2026-10-26 01:00 CET");
    }

    #[test]
    fn what_a_cron_job_takes_is_taken_here() {
        for schedule in [
            "@hourly",
            "0 0 29 2 *",
            "0-30/10,45 */2 * jan-mar Mon-Fri",
            "5/15 0 ? * 1",
            "0 0 1,,15 * *",
            "+5 0 * * +1",
        ] {
            windows(&[window(schedule, 1, Some("Etc/UTC"))]).expect(schedule);
        }
        let after_saturday = state(&[window("0 0 * * 1/5", 1, None)], "2026-11-28T12:00:00Z");
        assert_eq!(after_saturday, "at 2026-11-30 00:00 UTC", "not on Sunday");
        let next = state(&[window("0 0 13 * FRI", 1, None)], "2026-11-23T12:00:00Z");
        assert_eq!(next, "at 2026-11-27 00:00 UTC", "a day of the month or a day of the week");
        for (schedule, next) in [
            ("0 0 13 * */1", "2026-12-13 00:00"),
            ("0 0 13 * 1,*", "2026-12-13 00:00"),
            ("0 0 13 * ?", "2026-12-13 00:00"),
            ("0 0 13 * */2", "2026-11-24 00:00"),
            ("59 23 31 2,4,6,9,11 +1", "2026-11-23 23:59"),
            ("0 0 * * 7", "2026-11-29 00:00"),
            ("0 0 * * 6-7", "2026-11-28 00:00"),
            ("0 0 * * SAT-SUN", "2026-11-28 00:00"),
            ("0 0 * * 0-0", "2026-11-29 00:00"),
            ("0 0 * * SUN/6", "2026-11-28 00:00"),
            ("0 0 * * 3/3", "2026-11-25 00:00"),
            ("0 0 * * SUN#1", "2026-12-06 00:00"),
            ("0 0 * * 7#5,2#1", "2026-11-29 00:00"),
            ("0 0 24 * MON#1", "2026-11-24 00:00"),
            ("?/20 5/6 * * *", "2026-11-23 17:00"),
            ("0 0 29 2 *", "2028-02-29 00:00"),
        ] {
            assert_eq!(
                state(&[window(schedule, 1, None)], "2026-11-23T12:00:00Z"),
                format!("at {next} UTC"),
                "{schedule}"
            );
        }
    }

    #[test]
    fn a_window_that_opens_each_hour_opens_in_both_hours_when_clocks_are_set_back() {
        let hourly = [window("5 * * * *", 10, Some("Europe/Berlin"))];
        assert_eq!(state(&hourly, "2026-10-25T00:20:00Z"), "at 2026-10-25 02:05 CET");
        assert_eq!(state(&hourly, "2026-10-25T01:10:00Z"), "since 2026-10-25T01:05:00Z");
        assert_eq!(state(&hourly, "2026-10-25T00:10:00Z"), "since 2026-10-25T00:05:00Z");
        // At 00:01 it is 23:01 of the day before.
        let over_midnight = [window("30 * * * *", 10, Some("America/St_Johns"))];
        assert_eq!(state(&over_midnight, "2010-11-07T02:30:30Z"), "at 2010-11-06 23:30 NST");
        assert_eq!(state(&over_midnight, "2010-11-07T02:10:00Z"), "at 2010-11-06 23:30 NST");
    }

    #[test]
    fn what_is_wrong_with_a_window_is_said_by_its_field() {
        let error = |window: WindowSpec| windows(&[window]).expect_err("wrong");
        for (schedule, about) in [
            ("", "windows[0].schedule: \"\" is neither"),
            ("0 2 * *", "neither a cron schedule with five fields nor an alias"),
            ("0 0 2 * * *", "neither"),
            ("0 25 * * *", "\"25\" is no hour"),
            ("@every 5m", "neither"),
            ("@Weekly", "neither"),
            ("TZ=Europe/Berlin 0 2 * * *", "neither"),
            ("0 0 L * *", "is no schedule: \"L\" is no day of the month: 1 to 31, *, a range, or a step"),
            ("0 0 1#2 * *", "\"1#2\" is no day of the month"),
            ("0 0 * * 1#6", "\"1#6\" is no day of the week: 0 to 7, *, a range, or a step, or such as SUN#1"),
            ("0 0 * * 1#0", "\"1#0\" is no day of the week"),
            ("0 0 * * 8", "\"8\" is no day of the week"),
            ("*/0 0 * * *", "\"*/0\" is no minute"),
            ("5-1 0 * * *", "\"5-1\" is no minute"),
            (", 0 * * *", "\",\" is no minute"),
            ("0 0 30 2 *", "schedule: \"0 0 30 2 *\" names a day that does not come"),
            ("0 0 31 4,6,9,11 ?", "names a day that does not come"),
            ("0 0 * 2 MON#5", "names a day that does not come"),
        ] {
            let error = error(window(schedule, 1, None));
            assert!(error.contains(about), "{schedule:?}: {error}");
        }
        for zone in ["", "Local", "Europe/Atlantis", "+02:00"] {
            assert!(error(window("@daily", 1, Some(zone))).contains("timeZone"), "{zone:?}");
        }
    }
}
