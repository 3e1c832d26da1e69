//! What `maxUnavailable`, `maxUnavailableTotal` and `maxSurge` allow.

use configmonitor_operator::monitor::spec::IntOrString;

/// Returns whether a restart may take all pods at once.
#[must_use]
pub fn is_everything(of_owner: Option<&IntOrString>, total: Option<&IntOrString>) -> bool {
    total.is_none() && of_owner == Some(&IntOrString::String("100%".to_owned()))
}

/// Returns how many of an owner's desired pods may be missing: a quarter, unless the spec says otherwise.
#[must_use]
pub fn allowed_of_owner(most: Option<&IntOrString>, desired: usize) -> usize {
    most.map_or_else(|| (desired / 4).max(1), |most| allowed(most, desired))
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

/// Returns how many of a Deployment's desired pods may be handed over at a time: none, unless the spec says so.
#[must_use]
pub fn surge(most: Option<&IntOrString>, desired: usize) -> usize {
    match most {
        None => 0,
        Some(IntOrString::Int(pods)) => usize::try_from(pods.get()).unwrap_or(usize::MAX),
        Some(IntOrString::String(text)) => {
            let percent = text.trim_end_matches('%').parse::<usize>().unwrap_or_default();
            (percent * desired).div_ceil(100)
        }
    }
}
