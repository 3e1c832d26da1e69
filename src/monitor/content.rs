//! The content of a ConfigMap as a hash: what must differ for pods to be restarted.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::kube::objects::ConfigMap;

/// The way in which content is framed before it is hashed. Another framing gets another prefix.
const PREFIX: &str = "sha256:";
/// What stands for the content of a source that is not there, and need not be.
const ABSENT: &str = "absent";

/// A hash of the content of a ConfigMap, with the name of its framing in front.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ContentHash(Arc<str>);

/// A hash in a status that was framed in a way unknown here, so that nothing can be concluded from it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the hash {0:?} in the status was not made by this version of the operator; upgrade it, or clear the status")]
pub struct UnknownHash(String);

impl ContentHash {
    /// Hashes the content: of `data` and `binaryData` what is under these keys, or all of it, and nothing else of the object.
    ///
    /// Every key and value is preceded by its length, and every pair by a tag for where it stands, so that no two contents
    /// collide. Null, empty and absent are the same.
    #[must_use]
    pub fn of(config_map: &ConfigMap, keys: Option<&BTreeSet<String>>) -> Self {
        let mut hasher = Sha256::new();
        for (tag, pairs) in [(b"d", &config_map.data), (b"b", &config_map.binary_data)] {
            for (key, value) in pairs.iter().flatten().filter(|(key, _)| keys.is_none_or(|keys| keys.contains(*key))) {
                hasher.update(tag);
                for text in [key, value] {
                    hasher.update((text.len() as u64).to_be_bytes());
                    hasher.update(text);
                }
            }
        }
        let mut text = PREFIX.to_owned();
        for byte in hasher.finalize() {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        Self(text.into())
    }

    /// What stands for the content of a source that is not there, and need not be.
    #[must_use]
    pub fn absent() -> Self {
        ABSENT.into()
    }

    /// Whether this hash, out of a status, is of the same content as `current`.
    ///
    /// # Errors
    /// When this hash is framed in an unknown way: that is no change of content.
    pub fn is(&self, current: &Self) -> Result<bool, UnknownHash> {
        if self.0.starts_with(PREFIX) || &*self.0 == ABSENT {
            Ok(self == current)
        } else {
            Err(UnknownHash(self.0.to_string()))
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
        ContentHash::of(&ConfigMap { metadata, data, binary_data, immutable: false }, keys)
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
    fn the_framing_is_what_older_statuses_were_written_with() {
        let expected = "sha256:ada4a1619b43e8f8d91b48c2e20517afb686375571c905df6e339265f3b15075";
        assert_eq!(hash(pairs(&[("key", "value")]), pairs(&[("bin", "AA==")])).to_string(), expected);
    }

    #[test]
    fn an_unknown_framing_is_an_error_and_not_a_change() {
        let current = hash(None, None);
        assert_eq!(current.is(&current), Ok(true));
        assert_eq!([current.is(&ContentHash::absent()), ContentHash::absent().is(&current)], [Ok(false), Ok(false)]);
        assert!(ContentHash::from("blake9:00").is(&current).is_err());
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
        fn keys_that_are_not_named_count_as_if_they_were_not_there(
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
