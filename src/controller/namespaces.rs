//! The namespaces in which an operator works.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::watches::{Scope, Target};
use crate::kube::names::is_dns_label;
use crate::monitor::content::Kind;

/// The namespaces in which an operator works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Namespaces {
    /// Only these namespaces.
    Named(Vec<Arc<str>>),
    /// All namespaces but these.
    AllBut(Vec<Excluded>),
}

/// A namespace that is left out, or, with an asterisk at the end, all whose names begin like this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excluded(Arc<str>);

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

impl fmt::Display for Namespaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(names) => f.write_str(&names.join(",")),
            Self::AllBut(excluded) => {
                let excluded: Vec<&str> = excluded.iter().map(|Excluded(name)| &**name).collect();
                write!(f, "all but {}", excluded.join(","))
            }
        }
    }
}

impl Namespaces {
    /// `None` stands for all namespaces.
    pub(super) fn each(&self) -> Vec<Option<Arc<str>>> {
        match self {
            Self::Named(names) => names.iter().cloned().map(Some).collect(),
            Self::AllBut(_) => vec![None],
        }
    }

    /// Returns whether the operator works in this namespace, if a watch covers it.
    pub(super) fn include(&self, namespace: &str) -> bool {
        match self {
            Self::Named(_) => true,
            Self::AllBut(excluded) => !excluded.iter().any(|excluded| excluded.is(namespace)),
        }
    }

    /// Returns whether there may be more than one.
    pub(super) fn are_several(&self) -> bool {
        !matches!(self, Self::Named(names) if names.len() == 1)
    }

    /// Returns the watches that are always open.
    pub(crate) fn scopes(&self) -> BTreeSet<Scope> {
        let of_each = |namespace: Option<Arc<str>>| {
            [Target::ConfigMonitors, Target::All(Kind::ConfigMap)]
                .map(|target| Scope { namespace: namespace.clone(), target })
        };
        self.each().into_iter().flat_map(of_each).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_left_out_by_name_or_by_their_beginning() {
        let all = Namespaces::AllBut(["kube-system", "gke-*", ""].map(|text| text.parse().unwrap()).into());
        let included = ["kube-system", "kube-system-2", "gke-x", "gk", "default"].map(|name| all.include(name));
        assert_eq!(included, [false, true, false, true, true]);
        for wrong in ["Kube", "a*b", "-x", "a.b"] {
            assert!(wrong.parse::<Excluded>().is_err(), "{wrong}");
        }
        assert!(!Namespaces::AllBut(vec!["*".parse().unwrap()]).include("default"));
    }
}
