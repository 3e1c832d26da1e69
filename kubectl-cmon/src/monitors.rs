//! ConfigMonitors and the content of their sources, as they are now.

use std::collections::BTreeMap;

use configmonitor_operator::kube::client::Client;
use configmonitor_operator::kube::error::{Cause, Error};
use configmonitor_operator::kube::list::{List, Selection};
use configmonitor_operator::kube::objects::DataObject;
use configmonitor_operator::kube::{PODS, Resource};
use configmonitor_operator::monitor::content::ContentHash;
use configmonitor_operator::monitor::reason::Reason;
use configmonitor_operator::monitor::source::SourceName;
use configmonitor_operator::monitor::spec::Policy;
use configmonitor_operator::monitor::status::Status;
use configmonitor_operator::monitor::{CONFIG_MONITORS, ConfigMonitor, MonitorMetadata};

use serde::de::IgnoredAny;
use serde_json::Value;

use crate::conditions::reason;
use crate::outcome::Failure;

/// A ConfigMonitor with its spec and its status decoded.
pub(crate) struct Monitor {
    pub(crate) metadata: MonitorMetadata,
    /// Or what is wrong with the spec.
    pub(crate) policy: Result<Policy, String>,
    /// None if the operator has written none that can be read.
    pub(crate) status: Option<Status>,
}

/// The content of each source as of now, under the keys that the status has recorded. None: it does not exist.
pub(crate) type Contents = BTreeMap<SourceName, Option<ContentHash>>;

pub(crate) type Labels = BTreeMap<String, String>;

pub(crate) fn name_of(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

pub(crate) fn namespace_of(object: &Value) -> String {
    object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned()
}

pub(crate) fn labels_of(metadata: &Value) -> Labels {
    serde_json::from_value(metadata["labels"].clone()).unwrap_or_default()
}

/// Selects all objects of a resource.
pub(crate) fn all(resource: Resource) -> Selection {
    Selection { resource, labels: None, fields: None, metadata_only: false }
}

/// Selects the pods that a ConfigMonitor selects.
pub(crate) fn pods_of(policy: &Policy) -> Selection {
    Selection { labels: Some(policy.selector.to_query()), ..all(PODS) }
}

impl Monitor {
    pub(crate) fn new(ConfigMonitor { metadata, spec, status }: ConfigMonitor) -> Self {
        let policy = Policy::of(spec.as_deref());
        let status = status.and_then(|status| serde_json::from_str(status.get()).ok());
        Self { metadata, policy, status }
    }

    /// Decodes one.
    pub(crate) fn of(object: &Value) -> Result<Self, Failure> {
        // A text of its own, as the spec and the status are kept as they are.
        serde_json::from_str(&object.to_string()).map(Self::new).map_err(Failure::failed)
    }

    /// Reads one.
    pub(crate) async fn read(client: &Client, name: &str) -> Result<Self, Error> {
        Ok(Self::new(client.get::<ConfigMonitor>(CONFIG_MONITORS, name).await?.value))
    }

    /// Reads all of the namespace as JSON.
    pub(crate) async fn objects(client: &Client) -> Result<List<Value>, Error> {
        client.list(&all(CONFIG_MONITORS), None, |monitor| monitor).await
    }

    /// Reads all of the namespace, or of all namespaces.
    pub(crate) async fn all(client: &Client) -> Result<Vec<Self>, Error> {
        Ok(client.list(&all(CONFIG_MONITORS), None, Self::new).await?.items)
    }

    /// Returns whether the spec names the source, or pods have referred to it.
    pub(crate) fn has(&self, source: &SourceName) -> bool {
        let named = self.policy.iter().flat_map(|policy| &policy.sources).map(|its| &its.name);
        let known = self.status.iter().flat_map(|status| &status.sources).map(|its| &its.name);
        named.chain(known).any(|its| its == source)
    }

    /// Returns whether it has the source, or may discover it: a status may be of an earlier spec, or of earlier pods.
    pub(crate) fn may_have(&self, source: &SourceName) -> bool {
        self.has(source) || self.policy.as_ref().is_ok_and(|policy| policy.may_discover(source) && !self.is_read())
    }

    /// Returns whether the status is of this spec.
    pub(crate) fn is_read(&self) -> bool {
        self.status.as_ref().and_then(|status| status.observed_generation) == Some(self.metadata.generation)
    }

    /// Returns whether the selector selects a pod, if the operator says that it selects none.
    pub(crate) async fn has_pods(&self, client: &Client) -> Result<bool, Error> {
        let (Ok(policy), Some(status)) = (&self.policy, &self.status) else { return Ok(false) };
        if reason(status) != <&str>::from(Reason::NoPodsSelected) {
            return Ok(true);
        }
        let pods = client.list(&pods_of(policy), None, |_: IgnoredAny| ()).await?;
        Ok(!pods.items.is_empty())
    }

    /// Reads the sources that the status knows.
    pub(crate) async fn contents(&self, client: &Client) -> Result<Contents, Error> {
        let mut contents = Contents::new();
        for source in self.status.iter().flat_map(|status| &status.sources) {
            let SourceName { kind, name } = &source.name;
            let hash = match client.get::<DataObject>(kind.resource(), name).await {
                // As for the operator, nobody means the changes of a token who does not name it.
                Ok(object) if source.discovered && object.value.is_token() => Some(ContentHash::absent()),
                Ok(object) => Some(ContentHash::of(*kind, &object.value, source.keys.as_ref())),
                Err(Error { cause: Cause::NotFound(_), .. }) => None,
                Err(error) => return Err(error),
            };
            contents.insert(source.name.clone(), hash);
        }
        Ok(contents)
    }
}
