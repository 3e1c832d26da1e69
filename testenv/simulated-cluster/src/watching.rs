//! The body of a watch: lines as the API server sends them, from a revision on, until one of the possible ends of a
//! watch.

use std::sync::Arc;

use bytes::Bytes;
use configmonitor_operator::kube::transport::Body;
use futures_util::StreamExt;
use futures_util::stream;

use crate::cluster::Cluster;
use crate::ledger::Life;
use crate::network::{WatchFault, Watched};
use crate::state::ClusterState;
use crate::store::{Selection, Store};

/// The interval of bookmarks, in milliseconds.
const BOOKMARKS: u64 = 60_000;
const EXPIRED: &str = r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version","reason":"Expired","code":410}}"#;

pub(crate) struct Watch {
    pub(crate) life: Life,
    pub(crate) watched: Watched,
    pub(crate) selection: Selection,
    pub(crate) metadata_only: bool,
    /// The revision up to which everything was sent.
    pub(crate) revision: u64,
    /// Milliseconds between a change and its line.
    pub(crate) lag: u64,
    pub(crate) until: u64,
    bookmark: u64,
    /// How many of the faults of its process the watch has carried out.
    faults: usize,
    /// The number of restores when the watch began.
    restores: usize,
    stalled: bool,
    /// How many of the next events do not come.
    misses: usize,
}

enum Next {
    Line(String),
    Wait(u64),
    /// The watch ends after this text, which may be empty.
    End(String),
    Dead,
}

impl Watched {
    pub(crate) fn store(self, state: &ClusterState) -> &Store {
        match self {
            Self::ConfigMaps => &state.config_map_store,
            Self::Secrets => &state.secret_store,
            Self::Monitors => &state.monitor_store,
            Self::Namespaces => &state.namespace_store,
            Self::Pods | Self::References => &state.pod_store,
        }
    }
}

impl Watch {
    pub(crate) fn new(
        state: &mut ClusterState,
        life: Life,
        (watched, selection, metadata_only): (Watched, Selection, bool),
        revision: u64,
        seconds: u64,
    ) -> Self {
        let faults = state.network.watch_faults(life).len();
        let behind = if state.lag > 0 && state.network.coin() { state.lag } else { 0 };
        let lag = state.network.latency(0..=2) + behind;
        let (until, bookmark) = (state.ms + seconds * 1000, state.ms + BOOKMARKS);
        let (restores, stalled, misses) = (state.restores, false, 0);
        Self {
            life,
            watched,
            selection,
            metadata_only,
            revision,
            lag,
            until,
            bookmark,
            faults,
            restores,
            stalled,
            misses,
        }
    }

    pub(crate) fn body(self, cluster: Arc<Cluster>) -> Body {
        let lines = stream::unfold(Some((self, cluster)), |state| async {
            let (mut watch, cluster) = state?;
            let (line, goes_on) = loop {
                let changed = cluster.changed.notified();
                let next = watch.next(&mut cluster.state());
                match next {
                    Next::Line(line) => break (line, true),
                    Next::Wait(until) => {
                        let _ = tokio::time::timeout_at(cluster.instant(until), changed).await;
                    }
                    Next::End(last) => break (last, false),
                    Next::Dead => std::future::pending().await,
                }
            };
            Some((Ok(Bytes::from(line)), goes_on.then_some((watch, cluster))))
        });
        lines.boxed()
    }

    fn next(&mut self, state: &mut ClusterState) -> Next {
        if state.is_dead(self.life) {
            return Next::Dead;
        }
        let faults = state.network.watch_faults(self.life);
        while let Some((watched, fault)) = faults.get(self.faults) {
            self.faults += 1;
            match fault {
                _ if *watched != self.watched => {}
                WatchFault::Stall => self.stalled = true,
                WatchFault::Miss => self.misses += 1,
                WatchFault::End => return Next::End(String::new()),
                WatchFault::Break => return Next::End(r#"{"type":"MODI"#.to_owned()),
                WatchFault::Expire => return Next::End(format!("{EXPIRED}\n")),
            }
        }
        if self.stalled {
            // Until the process gives up on the watch.
            return Next::Wait(state.ms + 1_000_000);
        }
        if self.restores != state.restores {
            return Next::End(String::new());
        }
        let store = self.watched.store(state);
        let first = store.log.partition_point(|version| version.revision <= self.revision);
        for version in &store.log[first..] {
            if version.ms + self.lag > state.ms {
                return Next::Wait(version.ms + self.lag);
            }
            self.revision = version.revision;
            let was = version.before.as_ref().is_some_and(|labels| self.selection.matches(labels));
            let is = !version.gone && self.selection.matches(&version.labels);
            let kind = match (was, is) {
                (false, false) => continue,
                (false, true) => "ADDED",
                (true, true) => "MODIFIED",
                (true, false) => "DELETED",
            };
            if self.misses > 0 {
                self.misses -= 1;
                continue;
            }
            let line = format!(r#"{{"type":"{kind}","object":{}}}"#, store.json(version, self.metadata_only)) + "\n";
            match self.watched {
                Watched::Monitors => {
                    let (id, object) = (version.id, (!version.gone).then(|| store.json(version, false)));
                    state.ledger.record_watch_event(self.life, id, object.as_deref());
                }
                Watched::Namespaces => {
                    let at = state.moment();
                    state.ledger.record_namespace(at, self.life, is);
                }
                Watched::ConfigMaps | Watched::Secrets | Watched::Pods | Watched::References => {}
            }
            return Next::Line(line);
        }
        if self.until <= state.ms {
            return Next::End(String::new());
        }
        if self.bookmark <= state.ms {
            self.bookmark = state.ms + BOOKMARKS;
            self.revision = self.revision.max(state.revision);
            let (api_version, kind, version) = (store.api_version, store.kind, self.revision);
            let metadata = format!(r#"{{"resourceVersion":"{version}","creationTimestamp":null}}"#);
            let object = format!(r#"{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{metadata}}}"#);
            return Next::Line(format!(r#"{{"type":"BOOKMARK","object":{object}}}"#) + "\n");
        }
        Next::Wait(self.until.min(self.bookmark))
    }
}
