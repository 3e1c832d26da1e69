//! Words that several texts for users have in common.

use std::borrow::Cow;

use super::restart::targets::Skipped;
use super::source::SourceName;
use super::status::Status;
use crate::kube::ServerTime;

const MAX_NAMES: usize = 5;

/// Returns which pods were skipped and why, for the status and the message of Ready.
pub(crate) fn skipped_pods(skipped: &[Skipped]) -> String {
    some(skipped.iter().map(|skipped| format!("{} ({})", skipped.pod, <&str>::from(skipped.why))))
}

/// Returns all sources in short.
pub(super) fn source_of(status: &Status) -> Cow<'static, str> {
    match status.source.as_deref() {
        None => "the sources".into(),
        Some("1 discovered") => "1 discovered source".into(),
        Some(discovered) if discovered.starts_with(|letter: char| letter.is_ascii_digit()) => {
            format!("{discovered} sources").into()
        }
        Some(named) => named.to_owned().into(),
    }
}

/// Returns the changed sources of the restart in the status. Without any, returns all sources in short.
pub(crate) fn changed(status: &Status) -> String {
    named(status, &status.changed())
}

/// Returns these sources. Without any, returns all sources in short.
pub(crate) fn named(status: &Status, sources: &[SourceName]) -> String {
    if sources.is_empty() { source_of(status).into_owned() } else { some(sources.iter().map(ToString::to_string)) }
}

pub(super) fn quoted(source: &SourceName) -> String {
    format!("{} {:?}", source.kind.resource().kind, source.name)
}

/// Says who last wrote a source.
pub(crate) fn written(source: &SourceName, manager: &str, at: ServerTime) -> String {
    format!("{source} by {manager:?} at {at}")
}

/// Returns the first names, and how many more there are: a status and an Event have limits.
pub(super) fn some(mut names: impl ExactSizeIterator<Item = impl Into<String>>) -> String {
    let first: Vec<String> = names.by_ref().take(MAX_NAMES).map(Into::into).collect();
    match names.len() {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

pub(super) fn count(pods: usize) -> String {
    if pods == 1 { "1 pod".to_owned() } else { format!("{pods} pods") }
}
