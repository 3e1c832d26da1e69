//! Counts of requests: as Prometheus has scraped them, and as the API server's audit log has them.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::client::{DEADLINE, eventually};
use crate::prometheus::{Prometheus, Sample};

/// The code of a request whose answer the operator did not wait for.
const CANCELED: &str = "canceled";

pub type Counts = BTreeMap<Vec<String>, u64>;

/// Returns the counts in the samples, by these labels, without zeros.
pub fn counted(samples: &[Sample], labels: &[&str]) -> Counts {
    let mut counts = Counts::new();
    for sample in samples.iter().filter(|sample| sample.value > 0.0) {
        let labels = labels.iter().map(|label| sample.label(label).to_owned()).collect();
        *counts.entry(labels).or_default() += sample.value as u64;
    }
    counts
}

/// Returns the resource of an entry of the audit log, such as `pods/eviction`.
pub fn resource_of(entry: &Value) -> String {
    let names = ["resource", "subresource"].map(|name| entry["objectRef"][name].as_str());
    names.into_iter().flatten().collect::<Vec<_>>().join("/")
}

/// Returns the counts of the audit log, by verb, resource and code.
pub fn audited(entries: &[Value]) -> Counts {
    // A watch has an entry when it begins, and another one when it ends.
    let once: BTreeMap<&str, &Value> =
        entries.iter().map(|entry| (entry["auditID"].as_str().unwrap_or_default(), entry)).collect();
    let mut counts = Counts::new();
    for entry in once.values() {
        let (verb, code) = (entry["verb"].as_str().unwrap_or_default(), entry["responseStatus"]["code"].to_string());
        *counts.entry(vec![verb.to_owned(), resource_of(entry), code]).or_default() += 1;
    }
    counts
}

/// Waits until Prometheus has scraped as many requests of each kind as the audit log has.
pub async fn requests_agree(
    prometheus: &Prometheus,
    selected: &str,
    entries: impl Fn() -> Result<Vec<Value>>,
) -> Result<Counts> {
    eventually("the metrics have the requests of the audit log", DEADLINE, async || {
        let samples = prometheus.query(&format!("configmonitor_api_requests_total{selected}")).await?;
        let (metrics, audit) = (counted(&samples, &["verb", "resource", "code"]), audited(&entries()?));
        let differ = || format!("the metrics have {metrics:?}, the audit log {audit:?}");
        ensure!(!audit.is_empty() && metrics.keys().all(|key| key[2] == CANCELED || audit.contains_key(key)), differ());
        // A request that the operator cancels, such as a watch at the end of a restart, may or may not reach the API
        // server.
        let mut left: Counts = metrics.clone().into_iter().filter(|(key, _)| key[2] == CANCELED).collect();
        for (key, count) in &audit {
            let canceled = left.entry(vec![key[0].clone(), key[1].clone(), CANCELED.to_owned()]).or_default();
            let more = count.checked_sub(metrics.get(key).copied().unwrap_or_default()).with_context(differ)?;
            *canceled = canceled.checked_sub(more).with_context(differ)?;
        }
        Ok(audit)
    })
    .await
}
