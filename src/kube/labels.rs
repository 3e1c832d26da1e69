//! Label selectors.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// A requirement on one label. A pod must meet all requirements of a selector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabelSelectorRequirement {
    /// The key of the label.
    pub key: String,
    /// The relation between the label and `values`.
    pub operator: LabelSelectorOperator,
    /// At least one value for `In` and `NotIn`, no value for the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// The relation between a label and the values of a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    #[serde(rename_all = "camelCase")]
    Terms {
        #[serde(default)]
        match_labels: BTreeMap<String, String>,
        #[serde(default)]
        match_expressions: Vec<LabelSelectorRequirement>,
    },
}

impl OwnerSelector {
    /// The query parameter `labelSelector`. None if the selector is empty, which would select all pods.
    #[must_use]
    pub(crate) fn to_query(&self) -> Option<String> {
        let query = match self {
            Self::Labels(labels) => to_query(labels, &[]),
            Self::Terms { match_labels, match_expressions } => to_query(match_labels, match_expressions),
        };
        Some(query).filter(|query| !query.is_empty())
    }
}

/// The query parameter `labelSelector`. Valid keys and values need no escaping there.
#[must_use]
pub(crate) fn to_query(labels: &BTreeMap<String, String>, expressions: &[LabelSelectorRequirement]) -> String {
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
