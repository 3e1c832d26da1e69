//! When a window opens: a schedule with the grammar and the meaning of a CronJob's, with 7 for Sunday as well, and the
//! `nth` weekday of a month. Each search has a bound, whatever the schedule says.
//!
//! croner 4.0.3 knows daylight saving, but refuses what a CronJob takes (`?`, `5/15`), says of a wrong value neither what it
//! is nor of which field, and looks for a day that does not exist for 0.3 s. cronexpr 1.7.0 leaves out a time that daylight
//! saving skips.

use jiff::civil::{Date, DateTime, date};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan, Zoned};

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// Within how many months a day that exists comes again: 1900 and 2100 are no leap years.
const MAX_MONTHS: usize = 8 * 12;

/// Where the bits of the weekdays of the first week begin.
const NTH: u64 = 8;

/// The values of each field, as bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Schedule {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    /// From `NTH` on, seven for each week of a month.
    weekdays: u64,
    /// Whether it is enough that the day of the month or the day of the week is one of the schedule: neither is `*`.
    is_either: bool,
}

/// The values that a field may have. The first of them has the first name.
struct Field {
    name: &'static str,
    first: u64,
    last: u64,
    names: &'static [&'static str],
    /// Whether a value may have a number, such as `SUN#1` for the first Sunday, and 7 is Sunday as well as 0.
    is_weekday: bool,
}

const MINUTE: Field = Field { name: "minute", first: 0, last: 59, names: &[], is_weekday: false };
const HOUR: Field = Field { name: "hour", first: 0, last: 23, names: &[], is_weekday: false };
const DAY: Field = Field { name: "day of the month", first: 1, last: 31, names: &[], is_weekday: false };
const MONTH: Field = Field { name: "month", first: 1, last: 12, names: &MONTHS, is_weekday: false };
const WEEKDAY: Field = Field { name: "day of the week", first: 0, last: 7, names: &WEEKDAYS, is_weekday: true };

impl Field {
    /// Returns where `*`, and a range without an end, end: of the weekdays, 7 is Sunday once more.
    fn end(&self) -> u64 {
        if self.is_weekday { 6 } else { self.last }
    }

    /// Returns the values in the text, and whether it contains `*`.
    fn parse(&self, text: &str) -> Result<(u64, bool), String> {
        let parts = text.split(',').filter(|part| !part.is_empty()).map(|part| self.parse_part(part));
        let (mut values, mut has_star) = (0, false);
        for part in parts {
            let (more, is_star) = part.ok_or_else(|| {
                let nth = if self.is_weekday { ", or such as SUN#1 for the first Sunday of a month" } else { "" };
                format!("{text:?} is no {}: {} to {}, *, a range, or a step{nth}", self.name, self.first, self.last)
            })?;
            (values, has_star) = (values | more, has_star | is_star);
        }
        if values == 0 { Err(format!("{text:?} is no {}", self.name)) } else { Ok((values, has_star)) }
    }

    fn parse_part(&self, text: &str) -> Option<(u64, bool)> {
        if let Some((weekday, nth)) = text.split_once('#').filter(|_| self.is_weekday) {
            let weekday = self.value(weekday).filter(|weekday| *weekday <= self.last)?;
            let week = nth.parse::<u64>().ok()?.checked_sub(1).filter(|week| *week < 5)?;
            return Some((1 << (NTH + week * 7 + weekday % 7), false));
        }
        let (range, step) = match text.split_once('/') {
            Some((range, step)) => (range, Some(step.parse::<u64>().ok().filter(|step| *step > 0)?)),
            None => (text, None),
        };
        let (first, last) = range.split_once('-').map_or((range, None), |(first, last)| (first, Some(last)));
        let is_star = matches!(first, "*" | "?");
        let (first, last) = match (is_star, last) {
            (true, _) => (self.first, self.end()),
            // Such as SAT-SUN.
            (false, Some(last)) if self.is_weekday && self.value(last)? == 0 && self.value(first)? > 0 => {
                (self.value(first)?, self.last)
            }
            (false, Some(last)) => (self.value(first)?, self.value(last)?),
            // A number with a step begins a range.
            (false, None) if step.is_some() => (self.value(first)?, self.end().max(self.value(first)?)),
            (false, None) => (self.value(first)?, self.value(first)?),
        };
        let step = step.unwrap_or(1);
        let is_valid = first >= self.first && first <= last && last <= self.last;
        let values =
            || (first..=last).filter(|value| (value - first) % step == 0).fold(0, |all, value| all | 1 << value);
        is_valid.then(|| (values(), is_star && step == 1))
    }

    fn value(&self, text: &str) -> Option<u64> {
        let named = self.names.iter().zip(self.first..).find(|(name, _)| name.eq_ignore_ascii_case(text));
        named.map(|(_, value)| value).or_else(|| text.parse().ok())
    }
}

fn has(values: u64, value: i8) -> bool {
    u32::try_from(value).is_ok_and(|value| values >> value & 1 == 1)
}

impl Schedule {
    /// The error says what is wrong, for the author of the spec.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let of_alias = match text {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            _ => text,
        };
        let fields: Vec<&str> = of_alias.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields[..] else {
            return Err("is neither a cron schedule with five fields nor an alias such as @daily".to_owned());
        };
        let wrong = |what| format!("is no schedule: {what}");
        let (days, is_any_day) = DAY.parse(day).map_err(wrong)?;
        let (weekdays, is_any_weekday) = WEEKDAY.parse(weekday).map_err(wrong)?;
        let schedule = Self {
            minutes: MINUTE.parse(minute).map_err(wrong)?.0,
            hours: HOUR.parse(hour).map_err(wrong)?.0,
            months: MONTH.parse(month).map_err(wrong)?.0,
            days,
            // 7 is Sunday, too.
            weekdays: weekdays | weekdays >> 7 & 1,
            is_either: !is_any_day && !is_any_weekday,
        };
        // A leap year has all days.
        let comes = schedule.days_from(date(2024, 1, 1)).next().is_some();
        if comes { Ok(schedule) } else { Err("names a day that does not come within 8 years".to_owned()) }
    }

    fn includes(&self, day: Date) -> bool {
        #[cfg(test)]
        tests::count_step();
        let is_day = has(self.days, day.day());
        let (weekday, week) = (day.weekday().to_sunday_zero_offset(), (day.day() - 1) / 7);
        let is_weekday = has(self.weekdays, weekday) || has(self.weekdays >> NTH, week * 7 + weekday);
        has(self.months, day.month()) && if self.is_either { is_day || is_weekday } else { is_day && is_weekday }
    }

    /// Returns the days of the schedule in the next years. Looks at each month, and at the days of its own months only.
    fn days_from(&self, first: Date) -> impl Iterator<Item = Date> {
        let months = first.first_of_month().series(1.month()).take(MAX_MONTHS + 1);
        let own = months.filter(|month| has(self.months, month.month()));
        let days = own.flat_map(|month| month.series(1.day()).take(month.days_in_month().unsigned_abs().into()));
        days.filter(move |day| *day >= first && self.includes(*day))
    }

    /// Returns the first time after `now`.
    pub(super) fn next_after(&self, now: &Zoned) -> Option<Zoned> {
        let (at, zone) = (now.timestamp(), now.time_zone());
        let next = |day| self.times(day, zone).filter(|time| *time > at).min();
        // When clocks are set back over midnight, times of the day before come again.
        let time = self.days_from(now.date().yesterday().ok()?).find_map(next)?;
        Some(time.to_zoned(zone.clone()))
    }

    /// Returns the times of a day at which a window opens. A time that daylight saving skips is that of the change.
    /// One that comes twice counts once, unless the schedule names all hours.
    fn times(&self, day: Date, zone: &TimeZone) -> impl Iterator<Item = Timestamp> {
        let hours = (0..24).filter(|hour| has(self.hours, *hour));
        let minutes = (0..60).filter(|minute| has(self.minutes, *minute));
        let times = hours.flat_map(move |hour| minutes.clone().map(move |minute| day.at(hour, minute, 0, 0)));
        times.flat_map(|time| self.occurrences(time, zone))
    }

    fn occurrences(&self, time: DateTime, zone: &TimeZone) -> Vec<Timestamp> {
        #[cfg(test)]
        tests::count_step();
        let ambiguous = zone.to_ambiguous_timestamp(time);
        match (ambiguous.earlier(), ambiguous.later()) {
            (Ok(earlier), Ok(later)) if zone.to_datetime(earlier) == time => {
                let again = earlier != later && self.hours.count_ones() == 24;
                [Some(earlier), Some(later).filter(|_| again)].into_iter().flatten().collect()
            }
            (Ok(earlier), Ok(_)) => {
                zone.following(earlier).next().map(|change| change.timestamp()).into_iter().collect()
            }
            // Before or after all times.
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        static STEPS: Cell<usize> = const { Cell::new(0) };
    }

    /// Counts a day that is looked at, or a time that is converted.
    pub(super) fn count_step() {
        STEPS.set(STEPS.get() + 1);
    }

    /// A decision about a held restart searches in each of up to 16 windows.
    #[test]
    fn no_schedule_makes_a_search_long() {
        for text in
            ["59 23 29 2 *", "59 23 29 2 */1", "0 0 31 1-12 *", "* * * * *", "0-59 * 1-31 * 0-6", "0 0 * 1 MON#5"]
        {
            let schedule = Schedule::parse(text).expect("valid");
            for zone in ["UTC", "Europe/Berlin", "Pacific/Apia", "Africa/Casablanca"] {
                for time in ["2096-03-01T00:00", "2026-11-25T23:59", "2026-10-25T02:30", "2011-12-30T12:00"] {
                    let now: DateTime = time.parse().expect("a time");
                    let now = now.to_zoned(TimeZone::get(zone).expect("a zone")).expect("in range");
                    STEPS.set(0);
                    assert!(schedule.next_after(&now).is_some(), "{text}");
                    assert!(STEPS.get() < 5000, "{} steps for {text:?} after {now}", STEPS.get());
                }
            }
        }
    }
}
