//! The content of a source as a hash. Pods are restarted when the hash changes.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::kube::objects::DataObject;
use crate::kube::{CONFIG_MAPS, Resource, SECRETS};

/// The kind of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Kind {
    /// A ConfigMap.
    #[default]
    ConfigMap,
    /// A Secret.
    Secret,
}

impl Kind {
    /// The resource of such objects.
    #[must_use]
    pub fn resource(self) -> Resource {
        match self {
            Self::ConfigMap => CONFIG_MAPS,
            Self::Secret => SECRETS,
        }
    }

    /// Returns whether readers of a ConfigMonitor may lack the right to read its sources of this kind. Then the hash is
    /// keyed, no message names a key, no Event reveals the UID, and the right to watch the kind may be missing on
    /// purpose.
    pub(crate) fn is_confidential(self) -> bool {
        self == Self::Secret
    }
}

/// The prefix that names the framing of hashed content. Another framing gets another prefix.
const PREFIX: &str = "sha256:";
/// The prefix for the same framing and a hash keyed with the UID of the object.
const KEYED_PREFIX: &str = "hmac-sha256:";
/// The content of an optional source that does not exist.
const ABSENT: &str = "absent";
/// Content that differed from the current one when the keys were edited. What is read always has another hash.
const OTHER_KEYS: &str = "other-keys";

/// A hash of the content of a source, with a prefix that names the framing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ContentHash(Arc<str>);

impl ContentHash {
    /// Hashes the given keys of `data` and `binaryData`, or all of them, and nothing else of the object.
    ///
    /// The length precedes each key and value, and a tag for the field precedes each pair, so that no two contents
    /// collide. Null, empty and absent are the same.
    ///
    /// The hash of a Secret is keyed with its UID. Otherwise a user who may read the status, but not the Secret, could
    /// test guesses of its content.
    pub fn of(kind: Kind, object: &DataObject, keys: Option<&BTreeSet<String>>) -> Self {
        if kind.is_confidential() {
            // A key of this length, the block size of SHA-256, is always accepted.
            let mut key = [0; 64];
            key[..32].copy_from_slice(&Sha256::digest(object.metadata.uid.as_str()));
            let mut hasher = <Hmac<Sha256> as KeyInit>::new(&key.into());
            feed(object, keys, |bytes| hasher.update(bytes));
            Self::from_bytes(KEYED_PREFIX, &hasher.finalize().into_bytes())
        } else {
            let mut hasher = Sha256::new();
            feed(object, keys, |bytes| hasher.update(bytes));
            Self::from_bytes(PREFIX, &hasher.finalize())
        }
    }

    fn from_bytes(prefix: &str, bytes: &[u8]) -> Self {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Self(format!("{prefix}{hex}").into())
    }

    /// Returns the content of an optional source that does not exist.
    pub fn absent() -> Self {
        ABSENT.into()
    }

    /// Returns content that nothing read has.
    pub(crate) fn unknown() -> Self {
        OTHER_KEYS.into()
    }

    /// Returns what takes the place of this hash when other keys come to count: the hash of the same content under these, or
    /// one that nothing read has. `before` and `current` are the current content under the earlier keys and under these.
    pub(crate) fn rekeyed(&self, before: &Self, current: &Self) -> Self {
        if self == before { current.clone() } else { Self::unknown() }
    }

    /// Returns whether this hash, read from a status, can be compared: its framing is one of this version.
    pub(crate) fn has_known_framing(&self) -> bool {
        let is_of = |prefix: &&str| self.0.starts_with(*prefix);
        [PREFIX, KEYED_PREFIX].iter().any(is_of) || [ABSENT, OTHER_KEYS].contains(&&*self.0)
    }
}

/// Feeds the framed content to `hash`, piece by piece.
fn feed(object: &DataObject, keys: Option<&BTreeSet<String>>, mut hash: impl FnMut(&[u8])) {
    for (tag, pairs) in [(b"d", &object.data), (b"b", &object.binary_data)] {
        for (key, value) in pairs.iter().flatten().filter(|(key, _)| keys.is_none_or(|keys| keys.contains(*key))) {
            hash(tag);
            for text in [key, value] {
                hash(&(text.len() as u64).to_be_bytes());
                hash(text.as_bytes());
            }
        }
    }
}

impl From<&str> for ContentHash {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    type Pairs = BTreeMap<String, String>;

    fn hash(data: Option<Pairs>, binary_data: Option<Pairs>) -> ContentHash {
        hash_under(None, data, binary_data)
    }

    fn hash_under(keys: Option<&BTreeSet<String>>, data: Option<Pairs>, binary_data: Option<Pairs>) -> ContentHash {
        let metadata = serde_json::from_str(r#"{"name":"a","uid":"u","resourceVersion":"1"}"#).expect("metadata");
        ContentHash::of(Kind::ConfigMap, &DataObject { metadata, data, binary_data, r#type: None }, keys)
    }

    fn pairs(pairs: &[(&str, &str)]) -> Option<Pairs> {
        Some(pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn contents_that_collide_when_joined_naively_differ() {
        assert_ne!(hash(pairs(&[("a", "bc")]), None), hash(pairs(&[("ab", "c")]), None));
        assert_ne!(hash(pairs(&[("a", "1"), ("b", "2")]), None), hash(pairs(&[("a", "1b2")]), None));
    }

    #[test]
    fn moving_a_value_between_data_and_binary_data_is_a_change() {
        assert_ne!(hash(pairs(&[("a", "YQ==")]), None), hash(None, pairs(&[("a", "YQ==")])));
    }

    #[test]
    fn null_empty_and_absent_are_the_same() {
        assert_eq!(hash(None, None), hash(pairs(&[]), pairs(&[])));
    }

    #[test]
    fn the_framing_is_that_of_existing_statuses() {
        let expected = "sha256:ada4a1619b43e8f8d91b48c2e20517afb686375571c905df6e339265f3b15075";
        assert_eq!(hash(pairs(&[("key", "value")]), pairs(&[("bin", "AA==")])).to_string(), expected);
    }

    #[test]
    fn the_hash_of_a_secret_depends_on_its_uid() {
        let secret = |uid: &str, value: &str| {
            let metadata = format!(r#"{{"name":"a","uid":"{uid}","resourceVersion":"1"}}"#);
            let data = pairs(&[("key", value)]);
            let metadata = serde_json::from_str(&metadata).expect("metadata");
            DataObject { metadata, data, binary_data: None, r#type: None }
        };
        let hash = |uid, value| ContentHash::of(Kind::Secret, &secret(uid, value), None);
        assert_eq!(hash("u", "dmFsdWU="), hash("u", "dmFsdWU="));
        assert_ne!(hash("u", "dmFsdWU="), hash("v", "dmFsdWU="));
        assert_ne!(hash("u", "dmFsdWU="), hash("u", "dmFsdWUK"));
        assert_ne!(hash("u", "dmFsdWU="), ContentHash::of(Kind::ConfigMap, &secret("u", "dmFsdWU="), None));
        let expected = "hmac-sha256:bf9dbb4780d68ea842bc6b909297cfdbff16a884b46dacaf9a5b43f54f1716b0";
        assert_eq!(hash("u", "dmFsdWU=").to_string(), expected, "older statuses were written with it");
    }

    #[test]
    fn the_framings_of_this_version_are_known() {
        let hashes = [hash(None, None), ContentHash::absent(), ContentHash::unknown(), "hmac-sha256:00".into()];
        assert!(hashes.iter().all(ContentHash::has_known_framing));
        assert!(!ContentHash::from("blake9:00").has_known_framing());
    }

    proptest! {
        #[test]
        fn two_contents_have_one_hash_only_if_they_are_the_same(
            a in prop::collection::btree_map("[a-c]{0,3}", "[a-c]{0,3}", 0..4),
            b in prop::collection::btree_map("[a-c]{0,3}", "[a-c]{0,3}", 0..4),
            c in prop::collection::btree_map("[a-c]{0,3}", "[a-c]{0,3}", 0..3),
        ) {
            let same = a == b;
            prop_assert_eq!(hash(Some(a), Some(c.clone())) == hash(Some(b), Some(c)), same);
        }

        #[test]
        fn keys_that_the_spec_does_not_name_do_not_count(
            data in prop::collection::btree_map("[a-c]{1,2}", "[a-c]{0,2}", 0..6),
            binary_data in prop::collection::btree_map("[a-c]{1,2}", "[a-c]{0,2}", 0..6),
            keys in prop::collection::btree_set("[a-c]{1,2}", 1..5),
        ) {
            let named = |pairs: &Pairs| {
                let named = pairs.iter().filter(|(key, _)| keys.contains(*key));
                named.map(|(key, value)| (key.clone(), value.clone())).collect()
            };
            let alone = hash(Some(named(&data)), Some(named(&binary_data)));
            prop_assert_eq!(hash_under(Some(&keys), Some(data), Some(binary_data)), alone);
        }
    }
}
