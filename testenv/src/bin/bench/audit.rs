//! When which request was done, by the API server's own account: to the microsecond, and without a client that would take
//! part of the machine from those who are measured.

use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::PathBuf;

use anyhow::Result;
use jiff::Timestamp;
use serde_json::Value;
use testenv::counts::resource_of;

/// A request that was answered.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) user: String,
    pub(crate) verb: String,
    pub(crate) resource: String,
    /// Empty when the request is about many of them.
    pub(crate) namespace: String,
    /// Empty when the request is about many objects.
    pub(crate) name: String,
    pub(crate) status: u64,
    pub(crate) received: Timestamp,
    pub(crate) answered: Timestamp,
}

impl Request {
    /// Whether it was sent by one of those who are measured.
    pub(crate) fn is_of_contestant(&self) -> bool {
        self.user.ends_with(":configmonitor-operator")
    }

    /// Whether it deleted or evicted a pod, and was sent by one of those who are measured: kwok ends pods, too.
    pub(crate) fn is_deletion(&self) -> bool {
        self.is_of_contestant() && self.asks_for_deletion() && self.status < 300
    }

    /// Whether it asks for the deletion or the eviction of a pod.
    pub(crate) fn asks_for_deletion(&self) -> bool {
        matches!((&*self.verb, &*self.resource), ("delete", "pods") | ("create", "pods/eviction"))
    }

    /// Whether it edits a ConfigMap. Only the administrator does.
    pub(crate) fn is_edit(&self) -> bool {
        self.verb == "patch" && self.resource == "configmaps"
    }
}

/// The audit log from some moment on.
#[derive(Debug)]
pub(crate) struct Audit {
    file: PathBuf,
    read: u64,
}

impl Audit {
    /// What is written from now on.
    pub(crate) fn from_now(file: PathBuf) -> Result<Self> {
        let read = file.metadata()?.len();
        Ok(Self { file, read })
    }

    /// What has been written since it was last asked, about this namespace.
    pub(crate) fn news(&mut self, namespace: &str) -> Result<Vec<Request>> {
        let mut requests = self.all_news()?;
        requests.retain(|request| request.namespace == namespace);
        Ok(requests)
    }

    /// What has been written since it was last asked, about all namespaces.
    pub(crate) fn all_news(&mut self) -> Result<Vec<Request>> {
        let mut file = BufReader::new(File::open(&self.file)?);
        file.seek(SeekFrom::Start(self.read))?;
        let (mut requests, mut line) = (Vec::new(), String::new());
        // The last line may be half written.
        while file.read_line(&mut line)? > 0 && line.ends_with('\n') {
            self.read += line.len() as u64;
            requests.extend(request(&serde_json::from_str(&line)?));
            line.clear();
        }
        Ok(requests)
    }
}

/// A request out of its line. A watch counts when it begins, and is told of once more when it ends.
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
