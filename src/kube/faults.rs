//! Failures since the last success: how long to wait, and whether the failure was logged before.

use std::mem::{Discriminant, discriminant};
use std::time::Duration;

use tracing::{debug, info, warn};

use super::backoff::Backoff;
use super::error::{Cause, Error};

/// The failures of an operation that is retried until it succeeds.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    backoff: Backoff,
    reported: Vec<Discriminant<Cause>>,
}

impl Faults {
    /// Records a failure. Returns the delay before the retry, and whether to report the failure: once for each kind.
    pub(crate) fn record(&mut self, cause: &Cause) -> (Duration, bool) {
        let delay = self.backoff.after_failure();
        let kind = discriminant(cause);
        let report = is_fault(cause) && !self.reported.contains(&kind);
        if report {
            self.reported.push(kind);
        }
        (cause.delay(delay), report)
    }

    pub(crate) fn is_failing(&self) -> bool {
        self.backoff.is_failing()
    }

    /// Records a success. Returns whether to report the recovery: only if a failure was reported.
    pub(crate) fn recovered(&mut self) -> bool {
        let report = !self.reported.is_empty();
        *self = Self::default();
        report
    }

    /// Records and logs a failure of a request that the whole operator, or a whole namespace, waits for. Returns the
    /// delay before the retry.
    pub(crate) fn log(&mut self, error: &Error, namespace: &str) -> Duration {
        let (delay, report) = self.record(&error.cause);
        let (namespace, resource) = (named(namespace), error.action.resource.plural);
        match &error.cause {
            _ if !report => debug!(namespace, resource, %error, "still failing; retrying"),
            Cause::NoSuchResource => warn!(namespace, resource, %error, "waiting for the CustomResourceDefinition"),
            Cause::Unreachable(_) => warn!(namespace, resource, %error, "waiting for the proxy and the API server"),
            Cause::Forbidden(_) => warn!(namespace, resource, %error, "waiting for the right to do so"),
            _ => warn!(namespace, resource, %error, "request failed; retrying"),
        }
        delay
    }

    /// Records a success after failures that [`Faults::log`] has logged.
    pub(crate) fn log_recovery(&mut self, resource: &'static str, namespace: &str) {
        if self.recovered() {
            info!(namespace = named(namespace), resource, "working again");
        }
    }
}

/// A client for all namespaces has an empty namespace.
fn named(namespace: &str) -> Option<&str> {
    Some(namespace).filter(|namespace| !namespace.is_empty())
}

/// Whether a failure is worth reporting. The other kinds are a part of how the API works: list again, read again, stop.
fn is_fault(cause: &Cause) -> bool {
    !matches!(cause, Cause::Expired | Cause::Conflict(_) | Cause::Stopped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_failure_is_reported_once_until_a_success() {
        let mut faults = Faults::default();
        let unreachable = || Cause::Unreachable("x".to_owned());
        let reported: Vec<bool> = [unreachable(), unreachable(), Cause::NoSuchResource, unreachable()]
            .iter()
            .map(|cause| faults.record(cause).1)
            .collect();
        assert_eq!(reported, [true, false, true, false]);
        assert!(faults.recovered() && !faults.recovered());
        assert!(faults.record(&unreachable()).1);
    }

    #[test]
    fn a_recovery_is_reported_only_if_a_failure_was() {
        let mut faults = Faults::default();
        for cause in [Cause::Expired, Cause::Conflict("x".to_owned()), Cause::Expired, Cause::Stopped] {
            assert!(!faults.record(&cause).1, "{cause:?}");
        }
        assert!(faults.is_failing() && !faults.recovered() && !faults.is_failing());
    }

    #[test]
    fn the_delay_that_a_server_asks_for_is_kept() {
        let asked = Duration::from_secs(300);
        assert_eq!(Faults::default().record(&Cause::Busy(Some(asked))).0, asked);
    }
}
