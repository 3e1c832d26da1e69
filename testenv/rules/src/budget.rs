//! What `maxUnavailable` allows.

use configmonitor_operator::monitor::spec::IntOrString;

/// Returns how many pods are missing at these owners, each with its desired and its available pods. What one has too
/// many another does not have.
#[must_use]
pub fn missing(owners: impl IntoIterator<Item = (usize, usize)>) -> usize {
    owners.into_iter().map(|(desired, available)| desired.saturating_sub(available)).sum()
}

/// Returns how many of the desired pods may be missing.
#[must_use]
pub fn allowed(most: &IntOrString, desired: usize) -> usize {
    match most {
        IntOrString::Int(pods) => usize::try_from(pods.get()).unwrap_or(usize::MAX),
        IntOrString::String(text) => {
            let percent = text.trim_end_matches('%').parse::<usize>().unwrap_or_default();
            (percent * desired / 100).max(1)
        }
    }
}
