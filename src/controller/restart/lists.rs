//! The requests for the lists of pods that say which pods a restart replaces.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use tracing::info;

use crate::controller::clock::timer_now;
use crate::controller::context::Context;
use crate::controller::shared::{ListInterest, Listing};
use crate::kube::error::Error;
use crate::kube::list::Selection;
use crate::kube::objects::{Pod, PodIdentity, WholePod};
use crate::kube::{PODS, ResourceVersion};
use crate::monitor::restart::plan::{Plan, Scope, Snapshot, Suspects};
use crate::monitor::restart::snapshots::Snapshots;
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
    /// Lists the pods of a restart that has to wait, right after its content was read, unless it has its list: only these
    /// pods may run with earlier content. A restart that begins at once needs no such list. Returns how many pods there
    /// are.
    pub(super) async fn take(self, restart: &mut Restart, came: Instant) -> Result<Option<usize>, Error> {
        self.snapshots.complete(restart, came);
        if restart.pods_resource_version.is_some() {
            return Ok(None);
        }
        let (version, listed) = list_identities(self.context, self.policy, came).await?;
        let pods = listed.len();
        self.snapshots.record(restart, self.policy.selector.to_query(), came, (version, listed));
        Ok(Some(pods))
    }

    /// Makes the plan and the lists with which a restart begins. The first list says which pods may run with other content, the second
    /// which pods exist now. Both follow the GET of the source: an earlier list could miss a pod that read the old
    /// content in between.
    pub(super) async fn begin(
        mut self,
        restart: &mut Restart,
        came: Instant,
    ) -> Result<(Plan, Arc<Listing>, ListInterest), Error> {
        if restart.request.is_some() && restart.pods_resource_version.is_none() {
            // A request is for all pods, including those created since the content was read.
            self.snapshots.forget();
        }
        self.snapshots.complete(restart, came);
        let (policy, metadata) = (self.policy, metadata_of(self.policy));
        let since = self.since(&metadata, restart).await?;
        let recorded = match &restart.pods_resource_version {
            Some(version) => Some(self.at(&metadata, version).await?),
            None => None,
        };
        // A list that another keeper made since the GET is closer to the GET, and so says better which pods are old, but
        // of a list from long ago, some may not be selected any more. A budget counts the pods that exist now, and
        // a request without a change is for all of them.
        let may_share = recorded.is_none() && restart.request.is_none() && policy.max_unavailable.is_none();
        let now = timer_now();
        let not_before = if may_share { came.max(now.checked_sub(SHARED_FOR).unwrap_or(came)) } else { now };
        let (listing, interest) = list_pods(self.context, policy, &Scope::of(restart), not_before).await?;
        let listed = recorded.unwrap_or_else(|| {
            let listed = Arc::new(uids(&listing.pods));
            let list = (listing.version.clone(), Arc::clone(&listed));
            self.snapshots.record(restart, policy.selector.to_query(), came, list);
            Some(listed)
        });
        let suspects = Suspects::new(restart, listed, since, listing.in_scope.clone());
        let plan = self.plan(suspects, policy.selector.to_query(), &listing.pods);
        Ok((plan, listing, interest))
    }

    /// Makes the plan of a restart again, from the list that names the pods that it replaces. Once the API server has
    /// forgotten that list, after minutes, creation times decide.
    pub(super) async fn recall(mut self, restart: &Restart, begun: &Begun) -> Result<Plan, Error> {
        let (context, policy) = (self.context, self.policy);
        let selection = Selection { labels: Some(begun.pod_selector.clone()), ..selected(policy) };
        let (scope, mut in_scope) = (Scope::of(restart), Snapshot::new());
        let mut take = |WholePod { pod, spec, .. }: WholePod| {
            in_scope.extend(scope.includes(spec.as_deref()).then(|| pod.uid.clone()));
            Arc::new(pod)
        };
        let recorded = match &restart.pods_resource_version {
            Some(version) => self.again(&selection, version, &mut take).await?,
            None => None,
        };
        let metadata = Selection { metadata_only: true, ..selection.clone() };
        let since = self.since(&metadata, restart).await?;
        let (pods, listed) = match recorded {
            Some(pods) => {
                let listed = Arc::new(uids(&pods));
                (pods, Some(listed))
            }
            None => match context.client.list(&selection, None, take).await {
                Ok(list) => (list.items, None),
                Err(error) => {
                    self.snapshots.every_list_fails();
                    return Err(error);
                }
            },
        };
        info!(pods = begun.pods, "restart resumed");
        let suspects = Suspects::new(restart, listed, since, Some(Arc::new(in_scope)));
        Ok(self.plan(suspects, begun.pod_selector.clone(), &pods))
    }

    fn plan(&self, suspects: Suspects, selector: String, pods: &[Arc<Pod>]) -> Plan {
        Plan::new(self.policy, &[suspects], selector, pods, self.context.shared.own_pod.as_ref())
    }

    /// Returns, for a revert, the pods that existed right after the content had changed.
    async fn since(&mut self, of: &Selection, restart: &Restart) -> Result<Option<Arc<Snapshot>>, Error> {
        match restart.since_pods_resource_version.as_ref().filter(|_| restart.revert) {
            Some(version) => self.at(of, version).await,
            None => Ok(None),
        }
    }

    /// Returns the pods of the list at a version, or `None` if the API server has forgotten it.
    async fn at(&mut self, of: &Selection, version: &ResourceVersion) -> Result<Option<Arc<Snapshot>>, Error> {
        if let Some(pods) = self.snapshots.at(version, &self.policy.selector.to_query()) {
            return Ok(Some(pods));
        }
        let pods = self.again(of, version, |PodIdentity(uid)| uid).await?;
        Ok(pods.map(|pods| Arc::new(pods.into_iter().collect())))
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
    let interest = context.shared.lists.interest(&policy.selector.to_query());
    let list = |before| Listing::make(&context.client, &context.shared, selected(policy), scope, before);
    let listing = interest.ask(context.client.stop(), not_before, scope, list).await?;
    Ok((listing, interest))
}

fn selected(policy: &Policy) -> Selection {
    Selection { resource: PODS, labels: Some(policy.selector.to_query()), name: None, metadata_only: false }
}
