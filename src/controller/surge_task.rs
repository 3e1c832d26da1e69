//! Deletes or gives back each pod that is handed over, whatever has happened to the restart, the ConfigMonitor or the
//! process that has handed it over.
//!
//! Each namespace with such pods has one task. Only the pods and the ConfigMonitors decide.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::clock::timer_now;
use super::owners::{read_deployments, read_workload};
use super::shared::{Shared, SurgeBell};
use crate::kube::backoff::Backoff;
use crate::kube::client::{Client, Preconditions};
use crate::kube::error::{Cause, Error};
use crate::kube::faults::Faults;
use crate::kube::list::Selection;
use crate::kube::names::is_dns_subdomain;
use crate::kube::objects::{Labels, Owner, REPLICA_SETS};
use crate::kube::{PODS, ServerTime};
use crate::monitor::pod::{LabelledPod, Pod, SELECTS_HANDED_OVER, WholePod};
use crate::monitor::referrers::referred;
use crate::monitor::restart::seen::Seen;
use crate::monitor::restart::sight::DeploymentState;
use crate::monitor::source::SourceName;
use crate::monitor::spec::{DeletionPolicy, Policy};
use crate::monitor::surge::{Claim, Fate, fate, give_back, go_first};
use crate::monitor::{CONFIG_MONITORS, ConfigMonitor};

/// How often pods are looked at that cannot go yet.
const RECHECK: Duration = Duration::from_secs(5);
/// How many pods are deleted or given back in one look, and how many ConfigMonitors are read.
const MOST_AT_ONCE: usize = 32;
/// The most bytes of labels that are kept of a pod. One with more is given back.
const MAX_LABELS: usize = 16 << 10;
/// The most references that are kept of a pod. One with more may refer to anything.
const MAX_REFERENCES: usize = 64;
/// The least time between two looks: each status that is written wakes the task.
const PAUSE: Duration = Duration::from_secs(1);

/// Runs until no pod is handed over, or until it is stopped. Goes on after a panic.
pub(crate) async fn run(shared: Arc<Shared>, stop: CancellationToken) {
    let client = shared.client.with_stop(stop.clone());
    let work = async {
        shared.limits.elected().await;
        while AssertUnwindSafe(look_after(&shared, &client)).catch_unwind().await.is_err() {
            error!(namespace = client.namespace(), "task for pods that are handed over panicked; restarting it");
            sleep(RECHECK).await;
        }
    };
    stop.run_until_cancelled(work).await;
    shared.settings.metrics.set_handed_over(client.namespace(), None);
}

/// Of each Deployment, it remembers since when pods are ready, as clocks of nodes may be wrong.
async fn look_after(shared: &Shared, client: &Client) {
    let (mut backoff, mut faults, mut seen) = (Backoff::default(), Faults::default(), BTreeMap::new());
    let surge @ SurgeBell { bell, are_left, .. } = &shared.surge;
    loop {
        let delay = match settle(shared, client, &mut seen).await {
            Ok(are_some) => {
                backoff.reset();
                faults.recovered();
                are_left.store(are_some, Ordering::Relaxed);
                are_some.then_some(RECHECK)
            }
            Err(error) if error.cause == Cause::Stopped => return,
            Err(error) => {
                if faults.record(&error.cause).1 {
                    warn!(namespace = client.namespace(), %error, "pods that are handed over stay so");
                }
                Some(backoff.after_failure())
            }
        };
        if let Some(delay) = delay {
            let _ = timeout(delay, bell.notified()).await;
        }
        sleep(PAUSE).await;
        if delay.is_none() && surge.end(client.stop()) {
            return;
        }
    }
}

/// Deletes or gives back the pods that may go. Returns whether any pod was handed over when the look began. A failure at one pod
/// keeps none of the others.
///
/// A user may label many pods, and write much into them. So only names are kept of all listed pods, and details of a
/// random few, so that no pod waits for ever.
async fn settle(shared: &Shared, client: &Client, seen: &mut BTreeMap<Arc<Owner>, Seen>) -> Result<bool, Error> {
    let labels = Some(SELECTS_HANDED_OVER.to_owned());
    let selection = Selection { resource: PODS, labels, fields: None, metadata_only: false };
    let is_own = |pod: &Pod| shared.settings.own_pod.as_ref() == Some(&pod.uid);
    let is_one = |pod: &Pod| pod.handed_over.is_some() && pod.gone_by.is_none() && !is_own(pod);
    let (mut names, mut oldest) = (BTreeSet::<Box<str>>::new(), None);
    let count = |LabelledPod { pod, .. }: LabelledPod| {
        if is_one(&pod) {
            oldest = oldest.into_iter().chain([since(&pod)]).min();
            names.insert(by(&pod)[0].into());
        }
    };
    client.list(&selection, None, count).await?;
    let (mut monitors, mut failure) = (BTreeMap::new(), None);
    for name in fastrand::choose_multiple(names, MOST_AT_ONCE) {
        match monitor(client, &name).await {
            Ok(monitor) => drop(monitors.insert(name, monitor)),
            Err(error) => failure = Some(error),
        }
    }
    let mut free = Sample { kept: Vec::new(), offered: 0 };
    let choose = |WholePod { pod, labels, spec }: WholePod| {
        let Some(monitor) = monitors.get(by(&pod)[0]).filter(|_| is_one(&pod)) else { return };
        let of = HandedOverPod { pod, labels: labels.up_to(MAX_LABELS), referred: few_referred(spec.as_deref()) };
        if of.claim(monitor.as_ref()) != Claim::Held {
            free.offer(of);
        }
    };
    if !monitors.is_empty() {
        client.list(&selection, None, choose).await?;
    }
    let mut before = std::mem::take(seen);
    for to in free.kept.iter().filter_map(HandedOverPod::deployment) {
        seen.entry(Arc::clone(to)).or_insert_with(|| before.remove(to).unwrap_or_default());
    }
    let (mut look, mut refusals) = (Look { client, seen, deployments: BTreeMap::new() }, BTreeMap::new());
    for of in &free.kept {
        match look.settle(of).await {
            Ok(()) => {}
            // It is no refusal.
            Err(error) if error.cause == Cause::Stopped => return Err(error),
            Err(error) => {
                refusals.insert(of.pod.uid.clone(), error.clone());
                failure = Some(error);
            }
        }
    }
    *shared.surge.refusals() = refusals;
    shared.settings.metrics.set_handed_over(client.namespace(), oldest);
    failure.map_or(Ok(oldest.is_some()), Err)
}

/// Returns to what a pod refers, if that is known and not too much.
fn few_referred(spec: Option<&RawValue>) -> Option<BTreeSet<SourceName>> {
    referred(spec).filter(|referred| referred.len() <= MAX_REFERENCES)
}

struct HandedOverPod {
    pod: Pod,
    labels: Labels,
    /// What it refers to, if that is known.
    referred: Option<BTreeSet<SourceName>>,
}

/// Some of many, each with the same chance.
struct Sample<T> {
    kept: Vec<T>,
    offered: usize,
}

impl<T> Sample<T> {
    fn offer(&mut self, item: T) {
        self.offered += 1;
        if self.kept.len() < MOST_AT_ONCE {
            self.kept.push(item);
        } else if let Some(place) = self.kept.get_mut(fastrand::usize(..self.offered)) {
            *place = item;
        }
    }
}

/// Returns what has handed a pod over, as the pod says: the ConfigMonitor, its UID, the number of the restart, and when.
fn by(pod: &Pod) -> [&str; 4] {
    let mut parts = pod.handed_over.as_deref().map_or("", |handed_over| &handed_over.by).splitn(4, '/');
    [(); 4].map(|()| parts.next().unwrap_or_default())
}

fn since(pod: &Pod) -> ServerTime {
    let [.., at] = by(pod);
    at.parse().map_or(pod.created, |at: ServerTime| at.max(pod.created))
}

impl HandedOverPod {
    fn deployment(&self) -> Option<&Arc<Owner>> {
        self.pod.handed_over.as_ref().map(|of| &of.to)
    }

    fn claim(&self, found: Option<&ConfigMonitor>) -> Claim {
        let [_, uid, restart, _] = by(&self.pod);
        Claim::of(found, (uid, restart.parse().ok()), (&self.labels.to_map(), self.referred.as_ref(), self.pod.created))
    }
}

async fn monitor(client: &Client, name: &str) -> Result<Option<ConfigMonitor>, Error> {
    if !is_dns_subdomain(name) {
        return Ok(None);
    }
    match client.get(CONFIG_MONITORS, name).await {
        Ok(answer) => Ok(Some(answer.value)),
        Err(error) if error.cause.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// A look at some of the pods.
struct Look<'a> {
    client: &'a Client,
    seen: &'a mut BTreeMap<Arc<Owner>, Seen>,
    /// The Deployments as read, and when. `None` if it is gone.
    deployments: BTreeMap<Arc<Owner>, (Instant, Option<DeploymentState>)>,
}

impl Look<'_> {
    /// Returns the Deployment and its pods, as read less than a second ago: no deletion of a pod that is handed over changes the
    /// number of the others.
    async fn deployment(&mut self, to: &Arc<Owner>) -> Result<Option<&DeploymentState>, Error> {
        if self.deployments.get(to).is_none_or(|(read, _)| timer_now().saturating_duration_since(*read) >= PAUSE) {
            let read = timer_now();
            let mut deployment = read_deployments(self.client, None, vec![Arc::clone(to)]).await?.remove(to);
            if let (Some(deployment), Some(seen)) = (&mut deployment, self.seen.get_mut(to)) {
                seen.list(&deployment.others, self.client.server_now(), true);
                deployment.others = seen.pods().values().cloned().collect();
            }
            self.deployments.insert(Arc::clone(to), (read, deployment));
        }
        Ok(self.deployments.get(to).and_then(|(_, deployment)| deployment.as_ref()))
    }

    /// Deletes the pod or gives it back, if it may go. What decides is read once the change may be sent.
    async fn settle(&mut self, of: &HandedOverPod) -> Result<(), Error> {
        let (client, pod) = (self.client, &of.pod);
        let Some(to) = of.deployment() else { return Ok(()) };
        let permit = client.deletion_permit().await?;
        let monitor = monitor(client, by(pod)[0]).await?;
        let mut claim = of.claim(monitor.as_ref());
        if claim == Claim::Held {
            return Ok(());
        }
        let policy = monitor.and_then(|monitor| Policy::of(monitor.spec.as_deref()).ok());
        if let (Claim::UnderWay { has_budget }, Some(policy)) = (&mut claim, &policy) {
            *has_budget = !lacks_a_source(client, of, policy).await;
        }
        // The garbage collector deletes the pods of a Deployment that is gone.
        let Some(deployment) = self.deployment(to).await? else { return Ok(()) };
        // 0 if it is gone.
        let of_set = match &pod.controller {
            Some(set) => read_workload(client, REPLICA_SETS, set).await?.map_or(0, |set| set.replicas as usize),
            None => 0,
        };
        let done = match fate((pod, since(pod)), claim, deployment, of_set, (policy.as_ref(), client.server_now())) {
            Fate::Stay => return Ok(()),
            Fate::Delete => {
                // Another process may have given it back meanwhile.
                let only = Preconditions { uid: &pod.uid, resource_version: Some(&pod.version) };
                let grace = policy.as_ref().and_then(|policy| policy.grace_period_seconds).map(NonZeroU32::get);
                let evicts = policy.is_some_and(|policy| policy.deletion_policy == DeletionPolicy::Evict);
                let removed = client.remove(permit, &pod.name, only, grace, evicts).await;
                removed.map(|()| info!(pod = &*pod.name, uid = pod.uid.as_str(), "pod deleted that was handed over"))
            }
            Fate::GiveBack(first) => {
                let Some(patch) = give_back(pod) else { return Ok(()) };
                self.deployments.remove(to);
                for other in &first {
                    match client.patch_pod::<IgnoredAny>(&permit, &other.name, &go_first(other)).await {
                        Ok(_) => {}
                        Err(error) if error.cause.is_not_found() => {}
                        Err(error) => return Err(error),
                    }
                }
                let given = client.patch_pod::<IgnoredAny>(&permit, &pod.name, &patch).await;
                given.map(|_| info!(pod = &*pod.name, uid = pod.uid.as_str(), "pod given back"))
            }
        };
        match done {
            // It has changed, and is looked at again.
            Err(Error { cause: Cause::NotFound(_) | Cause::Conflict(_), .. }) => Ok(()),
            done => done,
        }
    }
}

/// Returns whether a pod refers to a discovered source that is missing, or cannot be read: its successor would not
/// start.
async fn lacks_a_source(client: &Client, of: &HandedOverPod, policy: &Policy) -> bool {
    let Some(discover) = &policy.discover else { return false };
    let Some(referred) = &of.referred else { return true };
    for source in referred.iter().filter(|source| discover.accepts(source)) {
        if client.get::<IgnoredAny>(source.kind.resource(), &source.name).await.is_err() {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::monitor::pod::HandedOver;

    #[test]
    fn of_many_pods_a_few_are_kept_and_each_has_its_chance() {
        let mut seen = BTreeSet::new();
        for _ in 0..1000 {
            let mut sample = Sample { kept: Vec::new(), offered: 0 };
            (0..100).for_each(|number| sample.offer(number));
            assert_eq!(sample.kept.len(), MOST_AT_ONCE);
            seen.extend(sample.kept);
        }
        assert_eq!(seen.len(), 100);
    }

    #[test]
    fn a_pod_that_does_not_say_since_when_it_is_handed_over_is_handed_over_since_its_creation() {
        let pod = |by: &str| {
            let to = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d" });
            let to = serde_json::from_value(to).expect("an owner");
            let handed_over = Some(Arc::new(HandedOver { to: Arc::new(to), by: by.into() }));
            Pod { created: ServerTime::from_second(60), handed_over, ..Pod::named("a") }
        };
        let at = |by| since(&pod(by)).to_string();
        assert_eq!(at("m/uid/3/1970-01-01T00:02:00Z"), "1970-01-01T00:02:00Z");
        assert_eq!(["m/uid/3/soon", "m", "m/uid/3/1970-01-01T00:00:00Z"].map(at), ["1970-01-01T00:01:00Z"; 3]);
    }

    #[test]
    fn a_pod_with_too_many_references_may_refer_to_anything() {
        let referred = |count: usize| {
            let source = |number| format!(r#"{{"configMapRef":{{"name":"c{number}"}}}}"#);
            let sources: Vec<String> = (0..count).map(source).collect();
            let spec = format!(r#"{{"containers":[{{"envFrom":[{}]}}]}}"#, sources.join(","));
            few_referred(Some(&RawValue::from_string(spec).expect("a spec"))).map(|referred| referred.len())
        };
        assert_eq!([1, 64, 65].map(referred), [Some(1), Some(64), None]);
    }
}
