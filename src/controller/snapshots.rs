//! Which pods were there right after a content was read: the lists that a pending restart names by their versions, as far as this process
//! has made them itself. It spares a request, and the API server forgets a list after minutes.

use std::sync::Arc;

use crate::kube::{ResourceVersion, ServerTime};
use crate::monitor::content::ContentHash;
use crate::monitor::rollout::Listed;
use crate::monitor::spec::Policy;
use crate::monitor::status::Restart;

/// The lists of a pending restart.
#[derive(Default)]
pub(super) struct Snapshots {
    /// That of the content that there is,
    current: Option<Box<Snapshot>>,
    /// and that of the first one after what pods had been restarted for.
    since: Option<Box<Snapshot>>,
}

/// One list of pods.
struct Snapshot {
    /// The content, and when it was first read.
    content: (ContentHash, ServerTime),
    version: ResourceVersion,
    selector: String,
    pods: Arc<Listed>,
}

impl Snapshots {
    /// The restart as far as it can be completed. What was listed for its content once counts, also if it could not be written down then.
    pub(super) fn complete(&mut self, restart: &mut Restart) {
        // The source of a restart may be another one by now, and the list is the same.
        let is_of_another = |current: &mut Box<Snapshot>| {
            current.content != content_of(restart) && restart.pods_resource_version.as_ref() != Some(&current.version)
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
    pub(super) fn take_in(
        &mut self,
        restart: &mut Restart,
        policy: &Policy,
        version: ResourceVersion,
        pods: Arc<Listed>,
    ) {
        restart.pods_resource_version = Some(version.clone());
        let (content, selector) = (content_of(restart), policy.selector.to_query());
        self.current = Some(Box::new(Snapshot { content, version, selector, pods }));
    }

    /// The list of this version, of the pods that this policy selects.
    pub(super) fn find(&self, policy: &Policy, version: &ResourceVersion) -> Option<Arc<Listed>> {
        let selector = policy.selector.to_query();
        let mut known = self.current.iter().chain(&self.since);
        let found = known.find(|snapshot| snapshot.version == *version && snapshot.selector == selector);
        found.map(|snapshot| Arc::clone(&snapshot.pods))
    }
}

fn content_of(restart: &Restart) -> (ContentHash, ServerTime) {
    (restart.config_hash.clone(), restart.observed_at)
}
