//! Label selectors, as everywhere in Kubernetes.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// A requirement on one label, one of those that all must hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabelSelectorRequirement {
    /// The key of the label.
    pub key: String,
    /// What is required of its value.
    pub operator: LabelSelectorOperator,
    /// At least one for `In` and `NotIn`, none for the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// What is required of the value of a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LabelSelectorOperator {
    /// It is one of these.
    In,
    /// It is none of these, or there is no such label.
    NotIn,
    /// There is one.
    Exists,
    /// There is none.
    DoesNotExist,
}

/// The selector of an owner of pods. That of a ReplicationController is a plain map of labels.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum OwnerSelector {
    /// `{"app": "web"}`
    Labels(BTreeMap<String, String>),
    /// `{"matchLabels": {"app": "web"}}`
    #[serde(rename_all = "camelCase")]
    Terms {
        /// Labels that a pod must have.
        #[serde(default)]
        match_labels: BTreeMap<String, String>,
        /// What else its labels must be like.
        #[serde(default)]
        match_expressions: Vec<LabelSelectorRequirement>,
    },
}

impl OwnerSelector {
    /// As the query parameter `labelSelector` has it; none if it is empty, which would select every pod there is.
    #[must_use]
    pub fn to_query(&self) -> Option<String> {
        let query = match self {
            Self::Labels(labels) => to_query(labels, &[]),
            Self::Terms { match_labels, match_expressions } => to_query(match_labels, match_expressions),
        };
        Some(query).filter(|query| !query.is_empty())
    }
}

/// Labels and expressions as the query parameter `labelSelector` has them. Valid keys and values contain nothing that has a meaning there.
#[must_use]
pub fn to_query(labels: &BTreeMap<String, String>, expressions: &[LabelSelectorRequirement]) -> String {
    let labels = labels.iter().map(|(key, value)| format!("{key}={value}"));
    let all: Vec<String> = labels.chain(expressions.iter().map(ToString::to_string)).collect();
    all.join(",")
}

/// As Kubernetes writes it in a query.
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
