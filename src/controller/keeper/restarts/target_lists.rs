//! The requests for the lists of pods that say which pods a restart replaces.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use tracing::info;

use crate::controller::clock::timer_now;
use crate::controller::keeper::context::Context;
use crate::controller::shared::{ListInterest, Listing};
use crate::kube::error::Error;
use crate::kube::list::Selection;
use crate::kube::objects::PodIdentity;
use crate::kube::{PODS, ResourceVersion};
use crate::monitor::pod::{Pod, WholePod};
use crate::monitor::referrers::{Concerns, Referrers, Snapshot};
use crate::monitor::restart::stale::{Lists, is_stale};
use crate::monitor::restart::targets::Targets;
use crate::monitor::spec::Policy;
use crate::monitor::status::{Begun, Status};

/// The maximum age of a shared list with which a restart begins.
const SHARED_FOR: Duration = Duration::from_secs(1);

/// The pods that a restart replaces, and all of them.
pub(super) type Found = (Targets, Arc<Listing>, ListInterest);

pub(super) struct TargetRequests<'a> {
    pub(super) context: &'a Context,
    pub(super) policy: &'a Policy,
    pub(super) lists: &'a mut Lists,
}

impl TargetRequests<'_> {
    /// Makes the targets and the lists with which a restart begins. The lists that the journal names say which pods may run with
    /// other content, and the last one which pods exist now. All follow the GETs of the sources: an earlier list could miss a
    /// pod that read the old content in between. A request that has no list yet is for all pods that exist now.
    pub(super) async fn begin(mut self, status: &mut Status, scope: &Concerns, came: Instant) -> Result<Found, Error> {
        let (policy, selector) = (self.policy, self.policy.selector.to_query());
        let is_listed = status.lists().next().is_some();
        let forgotten = self.load(status, &selector).await?;
        // A list that another keeper made since the GET is closer to the GET, and so says better which pods are old, but
        // of a list from long ago, some may not be selected any more. What counts owners counts the pods that exist now, and
        // a request without a change is for all of them.
        let may_share = !is_listed && status.request().is_none() && !policy.counts_owners();
        let now = timer_now();
        let not_before = if may_share { came.max(now.checked_sub(SHARED_FOR).unwrap_or(came)) } else { now };
        let (listing, interest) = list_pods(self.context, policy, scope, not_before).await?;
        if status.fill(&listing.version) {
            self.lists.record(listing.version.clone(), selector.clone(), Arc::new(uids(&listing.pods)));
        }
        let targets = self.targets(status, &forgotten, &listing.referrers, selector, (Some(&listing.pods), &[]));
        Ok((targets, listing, interest))
    }

    /// Makes the targets of a restart again, from the lists that say which pods it replaces. Once the API server has
    /// forgotten a list, after minutes, creation times decide.
    pub(super) async fn recall(mut self, scope: Concerns, status: &Status, begun: &Begun) -> Result<Targets, Error> {
        let (context, selector) = (self.context, begun.pod_selector.clone());
        let selection = Selection { labels: Some(selector.clone()), ..selected(self.policy) };
        let mut referrers = Referrers::default();
        let mut take = |WholePod { pod, spec, .. }: WholePod| {
            referrers.see(&scope, &pod.uid, spec.as_deref());
            Arc::new(pod)
        };
        let mut first = None;
        if let Some(version) = status.began_with() {
            first = self.again(&selection, version, &mut take).await?;
            if let Some(pods) = &first {
                self.lists.record(version.clone(), selector.clone(), Arc::new(uids(pods)));
            }
        }
        let forgotten = self.load(status, &selector).await?;
        let mut now = Vec::new();
        // Other content may have come and gone since it began, or two clocks say which list was the last one.
        if first.is_none() || status.lists().any(|(version, _)| Some(version) != status.began_with()) {
            let list = context.client.list(&selection, None, take).await;
            now = list.inspect_err(|_| self.lists.every_list_fails())?.items;
        }
        info!(pods = begun.pods, "restart resumed");
        Ok(self.targets(status, &forgotten, &referrers, selector, (first.as_deref(), &now)))
    }

    /// Returns the pods of the first list that were stale then or are now, and the stale pods that came since. Without
    /// that list, an owner whose old pods are all gone looks as if it never had any.
    fn targets(
        self,
        status: &Status,
        forgotten: &[ResourceVersion],
        referrers: &Referrers,
        selector: String,
        (first, now): (Option<&[Arc<Pod>]>, &[Arc<Pod>]),
    ) -> Targets {
        let (is_whole, first, now) = first.map_or((false, now, &[][..]), |first| (true, first, now));
        for version in forgotten {
            self.lists.make_up(status, version, selector.clone(), if now.is_empty() { first } else { now });
        }
        let lists = &*self.lists;
        let is_stale =
            |pod: &Pod| is_stale(status, lists, pod, |known| !known.discovered || referrers.contain(&known.name, pod));
        let stale_now: Vec<&Arc<Pod>> = now.iter().filter(|pod| is_stale(pod)).collect();
        let also: Snapshot = stale_now.iter().map(|pod| pod.uid.clone()).collect();
        let is_old = |pod: &Pod| is_stale(pod) || also.contains(&pod.uid);
        let own_pod = self.context.shared.settings.own_pod.as_ref();
        let mut targets =
            Targets::new(self.policy, (is_old, !is_whole || lists.are_by_times()), selector, first, own_pod);
        if stale_now.is_empty() {
            return targets;
        }
        let first = uids(first);
        for pod in stale_now.into_iter().filter(|pod| !first.contains(&pod.uid)) {
            targets.replace(self.policy, pod, own_pod);
        }
        targets
    }

    /// Makes the lists of this selector again that the status names and this process does not have. Returns those that the
    /// API server has forgotten.
    async fn load(&mut self, status: &Status, selector: &str) -> Result<Vec<ResourceVersion>, Error> {
        let of = Selection { labels: Some(selector.to_owned()), ..metadata_of(self.policy) };
        let mut forgotten = Vec::new();
        for version in self.lists.keep(status, selector) {
            match self.again(&of, &version, |PodIdentity(uid)| uid).await? {
                Some(pods) => self.lists.record(version, selector.to_owned(), Arc::new(pods.into_iter().collect())),
                None => forgotten.push(version),
            }
        }
        Ok(forgotten)
    }

    /// Makes the list at a version again. Returns `None` once the API server has forgotten it.
    async fn again<T: DeserializeOwned, K>(
        &mut self,
        of: &Selection,
        version: &ResourceVersion,
        keep: impl FnMut(T) -> K,
    ) -> Result<Option<Vec<K>>, Error> {
        let list = self.context.client.list(of, Some(version), keep).await;
        self.lists.answered(version, list.map(|list| list.items))
    }
}

/// Returns the identities of the selected pods and the version of their list, which began at `not_before` or later.
pub(super) async fn list_identities(
    context: &Context,
    policy: &Policy,
    not_before: Instant,
) -> Result<(ResourceVersion, Arc<Snapshot>), Error> {
    let interest = context.shared.identities.interest(&policy.selector.to_query());
    let list = |_| async {
        let list = context.client.list(&metadata_of(policy), None, |PodIdentity(uid)| uid).await?;
        Ok((list.resource_version, Arc::new(list.items.into_iter().collect())))
    };
    interest.ask(context.client.stop(), not_before, &(), list).await
}

fn uids(pods: &[Arc<Pod>]) -> Snapshot {
    pods.iter().map(|pod| pod.uid.clone()).collect()
}

fn metadata_of(policy: &Policy) -> Selection {
    Selection { metadata_only: true, ..selected(policy) }
}

/// Lists the selected pods, with those in the scope, or shares a list that began at `not_before` or later.
pub(super) async fn list_pods(
    context: &Context,
    policy: &Policy,
    scope: &Concerns,
    not_before: Instant,
) -> Result<(Arc<Listing>, ListInterest), Error> {
    let last = &policy.restart_last;
    let interest = context.shared.lists.interest(&(policy.selector.to_query(), last.clone()));
    let of = (&*context.shared.namespace_limits.turns, context.shared.settings.surges);
    let list = |before| Listing::make(&context.client, of, (selected(policy), last.clone()), scope, before);
    let listing = interest.ask(context.client.stop(), not_before, scope, list).await?;
    Ok((listing, interest))
}

fn selected(policy: &Policy) -> Selection {
    Selection { resource: PODS, labels: Some(policy.selector.to_query()), fields: None, metadata_only: false }
}
