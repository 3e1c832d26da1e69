//! The pods that go after all others: those that `spec.restartLast` selects, by the labels that they have at the time.

use std::collections::BTreeMap;

use super::standing::Undeleted;
use crate::kube::Uid;
use crate::kube::objects::Pod;

/// What of the other pods decides whether the last ones may go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Others {
    /// Whether a pod that exists and may stay is a last one. If not, a failover may be under way.
    pub(super) is_any_last: bool,
    /// Whether old pods that are no last ones are left, terminating or not.
    pub(super) are_left: bool,
    /// Whether the successors of those that are gone are available.
    pub(super) are_replaced: bool,
}

/// The old pods that may not go yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Waiting<'a> {
    #[default]
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

/// Removes from these pods, in the order in which they would go, those that may not go yet. One that is handed over has
/// successors, and goes whatever its labels are. If no pod is a last one, one of those stays that have not been tried.
pub(super) fn hold_back<'a>(
    pods: &mut Vec<&'a Pod>,
    others: Others,
    undeleted: &BTreeMap<Uid, Undeleted>,
) -> Waiting<'a> {
    let is_kept = |pod: &Pod| pod.handed_over.is_none();
    if !others.is_any_last {
        let may_be_deleted = |pod: &Pod| undeleted.get(&pod.uid) == Some(&Undeleted::Unanswered);
        let kept = || pods.iter().copied().filter(|pod| is_kept(pod));
        let one = kept().rfind(|pod| !may_be_deleted(pod)).or_else(|| kept().next_back());
        pods.retain(|pod| one.is_none_or(|one| one.uid != pod.uid));
        return one.map_or(Waiting::None, |one| Waiting::UntilOneIs(&one.name));
    }
    if !others.are_left && others.are_replaced {
        return Waiting::None;
    }
    let (last, others): (Vec<&Pod>, Vec<&Pod>) = pods.drain(..).partition(|pod| pod.goes_last && is_kept(pod));
    *pods = others;
    if last.is_empty() { Waiting::None } else { Waiting::Last(last.into_iter().map(|pod| &*pod.name).collect()) }
}
