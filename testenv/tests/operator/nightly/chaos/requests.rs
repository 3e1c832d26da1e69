//! The pods that the operator has deleted, by the API server's audit log.

use std::time::SystemTime;

use jiff::Timestamp;
use serde_json::Value;

/// A DELETE or an eviction of a pod that was carried out, or may have been.
#[derive(Clone, Debug)]
pub(super) struct Deletion {
    pub(super) uid: String,
    pub(super) received: SystemTime,
}

impl Deletion {
    /// Returns the deletion or eviction of a pod in an entry of the audit log.
    pub(super) fn of(entry: &Value) -> Option<Self> {
        let object = &entry["objectRef"];
        let evicted = entry["verb"] == "create" && object["subresource"] == "eviction";
        if object["resource"] != "pods" || !(evicted || entry["verb"] == "delete") {
            return None;
        }
        let (body, code) = (&entry["requestObject"], entry["responseStatus"]["code"].as_u64().unwrap_or_default());
        // A request that broke off before the server had all of it has deleted nothing.
        if !(code / 100 == 2 || code >= 500 && !body.is_null()) {
            return None;
        }
        let options = if evicted { &body["deleteOptions"] } else { body };
        let uid = options["preconditions"]["uid"].as_str();
        let uid = uid.unwrap_or_else(|| panic!("a deletion that names no UID: {entry}")).to_owned();
        let received = entry["requestReceivedTimestamp"].as_str().unwrap().parse::<Timestamp>().unwrap();
        Some(Self { uid, received: received.into() })
    }
}
