//! What the ConfigMaps hold, and what of it counts for a ConfigMonitor.

use std::collections::BTreeMap;
use std::sync::Mutex;

use configmonitor_operator::kube::objects::DataObject;
use configmonitor_operator::monitor::content::{ContentHash, Kind};
use configmonitor_operator::monitor::spec::Discover;
use configmonitor_operator::monitor::spec::Spec;
use rules::status::{ABSENT, Status};
use serde_json::{Value, json};

use crate::NAMESPACE;

/// The values of the two keys of a ConfigMap. One letter is enough to distinguish contents; it may stand for a text.
pub type Values = [Option<char>; 2];
/// The content of a source: the data of each of its ConfigMaps, ordered by name. The other ConfigMaps are `None`.
pub type Content = [Option<Data>; 2];
/// The ConfigMaps. A ConfigMonitor names the first one, unless it names both or its source is edited. In some stories
/// the second one is a Secret.
pub const CONFIG_MAPS: [&str; 2] = ["flaskapp-config", "extra"];
const BY_NAME: [&str; 2] = ["extra", "flaskapp-config"];
/// The keys of each ConfigMap. Both count, unless `spec.keys` names the first one alone.
pub const KEYS: [&str; 2] = ["config.cfg", "second"];

/// The texts for which letters stand, from `FIRST` on.
static TEXTS: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// The first of the letters for texts: Unicode leaves these to us.
const FIRST: u32 = 0xF_0000;

/// What counts of a ConfigMap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Data {
    /// An optional ConfigMap does not exist.
    Absent,
    /// The values, and the revision that created a Secret, with which its hash is keyed.
    There(Values, Option<u64>),
}

/// Which keys of a ConfigMap count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Keys {
    First,
    Both,
}

/// The source of a ConfigMonitor: which keys of each ConfigMap count, ordered by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source([Option<Keys>; 2]);

#[derive(Clone, Copy, Debug)]
pub struct Stored {
    pub version: u64,
    /// The revision that created the ConfigMap.
    pub uid: u64,
    pub content: Values,
    pub immutable: bool,
}

impl Stored {
    /// Returns whether the application starts with this content. That of the demo needs a message.
    pub(crate) fn works(&self) -> bool {
        self.content[0].is_none_or(|value| u32::from(value) < FIRST || text(value).contains("MSG = "))
    }
}

/// Returns a spec as its author writes it and as the API server returns it: an absent field is left out. The operator never
/// writes one.
pub fn written(spec: &Spec) -> Value {
    without_nulls(json!(spec))
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let set = fields.into_iter().filter(|(_, its)| !its.is_null());
            set.map(|(name, its)| (name, without_nulls(its))).collect()
        }
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        _ => value,
    }
}

/// Returns whether a ConfigMap is a source if a pod refers to it, and not otherwise, so that a change of it concerns only
/// such pods.
pub fn discovers(spec: &Spec, config_map: &str) -> bool {
    let excludes = |discover: &Discover| discover.exclude.iter().any(|excluded| &*excluded.name == config_map);
    spec.discover.as_ref().is_some_and(|discover| !excludes(discover)) && !names(spec, config_map)
}

/// Returns whether a spec names a ConfigMap.
pub fn names(spec: &Spec, config_map: &str) -> bool {
    named(spec, config_map).is_some()
}

/// Returns which keys of a ConfigMap count if the spec names it.
fn named(spec: &Spec, config_map: &str) -> Option<Keys> {
    let mut listed = spec.sources.iter().flatten();
    let listed = listed.find_map(|source| {
        let object = source.config_map.as_ref().or(source.secret.as_ref());
        object.filter(|object| object.name == config_map).map(|object| Keys::of(object.keys.as_ref()))
    });
    let alone = spec.config_map.as_deref().filter(|name| *name == config_map);
    listed.or_else(|| alone.map(|_| Keys::of(spec.keys.as_ref())))
}

impl Keys {
    /// Returns the names of the keys.
    pub fn names(self) -> &'static [&'static str] {
        if self == Self::First { &KEYS[..1] } else { &KEYS }
    }

    fn of(keys: Option<&Vec<String>>) -> Self {
        if keys.is_none() { Self::Both } else { Self::First }
    }

    /// Returns the part of the data that counts.
    fn of_data(self, data: Data) -> Data {
        match (self, data) {
            (Self::First, Data::There([first, _], key)) => Data::There([first, None], key),
            (_, all) => all,
        }
    }
}

impl Source {
    /// Returns each source that there can be.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        const EACH: [Option<Keys>; 3] = [None, Some(Keys::First), Some(Keys::Both)];
        let both = EACH.into_iter().flat_map(|one| EACH.map(|other| Self([one, other])));
        both.filter_map(Self::unless_empty)
    }

    fn with(keys: impl Fn(&str) -> Option<Keys>) -> Option<Self> {
        Self(BY_NAME.map(keys)).unless_empty()
    }

    fn unless_empty(self) -> Option<Self> {
        Some(self).filter(|source| source.0.iter().any(Option::is_some))
    }

    /// Returns the source that this spec names or discovers; none if the spec is invalid. Pods refer to all ConfigMaps.
    pub fn of(spec: &Spec) -> Option<Self> {
        let valid = Some(spec).filter(|spec| !spec.pod_selector.is_empty())?;
        let discovered = |name: &str| discovers(valid, name).then_some(Keys::Both);
        Self::with(|name| named(valid, name).or_else(|| discovered(name)))
    }

    /// Returns the source of a ConfigMonitor with this status: what it discovers, the status says. Keys count as long as
    /// they are recorded.
    pub fn by(spec: &Spec, status: &Status) -> Option<Self> {
        let recorded = |name: &str| status.known().find(|known| known.name == name);
        let recorded = |name: &str| recorded(name).map(|known| Keys::of(known.keys.as_ref()));
        let named = Self::of(spec)?;
        let all = Self::with(|name| named.keys_of(name).map(|keys| recorded(name).map_or(keys, |its| its.max(keys))))?;
        let known = |name: &str| status.sources.iter().find(|known| known.name == name);
        let discovered = |name: &str| known(name).filter(|known| known.discovered);
        let finds_none = status.finds_none() && status.sources.iter().all(|known| names(spec, &known.name));
        if spec.discover.is_none() || BY_NAME.iter().all(|name| discovered(name).is_none()) && !finds_none {
            return Some(all);
        }
        // What was named before may be discovered now.
        let known = |name: &str| known(name).map(|known| Keys::of(known.keys.as_ref()));
        Self::with(|name| all.keys_of(name).and_then(|keys| if names(spec, name) { Some(keys) } else { known(name) }))
    }

    /// Returns the sources of both, with all of their keys.
    pub(crate) fn and(self, other: Self) -> Self {
        Self([0, 1].map(|number| self.0[number].max(other.0[number])))
    }

    fn keys_of(self, config_map: &str) -> Option<Keys> {
        BY_NAME.into_iter().zip(self.0).find(|(name, _)| *name == config_map)?.1
    }

    pub fn includes(self, config_map: &str) -> bool {
        self.keys_of(config_map).is_some()
    }

    /// Returns the names of the ConfigMaps, in their order.
    pub fn config_maps(self) -> impl Iterator<Item = &'static str> + Clone {
        BY_NAME.into_iter().filter(move |name| self.includes(name))
    }

    /// Returns the number of ConfigMaps.
    pub fn count(self) -> usize {
        self.config_maps().count()
    }

    /// Returns that source with this ConfigMap, which a keeper has read.
    pub fn by_reading(spec: &Spec, status: &Status, config_map: &str) -> Option<Self> {
        let known = Self::by(spec, status);
        let keys = |name: &str| known.and_then(|known| known.keys_of(name));
        match discovers(spec, config_map) {
            true => Self::with(|name| keys(name).or_else(|| (name == config_map).then_some(Keys::Both))),
            false => known.filter(|known| known.includes(config_map)),
        }
    }

    /// Returns the part of the data that counts; none if a ConfigMap is missing.
    pub fn content(self, data: impl Fn(&'static str) -> Option<Data>) -> Option<Content> {
        self.config_maps().all(|config_map| data(config_map).is_some()).then(|| self.known(data)).flatten()
    }

    /// Returns the part of the data that counts, as far as it is known; none if nothing is known.
    pub fn known(self, data: impl Fn(&'static str) -> Option<Data>) -> Option<Content> {
        let counts = |config_map| Some(self.keys_of(config_map)?.of_data(data(config_map)?));
        Some(BY_NAME.map(counts)).filter(|content| content.iter().any(Option::is_some))
    }

    pub fn parts(self) -> impl Iterator<Item = Self> {
        self.config_maps().filter_map(move |config_map| self.only(|name| name == config_map))
    }

    /// Returns the source of these ConfigMaps alone; none if the source has none of them.
    pub fn only(self, config_maps: impl Fn(&str) -> bool) -> Option<Self> {
        Self::with(|name| self.keys_of(name).filter(|_| config_maps(name)))
    }

    /// Returns the keys of a part that count.
    pub fn keys(self) -> impl Iterator<Item = &'static str> {
        let are_both = self.0.contains(&Some(Keys::Both));
        KEYS.into_iter().take(if are_both { 2 } else { 1 })
    }

    /// Returns the first key of the same ConfigMaps.
    #[must_use]
    pub fn first_key(self) -> Self {
        Self(self.0.map(|keys| keys.map(|_| Keys::First)))
    }

    pub fn name(self) -> &'static str {
        self.config_maps().next().expect("no source is empty")
    }

    /// Returns whether a part counts, perhaps with further keys.
    pub fn has(self, part: Self) -> bool {
        self.keys_of(part.name()) >= part.keys_of(part.name())
    }

    /// Returns the data of a part in this source's content; none if `part` is not a part of the source.
    pub fn of_part(self, part: Self, content: Content) -> Option<Data> {
        let data = BY_NAME.into_iter().zip(content).find(|(name, _)| *name == part.name() && self.has(part))?.1?;
        Some(part.keys_of(part.name())?.of_data(data))
    }
}

/// Returns the letter that stands for this value.
pub(crate) fn letter(value: &str) -> char {
    let mut letters = value.chars();
    if let (Some(letter), None) = (letters.next(), letters.next())
        && u32::from(letter) < FIRST
    {
        return letter;
    }
    let mut texts = TEXTS.lock().unwrap();
    let known = texts.iter().position(|text| text == value).unwrap_or_else(|| {
        texts.push(value.to_owned());
        texts.len() - 1
    });
    char::from_u32(FIRST + u32::try_from(known).unwrap()).expect("there are fewer values than letters")
}

/// Returns the value for which a letter stands.
fn text(letter: char) -> String {
    let known = u32::from(letter).checked_sub(FIRST);
    known.map_or_else(|| letter.to_string(), |known| TEXTS.lock().unwrap()[known as usize].clone())
}

pub fn data(content: Values) -> BTreeMap<String, String> {
    KEYS.iter().zip(content).filter_map(|(key, value)| Some(((*key).to_owned(), text(value?)))).collect()
}

/// Returns the hashes of a content, as the operator makes them, ordered by name.
pub fn hash(content: Content) -> String {
    let hashes = content.into_iter().flatten().map(|its| {
        let Data::There(values, key) = its else { return ABSENT.to_owned() };
        let metadata = metadata(CONFIG_MAPS[1], 1, key.unwrap_or_default());
        let metadata = serde_json::from_str(&metadata).unwrap();
        let object = DataObject { metadata, data: Some(data(values)), binary_data: None, r#type: None };
        let kind = if key.is_some() { Kind::Secret } else { Kind::ConfigMap };
        ContentHash::of(kind, &object, None).to_string()
    });
    hashes.collect::<Vec<_>>().join(",")
}

/// Returns the metadata of a ConfigMap as JSON.
pub(crate) fn metadata(name: &str, version: u64, uid: u64) -> String {
    format!(r#"{{"name":"{name}","namespace":"{NAMESPACE}","uid":"uid-{name}-{uid}","resourceVersion":"{version}"}}"#)
}
