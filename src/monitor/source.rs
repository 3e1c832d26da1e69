//! The sources of a ConfigMonitor: as written in a spec, as checked, and their contents as hashes.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::content::Kind;
use crate::kube::names::is_dns_subdomain;
use crate::kube::references::Referred;

/// The identity of a source. A ConfigMonitor has no source twice.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SourceName {
    /// The kind of the object.
    pub kind: Kind,
    /// The name of the object.
    pub name: Arc<str>,
}

impl SourceName {
    /// Returns the object to which a pod refers, if its kind can be a source.
    pub(crate) fn referred(Referred { resource, name, .. }: &Referred<'_>) -> Option<Self> {
        let kind = [Kind::ConfigMap, Kind::Secret].into_iter().find(|kind| kind.resource() == *resource)?;
        Some(Self { kind, name: (*name).into() })
    }
}

impl fmt::Display for SourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind.resource().kind, self.name)
    }
}

/// One entry of the list, as written. Exactly one of its fields is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SourceSpec {
    /// A ConfigMap.
    pub config_map: Option<ObjectSpec>,
    /// A Secret.
    pub secret: Option<ObjectSpec>,
}

/// An object that is a source, as written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectSpec {
    /// The name of the object.
    pub name: String,
    /// The keys that count. Absent: all.
    pub keys: Option<Vec<String>>,
    /// Whether the object may be missing.
    pub optional: Option<bool>,
}

/// The keys of a source that count. `None`: all.
pub(crate) type Keys = Option<BTreeSet<String>>;

/// A checked source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The identity of the object.
    pub name: SourceName,
    pub(crate) keys: Keys,
    /// If the object is missing, its absence is a content like any other.
    pub(crate) optional: bool,
    pub(crate) origin: Origin,
}

/// Why an object is a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The spec names it.
    Named,
    /// Selected pods refer to it.
    Referred,
    /// Selected pods have referred to it. None does now, by the last list.
    Unreferred,
}

impl Source {
    /// Returns whether what was read of the other source is true of this one.
    pub(crate) fn reads_like(&self, other: &Self) -> bool {
        (&self.name, &self.keys, self.optional) == (&other.name, &other.keys, other.optional)
    }
}

/// Checks a list of sources.
pub(super) fn list(sources: &[SourceSpec]) -> Result<Vec<Source>, String> {
    let one = |(index, entry): (usize, &SourceSpec)| {
        let (kind, ObjectSpec { name, keys, optional }) = match (&entry.config_map, &entry.secret) {
            (Some(object), None) => (Kind::ConfigMap, object),
            (None, Some(object)) => (Kind::Secret, object),
            (..) => return Err(format!("spec.sources[{index}]: exactly one of configMap and secret is required")),
        };
        source(kind, name, keys.as_deref(), optional.unwrap_or(false))
    };
    let sources: Vec<Source> = sources.iter().enumerate().map(one).collect::<Result<_, _>>()?;
    let mut names = BTreeSet::new();
    match sources.iter().find(|source| !names.insert(&source.name)) {
        Some(twice) => Err(format!("spec.sources names {} twice", twice.name)),
        None => Ok(sources),
    }
}

/// Checks the name of a source, which becomes a part of a path.
pub(super) fn source(kind: Kind, name: &str, keys: Option<&[String]>, optional: bool) -> Result<Source, String> {
    if !is_dns_subdomain(name) {
        return Err(format!("{name:?} is not a valid name of a {}", kind.resource().kind));
    }
    let keys = keys.map(|keys| keys.iter().cloned().collect());
    Ok(Source { name: SourceName { kind, name: name.into() }, keys, optional, origin: Origin::Named })
}
