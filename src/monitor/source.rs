//! The sources of a ConfigMonitor: as written in a spec, as checked, and their contents as hashes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::content::{ContentHash, Kind, UnknownHash};
use crate::kube::names::is_dns_subdomain;
use crate::kube::references::Referred;

/// The identity of a source. A ConfigMonitor has no source twice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ObjectSpec>,
    /// A Secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<ObjectSpec>,
}

/// An object that is a source, as written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectSpec {
    /// The name of the object.
    pub name: String,
    /// The keys that count. Absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<Vec<String>>,
    /// Whether the object may be missing.
    #[serde(skip_serializing_if = "Option::is_none")]
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

/// The content of each of some sources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents(BTreeMap<SourceName, ContentHash>);

impl Contents {
    pub(crate) fn get(&self, source: &SourceName) -> Option<&ContentHash> {
        self.0.get(source)
    }

    pub(crate) fn get_mut(&mut self, source: &SourceName) -> Option<&mut ContentHash> {
        self.0.get_mut(source)
    }

    pub(crate) fn set(&mut self, source: &SourceName, hash: ContentHash) {
        self.0.insert(source.clone(), hash);
    }

    pub(crate) fn set_all<'a>(&mut self, contents: impl Iterator<Item = (&'a SourceName, &'a ContentHash)>) {
        self.0.extend(contents.map(|(source, hash)| (source.clone(), hash.clone())));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&SourceName, &ContentHash)> {
        self.0.iter()
    }

    /// Returns whether these contents, read from a status, equal `current`.
    ///
    /// # Errors
    /// If the framing of one hash is unknown. That is no change of content.
    pub(crate) fn are(&self, current: &Self) -> Result<bool, UnknownHash> {
        for (source, hash) in self.iter() {
            match current.get(source) {
                Some(current) if hash.is(current)? => {}
                _ => return Ok(false),
            }
        }
        Ok(self.0.len() == current.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> SourceName {
        SourceName { kind: Kind::ConfigMap, name: name.into() }
    }

    fn contents(of: &[(&str, &str)]) -> Contents {
        let mut contents = Contents::default();
        of.iter().for_each(|(name, hash)| contents.set(&named(name), format!("sha256:{hash}").as_str().into()));
        contents
    }

    #[test]
    fn contents_are_what_there_is_only_if_all_of_them_are() {
        let now = contents(&[("a", "1"), ("b", "2")]);
        assert_eq!(now.are(&now), Ok(true));
        for other in [
            &[("a", "1")][..],
            &[("a", "1"), ("b", "3")],
            &[("a", "1"), ("c", "2")],
            &[("a", "1"), ("b", "2"), ("c", "3")],
        ] {
            assert_eq!((contents(other).are(&now), now.are(&contents(other))), (Ok(false), Ok(false)), "{other:?}");
        }
        let mut odd = now.clone();
        odd.set(&named("b"), "blake9:2".into());
        assert!(odd.are(&now).is_err());
    }
}
