//! Lists of pods, which keepers with the same selector share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::requests::{Interest, Requests};
use crate::controller::clock::timer_now;
use crate::controller::limits::Turns;
use crate::kube::client::Client;
use crate::kube::error::Error;
use crate::kube::labels::LabelSelector;
use crate::kube::list::Selection;
use crate::kube::objects::{Labels, Owner};
use crate::kube::{ResourceVersion, ServerTime, Uid};
use crate::monitor::pod::{LabelledPod, Pod, WholePod};
use crate::monitor::referrers::{Concerns, Referrers};

/// The label selector of a list, and that of the pods that go last.
pub(crate) type ListKey = (String, Option<LabelSelector>);

/// The lists in which keepers are interested, for a scope.
pub(crate) type SharedLists = Requests<ListKey, Concerns, Arc<Listing>>;

pub(crate) type ListInterest = Interest<ListKey, Concerns, Arc<Listing>>;

pub(crate) struct Listing {
    pub(crate) pods: Vec<Arc<Pod>>,
    /// Which of them refer to the sources of the scope.
    pub(crate) referrers: Arc<Referrers>,
    pub(crate) version: ResourceVersion,
    /// The `Date` of the answer.
    pub(crate) at: ServerTime,
    pub(crate) began: Instant,
    /// How many turns had ended when the list began.
    pub(crate) turns_ended: u64,
    pub(crate) took: Duration,
}

impl Listing {
    /// Lists these pods. What the list before has, too, is stored once: otherwise 30 rolling restarts of the same 5,000
    /// pods take three times as much memory.
    pub(crate) async fn make(
        client: &Client,
        (turns, surges): (&Turns, bool),
        (selection, last): (Selection, Option<LabelSelector>),
        scope: &Concerns,
        before: Option<Arc<Self>>,
    ) -> Result<Arc<Self>, Error> {
        let (turns_ended, began) = (turns.ended(), timer_now());
        let known: BTreeMap<&Uid, &Arc<Pod>> =
            before.iter().flat_map(|before| &before.pods).map(|pod| (&pod.uid, pod)).collect();
        let mut owners: BTreeSet<Arc<Owner>> = known.values().filter_map(|pod| pod.controller.clone()).collect();
        let mut take = |pod: Pod, labels: &Labels| {
            let mut pod = pod.handed_over_if(surges);
            pod.goes_last = goes_last(last.as_ref(), labels);
            if let Some(known) = known.get(&pod.uid).filter(|known| ****known == pod) {
                return Arc::clone(known);
            }
            if let Some(owner) = &mut pod.controller {
                match owners.get(owner) {
                    Some(known) => *owner = Arc::clone(known),
                    None => drop(owners.insert(Arc::clone(owner))),
                }
            }
            Arc::new(pod)
        };
        let mut referrers = Referrers::default();
        let list = if scope.is_empty() {
            let take = |LabelledPod { pod, labels, .. }: LabelledPod| take(pod, &labels);
            client.list(&selection, None, take).await?
        } else {
            let take = |WholePod { pod, labels, spec }: WholePod| {
                referrers.see(scope, &pod.uid, spec.as_deref());
                take(pod, &labels)
            };
            client.list(&selection, None, take).await?
        };
        let referrers = Arc::new(referrers);
        let (version, took) = (list.resource_version, timer_now().saturating_duration_since(began));
        Ok(Arc::new(Self { pods: list.items, referrers, version, at: list.at, began, turns_ended, took }))
    }
}

fn goes_last(last: Option<&LabelSelector>, labels: &Labels) -> bool {
    last.is_some_and(|last| last.matches(&labels.to_map()))
}
