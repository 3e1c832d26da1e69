//! The lists of pods made right after a content was read, which a restart names by their versions. Lists that this
//! process made are kept while the restart is pending: that saves a request, and the API server forgets a list after
//! minutes.

use std::sync::Arc;
use std::time::Instant;

use serde::de::DeserializeOwned;
use tracing::info;

use super::{list_pods, selected};
use crate::controller::clock::timer_now;
use crate::controller::context::Context;
use crate::controller::shared::{ListInterest, Listing};
use crate::kube::error::{Cause, Error};
use crate::kube::list::Selection;
use crate::kube::objects::{Pod, PodIdentity};
use crate::kube::{ResourceVersion, ServerTime};
use crate::monitor::restart::plan::{Census, Plan, Suspects};
use crate::monitor::source::Contents;
use crate::monitor::spec::Policy;
use crate::monitor::status::{Begun, Restart};

#[derive(Default)]
pub(super) struct Snapshots {
    /// The list for the current content.
    current: Option<Box<Snapshot>>,
    /// The list for the first content that differed from what pods had been restarted for.
    since: Option<Box<Snapshot>>,
    /// The versions of lists that the API server has refused to return again.
    refused: Vec<ResourceVersion>,
}

struct Snapshot {
    /// The content, and when it was first read.
    content: (Contents, ServerTime),
    /// When the answer with the content came: content may change and be reverted within a second.
    came: Instant,
    version: ResourceVersion,
    selector: String,
    pods: Arc<Census>,
}

impl Snapshots {
    /// Lists the pods of a restart that has to wait, right after its content was read, unless it has its list: only these
    /// pods may run with earlier content. A restart that begins at once needs no such list. Returns how many pods there
    /// are.
    pub(super) async fn take(
        &mut self,
        context: &Context,
        policy: &Policy,
        restart: &mut Restart,
        came: Instant,
    ) -> Result<Option<usize>, Error> {
        self.complete(restart, came);
        if restart.pods_resource_version.is_some() {
            return Ok(None);
        }
        let (version, listed) = list_identities(context, policy, came).await?;
        let pods = listed.pods.len();
        self.record(restart, policy, came, (version, listed));
        Ok(Some(pods))
    }

    /// Makes the lists with which a restart begins. The first says which pods may run with other content, the second
    /// which pods exist now. Both follow the GET of the source: an earlier list could miss a pod that read the old
    /// content in between.
    pub(super) async fn begin(
        &mut self,
        context: &Context,
        policy: &Policy,
        restart: &mut Restart,
        came: Instant,
    ) -> Result<(Suspects, Arc<Listing>, ListInterest), Error> {
        if restart.request.is_some() && restart.pods_resource_version.is_none() {
            // A request is for all pods, including those created since the content was read.
            self.forget();
        }
        self.complete(restart, came);
        let metadata = metadata_of(policy);
        let since = self.listed_since(context, policy, &metadata, restart).await?;
        let recorded = match &restart.pods_resource_version {
            Some(version) => Some(self.listed_at(context, policy, &metadata, version).await?),
            None => None,
        };
        // A list that another keeper made since the GET is closer to the GET, and so says better which pods are old. A
        // budget counts the pods that exist now, and a request without a change is for all of them.
        let may_share = recorded.is_none() && restart.request.is_none() && policy.max_unavailable.is_none();
        let not_before = if may_share { came } else { timer_now() };
        let (listing, interest) = list_pods(context, policy, not_before).await?;
        let listed = recorded.unwrap_or_else(|| {
            let listed = Arc::new(Census::of(listing.pods.iter().map(|pod| pod.identity())));
            self.record(restart, policy, came, (listing.version.clone(), Arc::clone(&listed)));
            Some(listed)
        });
        Ok((Suspects::new(restart, listed, since), listing, interest))
    }

    /// Makes the plan of a restart again, from the list that names the pods that it replaces. Once the API server has
    /// forgotten that list, after minutes, creation times decide, and the budget ignores an owner all of whose pods are
    /// absent at that moment until one is back.
    pub(super) async fn recall(
        &mut self,
        context: &Context,
        policy: &Policy,
        restart: &Restart,
        begun: &Begun,
    ) -> Result<Plan, Error> {
        let selection = Selection { labels: Some(begun.pod_selector.clone()), ..selected(policy) };
        let recorded = match &restart.pods_resource_version {
            Some(version) => self.list_again(context, &selection, version, Arc::<Pod>::new).await?,
            None => None,
        };
        let metadata = Selection { metadata_only: true, ..selection.clone() };
        let since = self.listed_since(context, policy, &metadata, restart).await?;
        let (pods, listed) = match recorded {
            Some(pods) => {
                let listed = Census::of(pods.iter().map(|pod| pod.identity()));
                (pods, Some(Arc::new(listed)))
            }
            None => match context.client.list(&selection, None, Arc::<Pod>::new).await {
                Ok(list) => (list.items, None),
                Err(error) => {
                    // A server that refuses every list has not forgotten this one.
                    self.refused.clear();
                    return Err(error);
                }
            },
        };
        let suspects = Suspects::new(restart, listed, since);
        info!(pods = begun.pods, "restart resumed");
        let (selector, own_pod) = (begun.pod_selector.clone(), context.shared.own_pod.as_ref());
        Ok(Plan::new(policy, &[suspects], selector, &pods, own_pod))
    }

    /// Drops the lists once the restart is not pending any more.
    pub(super) fn forget(&mut self) {
        (self.current, self.since) = (None, None);
    }

    /// Fills in the versions of the lists that were made for this restart, even if they could not be written at that
    /// time.
    fn complete(&mut self, restart: &mut Restart, came: Instant) {
        let is_named = |current: &Snapshot| restart.pods_resource_version.as_ref() == Some(&current.version);
        if let Some(current) = self.current.as_mut().filter(|current| is_named(current)) {
            // The sources of the restart may have been edited, and the list still holds.
            current.content = content_of(restart);
        }
        let is_of_another = |current: &mut Box<Snapshot>| {
            current.content != content_of(restart) || !is_named(current) && current.came != came
        };
        if let Some(before) = self.current.take_if(is_of_another)
            && restart.since_pods_resource_version.as_ref() == Some(&before.version)
        {
            self.since = Some(before);
        }
        if let Some(current) = &self.current {
            restart.pods_resource_version.get_or_insert_with(|| current.version.clone());
        }
    }

    fn record(
        &mut self,
        restart: &mut Restart,
        policy: &Policy,
        came: Instant,
        (version, pods): (ResourceVersion, Arc<Census>),
    ) {
        restart.pods_resource_version = Some(version.clone());
        let (content, selector) = (content_of(restart), policy.selector.to_query());
        self.current = Some(Box::new(Snapshot { content, came, version, selector, pods }));
    }

    /// Returns, for a revert, the pods that existed right after the content had changed.
    async fn listed_since(
        &mut self,
        context: &Context,
        policy: &Policy,
        of: &Selection,
        restart: &Restart,
    ) -> Result<Option<Arc<Census>>, Error> {
        match restart.since_pods_resource_version.as_ref().filter(|_| restart.revert) {
            Some(version) => self.listed_at(context, policy, of, version).await,
            None => Ok(None),
        }
    }

    /// Returns the pods of the list at a version, or `None` if the API server has forgotten it.
    async fn listed_at(
        &mut self,
        context: &Context,
        policy: &Policy,
        of: &Selection,
        version: &ResourceVersion,
    ) -> Result<Option<Arc<Census>>, Error> {
        let selector = policy.selector.to_query();
        let mut snapshots = self.current.iter().chain(&self.since);
        let found = snapshots.find(|snapshot| snapshot.version == *version && snapshot.selector == selector);
        if let Some(snapshot) = found {
            return Ok(Some(Arc::clone(&snapshot.pods)));
        }
        let pods = self.list_again(context, of, version, |pod: PodIdentity| pod).await?;
        Ok(pods.map(|pods| Arc::new(Census::of(pods))))
    }

    /// Makes the list at a version again. Returns `None` once the API server has forgotten it. A server may report this
    /// by another refusal than 410: such a refusal is believed the second time.
    async fn list_again<T: DeserializeOwned, K>(
        &mut self,
        context: &Context,
        of: &Selection,
        version: &ResourceVersion,
        keep: impl FnMut(T) -> K,
    ) -> Result<Option<Vec<K>>, Error> {
        match context.client.list(of, Some(version), keep).await {
            Ok(list) => {
                self.refused.retain(|refused| refused != version);
                Ok(Some(list.items))
            }
            Err(error) if error.cause == Cause::Expired => Ok(None),
            Err(error) if matches!(error.cause, Cause::Refused(_) | Cause::Invalid(_)) => {
                if self.refused.contains(version) {
                    return Ok(None);
                }
                self.refused.push(version.clone());
                Err(error)
            }
            Err(error) => Err(error),
        }
    }
}

fn content_of(restart: &Restart) -> (Contents, ServerTime) {
    (restart.contents.clone(), restart.observed_at)
}

/// Returns the identities of the selected pods and the version of their list, which began at `not_before` or later.
pub(super) async fn list_identities(
    context: &Context,
    policy: &Policy,
    not_before: Instant,
) -> Result<(ResourceVersion, Arc<Census>), Error> {
    let interest = context.shared.identities.interest(&policy.selector.to_query());
    let list = |_| async {
        let list = context.client.list(&metadata_of(policy), None, |pod: PodIdentity| pod).await?;
        Ok((list.resource_version, Arc::new(Census::of(list.items))))
    };
    interest.ask(context.client.stop(), not_before, list).await
}

fn metadata_of(policy: &Policy) -> Selection {
    Selection { metadata_only: true, ..selected(policy) }
}
