//! What pods refer to, and which pods refer to the sources that matter.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::value::RawValue;

use super::pod::Pod;
use super::source::SourceName;
use super::status::Status;
use crate::kube::Uid;
use crate::kube::references::References;

/// The pods of a list.
pub(crate) type Snapshot = BTreeSet<Uid>;

/// The sources for which it matters which pods refer to them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Concerns {
    /// Those whose change concerns only the pods that refer to them.
    pub(crate) changed: BTreeSet<SourceName>,
    /// Those that do not exist. Pods that cannot start without them are not deleted.
    pub(crate) missing: BTreeSet<SourceName>,
}

/// The pods that refer to the sources of a scope.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Referrers {
    referring: BTreeMap<SourceName, Snapshot>,
    /// The pods that cannot start without a source that does not exist.
    pub(crate) unstartable: Snapshot,
}

impl Concerns {
    /// Returns the discovered sources that have changed.
    pub(crate) fn of(status: &Status) -> Self {
        let changed = status.sources.iter().filter(|known| known.discovered && !known.changes.is_empty());
        Self { changed: changed.map(|known| known.name.clone()).collect(), missing: BTreeSet::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.missing.is_empty()
    }
}

impl Referrers {
    /// Takes a pod with this spec.
    pub(crate) fn see(&mut self, Concerns { changed, missing }: &Concerns, uid: &Uid, spec: Option<&RawValue>) {
        let references = references(spec);
        let referred = references.as_ref().map(names);
        for source in changed.iter().filter(|source| refers(referred.as_ref(), source)) {
            self.referring.entry(source.clone()).or_default().insert(uid.clone());
        }
        let mut required = references.iter().flat_map(References::iter).filter(|it| !it.is_optional);
        if !missing.is_empty() && required.any(|it| SourceName::referred(&it).is_some_and(|it| missing.contains(&it))) {
            self.unstartable.insert(uid.clone());
        }
    }

    pub(crate) fn contain(&self, source: &SourceName, pod: &Pod) -> bool {
        self.referring.get(source).is_some_and(|pods| pods.contains(&pod.uid))
    }
}

/// Returns the objects to which a pod with this spec refers. `None` if it cannot be decoded.
pub(crate) fn referred(spec: Option<&RawValue>) -> Option<BTreeSet<SourceName>> {
    references(spec).as_ref().map(names)
}

fn names(references: &References) -> BTreeSet<SourceName> {
    references.iter().filter_map(|referred| SourceName::referred(&referred)).collect()
}

/// Returns the references of a pod with this spec. `None` if it cannot be decoded.
pub(crate) fn references(spec: Option<&RawValue>) -> Option<References> {
    spec.map_or(Some(References::default()), |spec| serde_json::from_str(spec.get()).ok())
}

/// Returns whether a pod refers to a source: what is not known may be anything.
pub(crate) fn refers(referred: Option<&BTreeSet<SourceName>>, source: &SourceName) -> bool {
    referred.is_none_or(|referred| referred.contains(source))
}
