//! Whether the pods of a ConfigMonitor run with the content as of now.

use std::str::FromStr;

use configmonitor_operator::monitor::content::ContentHash;
use configmonitor_operator::monitor::reason::Reason;
use configmonitor_operator::monitor::source::SourceName;
use configmonitor_operator::monitor::status::{SourceStatus, Status};

use crate::conditions::{is_true, message, reason};
use crate::monitors::{Contents, Monitor};

/// The answer, with what a person reads about it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Done,
    NotYet(String),
    /// Not yet, as long as a source is missing.
    Missing(String),
    Failed(String),
    /// A person must do something.
    Stalled(String),
    /// Its author holds the restart.
    Held(String),
}

impl Verdict {
    /// Judges by the status, and by the content of the sources, which the operator may not have read yet. `has_pods`:
    /// whether the selector selects any now.
    pub(crate) fn of(monitor: &Monitor, contents: &Contents, has_pods: bool) -> Self {
        let Some(status) = &monitor.status else {
            return Self::NotYet("the operator has written no status yet".to_owned());
        };
        let reason = Reason::from_str(reason(status)).ok();
        if matches!(reason, Some(Reason::InvalidSpec | Reason::InvalidStatus | Reason::Forbidden))
            && status.observed_generation == Some(monitor.metadata.generation)
        {
            return Self::Stalled(message(status));
        }
        if status.observed_generation != Some(monitor.metadata.generation) {
            return Self::NotYet("the operator has not read the spec yet".to_owned());
        }
        let asked = monitor.metadata.annotations.restart_requested_at.as_ref();
        if asked.is_some_and(|asked| !status.has_handled(asked)) {
            return match reason {
                Some(Reason::Suspended) => Self::Held(message(status)),
                Some(Reason::NoSourcesFound) => Self::Failed(message(status)),
                Some(Reason::SourceNotFound) => Self::Missing(message(status)),
                // It is taken up once the restart before it is over.
                Some(Reason::ProgressDeadlineExceeded) => {
                    Self::Stalled(format!("{}; the request waits until this restart is over", message(status)))
                }
                _ if status.restart.as_ref().is_some_and(|restart| restart.begun.is_some()) => {
                    Self::NotYet(message(status))
                }
                _ => Self::NotYet("the operator has not read the request yet".to_owned()),
            };
        }
        if let Some(unread) = unread(status, contents) {
            return Self::NotYet(format!("the operator has not read {unread} yet"));
        }
        match reason {
            // A chart may create the pods last, and the operator counts them again only later.
            Some(Reason::NoPodsSelected) if has_pods => Self::NotYet(message(status)),
            Some(Reason::NoPodsSelected | Reason::NoSourcesFound | Reason::KeyNotFound) => {
                Self::Failed(message(status))
            }
            Some(Reason::SourceNotFound) => Self::Missing(message(status)),
            _ if is_true(status, "Stalled") => Self::Stalled(message(status)),
            _ if is_true(status, "Ready") => Self::Done,
            Some(held) if held.is_delay_by_author() => Self::Held(message(status)),
            _ => Self::NotYet(message(status)),
        }
    }
}

/// Returns a source whose content as of now the operator has not read.
pub(crate) fn unread<'a>(status: &'a Status, contents: &Contents) -> Option<&'a SourceName> {
    let is_missed = reason(status) == <&str>::from(Reason::SourceNotFound);
    status.sources.iter().find(|source| !has_read(source, contents, is_missed)).map(|source| &source.name)
}

/// Returns whether the content as of now is recorded, or pods are or will be restarted for it. `is_missed`: the operator
/// knows that a source is missing.
fn has_read(source: &SourceStatus, contents: &Contents, is_missed: bool) -> bool {
    let absent = ContentHash::absent();
    let now = contents.get(&source.name).and_then(Option::as_ref);
    match (now, source.last()) {
        (Some(now), Some(known)) => now == known,
        (None, Some(known)) => *known == absent || is_missed,
        (None, None) => true,
        (Some(_), None) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use configmonitor_operator::monitor::content::Kind;
    use serde_json::{Value, json};

    use super::*;

    fn conditions(reason: &str, r#true: &str) -> Value {
        let one = |r#type: &str| {
            let status = if r#type == r#true { "True" } else { "False" };
            json!({"type": r#type, "status": status, "reason": reason, "message": reason, "lastTransitionTime": "2026-11-27T08:00:00Z"})
        };
        ["Ready", "Reconciling", "Stalled"].map(one).into_iter().collect()
    }

    /// Returns the sources of a status once this content has been read.
    fn changed(hash: &str) -> Value {
        let at = "2026-11-27T08:00:00Z";
        let changes = ["sha256:0", hash].map(|hash| json!({"hash": hash, "since": at, "observedAt": at}));
        json!([{"kind": "ConfigMap", "name": "a", "resourceVersion": "1", "hash": "sha256:1", "changes": changes}])
    }

    /// Judges a ConfigMonitor of generation 2 whose source has this content. `None`: it does not exist.
    fn judged(status: Value, now: Option<&str>) -> Verdict {
        let metadata = json!({
            "name": "m", "uid": "u", "resourceVersion": "1", "generation": 2,
            "annotations": {"magalix.com/restart-requested-at": "x"},
        });
        let monitor =
            json!({"metadata": metadata, "spec": {"configMap": "a", "podSelector": {"b": "c"}}, "status": status});
        let monitor = Monitor::of(&monitor).unwrap();
        let a = SourceName { kind: Kind::ConfigMap, name: "a".into() };
        Verdict::of(&monitor, &BTreeMap::from([(a, now.map(Into::into))]), false)
    }

    #[test]
    fn the_verdict_is_about_the_content_the_spec_and_the_request_as_of_now() {
        let source = json!({"kind": "ConfigMap", "name": "a", "resourceVersion": "1", "hash": "sha256:1"});
        let status = |conditions: Value| json!({"observedGeneration": 2, "sources": [source], "lastHandledRestartRequest": "x", "conditions": conditions});
        let with = |field: &str, value: Value, reason: &str, r#true: &str| {
            let mut status = status(conditions(reason, r#true));
            status[field] = value;
            status
        };
        let (one, two) = (Some("sha256:1"), Some("sha256:2"));
        let ready = || status(conditions("UpToDate", "Ready"));
        assert_eq!(judged(ready(), one), Verdict::Done);
        let not_yet = [
            (Value::Null, one),
            (ready(), two),
            (with("observedGeneration", json!(1), "UpToDate", "Ready"), one),
            (with("lastHandledRestartRequest", json!("w"), "UpToDate", "Ready"), one),
            (with("sources", changed("sha256:2"), "QuietPeriod", "Reconciling"), two),
            (with("sources", changed("sha256:1"), "QuietPeriod", "Reconciling"), one),
            (with("sources", changed("sha256:2"), "OutsideWindow", "Reconciling"), Some("sha256:3")),
            (with("sources", changed("sha256:2"), "CanaryFailed", "Stalled"), Some("sha256:3")),
            (ready(), None),
        ];
        for (status, now) in not_yet {
            let verdict = judged(status.clone(), now);
            assert!(matches!(verdict, Verdict::NotYet(_)), "{verdict:?}: {status}");
        }
        let missing = status(conditions("SourceNotFound", ""));
        assert_eq!(judged(missing, None), Verdict::Missing("SourceNotFound".to_owned()));
        let asked = with("lastHandledRestartRequest", json!("w"), "SourceNotFound", "");
        assert_eq!(judged(asked, None), Verdict::Missing("SourceNotFound".to_owned()));
        let held = with("sources", changed("sha256:2"), "OutsideWindow", "Reconciling");
        assert_eq!(judged(held, two), Verdict::Held("OutsideWindow".to_owned()));
        let failed = with("sources", changed("sha256:2"), "CanaryFailed", "Stalled");
        assert_eq!(judged(failed, two), Verdict::Stalled("CanaryFailed".to_owned()));
        let suspended = with("lastHandledRestartRequest", json!("w"), "Suspended", "");
        assert_eq!(judged(suspended, one), Verdict::Held("Suspended; Suspended".to_owned()), "with what it waits for");
        let invalid = status(conditions("InvalidSpec", "Stalled"));
        assert_eq!(judged(invalid, two), Verdict::Stalled("InvalidSpec".to_owned()), "nothing is read");
        let nobody = status(conditions("NoPodsSelected", "Ready"));
        assert_eq!(judged(nobody, one), Verdict::Failed("NoPodsSelected".to_owned()));
    }
}
