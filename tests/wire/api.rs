//! What an API server says: objects, lists, lines of a watch, refusals.

use serde_json::{Value, json};

use crate::script::Answer;

/// The metadata of a ConfigMap.
pub(crate) fn metadata(name: &str, version: &str) -> Value {
    json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": { "name": name, "namespace": "default", "uid": format!("uid-of-{name}"), "resourceVersion": version } })
}

/// An object whose uid is no text.
pub(crate) fn odd(name: &str, version: &str) -> Value {
    json!({ "metadata": { "name": name, "uid": 7, "namespace": 7, "resourceVersion": version } })
}

/// The last page of a list, or all of it.
pub(crate) fn list(version: &str, items: &[Value]) -> Answer {
    Answer::json(200, &json!({ "kind": "List", "metadata": { "resourceVersion": version }, "items": items }))
}

/// A page that is followed by another one.
pub(crate) fn page(version: &str, items: &[Value], next: &str) -> Answer {
    let metadata = json!({ "resourceVersion": version, "continue": next, "remainingItemCount": 1 });
    Answer::json(200, &json!({ "kind": "List", "metadata": metadata, "items": items }))
}

/// A line of a watch.
pub(crate) fn line(kind: &str, object: &Value) -> String {
    format!("{}\n", json!({ "type": kind, "object": object }))
}

pub(crate) fn modified(name: &str, version: &str) -> String {
    line("MODIFIED", &metadata(name, version))
}

pub(crate) fn bookmark(version: &str) -> String {
    line("BOOKMARK", &json!({ "kind": "ConfigMap", "metadata": { "resourceVersion": version } }))
}

/// A `Status` object.
pub(crate) fn status(code: u16, reason: &str) -> Value {
    json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": format!("scripted {reason}") })
}

/// What a version from the future gets, such as after a restore.
pub(crate) fn too_large() -> Value {
    let mut status = status(504, "Timeout");
    status["details"] = json!({ "causes": [{ "reason": "ResourceVersionTooLarge" }] });
    status
}

/// A refusal of the API server.
pub(crate) fn refusal(code: u16, reason: &str) -> Answer {
    Answer::json(code, &status(code, reason))
}

/// What a path gets that is not served, such as that of a CustomResourceDefinition that is not installed.
pub(crate) fn not_served() -> Answer {
    Answer::text(404, "404 page not found\n")
}

/// What kubectl proxy itself says when it cannot reach the API server.
pub(crate) fn proxy_error() -> Answer {
    Answer::text(500, "dial tcp 127.0.0.1:6443: connect: connection refused\n")
}
