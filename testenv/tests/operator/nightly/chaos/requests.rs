//! The operator's requests: when they were sent, by the nemesis's proxy, and when they were carried out, by the API
//! server's audit log.

use std::time::SystemTime;

use jiff::Timestamp;
use serde_json::Value;
use testenv::fault_proxy::Request;

use super::leaders::{self, Sent};
use super::nemesis::Nemesis;
use crate::test_namespace::TestNamespace;

pub(super) type Period = (SystemTime, SystemTime);

#[derive(Clone, Default)]
pub(super) struct OperatorRequests {
    /// The deletions that were carried out, or may have been.
    pub(super) deletions: Vec<Deletion>,
    /// When pods were listed, and with which query.
    pub(super) lists: Vec<(SystemTime, String)>,
    /// When one operator followed another, or there were two.
    pub(super) overlaps: Vec<Period>,
}

/// A DELETE or an eviction of a pod.
#[derive(Clone, Debug)]
pub(super) struct Deletion {
    pub(super) uid: String,
    pub(super) evicted: bool,
    /// When the operator sent the request, the last time if it was repeated.
    pub(super) sent: SystemTime,
    pub(super) received: SystemTime,
    pub(super) answered: SystemTime,
}

impl OperatorRequests {
    pub(super) fn of(ns: &TestNamespace, nemesis: &Nemesis<'_>) -> Self {
        let sent = nemesis.sent();
        let own = ns.requests_on(nemesis.control_plane).unwrap().into_iter();
        let deletions = own.filter_map(|entry| Deletion::of(&entry, &sent, &ns.path("pods", ""))).collect();
        let pods = ns.collection("pods");
        let lists = sent.iter().filter_map(|sent| Some((sent.at, query(&sent.request, &pods)?))).collect();
        let mut overlaps = nemesis.overlaps.clone();
        if nemesis.elects() {
            overlaps.extend(leaders::overlaps(&nemesis.terms()));
        }
        Self { deletions, lists, overlaps }
    }

    /// Returns the requests with only those deletions that were received at such times.
    pub(super) fn when(&self, at: impl Fn(SystemTime) -> bool) -> Self {
        let mut some = self.clone();
        some.deletions.retain(|deletion| at(deletion.received));
        some
    }

    pub(super) fn first_deletions(&self) -> impl Iterator<Item = &Deletion> {
        self.deletions.iter().filter(|one| self.deletion(&one.uid).is_some_and(|first| std::ptr::eq(first, *one)))
    }

    pub(super) fn deletion(&self, uid: &str) -> Option<&Deletion> {
        self.deletions(uid).next()
    }

    pub(super) fn deletions(&self, uid: &str) -> impl Iterator<Item = &Deletion> {
        self.deletions.iter().filter(move |deletion| deletion.uid == uid)
    }

    /// Returns when pods were last listed with this query before a time.
    pub(super) fn listed(&self, query: &str, before: SystemTime) -> Option<SystemTime> {
        self.lists.iter().filter(|(at, sent)| *at <= before && sent == query).map(|(at, _)| *at).max()
    }

    pub(super) fn has_overlap(&self, (from, to): Period) -> bool {
        self.overlaps.iter().any(|period| period.0 <= to && from <= period.1)
    }
}

impl Deletion {
    /// Returns the deletion or eviction of a pod in an entry of the audit log.
    fn of(entry: &Value, sent: &[Sent], pods: &str) -> Option<Self> {
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
        let at = |field: &str| SystemTime::from(entry[field].as_str().unwrap().parse::<Timestamp>().unwrap());
        let (received, answered) = (at("requestReceivedTimestamp"), at("stageTimestamp"));
        let target = format!("{pods}{}{}", object["name"].as_str()?, if evicted { "/eviction" } else { "" });
        let earlier = sent.iter().filter(|sent| sent.at <= received && sent.request.target == target);
        // The request came through that proxy, so it is among these.
        let sent = earlier.map(|sent| sent.at).max().unwrap_or(received);
        Some(Self { uid, evicted, sent, received, answered })
    }
}

/// Returns the query of a request that lists pods.
fn query(request: &Request, pods: &str) -> Option<String> {
    let url = reqwest::Url::parse(&format!("http://proxy{}", request.target)).ok()?;
    let mut pairs = url.query_pairs();
    if request.method != "GET" || url.path() != pods || pairs.clone().any(|(key, _)| key == "watch") {
        return None;
    }
    pairs.find(|(key, _)| key == "labelSelector").map(|(_, value)| value.into_owned())
}
