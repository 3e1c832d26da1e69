//! Requests and their times, by the API server's audit log: to the microsecond, and without an observer that takes a part of the
//! machine.

use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::PathBuf;

use anyhow::Result;
use jiff::Timestamp;
use serde_json::Value;
use testenv::control_plane::resource_of;

/// An answered request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) user: String,
    pub(crate) verb: String,
    pub(crate) resource: String,
    /// Empty when the request is about several namespaces.
    pub(crate) namespace: String,
    /// Empty when the request is about several objects.
    pub(crate) name: String,
    pub(crate) status: u64,
    pub(crate) received: Timestamp,
    pub(crate) answered: Timestamp,
}

impl Request {
    pub(crate) fn is_of_contestant(&self) -> bool {
        self.user.ends_with(":configmonitor-operator")
    }

    /// Whether a contestant deleted or evicted a pod with it. kwok deletes pods, too.
    pub(crate) fn is_deletion(&self) -> bool {
        let asks = matches!((&*self.verb, &*self.resource), ("delete", "pods") | ("create", "pods/eviction"));
        self.is_of_contestant() && asks && self.status < 300
    }

    /// Whether the request edits a ConfigMap. Only the administrator does.
    pub(crate) fn is_edit(&self) -> bool {
        self.verb == "patch" && self.resource == "configmaps"
    }
}

/// The part of the audit log that has not been read yet.
#[derive(Debug)]
pub(crate) struct Audit {
    file: PathBuf,
    read: u64,
}

impl Audit {
    pub(crate) fn from_now(file: PathBuf) -> Result<Self> {
        let read = file.metadata()?.len();
        Ok(Self { file, read })
    }

    /// Returns the new requests about this namespace, and skips all others.
    pub(crate) fn news(&mut self, namespace: &str) -> Result<Vec<Request>> {
        let mut file = BufReader::new(File::open(&self.file)?);
        file.seek(SeekFrom::Start(self.read))?;
        let (mut requests, mut line) = (Vec::new(), String::new());
        // The last line may be half written.
        while file.read_line(&mut line)? > 0 && line.ends_with('\n') {
            self.read += line.len() as u64;
            requests.extend(request(&serde_json::from_str(&line)?).filter(|request| request.namespace == namespace));
            line.clear();
        }
        Ok(requests)
    }
}

/// Reads a line of the log. A watch has two lines; the one of its start counts.
fn request(entry: &Value) -> Option<Request> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let object = &entry["objectRef"];
    let of_watch = entry["verb"] == "watch" && entry["stage"] != "ResponseStarted";
    (!of_watch).then_some(())?;
    Some(Request {
        user: text(&entry["user"]["username"])?,
        verb: text(&entry["verb"])?,
        resource: object["resource"].is_string().then(|| resource_of(entry))?,
        namespace: text(&object["namespace"]).unwrap_or_default(),
        name: text(&object["name"]).unwrap_or_default(),
        status: entry["responseStatus"]["code"].as_u64()?,
        received: entry["requestReceivedTimestamp"].as_str()?.parse().ok()?,
        answered: entry["stageTimestamp"].as_str()?.parse().ok()?,
    })
}
