//! Which pods were there right after a content was read: the lists that a restart names by their versions. As far as this process has made them
//! itself it keeps them, as long as the restart is pending: that spares a request, and the API server forgets a list after minutes.

use std::sync::Arc;
use std::time::Instant;

use serde::de::DeserializeOwned;
use tracing::info;

use super::{list_pods, selected};
use crate::controller::clock::timer_now;
use crate::controller::context::Context;
use crate::controller::shared::{InPods, Listing};
use crate::kube::error::{Cause, Error};
use crate::kube::list::Selection;
use crate::kube::objects::PodIdentity;
use crate::kube::{ResourceVersion, ServerTime};
use crate::monitor::rollout::{Listed, Plan, Suspects};
use crate::monitor::source::Contents;
use crate::monitor::spec::Policy;
use crate::monitor::status::{Begun, Restart, Status};

/// The lists of a restart.
#[derive(Default)]
pub(super) struct Snapshots {
    /// That of the content that there is,
    current: Option<Box<Snapshot>>,
    /// and that of the first one after what pods had been restarted for.
    since: Option<Box<Snapshot>>,
    /// The versions of lists that the API server has refused to make again.
    refused: Vec<ResourceVersion>,
}

/// One list of pods.
struct Snapshot {
    /// The content, and when it was first read.
    content: (Contents, ServerTime),
    /// When the answer came that carried it: content may go and come back within a second.
    came: Instant,
    version: ResourceVersion,
    selector: String,
    pods: Arc<Listed>,
}

impl Snapshots {
    /// Lists the pods of a restart that is to wait, right after its content came: those are the ones that may run with earlier content. If it
    /// begins at once, its own list says so.
    pub(super) async fn take(
        &mut self,
        context: &Context,
        policy: &Policy,
        status: &mut Status,
        came: Instant,
    ) -> Result<(), Error> {
        let pending = status.restart.as_mut().filter(|restart| restart.begun().is_none());
        let Some(restart) = pending else { return Ok(()) };
        self.complete(restart, came);
        if restart.pods_resource_version.is_none() {
            let (version, listed) = list_identities(context, policy, came).await?;
            let pods = listed.pods.len();
            self.take_in(restart, policy, came, (version, listed));
            status.pods = Some(pods);
        }
        Ok(())
    }

    /// The lists that a restart begins with. They say which pods may run with other content, and after that, which ones are there now: after the GET
    /// of the ConfigMap, too, as a list from before could miss a pod that read the old content meanwhile.
    pub(super) async fn begin(
        &mut self,
        context: &Context,
        policy: &Policy,
        restart: &mut Restart,
        came: Instant,
    ) -> Result<(Suspects, Arc<Listing>, InPods), Error> {
        if restart.request.is_some() && restart.pods_resource_version.is_none() {
            // It is about all pods, also those that have come since the content was read.
            self.forget();
        }
        self.complete(restart, came);
        let metadata = metadata_of(policy);
        let since = self.listed_since(context, policy, &metadata, restart).await?;
        let known = match &restart.pods_resource_version {
            Some(version) => Some(self.listed_at(context, policy, &metadata, version).await?),
            None => None,
        };
        let now = timer_now();
        // One that others have made since the GET is nearer to it, and says better which pods are old. Without a change, all are that are there now.
        let not_before = if known.is_some() || restart.request.is_some() { now } else { came };
        let (mut listing, mut interest) = list_pods(context, policy, not_before).await?;
        let listed = known.unwrap_or_else(|| {
            let listed = Arc::new(Listed::of(listing.pods.iter().map(|pod| pod.identity())));
            self.take_in(restart, policy, came, (listing.version.clone(), Arc::clone(&listed)));
            Some(listed)
        });
        // A budget goes by what there is now.
        if policy.max_unavailable.is_some() && listing.began < now {
            (listing, interest) = list_pods(context, policy, now).await?;
        }
        Ok((Suspects { listed, since }, listing, interest))
    }

    /// Makes the plan of a restart again, from the list that names the pods that it replaces. Once the API server has forgotten that list, after minutes,
    /// creation times decide, and the budget ignores an owner all of whose pods are absent at that moment until one is back.
    pub(super) async fn recall(
        &mut self,
        context: &Context,
        policy: &Policy,
        restart: &Restart,
        begun: &Begun,
    ) -> Result<Plan, Error> {
        let selection = Selection { labels: Some(begun.pod_selector.clone()), ..selected(policy) };
        let share = |pod| context.shared.pods.share(pod);
        let known = match &restart.pods_resource_version {
            Some(version) => self.list_again(context, &selection, version, share).await?,
            None => None,
        };
        let metadata = Selection { metadata_only: true, ..selection.clone() };
        let since = self.listed_since(context, policy, &metadata, restart).await?;
        let (pods, listed) = match known {
            Some(pods) => {
                let listed = Listed::of(pods.iter().map(|pod| pod.identity()));
                (pods, Some(Arc::new(listed)))
            }
            None => match context.client.list(&selection, None, share).await {
                Ok(list) => (list.items, None),
                Err(error) => {
                    // A server that refuses every list has not forgotten this one.
                    self.refused.clear();
                    return Err(error);
                }
            },
        };
        let suspects = Suspects { listed, since };
        info!(namespace = context.client.namespace(), monitor = &*context.name, pods = begun.pods, "restart resumed");
        let (selector, own_pod) = (begun.pod_selector.clone(), context.shared.own_pod.as_ref());
        Ok(Plan::new(policy, restart, selector, &suspects, &pods, own_pod))
    }

    /// Forgets the lists that it keeps: the restart is not pending any more.
    pub(super) fn forget(&mut self) {
        (self.current, self.since) = (None, None);
    }

    /// The restart as far as it can be completed. What was listed for its content once counts, also if it could not be written down then.
    fn complete(&mut self, restart: &mut Restart, came: Instant) {
        let is_named = |current: &Snapshot| restart.pods_resource_version.as_ref() == Some(&current.version);
        if let Some(current) = self.current.as_mut().filter(|current| is_named(current)) {
            // The source of the restart may be another one by now, and the list is the same.
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

    /// Takes in the list that was made for the content of this restart.
    fn take_in(
        &mut self,
        restart: &mut Restart,
        policy: &Policy,
        came: Instant,
        (version, pods): (ResourceVersion, Arc<Listed>),
    ) {
        restart.pods_resource_version = Some(version.clone());
        let (content, selector) = (content_of(restart), policy.selector.to_query());
        self.current = Some(Box::new(Snapshot { content, came, version, selector, pods }));
    }

    /// If the content has gone back: which pods were there right after it had left.
    async fn listed_since(
        &mut self,
        context: &Context,
        policy: &Policy,
        of: &Selection,
        restart: &Restart,
    ) -> Result<Option<Arc<Listed>>, Error> {
        match restart.since_pods_resource_version.as_ref().filter(|_| restart.revert) {
            Some(version) => self.listed_at(context, policy, of, version).await,
            None => Ok(None),
        }
    }

    /// Which pods were there at a version; none once nobody can tell any more.
    async fn listed_at(
        &mut self,
        context: &Context,
        policy: &Policy,
        of: &Selection,
        version: &ResourceVersion,
    ) -> Result<Option<Arc<Listed>>, Error> {
        let selector = policy.selector.to_query();
        let mut known = self.current.iter().chain(&self.since);
        let found = known.find(|snapshot| snapshot.version == *version && snapshot.selector == selector);
        if let Some(snapshot) = found {
            return Ok(Some(Arc::clone(&snapshot.pods)));
        }
        let pods = self.list_again(context, of, version, |pod: PodIdentity| pod).await?;
        Ok(pods.map(|pods| Arc::new(Listed::of(pods))))
    }

    /// A list as it was at a version; none once the API server cannot tell any more. It may have its own words for that, which are believed when
    /// it says them a second time.
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

/// Which pods a policy selects, as listed at this time or later, and the version of that list.
pub(super) async fn list_identities(
    context: &Context,
    policy: &Policy,
    not_before: Instant,
) -> Result<(ResourceVersion, Arc<Listed>), Error> {
    let interest = context.shared.identities.interest(&policy.selector.to_query());
    let list = async {
        let list = context.client.list(&metadata_of(policy), None, |pod: PodIdentity| pod).await?;
        Ok((list.resource_version, Arc::new(Listed::of(list.items))))
    };
    interest.ask(context.client.stop(), not_before, list).await
}

fn metadata_of(policy: &Policy) -> Selection {
    Selection { metadata_only: true, ..selected(policy) }
}
