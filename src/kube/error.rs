//! Failures of requests, named for what the caller can do.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use strum::IntoStaticStr;

use super::{Action, cut};

/// The longest `Retry-After` that is obeyed.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(600);
/// The delay after a PodDisruptionBudget refused an eviction, as in `kubectl drain`.
const BLOCKED_DELAY: Duration = Duration::from_secs(5);
/// etcd's message about a revision from the future. API servers before 1.34 pass this message on with 500; later ones
/// answer 504 with the cause `ResourceVersionTooLarge`.
const FUTURE_REVISION: &str = "required revision is a future revision";
/// The API server's messages about a request that an admission webhook or a ValidatingAdmissionPolicy denied. A webhook
/// chooses the code: with 403 no RBAC right would help, with 429 the API server is not busy.
const DENIALS: [&str; 2] = [" denied the request", " denied request"];
/// The maximum length of a quoted message, in bytes: log lines, conditions and Events have limits.
const MAX_QUOTE: usize = 1024;

/// A failed request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot {action}: {cause}")]
pub struct Error {
    /// Boxed, because every result has room for it.
    pub(crate) action: Box<Action>,
    /// Why the request failed.
    pub cause: Cause,
}

/// Why a request failed, and so what its caller can do. Its name without the fields is a reason that
/// the [`Meter`](super::meter::Meter) receives.
#[derive(Clone, Debug, PartialEq, Eq, IntoStaticStr, thiserror::Error)]
pub enum Cause {
    /// No answer, or an answer that is not the API server's: retry. A write may have taken place.
    #[error("no answer from the API server: {0}")]
    Unreachable(String),
    /// 429: retry, after the delay that the server names.
    #[error("the API server is busy{}", .0.map_or(String::new(), |after| format!(", retry after {} s", after.as_secs())))]
    Busy(Option<Duration>),
    /// 429 or 403 for an eviction: a PodDisruptionBudget does not allow the eviction now.
    #[error("{0}")]
    Blocked(String),
    /// 410, or a resourceVersion from the future: the version does not exist, or not any more. List again.
    #[error("the API server does not have this resourceVersion")]
    Expired,
    /// 404 of the object.
    #[error("{0}")]
    NotFound(String),
    /// 404 of the resource: its CustomResourceDefinition is not installed.
    #[error("the API server does not serve this resource")]
    NoSuchResource,
    /// 409: the object has another resourceVersion or UID than the request. Read again, decide again.
    #[error("{0}")]
    Conflict(String),
    /// 401 or 403: a right is missing.
    #[error("{0}")]
    Forbidden(String),
    /// 400, 413 or 422: a retry succeeds only after a webhook or a schema changes. Back off.
    #[error("{0}")]
    Invalid(String),
    /// Another refusal of the API server, such as one by an admission webhook.
    #[error("{0}")]
    Refused(String),
    /// The answer exceeds the maximum length: ask for less.
    #[error("the answer is longer than 16 MiB")]
    TooLong,
    /// The answer is not what the API specifies.
    #[error("the answer cannot be decoded: {0}")]
    Undecodable(String),
    /// The operator, or this part of its work, is stopping and starts no request.
    #[error("not sent, because its caller stopped")]
    Stopped,
}

/// The fields of a `Status` object that say why a request failed.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct StatusAnswer {
    kind: String,
    message: String,
    reason: String,
    details: Details,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Details {
    name: String,
    kind: String,
    retry_after_seconds: u64,
    causes: Vec<DetailsCause>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DetailsCause {
    reason: String,
    message: String,
}

fn is_denial(message: &str) -> bool {
    DENIALS.iter().any(|denial| message.contains(denial))
}

impl Action {
    pub(crate) fn failed(&self, cause: Cause) -> Error {
        Error { action: Box::new(self.clone()), cause }
    }
}

impl Cause {
    /// Reads an answer that is not 2xx. `retry_after` is the header of that name, `body` at least the quotable part of
    /// the answer.
    ///
    /// An answer without a `Status` object does not come from the API server's handlers. kubectl proxy answers 500 with
    /// plain text if it cannot reach the server; a path that is not served gets a plain `404 page not found`, and from 1.38
    /// on a `Status` that names no object (kubernetes PR 138219).
    pub(super) fn of_answer(code: u16, retry_after: Option<&str>, body: &[u8]) -> Self {
        let status: Option<StatusAnswer> =
            serde_json::from_slice(body).ok().filter(|status: &StatusAnswer| status.kind == "Status");
        let text = || quote(&String::from_utf8_lossy(body.get(..MAX_QUOTE).unwrap_or(body)));
        let after = retry_after.and_then(|seconds| seconds.trim().parse().ok()).map(retry_delay);
        let Some(status) = status else {
            return match code {
                404 => Self::NoSuchResource,
                410 => Self::Expired,
                429 => Self::Busy(after),
                401 | 403 => Self::Forbidden(text()),
                400 | 413 => Self::Invalid(text()),
                _ => Self::Unreachable(format!("HTTP {code}: {}", text())),
            };
        };
        let (message, named) = (quote(&status.message), status.details.retry_after_seconds);
        let budget = status.details.causes.iter().find(|cause| cause.reason.starts_with("DisruptionBudget"));
        let is_unknown = status.message.starts_with("the server could not find the requested resource");
        let is_named = !status.details.name.is_empty() && !is_unknown || is_denial(&status.message);
        match code {
            // Of the messages of a 429, only that of the cause names the PodDisruptionBudget.
            429 if let Some(cause) = budget => Self::Blocked(quote(&format!("{} {}", status.message, cause.message))),
            // One that is broken allows no eviction. Before 1.37 there is no cause. (registry/core/pod/storage/eviction.go)
            403 if budget.is_some() || status.details.kind == "poddisruptionbudget" => Self::Blocked(message),
            404 if status.reason == "NotFound" && !is_named => Self::NoSuchResource,
            404 if status.reason == "NotFound" => Self::NotFound(message),
            409 => Self::Conflict(message),
            410 => Self::Expired,
            403 | 429 if is_denial(&status.message) => Self::Refused(message),
            429 => Self::Busy(after.or((named > 0).then(|| retry_delay(named)))),
            401 | 403 => Self::Forbidden(message),
            400 | 413 | 422 => Self::Invalid(message),
            504 if status.details.causes.iter().any(|cause| cause.reason == "ResourceVersionTooLarge") => Self::Expired,
            500 if status.message.contains(FUTURE_REVISION) => Self::Expired,
            503 | 504 => Self::Unreachable(format!("HTTP {code}: {message}")),
            _ => Self::Refused(format!("HTTP {code}: {message}")),
        }
    }

    /// Whether an admission webhook or a ValidatingAdmissionPolicy denied the request.
    pub(crate) fn is_denial(&self) -> bool {
        matches!(self, Self::Refused(message) if is_denial(message))
    }

    /// Whether the API server refused this request, so that nothing was changed and a request about another object may
    /// succeed.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Blocked(_) | Self::Forbidden(_) | Self::Invalid(_) | Self::Refused(_))
    }

    /// Whether the object does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound(_))
    }

    /// The delay before a retry: at least `least`, and longer if the server asks for that.
    pub(crate) fn delay(&self, least: Duration) -> Duration {
        match self {
            Self::Busy(Some(after)) => least.max(*after),
            Self::Blocked(_) => least.max(BLOCKED_DELAY),
            _ => least,
        }
    }

    /// Reads the object of an `ERROR` event in a watch: a `Status` that contains its code.
    pub(super) fn of_watch_error(object: &str) -> Self {
        let status: Option<Value> = serde_json::from_str(object).ok();
        match status.and_then(|status| u16::try_from(status["code"].as_u64()?).ok()) {
            Some(code) => Self::of_answer(code, None, object.as_bytes()),
            None => Self::Undecodable("an ERROR event without a code".to_owned()),
        }
    }
}

fn retry_delay(seconds: u64) -> Duration {
    Duration::from_secs(seconds).min(MAX_RETRY_AFTER)
}

fn quote(text: &str) -> String {
    cut(text.trim(), MAX_QUOTE).to_owned()
}

impl Error {
    /// Whether both failures are the same apart from the object. Otherwise a refusal that names another pod at each
    /// retry would cause a status write at each retry.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let unnamed = |Self { action, cause }: &Self| {
            let name = action.name.as_deref().unwrap_or_default();
            (Action { name: None, ..(**action).clone() }, cause.to_string().replace(name, ""))
        };
        unnamed(self) == unnamed(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::{CONFIG_MAPS, PODS};
    use proptest::prelude::*;
    use serde_json::json;

    fn status(reason: &str, message: &str) -> Vec<u8> {
        format!(r#"{{"kind":"Status","reason":"{reason}","message":"{message}"}}"#).into_bytes()
    }

    #[test]
    fn the_same_refusal_about_another_object_is_alike() {
        let error = |pod: &str, why: &str| {
            Action::on("delete", PODS, pod).failed(Cause::Refused(format!("pods {pod:?} is forbidden: {why}")))
        };
        assert!(error("web-1", "not now").is_like(&error("web-2", "not now")));
        assert!(!error("web-1", "not now").is_like(&error("web-1", "never")));
        let unnamed = |cause| Action::new("list", PODS).failed(cause);
        assert!(unnamed(Cause::Expired).is_like(&unnamed(Cause::Expired)));
        assert!(!unnamed(Cause::Expired).is_like(&unnamed(Cause::TooLong)));
    }

    #[test]
    fn only_a_status_that_names_an_object_means_that_the_object_is_missing() {
        let missing = br#"{"kind":"Status","reason":"NotFound","message":"x","details":{"name":"a","kind":"pods"}}"#;
        assert_eq!(Cause::of_answer(404, None, missing), Cause::NotFound("x".to_owned()));
        let denied = "admission webhook 'w' denied the request: x";
        let denial = Cause::of_answer(404, None, &status("NotFound", denied));
        assert_eq!(denial, Cause::NotFound(denied.to_owned()), "the next list shows whether the object is there");
        assert_eq!(Cause::of_answer(404, None, b"404 page not found\n"), Cause::NoSuchResource);
        let of_1_38 = status("NotFound", "the server could not find the requested resource");
        assert_eq!(Cause::of_answer(404, None, &of_1_38), Cause::NoSuchResource);
        let named = br#"{"kind":"Status","reason":"NotFound","message":"the server could not find the requested resource","details":{"name":"x"}}"#;
        assert_eq!(Cause::of_answer(404, None, named), Cause::NoSuchResource);
        assert!(matches!(Cause::of_answer(404, None, &status("Odd", "x")), Cause::Refused(_)));
    }

    #[test]
    fn a_denial_by_admission_is_not_a_missing_right() {
        let of = |message| Cause::of_answer(403, None, &status("Forbidden", message));
        for denied in [
            "admission webhook 'keeper' denied the request: not for now",
            "pods 'a' is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: not for now",
        ] {
            assert_eq!(of(denied), Cause::Refused(denied.to_owned()));
        }
        // As Strimzi's webhook refuses an eviction.
        let denied = "admission webhook 'drain' denied the request: rolled by the operator";
        let cause = Cause::of_answer(500, None, &status("InternalError", denied));
        assert!(matches!(&cause, Cause::Refused(text) if text.contains(denied)), "{cause:?}");
        let missing = "pods 'a' is forbidden: User 'u' cannot delete resource 'pods'";
        assert_eq!(of(missing), Cause::Forbidden(missing.to_owned()));
    }

    #[test]
    fn the_answers_of_the_proxy_itself_leave_the_outcome_unknown() {
        let cause = Cause::of_answer(500, None, b"dial tcp 127.0.0.1:6443: connect: connection refused");
        assert!(matches!(cause, Cause::Unreachable(text) if text.contains("connection refused")));
        assert!(matches!(Cause::of_answer(502, None, b"<html>\xff</html>"), Cause::Unreachable(_)));
        // The proxy also rejects requests by itself.
        for code in [400, 413] {
            assert_eq!(Cause::of_answer(code, None, b"too long"), Cause::Invalid("too long".to_owned()));
        }
    }

    #[test]
    fn the_delay_of_a_busy_server_is_in_the_header_or_in_the_body() {
        let ten = Some(Duration::from_secs(10));
        assert_eq!(Cause::of_answer(429, Some("10"), b"Too many requests"), Cause::Busy(ten));
        let body = br#"{"kind":"Status","reason":"TooManyRequests","details":{"retryAfterSeconds":10}}"#;
        assert_eq!(Cause::of_answer(429, None, body), Cause::Busy(ten));
        assert_eq!(Cause::of_answer(429, Some("soon"), b""), Cause::Busy(None));
        assert_eq!(Cause::of_answer(429, None, &status("TooManyRequests", "later")), Cause::Busy(None));
        let denial = "admission webhook w denied the request: later";
        assert_eq!(Cause::of_answer(429, None, &status("TooManyRequests", denial)), Cause::Refused(denial.to_owned()));
    }

    #[test]
    fn a_disruption_budget_that_refuses_is_named_and_retried_later() {
        let body = br#"{"kind":"Status","reason":"TooManyRequests","message":"Cannot evict pod.",
            "details":{"causes":[{"reason":"DisruptionBudget","message":"The disruption budget web needs 2 healthy pods"}]}}"#;
        let cause = Cause::of_answer(429, None, body);
        let text = "Cannot evict pod. The disruption budget web needs 2 healthy pods".to_owned();
        assert_eq!(cause, Cause::Blocked(text));
        assert_eq!(cause.delay(Duration::ZERO), BLOCKED_DELAY);
        let text = r#"poddisruptionbudget.policy "web" is forbidden: pdb disruptions allowed is negative"#;
        let broken = |details: Value| {
            let status = json!({ "kind": "Status", "reason": "Forbidden", "message": text, "details": details });
            Cause::of_answer(403, None, status.to_string().as_bytes())
        };
        let causes = json!([{ "reason": "DisruptionBudget", "message": "The disruption budget web is broken" }]);
        for details in [json!({ "causes": causes }), json!({ "kind": "poddisruptionbudget", "name": "web" })] {
            assert_eq!(broken(details), Cause::Blocked(text.to_owned()));
        }
        assert!(matches!(broken(json!({ "kind": "poddisruptionbudgets" })), Cause::Forbidden(_)), "a right is missing");
    }

    #[test]
    fn a_version_from_the_past_or_the_future_is_expired() {
        assert_eq!(Cause::of_answer(410, None, &status("Expired", "")), Cause::Expired);
        let body =
            br#"{"kind":"Status","reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge"}]}}"#;
        assert_eq!(Cause::of_answer(504, None, body), Cause::Expired);
        assert!(matches!(Cause::of_answer(504, None, &status("Timeout", "")), Cause::Unreachable(_)));
        let body = status("", "etcdserver: mvcc: required revision is a future revision");
        assert_eq!(Cause::of_answer(500, None, &body), Cause::Expired);
        let event = r#"{"kind":"Status","code":410,"reason":"Expired"}"#;
        assert_eq!(Cause::of_watch_error(event), Cause::Expired);
        assert!(matches!(Cause::of_watch_error("{}"), Cause::Undecodable(_)));
    }

    #[test]
    fn a_refusal_quotes_the_server() {
        let text = "configmaps is forbidden: cannot list";
        assert_eq!(Cause::of_answer(403, None, &status("Forbidden", text)), Cause::Forbidden(text.to_owned()));
        let error = Action::new("list", CONFIG_MAPS).failed(Cause::Forbidden(text.to_owned()));
        assert_eq!(error.to_string(), format!("cannot list configmaps: {text}"));
    }

    /// Generates bodies of answers: a `Status` with arbitrary fields, or arbitrary bytes.
    fn body() -> impl Strategy<Value = Vec<u8>> {
        let code = prop_oneof![known_code().prop_map(|code| json!(code)), any::<i64>().prop_map(|code| json!(code))];
        let reason = prop::sample::select(vec!["NotFound", "Expired", "Timeout", "ResourceVersionTooLarge", "\u{e4}"]);
        let seconds = prop_oneof![any::<u64>().prop_map(|seconds| json!(seconds)), Just(json!(-1)), Just(json!("1"))];
        let status =
            (code, reason, ".{0,40}", 0usize..100, seconds).prop_map(|(code, reason, text, times, seconds)| {
                let details = json!({ "retryAfterSeconds": seconds, "causes": [{ "reason": reason }] });
                let message = text.repeat(times);
                json!({ "kind": "Status", "code": code, "reason": reason, "message": message, "details": details })
            });
        let status = status.prop_map(|status| status.to_string().into_bytes());
        prop_oneof![status, prop::collection::vec(any::<u8>(), 0..3000)]
    }

    fn known_code() -> impl Strategy<Value = u16> {
        prop::sample::select(vec![400, 401, 403, 404, 409, 410, 413, 422, 429, 500, 503, 504])
    }

    proptest! {
        #[test]
        fn no_answer_causes_a_panic_an_endless_wait_or_an_endless_quote(
            code in prop_oneof![any::<u16>(), known_code()],
            retry_after in prop::option::of("[ 0-9a-z-]{0,25}"),
            body in body(),
        ) {
            let event = String::from_utf8_lossy(&body);
            for cause in [Cause::of_answer(code, retry_after.as_deref(), &body), Cause::of_watch_error(&event)] {
                prop_assert!(cause.delay(Duration::ZERO) <= MAX_RETRY_AFTER);
                prop_assert!(cause.to_string().len() < MAX_QUOTE + 100, "{cause}");
            }
        }
    }
}
