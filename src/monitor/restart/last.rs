//! The pods that go after all others: those that `spec.restartLast` selects, by the labels that they have at the time.

use crate::monitor::pod::Pod;

/// The old pods that may not go yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HeldBack<'a> {
    None,
    /// These are last ones, and wait for the others.
    Last(Vec<&'a str>),
    /// These wait until any pod is a last one.
    UntilOneIs(Vec<&'a str>),
}

impl<'a> HeldBack<'a> {
    pub(crate) fn count(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Last(pods) | Self::UntilOneIs(pods) => pods.len(),
        }
    }

    /// Removes the last ones from these pods; if no pod is a last one, those that serve: a failover may be under way, and
    /// any of them may become one.
    ///
    /// A last one that serves nobody may keep the others from going: it uses the
    /// budget, or an ordered StatefulSet creates no others. So it does not wait when the deadline has passed.
    pub(super) fn hold_back(pods: &mut Vec<&'a Pod>, is_any_last: bool, is_overdue: bool) -> Self {
        let waits = |pod: &Pod| match is_any_last {
            true => pod.goes_last && (pod.may_serve() || !is_overdue),
            false => pod.may_serve(),
        };
        let held = pods.extract_if(.., |pod| waits(pod));
        let names: Vec<&str> = held.map(|pod| &*pod.name).collect();
        match (names.is_empty(), is_any_last) {
            (true, _) => Self::None,
            (false, true) => Self::Last(names),
            (false, false) => Self::UntilOneIs(names),
        }
    }
}
