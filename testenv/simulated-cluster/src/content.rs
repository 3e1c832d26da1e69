//! What the ConfigMaps hold, and what of it counts for a ConfigMonitor.

use std::collections::{BTreeMap, BTreeSet};

use configmonitor_operator::kube::objects::DataObject;
use configmonitor_operator::monitor::content::{ContentHash, Kind};
use configmonitor_operator::monitor::discover::DiscoverSpec;
use configmonitor_operator::monitor::spec::{PodScope, Spec};
use rules::status::{ABSENT, Status};

use crate::NAMESPACE;

/// The values of the two keys of a ConfigMap. One letter is enough to distinguish contents.
pub type Values = [Option<char>; 2];
/// The content of a source: the data of each of its ConfigMaps, ordered by name. The other ConfigMaps are `None`.
pub type Content = [Option<Data>; 2];
/// The ConfigMaps. A ConfigMonitor names the first one, unless it names both or its source is edited. In some stories
/// the second one is a Secret.
pub const CONFIG_MAPS: [&str; 2] = ["settings", "other"];
const BY_NAME: [&str; 2] = ["other", "settings"];
/// The keys of each ConfigMap. Both count, unless `spec.keys` names the first one alone.
pub const KEYS: [&str; 2] = ["key", "second"];

/// What counts of a ConfigMap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Data {
    /// An optional ConfigMap does not exist.
    Absent,
    /// The values, and the revision that created a Secret, with which its hash is keyed.
    There(Values, Option<u64>),
}

/// The source of a ConfigMonitor: a ConfigMap or its first key, or both ConfigMaps, ordered by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source {
    pub config_maps: &'static [&'static str],
    one_key: bool,
}

pub(crate) const SOURCES: [Source; 6] = [
    Source { config_maps: &["settings"], one_key: false },
    Source { config_maps: &["settings"], one_key: true },
    Source { config_maps: &["other"], one_key: false },
    Source { config_maps: &["other"], one_key: true },
    Source { config_maps: &["other", "settings"], one_key: false },
    Source { config_maps: &["other", "settings"], one_key: true },
];

#[derive(Clone, Copy, Debug)]
pub struct Stored {
    pub version: u64,
    /// The revision that created the ConfigMap.
    pub uid: u64,
    pub content: Values,
    pub immutable: bool,
}

/// Returns whether a change concerns only the pods that refer to its source.
pub fn is_referring(spec: &Spec) -> bool {
    spec.discover.is_some() || spec.pod_scope == Some(PodScope::Referring)
}

/// Returns whether a ConfigMap is a source if a pod refers to it.
pub fn discovers(spec: &Spec, config_map: &str) -> bool {
    let excludes = |discover: &DiscoverSpec| discover.exclude.iter().any(|excluded| &*excluded.name == config_map);
    spec.discover.as_ref().is_some_and(|discover| !excludes(discover))
}

impl Source {
    /// Returns the source that this spec names or discovers; none if the spec is invalid. Pods refer to all ConfigMaps.
    pub fn of(spec: &Spec) -> Option<Self> {
        let valid = Some(spec).filter(|spec| !spec.pod_selector.is_empty())?;
        let listed = || {
            let all = valid.sources.iter().flatten();
            all.filter_map(|source| source.config_map.as_ref().or(source.secret.as_ref()))
        };
        let discovered = CONFIG_MAPS.into_iter().filter(|name| discovers(valid, name));
        let names = listed().map(|object| &*object.name).chain(valid.config_map.as_deref()).chain(discovered);
        let names: BTreeSet<&str> = names.collect();
        let one_key = valid.keys.is_some() || listed().any(|object| object.keys.is_some());
        let is_it = |source: &Self| source.one_key == one_key && names.iter().eq(source.config_maps);
        SOURCES.into_iter().find(is_it)
    }

    /// Returns the source of a ConfigMonitor with this status: what it discovers, the status says.
    pub fn by(spec: &Spec, status: &Status) -> Option<Self> {
        let all = Self::of(spec)?;
        let mut discovered = status.sources.iter().filter(|known| known.discovered).peekable();
        let finds_none = status.sources.is_empty() && status.is_ready();
        if spec.discover.is_none() || discovered.peek().is_none() && !finds_none {
            return Some(all);
        }
        let discovered: Vec<&str> = discovered.map(|known| &*known.name).collect();
        all.only(|name| discovered.contains(&name))
    }

    /// Returns that source with this ConfigMap, which a keeper has read.
    pub fn by_reading(spec: &Spec, status: &Status, config_map: &str) -> Option<Self> {
        let known = Self::by(spec, status);
        let is_known = |name: &str| known.is_some_and(|known| known.config_maps.contains(&name));
        match discovers(spec, config_map) {
            true => Self::of(spec)?.only(|name| name == config_map || is_known(name)),
            false => known.filter(|_| is_known(config_map)),
        }
    }

    /// Returns the part of the data that counts; none if a ConfigMap is missing.
    pub fn content(self, data: impl Fn(&'static str) -> Option<Data>) -> Option<Content> {
        self.config_maps.iter().all(|config_map| data(config_map).is_some()).then(|| self.known(data)).flatten()
    }

    /// Returns the part of the data that counts, as far as it is known; none if nothing is known.
    pub fn known(self, data: impl Fn(&'static str) -> Option<Data>) -> Option<Content> {
        let its = |config_map| self.config_maps.contains(&config_map).then(|| data(config_map)).flatten();
        let counts = |config_map| {
            its(config_map).map(|its| match its {
                Data::There([first, _], key) if self.one_key => Data::There([first, None], key),
                all => all,
            })
        };
        Some(BY_NAME.map(counts)).filter(|content| content.iter().any(Option::is_some))
    }

    pub fn parts(self) -> impl Iterator<Item = Self> {
        let is_part = move |part: &Self| {
            part.one_key == self.one_key && part.config_maps.len() == 1 && self.config_maps.contains(&part.name())
        };
        SOURCES.into_iter().filter(is_part)
    }

    /// Returns the source of these ConfigMaps alone; none if the source has none of them.
    pub fn only(self, config_maps: impl Fn(&str) -> bool) -> Option<Self> {
        let is_it = |other: &Self| {
            let its = self.config_maps.iter().filter(|config_map| config_maps(config_map));
            other.one_key == self.one_key && its.eq(other.config_maps)
        };
        SOURCES.into_iter().find(is_it)
    }

    pub fn name(self) -> &'static str {
        self.config_maps[0]
    }

    pub fn has(self, part: Self) -> bool {
        self.parts().any(|its| its == part)
    }

    /// Returns the data of a part in this source's content; none if `part` is not a part of the source.
    pub fn of_part(self, part: Self, content: Content) -> Option<Data> {
        BY_NAME.into_iter().zip(content).find(|(name, _)| *name == part.name() && self.has(part))?.1
    }
}

pub fn data(content: Values) -> BTreeMap<String, String> {
    KEYS.iter().zip(content).filter_map(|(key, value)| Some(((*key).to_owned(), value?.to_string()))).collect()
}

/// Returns the hashes of a content, as the operator makes them, ordered by name.
pub fn hash(content: Content) -> String {
    let hashes = content.into_iter().flatten().map(|its| {
        let Data::There(values, key) = its else { return ABSENT.to_owned() };
        let metadata = metadata(CONFIG_MAPS[1], 1, key.unwrap_or_default());
        let metadata = serde_json::from_str(&metadata).unwrap();
        let object =
            DataObject { metadata, data: Some(data(values)), binary_data: None, r#type: None, immutable: false };
        let kind = if key.is_some() { Kind::Secret } else { Kind::ConfigMap };
        ContentHash::of(kind, &object, None).to_string()
    });
    hashes.collect::<Vec<_>>().join(",")
}

/// Returns the metadata of a ConfigMap as JSON.
pub(crate) fn metadata(name: &str, version: u64, uid: u64) -> String {
    format!(r#"{{"name":"{name}","namespace":"{NAMESPACE}","uid":"uid-{name}-{uid}","resourceVersion":"{version}"}}"#)
}
