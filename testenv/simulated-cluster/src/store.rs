//! What etcd is to the API server: every version of every object of one kind, ordered by revision, until compaction. It
//! knows nothing of what the objects mean.

use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) type Labels = Arc<BTreeMap<String, String>>;

/// A version of an object, or its deletion.
pub(crate) struct Version {
    pub(crate) revision: u64,
    /// When the version was written, in milliseconds.
    pub ms: u64,
    pub name: Arc<str>,
    /// The number of the object in the cluster, whatever its name.
    pub id: usize,
    pub labels: Labels,
    /// The labels of the object's previous version, if there is one.
    pub before: Option<Labels>,
    /// The object as JSON: its metadata, and the other fields.
    metadata: String,
    rest: Arc<str>,
    pub gone: bool,
}

pub(crate) struct Object {
    pub name: Arc<str>,
    pub id: usize,
    pub labels: Labels,
    pub metadata: String,
    pub rest: String,
}

/// All versions of all objects of one kind.
pub(crate) struct Store {
    pub api_version: &'static str,
    pub kind: &'static str,
    pub log: Vec<Version>,
    live: BTreeMap<Arc<str>, usize>,
}

impl Store {
    pub(crate) fn new(api_version: &'static str, kind: &'static str) -> Self {
        Self { api_version, kind, log: Vec::new(), live: BTreeMap::new() }
    }

    pub(crate) fn put(&mut self, revision: u64, ms: u64, object: Object) {
        let Object { name, id, labels, metadata, rest } = object;
        let before = self.live.insert(Arc::clone(&name), self.log.len());
        let before = before.map(|before| Arc::clone(&self.log[before].labels));
        let rest = rest.into();
        self.log.push(Version { revision, ms, name, id, labels, before, metadata, rest, gone: false });
    }

    /// Deletes an object, if it exists. Its last version has this metadata.
    pub(crate) fn remove(&mut self, revision: u64, ms: u64, name: &str, metadata: String) {
        if let Some(last) = self.live.remove(name) {
            let Version { name, id, labels, rest, .. } = &self.log[last];
            let (name, id, labels, rest) = (Arc::clone(name), *id, Arc::clone(labels), Arc::clone(rest));
            let before = Some(Arc::clone(&labels));
            self.log.push(Version { revision, ms, name, id, labels, before, metadata, rest, gone: true });
        }
    }

    pub(crate) fn restore(&mut self, revision: u64) {
        self.log.truncate(self.log.partition_point(|version| version.revision <= revision));
        self.live.clear();
        for (index, version) in self.log.iter().enumerate() {
            if version.gone {
                self.live.remove(&version.name);
            } else {
                self.live.insert(Arc::clone(&version.name), index);
            }
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Version> {
        self.live.get(name).map(|index| &self.log[*index])
    }

    /// Returns the objects of this revision, by name.
    pub(crate) fn at(&self, revision: u64) -> Vec<&Version> {
        if self.log.last().is_none_or(|last| last.revision <= revision) {
            return self.live.values().map(|index| &self.log[*index]).collect();
        }
        let mut live = BTreeMap::new();
        for version in self.log.iter().take_while(|version| version.revision <= revision) {
            if version.gone {
                live.remove(&version.name);
            } else {
                live.insert(Arc::clone(&version.name), version);
            }
        }
        live.into_values().collect()
    }

    /// Returns an object of this kind, or its metadata alone, as JSON.
    pub(crate) fn json(&self, version: &Version, metadata_only: bool) -> String {
        let Version { metadata, rest, .. } = version;
        if metadata_only {
            return format!(
                r#"{{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{metadata}}}"#
            );
        }
        format!(r#"{{"apiVersion":"{}","kind":"{}","metadata":{metadata}{rest}}}"#, self.api_version, self.kind)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Selection(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq)]
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    DoesNotExist(String),
}

impl Selection {
    /// Reads a selector. `None` selects everything.
    pub fn parse(query: Option<&str>) -> Self {
        Self(split(query.unwrap_or_default()).map(Requirement::parse).collect())
    }

    /// A selection of nothing.
    pub(crate) fn nothing() -> Self {
        Self(vec![Requirement::In(String::new(), Vec::new())])
    }

    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|requirement| match requirement {
            Requirement::In(key, values) => labels.get(key).is_some_and(|value| values.contains(value)),
            Requirement::NotIn(key, values) => labels.get(key).is_none_or(|value| !values.contains(value)),
            Requirement::Exists(key) => labels.contains_key(key),
            Requirement::DoesNotExist(key) => !labels.contains_key(key),
        })
    }
}

impl Requirement {
    fn parse(text: &str) -> Self {
        let values =
            |values: &str| values.trim_matches(['(', ')']).split(',').map(|value| value.trim().to_owned()).collect();
        if let Some((key, among)) = text.split_once(" notin ") {
            Self::NotIn(key.to_owned(), values(among))
        } else if let Some((key, among)) = text.split_once(" in ") {
            Self::In(key.to_owned(), values(among))
        } else if let Some((key, value)) = text.split_once('=') {
            Self::In(key.to_owned(), vec![value.to_owned()])
        } else if let Some(key) = text.strip_prefix('!') {
            Self::DoesNotExist(key.to_owned())
        } else {
            Self::Exists(text.to_owned())
        }
    }
}

/// Splits a selector into its requirements: a comma within parentheses does not separate two.
fn split(query: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    let parts = query.split(move |letter| {
        depth += i32::from(letter == '(') - i32::from(letter == ')');
        letter == ',' && depth == 0
    });
    parts.map(str::trim).filter(|part| !part.is_empty())
}
