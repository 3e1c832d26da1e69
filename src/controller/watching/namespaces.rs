//! The namespaces in which an operator works.

use std::collections::BTreeSet;
use std::str::FromStr;
use std::sync::Arc;

use super::scope::{Scope, Target};
use crate::kube::client::Client;
use crate::kube::names::{is_dns_label, is_label_key, is_label_value};
use crate::kube::objects::MetadataOnly;
use crate::kube::unlisted::{Difference, Unlisted};
use crate::kube::watch::Event;
use crate::monitor::content::Kind;

/// The namespaces in which an operator works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Namespaces {
    /// Only these namespaces.
    Named(Vec<Arc<str>>),
    /// All namespaces but some.
    All {
        /// The namespaces that are left out.
        excluded: Vec<Excluded>,
        /// The labels that the others have.
        selector: Option<NamespaceSelector>,
    },
}

/// A namespace that is left out, or, with an asterisk at the end, all whose names begin like this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excluded(Arc<str>);

/// The labels of the namespaces to work in, as in the query parameter `labelSelector`: `KEY=VALUE`, `KEY!=VALUE`, `KEY`
/// and `!KEY`, separated by commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceSelector(Arc<str>);

impl FromStr for NamespaceSelector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_valid = |requirement: &str| match requirement.split_once('=') {
            Some((key, value)) => is_label_key(key.strip_suffix('!').unwrap_or(key)) && is_label_value(value),
            None => is_label_key(requirement.strip_prefix('!').unwrap_or(requirement)),
        };
        if text.split(',').all(is_valid) {
            Ok(Self(text.into()))
        } else {
            Err("use KEY=VALUE, KEY!=VALUE, KEY or !KEY, separated by commas".to_owned())
        }
    }
}

impl FromStr for Excluded {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_valid = match text.strip_suffix('*') {
            // An `a` completes a beginning such as `kube-`.
            Some(beginning) => is_dns_label(&format!("{beginning}a")),
            // No namespace has the empty name, so an empty list leaves out none.
            None => text.is_empty() || is_dns_label(text),
        };
        if is_valid {
            Ok(Self(text.into()))
        } else {
            Err("use names of namespaces, or beginnings such as gke-*".to_owned())
        }
    }
}

impl Excluded {
    fn is(&self, namespace: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(beginning) => namespace.starts_with(beginning),
            None => *self.0 == *namespace,
        }
    }
}

impl Namespaces {
    /// `None` stands for all namespaces.
    pub(super) fn each(&self) -> Vec<Option<Arc<str>>> {
        match self {
            Self::Named(names) => names.iter().cloned().map(Some).collect(),
            Self::All { .. } => vec![None],
        }
    }

    /// Returns whether the operator works in this namespace, if a watch covers it.
    pub(super) fn include(&self, namespace: &str) -> bool {
        match self {
            Self::Named(_) => true,
            Self::All { excluded, .. } => !excluded.iter().any(|excluded| excluded.is(namespace)),
        }
    }

    /// Divides the limits of the client among the namespaces. A single one need not leave anything to others.
    pub(crate) fn divide(&self, client: Client) -> Client {
        if matches!(self, Self::Named(names) if names.len() == 1) { client } else { client.divided() }
    }

    pub(super) fn selector(&self) -> Option<&NamespaceSelector> {
        match self {
            Self::Named(_) => None,
            Self::All { selector, .. } => selector.as_ref(),
        }
    }

    /// Returns the watches that are always open.
    pub(crate) fn scopes(&self) -> BTreeSet<Scope> {
        let of_each = |namespace: Option<Arc<str>>| {
            [Target::ConfigMonitors, Target::All(Kind::ConfigMap)]
                .map(|target| Scope { namespace: namespace.clone(), target })
        };
        let of_namespaces = self.selector().map(|NamespaceSelector(labels)| Target::Namespaces(Arc::clone(labels)));
        let of_namespaces = of_namespaces.map(|target| Scope { namespace: None, target });
        self.each().into_iter().flat_map(of_each).chain(of_namespaces).collect()
    }
}

/// The namespaces that a selector selects, by the watch on namespaces.
#[derive(Default)]
pub(super) struct Selected {
    names: BTreeSet<Arc<str>>,
    unlisted: Unlisted<Arc<str>>,
}

impl Selected {
    pub(super) fn contain(&self, namespace: &str) -> bool {
        self.names.contains(namespace)
    }

    /// Returns the namespaces that are selected from now on, or no longer.
    pub(super) fn observe(&mut self, event: Event<MetadataOnly>) -> Vec<Arc<str>> {
        let name_of = |namespace: &MetadataOnly| namespace.metadata.name.as_str().into();
        let left: BTreeSet<Arc<str>> = match self.unlisted.observe(event, || self.names.clone(), name_of) {
            Difference::Exists(namespace) => {
                let name = name_of(&namespace);
                return if self.names.insert(Arc::clone(&name)) { vec![name] } else { Vec::new() };
            }
            Difference::Deleted(namespace) => [name_of(&namespace)].into(),
            Difference::Complete(gone) => gone,
            Difference::Nothing => BTreeSet::new(),
        };
        left.into_iter().filter(|name| self.names.remove(name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_left_out_by_name_or_by_their_beginning() {
        let all = Namespaces::All {
            excluded: ["kube-system", "gke-*", ""].map(|text| text.parse().unwrap()).into(),
            selector: None,
        };
        let included = ["kube-system", "kube-system-2", "gke-x", "gk", "default"].map(|name| all.include(name));
        assert_eq!(included, [false, true, false, true, true]);
        for wrong in ["Kube", "a*b", "-x", "a.b"] {
            assert!(wrong.parse::<Excluded>().is_err(), "{wrong}");
        }
        let none = Namespaces::All { excluded: vec!["*".parse().unwrap()], selector: None };
        assert!(!none.include("default"));
    }

    #[test]
    fn one_of_several_namespaces_has_half_of_each_limit_and_a_single_one_has_all() {
        let (one, other): (Arc<str>, Arc<str>) = ("shop".into(), "billing".into());
        let of_shop = |namespaces: Namespaces| namespaces.divide(Client::unconnected()).within(&one).max_deletions();
        assert_eq!(of_shop(Namespaces::Named(vec![Arc::clone(&one)])), 2);
        assert_eq!(of_shop(Namespaces::Named(vec![Arc::clone(&one), other])), 1);
        assert_eq!(of_shop(Namespaces::All { excluded: Vec::new(), selector: None }), 1);
    }

    #[test]
    fn namespaces_are_selected_by_labels_that_are_there_or_not_and_by_their_values() {
        for right in ["team=shop", "team!=shop", "example.com/team", "!legacy", "a,!b,c=d,e!=", "a="] {
            assert_eq!(right.parse(), Ok(NamespaceSelector(right.into())), "{right}");
        }
        for wrong in ["", "a,", "a==b", "a in (b)", "=b", "!", "a!", "!a=b", "a=b=c", "a b", "A/b/c"] {
            assert!(wrong.parse::<NamespaceSelector>().is_err(), "{wrong}");
        }
    }
}
