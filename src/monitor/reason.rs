//! The reasons of conditions, and all that follows from a reason.

use strum::{EnumString, IntoStaticStr, VariantArray};

/// Makes the enum and its functions from the table.
macro_rules! reasons {
    ($($reason:ident $holds:ident $is_warning:literal $is_delay:literal $needs:literal)*) => {
        /// The reason of the conditions of a ConfigMonitor. `docs/reference.md` says what each means.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, EnumString, IntoStaticStr, VariantArray)]
        #[allow(missing_docs, reason = "the reference has them")]
        pub enum Reason {
            $($reason,)*
        }

        impl Reason {
            pub(crate) fn word(self) -> &'static str {
                self.into()
            }

            pub(crate) fn holds(self) -> Holds {
                match self {
                    $(Self::$reason => Holds::$holds,)*
                }
            }

            /// Returns whether a Warning of the same name is emitted when this reason begins.
            pub(crate) fn is_warning(self) -> bool {
                match self {
                    $(Self::$reason => $is_warning,)*
                }
            }

            /// Returns whether a person must do something, or should if the reason lasts.
            #[must_use]
            pub fn needs_attention(self) -> bool {
                match self {
                    $(Self::$reason => $needs,)*
                }
            }

            /// Returns whether the author of the ConfigMonitor delays the restart, so that its change never counts as old.
            #[must_use]
            pub fn is_delay_by_author(self) -> bool {
                match self {
                    $(Self::$reason => $is_delay,)*
                }
            }
        }
    };
}

reasons! {
    // reason                  condition that is True   Warning   delay by the author   attention
    UpToDate                   Ready                    false     false                 false
    NoPodsSelected             Ready                    true      false                 false
    NoSourcesFound             Ready                    true      false                 true
    KeyNotFound                None                     true      false                 true
    TooManySources             None                     true      false                 true
    Suspended                  Ready                    false     true                  false
    QuietPeriod                Reconciling              false     false                 false
    OutsideWindow              Reconciling              false     true                  false
    MinInterval                Reconciling              false     true                  false
    RestartBackOff             Reconciling              true      false                 true
    WaitingForOtherRestart     Reconciling              false     false                 false
    RestartInProgress          Reconciling              false     false                 false
    DeletionRefused            Reconciling              true      false                 false
    EvictionBlocked            Reconciling              true      false                 false
    SourceNotFound             None                     true      false                 true
    ProgressDeadlineExceeded   Stalled                  true      false                 true
    CanaryFailed               Stalled                  true      false                 true
    InvalidSpec                Stalled                  true      false                 true
    InvalidStatus              Stalled                  true      false                 true
    Forbidden                  Stalled                  true      false                 true
}

/// The condition that is True for a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
pub(crate) enum Holds {
    /// The pods have the content, or nothing may be done about it. While a restart waits for `suspend`, none is True.
    Ready,
    /// The operator works or waits.
    Reconciling,
    /// A person must do something.
    Stalled,
    /// A source or a key is missing, and may appear without a person.
    None,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::docs::{REFERENCE, table};
    use std::collections::{BTreeMap, BTreeSet};

    const RECIPES: &str = include_str!("../../docs/recipes.md");

    type Conditions<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

    /// Returns the words of a cell that are names.
    fn names(cell: &str) -> impl Iterator<Item = &str> {
        cell.split('`').skip(1).step_by(2)
    }

    /// Returns the conditions that each reason makes true.
    fn conditions() -> Conditions<'static> {
        let of = |reason: &Reason| match reason.holds() {
            Holds::Ready if *reason == Reason::Suspended => vec!["Ready", "none"],
            Holds::Ready => vec!["Ready"],
            Holds::Reconciling => vec!["Reconciling"],
            Holds::Stalled => vec!["Stalled"],
            Holds::None => vec!["none"],
        };
        Reason::VARIANTS.iter().map(|reason| (reason.word(), of(reason).into_iter().collect())).collect()
    }

    fn is_none(cell: &str) -> bool {
        cell.split([' ', ',']).any(|word| word == "none")
    }

    #[test]
    fn the_reference_has_each_reason_with_the_condition_that_is_true() {
        let rows = table(REFERENCE, "### Reasons");
        let of = |cell: &'static str| names(cell).chain(is_none(cell).then_some("none")).collect();
        let documented: Conditions<'_> = rows.iter().map(|row| (row[0].trim_matches('`'), of(row[1]))).collect();
        assert_eq!((documented, rows.len()), (conditions(), Reason::VARIANTS.len()));
    }

    #[test]
    fn the_table_for_flux_has_each_reason_with_the_condition_and_what_kstatus_makes_of_it() {
        let mut documented = Conditions::new();
        for row in table(RECIPES, "### Flux") {
            let condition = row[0].trim_matches('`');
            for reason in names(row[1]) {
                documented.entry(reason).or_default().insert(condition);
            }
            let kstatus = BTreeMap::from([("Ready", "Current"), ("Stalled", "Failed")]);
            assert_eq!(row[2], *kstatus.get(condition).unwrap_or(&"InProgress"), "{condition}");
        }
        assert_eq!(documented, conditions());
    }

    #[test]
    fn the_alert_for_what_is_stalled_names_each_reason_of_it() {
        let rules = include_str!("../../deploy/monitoring/rules.yml");
        let stalled = Reason::VARIANTS.iter().filter(|reason| reason.holds() == Holds::Stalled);
        let reasons: Vec<&str> = stalled.map(|reason| reason.word()).collect();
        assert!(rules.contains(&format!("{{reason=~\"{}\"}}", reasons.join("|"))), "{reasons:?}");
        let is_named = |reason: &&Reason| {
            rules.contains(&format!("{}|", reason.word())) || rules.contains(&format!("{}\"}}", reason.word()))
        };
        assert!(Reason::VARIANTS.iter().filter(|reason| reason.needs_attention()).all(|reason| is_named(&reason)));
    }
}
