//! Which pods a ConfigMonitor selects.

use std::collections::BTreeMap;

use crate::kube::names::{is_label_key, is_label_value};

/// As many labels as the schema takes.
const MOST: usize = 32;

/// Labels that a pod must have, all of them. Never empty: an empty label selector matches every pod there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector(BTreeMap<String, String>);

impl Selector {
    /// Checks the labels.
    ///
    /// # Errors
    /// What is wrong with them, for the author of the spec.
    pub fn new(labels: BTreeMap<String, String>) -> Result<Self, String> {
        if labels.is_empty() {
            return Err("spec.podSelector is empty, which would select every pod; name at least one label".to_owned());
        }
        if labels.len() > MOST {
            return Err(format!("spec.podSelector has {} labels; at most {MOST} are taken", labels.len()));
        }
        for (key, value) in &labels {
            if !is_label_key(key) {
                return Err(format!("spec.podSelector: {key:?} cannot be the key of a label"));
            }
            if !is_label_value(value) {
                return Err(format!("spec.podSelector: {value:?} cannot be the value of the label {key:?}"));
            }
        }
        Ok(Self(labels))
    }

    /// As the query parameter `labelSelector` has it. Checked keys and values contain nothing that has a meaning there.
    #[must_use]
    pub fn to_query(&self) -> String {
        let pairs: Vec<String> = self.0.iter().map(|(key, value)| format!("{key}={value}")).collect();
        pairs.join(",")
    }

    /// Whether an object with these labels is selected.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|(key, value)| labels.get(key) == Some(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn an_empty_selector_cannot_be_made() {
        assert!(Selector::new(labels(&[])).is_err());
    }

    #[test]
    fn every_pair_must_match() {
        let selector = Selector::new(labels(&[("app", "web"), ("example.com/tier", "")])).expect("valid");
        assert_eq!(selector.to_query(), "app=web,example.com/tier=");
        assert!(selector.matches(&labels(&[("app", "web"), ("example.com/tier", ""), ("more", "x")])));
        assert!(!selector.matches(&labels(&[("app", "web")])));
        assert!(!selector.matches(&labels(&[("app", "db"), ("example.com/tier", "")])));
    }

    #[test]
    fn what_is_no_label_cannot_reach_a_query() {
        for (key, value) in [("app", "a,b=c"), ("app", "a&limit=1"), ("app in (x)", "y"), ("", "")] {
            assert!(Selector::new(labels(&[(key, value)])).is_err(), "{key}={value}");
        }
    }
}
