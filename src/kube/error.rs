//! What can go wrong with a request, named for what the caller can do about it.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;

use super::cut;

/// A server that asks for more than this is not believed.
const LONGEST_PATIENCE: Duration = Duration::from_secs(600);
/// A budget that refuses an eviction is asked again after this time, as by `kubectl drain`.
const BLOCKED_PATIENCE: Duration = Duration::from_secs(5);
/// What etcd says of a revision from the future. Servers before 1.34 pass it on as an error of their own (500), later ones say 504 with
/// the cause `ResourceVersionTooLarge`.
const FUTURE_REVISION: &str = "required revision is a future revision";
/// What the API server says when an admission webhook, or a ValidatingAdmissionPolicy, has denied a request. Each chooses the code, 403 among others,
/// and no right would help.
const DENIALS: [&str; 2] = [" denied the request", " denied request"];
/// So many bytes of what a server says are quoted: a log line, a condition and an Event have limits.
const LONGEST_QUOTE: usize = 1024;

/// A request that did not do what it was for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The request, for a person: `delete pods "web-0"`.
    pub request: String,
    /// What became of it.
    pub cause: Cause,
}

/// What became of a request, and so what its caller can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// No answer, or none of the API server's: try again. Whether a write took place is not known.
    Unreachable(String),
    /// 429: try again, not before this time if the server named one.
    Busy(Option<Duration>),
    /// 429 for an eviction: a PodDisruptionBudget does not allow it now.
    Blocked(String),
    /// 410, or a resourceVersion from the future: what was asked for is not known there (any more). List again.
    Expired,
    /// 404 of the object.
    NotFound(String),
    /// 404 of the whole resource: its CustomResourceDefinition is not installed.
    NoSuchResource,
    /// 409: the object is not (any more) what the request said it was. Read again, decide again.
    Conflict(String),
    /// 401 or 403: somebody must grant it.
    Forbidden(String),
    /// 400, 413 or 422: the same request will fail again, unless a webhook or a schema changes. So it is retried with backoff.
    Invalid(String),
    /// Another refusal of the API server, such as of an admission webhook.
    Refused(String),
    /// The answer is longer than any that is read: ask for less.
    TooLong,
    /// The answer was not what the API promises.
    Undecodable(String),
    /// The work that the request was for is ending, and begins no new one.
    Stopped,
}

/// The part of a `Status` object that says why a request failed.
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
    retry_after_seconds: u64,
    causes: Vec<DetailsCause>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DetailsCause {
    reason: String,
    message: String,
}

impl Cause {
    /// Its kind in one word, for the metrics.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Unreachable(_) => "Unreachable",
            Self::Busy(_) => "Busy",
            Self::Blocked(_) => "Blocked",
            Self::Expired => "Expired",
            Self::NotFound(_) => "NotFound",
            Self::NoSuchResource => "NoSuchResource",
            Self::Conflict(_) => "Conflict",
            Self::Forbidden(_) => "Forbidden",
            Self::Invalid(_) => "Invalid",
            Self::Refused(_) => "Refused",
            Self::TooLong => "TooLong",
            Self::Undecodable(_) => "Undecodable",
            Self::Stopped => "Stopped",
        }
    }

    /// Reads an answer that is not 2xx.
    ///
    /// `retry_after` is the header of that name, `body` as much of the answer as is worth quoting. An answer that is no
    /// `Status` object does not come from the API server's handlers: kubectl proxy says 500 with plain text when it cannot
    /// reach the server, and a path that is not served is a plain `404 page not found`.
    #[must_use]
    pub fn of_answer(code: u16, retry_after: Option<&str>, body: &[u8]) -> Self {
        let status: Option<StatusAnswer> =
            serde_json::from_slice(body).ok().filter(|status: &StatusAnswer| status.kind == "Status");
        let text = || quote(&String::from_utf8_lossy(body.get(..LONGEST_QUOTE).unwrap_or(body)));
        let after = retry_after.and_then(|seconds| seconds.trim().parse().ok()).map(patience);
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
        let budget = status.details.causes.iter().find(|cause| cause.reason == "DisruptionBudget");
        match code {
            // Which budget it is stands in the message of the cause only.
            429 if let Some(cause) = budget => Self::Blocked(quote(&format!("{} {}", status.message, cause.message))),
            404 if status.reason == "NotFound" => Self::NotFound(message),
            409 => Self::Conflict(message),
            410 => Self::Expired,
            429 => Self::Busy(after.or((named > 0).then(|| patience(named)))),
            403 if DENIALS.iter().any(|denial| status.message.contains(denial)) => Self::Refused(message),
            401 | 403 => Self::Forbidden(message),
            400 | 413 | 422 => Self::Invalid(message),
            504 if status.details.causes.iter().any(|cause| cause.reason == "ResourceVersionTooLarge") => Self::Expired,
            500 if status.message.contains(FUTURE_REVISION) => Self::Expired,
            503 | 504 => Self::Unreachable(format!("HTTP {code}: {message}")),
            _ => Self::Refused(format!("HTTP {code}: {message}")),
        }
    }

    /// Whether the API server has said no to just this request, so that it has not been done and another one may do better.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Blocked(_) | Self::Forbidden(_) | Self::Invalid(_) | Self::Refused(_))
    }

    /// Whether the object does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound(_))
    }

    /// How long to wait before the next try: this long, or longer if the server asks for it.
    #[must_use]
    pub fn delay(&self, least: Duration) -> Duration {
        match self {
            Self::Busy(Some(after)) => least.max(*after),
            Self::Blocked(_) => least.max(BLOCKED_PATIENCE),
            _ => least,
        }
    }

    /// Reads the object of an `ERROR` event of a watch, a `Status` whose code stands in it.
    #[must_use]
    pub fn of_watch_error(object: &str) -> Self {
        #[derive(Deserialize)]
        struct Code {
            code: u16,
        }
        match serde_json::from_str::<Code>(object) {
            Ok(Code { code }) => Self::of_answer(code, None, object.as_bytes()),
            Err(_) => Self::Undecodable("an ERROR event without a code".to_owned()),
        }
    }
}

/// How long a server that is busy is left alone: as long as it asks, within reason.
fn patience(seconds: u64) -> Duration {
    Duration::from_secs(seconds).min(LONGEST_PATIENCE)
}

fn quote(text: &str) -> String {
    cut(text.trim(), LONGEST_QUOTE).to_owned()
}

impl Error {
    /// Returns whether both report the same failure, if of different objects. A refusal that names another pod at each try would otherwise be a
    /// status write at each try.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        self.without_name() == other.without_name()
    }

    fn without_name(&self) -> String {
        let text = self.to_string();
        self.request.split('"').nth(1).map_or_else(|| text.clone(), |name| text.replace(name, ""))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}: {}", self.request, self.cause)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(text) => write!(f, "no answer of the API server ({text})"),
            Self::Busy(Some(after)) => write!(f, "the API server is busy and asks to wait {} s", after.as_secs()),
            Self::Busy(None) => f.write_str("the API server is busy"),
            Self::Expired => f.write_str("the resourceVersion is not known to the API server"),
            Self::NoSuchResource => f.write_str("the API server does not serve it"),
            Self::Blocked(text)
            | Self::NotFound(text)
            | Self::Conflict(text)
            | Self::Forbidden(text)
            | Self::Invalid(text)
            | Self::Refused(text) => f.write_str(text),
            Self::TooLong => f.write_str("the answer is longer than any that is read"),
            Self::Undecodable(text) => write!(f, "the answer cannot be decoded: {text}"),
            Self::Stopped => f.write_str("the work that it was for is ending"),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn status(reason: &str, message: &str) -> Vec<u8> {
        format!(r#"{{"kind":"Status","reason":"{reason}","message":"{message}"}}"#).into_bytes()
    }

    #[test]
    fn the_same_refusal_of_another_object_is_like_it() {
        let error = |pod: &str, why: &str| Error {
            request: format!("delete pods {pod:?}"),
            cause: Cause::Refused(format!("pods {pod:?} is forbidden: {why}")),
        };
        assert!(error("web-1", "not now").is_like(&error("web-2", "not now")));
        assert!(!error("web-1", "not now").is_like(&error("web-1", "never")));
        let unnamed = |cause| Error { request: "list pods".to_owned(), cause };
        assert!(unnamed(Cause::Expired).is_like(&unnamed(Cause::Expired)));
        assert!(!unnamed(Cause::Expired).is_like(&unnamed(Cause::TooLong)));
    }

    #[test]
    fn gone_is_only_a_status_with_reason_not_found() {
        assert_eq!(Cause::of_answer(404, None, &status("NotFound", "x")), Cause::NotFound("x".to_owned()));
        assert_eq!(Cause::of_answer(404, None, b"404 page not found\n"), Cause::NoSuchResource);
        assert!(matches!(Cause::of_answer(404, None, &status("Odd", "x")), Cause::Refused(_)));
    }

    #[test]
    fn what_admission_denies_is_no_missing_right() {
        let of = |message| Cause::of_answer(403, None, &status("Forbidden", message));
        for denied in [
            "admission webhook 'keeper' denied the request: not for now",
            "pods 'a' is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: not for now",
        ] {
            assert_eq!(of(denied), Cause::Refused(denied.to_owned()));
        }
        let missing = "pods 'a' is forbidden: User 'u' cannot delete resource 'pods'";
        assert_eq!(of(missing), Cause::Forbidden(missing.to_owned()));
    }

    #[test]
    fn the_answers_of_the_proxy_itself_leave_the_outcome_unknown() {
        let cause = Cause::of_answer(500, None, b"dial tcp 127.0.0.1:6443: connect: connection refused");
        assert!(matches!(cause, Cause::Unreachable(text) if text.contains("connection refused")));
        assert!(matches!(Cause::of_answer(502, None, b"<html>\xff</html>"), Cause::Unreachable(_)));
        // Not so those about a request that it does not take.
        for code in [400, 413] {
            assert_eq!(Cause::of_answer(code, None, b"too long"), Cause::Invalid("too long".to_owned()));
        }
    }

    #[test]
    fn busy_says_how_long_from_the_header_or_from_the_body() {
        let ten = Some(Duration::from_secs(10));
        assert_eq!(Cause::of_answer(429, Some("10"), b"Too many requests"), Cause::Busy(ten));
        let body = br#"{"kind":"Status","reason":"TooManyRequests","details":{"retryAfterSeconds":10}}"#;
        assert_eq!(Cause::of_answer(429, None, body), Cause::Busy(ten));
        assert_eq!(Cause::of_answer(429, Some("soon"), b""), Cause::Busy(None));
        assert_eq!(Cause::of_answer(429, None, &status("TooManyRequests", "later")), Cause::Busy(None));
    }

    #[test]
    fn a_disruption_budget_in_the_way_is_named_and_given_time() {
        let body = br#"{"kind":"Status","reason":"TooManyRequests","message":"Cannot evict pod.",
            "details":{"causes":[{"reason":"DisruptionBudget","message":"The disruption budget web needs 2 healthy pods"}]}}"#;
        let cause = Cause::of_answer(429, None, body);
        let text = "Cannot evict pod. The disruption budget web needs 2 healthy pods".to_owned();
        assert_eq!(cause, Cause::Blocked(text));
        assert_eq!(cause.delay(Duration::ZERO), BLOCKED_PATIENCE);
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
        let error = Error { request: "list configmaps".to_owned(), cause: Cause::Forbidden(text.to_owned()) };
        assert_eq!(error.to_string(), format!("cannot list configmaps: {text}"));
    }

    /// What may stand in an answer: a `Status` with anything in it, or anything.
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
        fn no_answer_makes_it_panic_wait_for_ever_or_quote_without_end(
            code in prop_oneof![any::<u16>(), known_code()],
            retry_after in prop::option::of("[ 0-9a-z-]{0,25}"),
            body in body(),
        ) {
            let event = String::from_utf8_lossy(&body);
            for cause in [Cause::of_answer(code, retry_after.as_deref(), &body), Cause::of_watch_error(&event)] {
                prop_assert!(cause.delay(Duration::ZERO) <= LONGEST_PATIENCE);
                prop_assert!(cause.to_string().len() < LONGEST_QUOTE + 100, "{cause}");
            }
        }
    }
}
