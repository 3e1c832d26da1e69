//! The requests for the lists of pods that say which pods a restart replaces.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use tracing::info;

use crate::controller::clock::timer_now;
use crate::controller::context::Context;
use crate::controller::shared::{ListInterest, Listing};
use crate::kube::error::Error;
use crate::kube::list::Selection;
use crate::kube::objects::PodIdentity;
use crate::kube::{PODS, ResourceVersion, ServerTime};
use crate::monitor::decide::Quiet;
use crate::monitor::pod::{Pod, WholePod};
use crate::monitor::restart::plan::{Plan, Referrers, Scope, Snapshot, Suspects};
use crate::monitor::restart::snapshots::Snapshots;
use crate::monitor::source::Contents;
use crate::monitor::spec::Policy;
use crate::monitor::status::{Begun, Restart};

/// How old a list of another keeper may be with which a restart begins.
const SHARED_FOR: Duration = Duration::from_secs(1);

pub(super) struct Planner<'a> {
    pub(super) context: &'a Context,
    pub(super) policy: &'a Policy,
    pub(super) snapshots: &'a mut Snapshots,
}

impl Planner<'_> {
    /// Lists the pods of a restart that has to wait, right after this content of it was read, unless it has its lists: only
    /// these pods may run with earlier content. A restart that begins at once needs no such list. Returns how many pods
    /// there are.
    pub(super) async fn take(
        self,
        restart: &mut Restart,
        content: (Contents, ServerTime),
        came: Instant,
    ) -> Result<Option<usize>, Error> {
        self.snapshots.complete(restart, &content, came);
        if restart.lists_mut().all(|list| list.is_some()) {
            return Ok(None);
        }
        let (version, pods) = self.list_for(content, came).await?;
        fill(restart, &version);
        Ok(Some(pods))
    }

    /// Lists the pods right after content was read that interrupts this restart. Returns how many there are.
    pub(super) async fn take_interrupting(
        self,
        restart: &Restart,
        quiet: &mut Quiet,
        came: Instant,
    ) -> Result<Option<usize>, Error> {
        quiet.listed = quiet.listed.take().or_else(|| self.snapshots.made_for(&quiet.content, came).cloned());
        if quiet.listed.is_some() {
            return Ok(None);
        }
        self.snapshots.keep_named_by(restart);
        let (version, pods) = self.list_for(quiet.content.clone(), came).await?;
        quiet.listed = Some(version);
        Ok(Some(pods))
    }

    async fn list_for(self, content: (Contents, ServerTime), came: Instant) -> Result<(ResourceVersion, usize), Error> {
        let (version, listed) = list_identities(self.context, self.policy, came).await?;
        let pods = listed.len();
        self.snapshots.record(content, self.policy.selector.to_query(), came, (version.clone(), listed));
        Ok((version, pods))
    }

    /// Makes the plan and the lists with which a restart begins. The lists that it names say which pods may run with other
    /// content, and the last one which pods exist now. All follow the GETs of the sources: an earlier list could miss a
    /// pod that read the old content in between. A request is for all pods, including those created since then.
    pub(super) async fn begin(
        mut self,
        restart: &mut Restart,
        scope: &Scope,
        content: (Contents, ServerTime),
        came: Instant,
    ) -> Result<(Plan, Arc<Listing>, ListInterest), Error> {
        self.snapshots.complete(restart, &content, came);
        let policy = self.policy;
        let mut lists = HashMap::new();
        let is_listed = restart.lists_mut().any(|list| list.is_some());
        self.add_lists(restart, &mut lists).await?;
        // A list that another keeper made since the GET is closer to the GET, and so says better which pods are old, but
        // of a list from long ago, some may not be selected any more. What counts owners counts the pods that exist now, and
        // a request without a change is for all of them.
        let may_share = !is_listed && restart.request.is_none() && !policy.counts_owners();
        let now = timer_now();
        let not_before = if may_share { came.max(now.checked_sub(SHARED_FOR).unwrap_or(came)) } else { now };
        let (listing, interest) = list_pods(self.context, policy, scope, not_before).await?;
        if restart.lists_mut().any(|list| list.is_none()) {
            let listed = Arc::new(uids(&listing.pods));
            fill(restart, &listing.version);
            lists.insert(listing.version.clone(), Some(Arc::clone(&listed)));
            let list = (listing.version.clone(), listed);
            self.snapshots.record(content, policy.selector.to_query(), came, list);
        }
        let suspects = Suspects::of(restart, &lists, (scope, &listing.referrers));
        let plan = self.plan(&suspects, policy.selector.to_query(), &listing.pods);
        Ok((plan, listing, interest))
    }

    /// Makes the plan of a restart again, from the lists that say which pods it replaces. Once the API server has
    /// forgotten a list, after minutes, creation times decide.
    pub(super) async fn recall(mut self, scope: Scope, restart: &Restart, begun: &Begun) -> Result<Plan, Error> {
        let (context, policy) = (self.context, self.policy);
        let selection = Selection { labels: Some(begun.pod_selector.clone()), ..selected(policy) };
        let mut referrers = Referrers::default();
        let mut take = |WholePod { pod, spec, .. }: WholePod| {
            referrers.see(&scope, &pod.uid, spec.as_deref());
            Arc::new(pod)
        };
        let mut lists = HashMap::new();
        let mut last = None;
        if let Some(version) = restart.last_list() {
            last = self.again(&selection, version, &mut take).await?;
            lists.insert(version.clone(), last.as_ref().map(|pods| Arc::new(uids(pods))));
        }
        self.add_lists(restart, &mut lists).await?;
        let pods = match last {
            Some(pods) => pods,
            None => match context.client.list(&selection, None, take).await {
                Ok(list) => list.items,
                Err(error) => {
                    self.snapshots.every_list_fails();
                    return Err(error);
                }
            },
        };
        info!(pods = begun.pods, "restart resumed");
        let suspects = Suspects::of(restart, &lists, (&scope, &Arc::new(referrers)));
        Ok(self.plan(&suspects, begun.pod_selector.clone(), &pods))
    }

    fn plan(&self, suspects: &[Suspects], selector: String, pods: &[Arc<Pod>]) -> Plan {
        Plan::new(self.policy, suspects, selector, pods, self.context.shared.settings.own_pod.as_ref())
    }

    /// Adds the pods of the lists that a restart names: `None` if the API server has forgotten one.
    async fn add_lists(
        &mut self,
        restart: &Restart,
        lists: &mut HashMap<ResourceVersion, Option<Arc<Snapshot>>>,
    ) -> Result<(), Error> {
        let labels = restart.begun.as_ref().map(|begun| begun.pod_selector.clone());
        let labels = labels.unwrap_or_else(|| self.policy.selector.to_query());
        let of = Selection { labels: Some(labels.clone()), ..metadata_of(self.policy) };
        for version in restart.lists() {
            if lists.contains_key(version) {
                continue;
            }
            let pods = match self.snapshots.at(version, &labels) {
                Some(pods) => Some(pods),
                None => {
                    let pods = self.again(&of, version, |PodIdentity(uid)| uid).await?;
                    pods.map(|pods| Arc::new(pods.into_iter().collect()))
                }
            };
            lists.insert(version.clone(), pods);
        }
        Ok(())
    }

    /// Makes the list at a version again. Returns `None` once the API server has forgotten it.
    async fn again<T: DeserializeOwned, K>(
        &mut self,
        of: &Selection,
        version: &ResourceVersion,
        keep: impl FnMut(T) -> K,
    ) -> Result<Option<Vec<K>>, Error> {
        let list = self.context.client.list(of, Some(version), keep).await;
        self.snapshots.answered(version, list.map(|list| list.items))
    }
}

/// Returns the identities of the selected pods and the version of their list, which began at `not_before` or later.
async fn list_identities(
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

/// Names the list of this version wherever none is named.
fn fill(restart: &mut Restart, version: &ResourceVersion) {
    restart.lists_mut().for_each(|list| _ = list.get_or_insert_with(|| version.clone()));
}

fn uids(pods: &[Arc<Pod>]) -> Snapshot {
    pods.iter().map(|pod| pod.uid.clone()).collect()
}

fn metadata_of(policy: &Policy) -> Selection {
    Selection { metadata_only: true, ..selected(policy) }
}

/// Returns how many pods a policy selects, by a list that began at `not_before` or later.
pub(crate) async fn count(context: &Context, policy: &Policy, not_before: Instant) -> Result<usize, Error> {
    let (_, listed) = list_identities(context, policy, not_before).await?;
    Ok(listed.len())
}

/// Lists the selected pods, with those in the scope, or shares a list that began at `not_before` or later.
pub(super) async fn list_pods(
    context: &Context,
    policy: &Policy,
    scope: &Scope,
    not_before: Instant,
) -> Result<(Arc<Listing>, ListInterest), Error> {
    let last = &policy.restart_last;
    let interest = context.shared.lists.interest(&(policy.selector.to_query(), last.clone()));
    let list =
        |before| Listing::make(&context.client, &context.shared, (selected(policy), last.clone()), scope, before);
    let listing = interest.ask(context.client.stop(), not_before, scope, list).await?;
    Ok((listing, interest))
}

fn selected(policy: &Policy) -> Selection {
    Selection { resource: PODS, labels: Some(policy.selector.to_query()), fields: None, metadata_only: false }
}
