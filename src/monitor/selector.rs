//! The pods that a ConfigMonitor selects.
//!
//! `podSelector.matchLabels` gets no error message of its own: the API server checks types before CEL rules, and a
//! schema that allows an object there could not check the labels.

use std::collections::BTreeMap;

use crate::kube::labels::{LabelSelector, LabelSelectorRequirement};
use crate::kube::names::{is_label_key, is_label_value};

/// A label selector. It has at least one label, because an empty selector matches every pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector(LabelSelector);

impl Selector {
    /// Checks the labels and the expressions.
    ///
    /// # Errors
    /// What is wrong, for the author of the spec.
    pub fn new(labels: BTreeMap<String, String>, expressions: Vec<LabelSelectorRequirement>) -> Result<Self, String> {
        if labels.is_empty() {
            return Err("spec.podSelector is empty and would select every pod; name at least one label".to_owned());
        }
        let selector = LabelSelector { match_labels: labels, match_expressions: expressions };
        checked(selector, ["podSelector", "podSelectorExpressions"]).map(Self)
    }

    /// Returns whether the selector selects an object with these labels.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.matches(labels)
    }

    /// Formats the selector as the query parameter `labelSelector`. Checked keys and values contain no character with a
    /// meaning there.
    pub fn to_query(&self) -> String {
        self.0.to_query()
    }
}

/// Checks `spec.restartLast`: it has a term.
pub(crate) fn last(selector: LabelSelector) -> Result<LabelSelector, String> {
    if selector == LabelSelector::default() {
        return Err("spec.restartLast is empty; name a label, or leave it out".to_owned());
    }
    checked(selector, ["restartLast.matchLabels", "restartLast.matchExpressions"])
}

/// Checks a selector with its labels and expressions in these fields. Its expressions keep their order, with sorted values.
fn checked(mut selector: LabelSelector, [labels, expressions]: [&str; 2]) -> Result<LabelSelector, String> {
    for (key, value) in &selector.match_labels {
        check(labels, key, std::slice::from_ref(value))?;
    }
    for expression in &mut selector.match_expressions {
        check(expressions, &expression.key, &expression.values)?;
        expression.values.sort();
        expression.values.dedup();
    }
    Ok(selector)
}

fn check(field: &str, key: &str, values: &[String]) -> Result<(), String> {
    if !is_label_key(key) {
        return Err(format!("spec.{field}: {key:?} is not a valid label key"));
    }
    match values.iter().find(|value| !is_label_value(value)) {
        Some(value) => Err(format!("spec.{field}: {value:?} is not a valid value of the label {key:?}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::labels::LabelSelectorOperator::{self, DoesNotExist, Exists, In, NotIn};
    use proptest::prelude::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn expression(key: &str, operator: LabelSelectorOperator, values: &[&str]) -> LabelSelectorRequirement {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        LabelSelectorRequirement { key: key.to_owned(), operator, values }
    }

    fn selector(expressions: Vec<LabelSelectorRequirement>) -> Result<Selector, String> {
        Selector::new(labels(&[("app", "web")]), expressions)
    }

    /// Returns whether a query selects an object with these labels, by the syntax that Kubernetes documents.
    fn selects(query: &str, labels: &BTreeMap<String, String>) -> bool {
        let mut open = false;
        let mut requirements = query.split(|char| {
            open = char == '(' || open && char != ')';
            char == ',' && !open
        });
        requirements.all(|requirement| {
            let value = |key: &str| labels.get(key).map(String::as_str);
            let is_one_of = |(key, list): (&str, &str)| {
                value(key).is_some_and(|value| list.trim_matches(['(', ')']).split(',').any(|one| one == value))
            };
            if let Some(pair) = requirement.split_once(" notin ") {
                !is_one_of(pair)
            } else if let Some(pair) = requirement.split_once(" in ") {
                is_one_of(pair)
            } else if let Some((key, its)) = requirement.split_once('=') {
                value(key) == Some(its)
            } else if let Some(key) = requirement.strip_prefix('!') {
                value(key).is_none()
            } else {
                value(requirement).is_some()
            }
        })
    }

    #[test]
    fn an_empty_selector_cannot_be_made() {
        assert!(Selector::new(labels(&[]), vec![]).is_err());
        assert!(Selector::new(labels(&[]), vec![expression("app", Exists, &[])]).is_err());
    }

    #[test]
    fn every_pair_stands_in_the_query() {
        let selector = Selector::new(labels(&[("app", "web"), ("example.com/tier", "")]), vec![]).expect("valid");
        assert_eq!(selector.to_query(), "app=web,example.com/tier=");
    }

    #[test]
    fn expressions_stand_in_the_query_as_they_are_written_with_their_values_in_order() {
        let expressions = vec![
            expression("tier", In, &["front", "", "back", "front"]),
            expression("example.com/track", NotIn, &["canary"]),
            expression("old", DoesNotExist, &[]),
            expression("new", Exists, &[]),
        ];
        let expected = "app=web,tier in (,back,front),example.com/track notin (canary),!old,new";
        assert_eq!(selector(expressions).expect("valid").to_query(), expected);
    }

    #[test]
    fn what_is_no_label_cannot_reach_a_query() {
        for (key, value) in [("app", "a,b=c"), ("app", "a&limit=1"), ("app in (x)", "y"), ("", "")] {
            assert!(Selector::new(labels(&[(key, value)]), vec![]).is_err(), "{key}={value}");
            assert!(selector(vec![expression(key, In, &["x", value])]).is_err(), "{key} in ({value})");
        }
    }

    proptest! {
        #[test]
        fn the_query_selects_what_the_selector_means(
            expressions in prop::collection::vec(
                (
                    prop::sample::select(vec!["app", "in", "notin", "tier"]),
                    prop::sample::select(vec![In, NotIn, Exists, DoesNotExist]),
                    prop::collection::vec(prop::sample::select(vec!["", "web", "in", "a"]), 1..4),
                ),
                0..4,
            ),
            pod in prop::collection::btree_map("app|in|notin|tier", "|web|in|a", 0..4),
        ) {
            let expressions = expressions.into_iter().map(|(key, operator, values)| {
                expression(key, operator, if matches!(operator, In | NotIn) { &values } else { &[] })
            });
            let selector = selector(expressions.collect()).expect("valid");
            let query = selector.to_query();
            let pods = [pod.clone(), pod.into_iter().chain(labels(&[("app", "web")])).collect()];
            for pod in pods {
                prop_assert_eq!(selects(&query, &pod), selector.matches(&pod), "{} of {:?}", &query, &pod);
            }
        }
    }
}
