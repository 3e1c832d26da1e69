//! The pods that go after all others: those that `spec.restartLast` selects, by the labels that they have at the time.

use std::collections::BTreeMap;

use super::standing::Undeleted;
use crate::kube::Uid;
use crate::monitor::pod::Pod;

/// The old pods that may not go yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Waiting<'a> {
    None,
    /// These are last ones, and wait for the others.
    Last(Vec<&'a str>),
    /// This one waits until any pod is a last one.
    UntilOneIs(&'a str),
}

impl Waiting<'_> {
    pub(crate) fn count(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Last(pods) => pods.len(),
            Self::UntilOneIs(_) => 1,
        }
    }
}

/// Removes the last ones from these pods.
pub(super) fn hold_back_last<'a>(pods: &mut Vec<&'a Pod>, may_wait: impl Fn(&Pod) -> bool) -> Waiting<'a> {
    let (last, others): (Vec<&Pod>, Vec<&Pod>) = pods.drain(..).partition(|pod| pod.goes_last && may_wait(pod));
    *pods = others;
    if last.is_empty() { Waiting::None } else { Waiting::Last(last.into_iter().map(|pod| &*pod.name).collect()) }
}

/// Removes one of these pods, which are in the order in which they would go: the deletion of another one may be under way
/// without an answer.
pub(super) fn hold_back_one<'a>(
    pods: &mut Vec<&'a Pod>,
    may_wait: impl Fn(&Pod) -> bool,
    undeleted: &BTreeMap<Uid, Undeleted>,
) -> Waiting<'a> {
    let is_unanswered = |pod: &Pod| undeleted.get(&pod.uid) == Some(&Undeleted::Unanswered);
    let waiting = || pods.iter().copied().filter(|pod| may_wait(pod));
    let one = waiting().rfind(|pod| !is_unanswered(pod)).or_else(|| waiting().next_back());
    pods.retain(|pod| one.is_none_or(|one| one.uid != pod.uid));
    one.map_or(Waiting::None, |one| Waiting::UntilOneIs(&one.name))
}
