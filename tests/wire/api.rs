//! Answers of an API server: objects, lists, lines of a watch, refusals.

use serde_json::{Value, json};

use crate::script::Answer;

/// Returns the metadata of a ConfigMap.
pub(crate) fn metadata(name: &str, version: &str) -> Value {
    json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": { "name": name, "namespace": "default", "uid": format!("uid-of-{name}"), "resourceVersion": version } })
}

/// Returns an object that cannot be decoded, because its UID is a number.
pub(crate) fn odd(name: &str, version: &str) -> Value {
    json!({ "metadata": { "name": name, "uid": 7, "namespace": 7, "resourceVersion": version } })
}

/// Answers with a complete list, or the last page of one.
pub(crate) fn list(version: &str, items: &[Value]) -> Answer {
    Answer::json(200, &json!({ "kind": "List", "metadata": { "resourceVersion": version }, "items": items }))
}

/// Answers with a page that is followed by another one.
pub(crate) fn page(version: &str, items: &[Value], next: &str) -> Answer {
    let metadata = json!({ "resourceVersion": version, "continue": next, "remainingItemCount": 1 });
    Answer::json(200, &json!({ "kind": "List", "metadata": metadata, "items": items }))
}

/// Returns a line of a watch.
pub(crate) fn line(kind: &str, object: &Value) -> String {
    format!("{}\n", json!({ "type": kind, "object": object }))
}

pub(crate) fn modified(name: &str, version: &str) -> String {
    line("MODIFIED", &metadata(name, version))
}

pub(crate) fn bookmark(version: &str) -> String {
    line("BOOKMARK", &json!({ "kind": "ConfigMap", "metadata": { "resourceVersion": version } }))
}

/// Returns a `Status`.
pub(crate) fn status(code: u16, reason: &str) -> Value {
    json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": format!("scripted {reason}"), "details": { "name": "scripted" } })
}

/// Returns the `Status` for a version from the future, such as after a restore from backup.
pub(crate) fn too_large() -> Value {
    let mut status = status(504, "Timeout");
    status["details"] = json!({ "causes": [{ "reason": "ResourceVersionTooLarge" }] });
    status
}

/// Answers with a refusal.
pub(crate) fn refusal(code: u16, reason: &str) -> Answer {
    Answer::json(code, &status(code, reason))
}

/// Answers as the API server does for a path that it does not serve, such as that of a CustomResourceDefinition that is
/// not installed.
pub(crate) fn not_served() -> Answer {
    Answer::text(404, "404 page not found\n")
}

/// Answers as kubectl proxy does when it cannot reach the API server.
pub(crate) fn proxy_error() -> Answer {
    Answer::text(500, "dial tcp 127.0.0.1:6443: connect: connection refused\n")
}
