//! When a pod was ready.

use crate::Moment;

/// The periods in which a pod was ready. The last one may last.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Vec<(Moment, Option<Moment>)>);

impl Readiness {
    /// Records whether the pod is ready from now on.
    pub fn set(&mut self, is_ready: bool, at: Moment) {
        match (self.0.last_mut().filter(|(_, until)| until.is_none()), is_ready) {
            (None, true) => self.0.push((at, None)),
            (Some((_, until)), false) => *until = Some(at),
            _ => {}
        }
    }

    pub fn periods(&self) -> impl Iterator<Item = (Moment, Option<Moment>)> {
        self.0.iter().copied()
    }

    /// Returns since when the pod has been ready at a moment.
    #[must_use]
    pub fn since(&self, at: Moment) -> Option<Moment> {
        let mut there = self.periods().filter(|(from, until)| *from <= at && until.is_none_or(|until| until > at));
        there.next().map(|(from, _)| from)
    }

    /// Returns whether the pod was ready for `least` milliseconds at a time, if its unreadiness is known `late`
    /// milliseconds late.
    #[must_use]
    pub fn was_for(&self, at: u64, least: u64, late: u64) -> bool {
        let mut periods = self.periods();
        periods
            .any(|(from, until)| from.ms + least <= at && until.is_none_or(|until| at <= until.ms.saturating_add(late)))
    }
}
