//! Label selectors.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// A label selector as Kubernetes has it. Without a term it selects every object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    /// The labels that an object must have.
    pub match_labels: BTreeMap<String, String>,
    /// Further requirements on the labels of an object.
    pub match_expressions: Vec<LabelSelectorRequirement>,
}

/// A requirement on one label. A pod must meet all requirements of a selector.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LabelSelectorRequirement {
    /// The key of the label.
    pub key: String,
    /// The relation between the label and `values`.
    pub operator: LabelSelectorOperator,
    /// At least one value for `In` and `NotIn`, no value for the others.
    #[serde(default)]
    pub values: Vec<String>,
}

/// The relation between a label and the values of a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LabelSelectorOperator {
    /// The label has one of the values.
    In,
    /// The label has none of the values, or does not exist.
    NotIn,
    /// The label exists.
    Exists,
    /// The label does not exist.
    DoesNotExist,
}

/// The selector of an owner of pods. A ReplicationController has a plain map of labels.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum OwnerSelector {
    /// `{"app": "web"}`
    Labels(BTreeMap<String, String>),
    /// `{"matchLabels": {"app": "web"}}`
    Terms(LabelSelector),
}

impl OwnerSelector {
    /// The query parameter `labelSelector`. None if the selector is empty, which would select all pods.
    #[must_use]
    pub(crate) fn to_query(&self) -> Option<String> {
        let query = match self {
            Self::Labels(labels) => to_query(labels, &[]),
            Self::Terms(selector) => selector.to_query(),
        };
        Some(query).filter(|query| !query.is_empty())
    }
}

impl LabelSelector {
    /// Returns whether the selector selects an object with these labels.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|requirement| requirement.is_met_by(labels))
    }

    /// Formats the selector as the query parameter `labelSelector`. Valid keys and values need no escaping there.
    #[must_use]
    pub fn to_query(&self) -> String {
        to_query(&self.match_labels, &self.match_expressions)
    }
}

impl LabelSelectorRequirement {
    fn is_met_by(&self, labels: &BTreeMap<String, String>) -> bool {
        let Self { key, operator, values } = self;
        match operator {
            LabelSelectorOperator::In => labels.get(key).is_some_and(|value| values.contains(value)),
            LabelSelectorOperator::NotIn => labels.get(key).is_none_or(|value| !values.contains(value)),
            LabelSelectorOperator::Exists => labels.contains_key(key),
            LabelSelectorOperator::DoesNotExist => !labels.contains_key(key),
        }
    }
}

fn to_query(labels: &BTreeMap<String, String>, expressions: &[LabelSelectorRequirement]) -> String {
    let labels = labels.iter().map(|(key, value)| format!("{key}={value}"));
    let all: Vec<String> = labels.chain(expressions.iter().map(ToString::to_string)).collect();
    all.join(",")
}

/// Writes the requirement as in a query.
impl fmt::Display for LabelSelectorRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, values) = (&self.key, self.values.join(","));
        match self.operator {
            LabelSelectorOperator::In => write!(f, "{key} in ({values})"),
            LabelSelectorOperator::NotIn => write!(f, "{key} notin ({values})"),
            LabelSelectorOperator::Exists => write!(f, "{key}"),
            LabelSelectorOperator::DoesNotExist => write!(f, "!{key}"),
        }
    }
}
