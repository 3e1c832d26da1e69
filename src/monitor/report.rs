//! What is reported about a ConfigMonitor: its conditions, its Events, and the log lines that go with them. All come
//! from one place, so that they agree.

use std::borrow::Cow;
use std::collections::BTreeSet;

use jiff::Zoned;
use serde::Serialize;
use serde_json::{Value, json};

use super::hold::Hold;
use super::rollout::{CanaryStanding, Exempt, Skipped, Standing, Unsettled};
use super::selector::Selector;
use super::source::SourceName;
use super::status::{Begun, Condition, Entry, NO_ACTION_NEEDED, NO_RESTART_PENDING, Status, Why};
use super::{CONFIG_MONITORS, REQUEST};
use crate::kube::error::Error;
use crate::kube::objects::{DataObject, Identity, Pod};
use crate::kube::{EVENTS, SECRETS, ServerTime, Uid, cut};

/// The reporting controller of Events.
const REPORTER: &str = "magalix.com/configmonitor-operator";
/// The maximum number of names in a list.
const MAX_NAMES: usize = 5;
/// The message of Ready while a request waits.
const NOT_BEGUN: &str = "a restart is requested, and has not begun";
/// The maximum length of an Event's note that the API accepts, in bytes.
const MAX_NOTE: usize = 1024;

/// The state of a ConfigMonitor, as it is reported.
#[derive(Clone, Debug, PartialEq)]
pub enum Situation<'a> {
    /// Nothing is left to do.
    Settled {
        /// The selector of the pods.
        selector: &'a Selector,
        /// Which keys of the spec the sources lack, as text for users, if any.
        missing_keys: Option<&'a str>,
    },
    /// These sources do not exist.
    SourceNotFound(&'a [SourceName]),
    /// The content has changed, and must be quiet first.
    QuietPeriod {
        /// The length of the quiet period.
        seconds: u64,
    },
    /// A restart is due, but may not begin yet.
    Held {
        /// What holds the restart.
        hold: &'a Hold,
        /// Who last wrote the changed sources, if that is known.
        writers: Vec<String>,
    },
    /// Another ConfigMonitor is replacing pods of the same owners.
    WaitingForOtherRestart,
    /// Pods are being replaced.
    RestartInProgress(Progress),
    /// The restart has made no progress for too long. The error, if there is one, may be why.
    ProgressDeadlineExceeded(Progress, Option<&'a Error>),
    /// Some pods cannot be deleted.
    DeletionRefused(Progress, &'a Error),
    /// No pod can be evicted now.
    EvictionBlocked(Progress, &'a Error),
    /// The canary has failed, for this reason.
    CanaryFailed(&'a str),
    /// The spec suspends restarts.
    Suspended {
        /// Whether a restart is requested.
        requested: bool,
    },
    /// The spec is invalid.
    InvalidSpec(&'a str),
    /// A hash in the status cannot be compared.
    InvalidStatus(&'a str),
    /// The operator lacks a right.
    Forbidden(&'a Error),
}

/// How far a restart has come.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    pods: usize,
    /// How many pods are gone or terminating.
    gone: usize,
    /// What the restart waits for.
    details: Vec<String>,
    /// The commands that show why the restart waits.
    commands: Vec<String>,
}

/// An Event to emit and a line to log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Whether the Event is a warning.
    pub warning: bool,
    /// The line to log.
    pub line: &'static str,
    /// The reason of the Event.
    pub reason: &'static str,
    /// What happened, as text for users.
    pub note: String,
    /// The ConfigMaps that get the Event, too. No Secret does: `regarding` would reveal its UID.
    pub sources: Vec<SourceName>,
}

/// An Event as the API accepts it.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct EventObject(Value);

impl Progress {
    /// Returns the progress of a restart that has just begun.
    #[must_use]
    pub fn new(begun: &Begun) -> Self {
        let gone = begun.gone(begun.remaining).max(begun.deleted);
        Self { pods: begun.pods, gone, details: Vec::new(), commands: Vec::new() }
    }

    /// Returns the progress of a restart in this state.
    #[must_use]
    pub fn of(begun: &Begun, standing: &Standing<'_>) -> Self {
        let mut progress = Self { gone: begun.gone(standing.waiting), ..Self::new(begun) };
        if let Some(CanaryStanding { pods, until }) = standing.canary {
            let until = until.map_or(String::new(), |until| format!(" until {until}"));
            progress.details.push(format!("canary: {} must stay available{until}", count(pods)));
        }
        if standing.is_halted {
            progress.details.push("the budget (maxUnavailable) allows no further deletion".to_owned());
        }
        let unsettled = standing.unsettled.iter().map(|Unsettled { owner, available, expected, failure }| {
            let failure = failure.map_or(String::new(), |failure| format!(" ({failure})"));
            format!("{} {} has {available} of {expected} available{failure}", owner.kind, owner.name)
        });
        progress.add("", unsettled);
        let unavailable = standing.unavailable.iter().map(|pod| match &pod.trouble {
            Some(trouble) => format!("{} ({trouble})", pod.name),
            None => pod.name.to_string(),
        });
        progress.add("unavailable: ", unavailable);
        progress.add("terminating: ", standing.terminating.iter().copied());
        progress.add("stuck while terminating: ", standing.stuck.iter().copied());
        let pods = standing.unavailable.iter().map(|pod| &*pod.name);
        let pods = pods.chain(standing.terminating.iter().copied()).chain(standing.stuck.iter().copied());
        let pods = pods.map(|pod| format!("run kubectl describe pod {pod}"));
        let owners = standing.unsettled.iter().map(|Unsettled { owner, .. }| {
            format!("run kubectl describe {} {}", owner.kind.to_ascii_lowercase(), owner.name)
        });
        progress.commands.extend(pods.take(1).chain(owners.take(1)));
        progress
    }

    /// Adds the pods whose deletion failed.
    #[must_use]
    pub fn not_deleted<'a>(mut self, pods: impl ExactSizeIterator<Item = &'a Pod>) -> Self {
        let name = |pod: &Pod| format!("{}{}", pod.name, if pod.ready_since.is_some() { "" } else { " (not ready)" });
        self.add("not deleted: ", pods.map(name));
        self
    }

    fn add(&mut self, what: &str, names: impl ExactSizeIterator<Item = impl Into<String>>) {
        if names.len() > 0 {
            self.details.push(format!("{what}{}", some(names)));
        }
    }

    /// Returns how many pods are gone or terminating, and what for.
    fn deleted(&self, status: &Status) -> String {
        let Self { pods, gone, .. } = self;
        format!("{gone} of {} deleted {}", count(*pods), purpose(status.why(), &changed(status)))
    }

    /// Returns the text with what the restart waits for.
    fn with_details(&self, text: String) -> String {
        [&[text], &self.details[..]].concat().join("; ")
    }

    /// Returns what the operator is doing.
    fn activity(&self) -> String {
        if self.details.is_empty() {
            "deleting pods".to_owned()
        } else {
            format!("waiting: {}", self.details.join("; "))
        }
    }

    /// Returns what stops the restart, and what a user should do.
    fn advice(&self, why: Option<&Error>) -> String {
        let why = why.map_or(String::new(), |why| format!("; fix the cause: {why}"));
        let text = self.with_details(format!("no progress within spec.progressDeadlineSeconds{why}"));
        [&[text], &self.commands[..]].concat().join("; ")
    }
}

/// Sets the conditions for a situation. Returns a notice if the situation is new and deserves an Event.
pub fn report(situation: &Situation<'_>, status: &mut Status, generation: i64, now: ServerTime) -> Option<Notice> {
    let reason = situation.reason(status);
    let is_reconciling = situation.is_reconciling();
    let ready = situation.ready_message(status);
    let (reconciling, stalled) = (situation.reconciling_message(status), situation.stalled_message(status));
    let before = |r#type: &str| status.conditions.iter().find(|condition| condition.r#type == r#type);
    let was = before("Ready").map(|condition| condition.reason.clone());
    let condition = |r#type: &'static str, holds: bool, message: Cow<'static, str>| {
        let status = if holds { "True" } else { "False" };
        let since = before(r#type).filter(|condition| condition.status == status);
        Condition {
            r#type: r#type.into(),
            status: status.into(),
            observed_generation: Some(generation),
            last_transition_time: since.map_or(now, |condition| condition.last_transition_time),
            reason: reason.into(),
            message,
        }
    };
    let event = situation.event(status).filter(|_| was.as_deref() != Some(reason));
    let notice = event.map(|reason| {
        let activity = if is_reconciling { format!("; {reconciling}") } else { String::new() };
        let note = format!("{ready}{activity}; {stalled}");
        Notice { warning: true, line: "attention needed", reason, note, sources: Vec::new() }
    });
    let conditions = vec![
        condition("Ready", situation.is_ready(status), ready.into()),
        condition("Reconciling", is_reconciling, reconciling),
        condition("Stalled", situation.is_stalled(), stalled),
    ];
    status.conditions = conditions;
    status.observed_generation = Some(generation);
    notice
}

/// Returns the notices of the start of a restart: that it starts, and which pods are skipped.
#[must_use]
pub fn started(source: &str, why: Why, pods: usize, skipped: &[Skipped]) -> Vec<Notice> {
    let note = match why {
        Why::Changed => format!("the content of {source} has changed: restarting {}", count(pods)),
        Why::Reverted => {
            format!(
                "the content of {source} was reverted: restarting {} that may have read the other content",
                count(pods)
            )
        }
        Why::Requested => format!("a restart is requested: restarting {}", count(pods)),
    };
    let started = (pods > 0).then_some(Notice {
        warning: false,
        line: "restart started",
        reason: "RestartStarted",
        note,
        sources: Vec::new(),
    });
    let reasons = [Exempt::Own, Exempt::Mirror, Exempt::Bare, Exempt::Job];
    let skipped = reasons.into_iter().filter_map(|why| {
        let pods: Vec<&str> =
            skipped.iter().filter(|skipped| skipped.why == why).map(|skipped| &*skipped.pod).collect();
        let note = format!("not restarted for {source}: {}, because {}", some(pods.iter().copied()), why.text());
        (!pods.is_empty()).then_some(Notice {
            warning: true,
            line: "pod skipped",
            reason: "PodSkipped",
            note,
            sources: Vec::new(),
        })
    });
    started.into_iter().chain(skipped).collect()
}

/// Returns which pods were skipped and why, for the status and the message of Ready.
#[must_use]
pub fn skipped_pods(skipped: &[Skipped]) -> String {
    some(skipped.iter().map(|skipped| format!("{} ({})", skipped.pod, skipped.why.word())))
}

/// Returns the notice of the end of a restart.
#[must_use]
pub fn completed(
    source: &str,
    why: Why,
    sources: Vec<SourceName>,
    begun: &Begun,
    stuck: &[String],
    now: ServerTime,
) -> Notice {
    // Both times are whole seconds.
    let seconds = now.since(begun.started_at).as_secs() + 1;
    let pods = match begun.pods.saturating_sub(begun.deleted) {
        0 => count(begun.pods),
        others => {
            let pods = count(begun.pods);
            format!("{} of {pods} (somebody else deleted the other {others}, or they terminated)", begun.deleted)
        }
    };
    let mut note = format!("restarted {pods} {} within {seconds} s", purpose(why, source));
    if !stuck.is_empty() {
        note += &format!("; still terminating, and not waited for: {}", some(stuck.iter()));
    }
    Notice { warning: !stuck.is_empty(), line: "restart over", reason: "RestartCompleted", note, sources }
}

/// Returns which of these keys an object lacks, and which keys it has, if it lacks any. The keys of a Secret are not
/// listed, because the reader may have no right to read the Secret.
#[must_use]
pub fn missing_keys(source: &SourceName, object: &DataObject, keys: &BTreeSet<String>) -> Option<String> {
    let data = [&object.data, &object.binary_data];
    let exists = |key: &&String| data.into_iter().flatten().any(|data| data.contains_key(*key));
    let missing: Vec<&String> = keys.iter().filter(|key| !exists(key)).collect();
    if missing.is_empty() {
        return None;
    }
    let existing: BTreeSet<&String> = data.into_iter().flatten().flat_map(|data| data.keys()).collect();
    let text = |key: &&String| format!("{key:?}");
    let has = match existing.len() {
        _ if source.kind.is_confidential() => String::new(),
        0 => ", and has no keys".to_owned(),
        _ => format!(", and has {}", some(existing.iter().map(text))),
    };
    Some(format!("{} lacks {}, which the spec names{has}", quoted(source), some(missing.iter().map(text))))
}

/// Returns the notice that an object with other content has taken the place of an immutable one.
#[must_use]
pub fn immutable_replaced(source: SourceName) -> Notice {
    let note = format!(
        "{} was immutable, and was deleted and created again: a kubelet may serve the old content while a pod on its node \
         refers to it; give each version a name of its own, or do not make it immutable",
        quoted(&source)
    );
    let reason = "ImmutableSourceReplaced";
    Notice { warning: true, line: "immutable source replaced", reason, note, sources: vec![source] }
}

/// Returns the notice that the API server refused a request, or the operator a status.
#[must_use]
pub fn refused(error: &str) -> Notice {
    Notice { warning: true, line: "refused", reason: "Refused", note: error.to_owned(), sources: Vec::new() }
}

impl Notice {
    /// Returns the Events of this notice.
    #[must_use]
    pub fn events(
        &self,
        name: &str,
        uid: &Uid,
        known: &[(&SourceName, &Identity)],
        namespace: &str,
        at: ServerTime,
    ) -> Vec<EventObject> {
        let about_monitor = json!({
            "apiVersion": CONFIG_MONITORS.api_version, "kind": CONFIG_MONITORS.kind,
            "namespace": namespace, "name": name, "uid": uid,
        });
        let mut about = vec![(name, about_monitor)];
        let is_concerned = |source: &SourceName| !source.kind.is_confidential() && self.sources.contains(source);
        for (SourceName { kind, name }, Identity { uid, .. }) in known.iter().filter(|(source, _)| is_concerned(source))
        {
            let resource = kind.resource();
            let about_source = json!({
                "apiVersion": resource.api_version, "kind": resource.kind,
                "namespace": namespace, "name": name, "uid": uid,
            });
            about.push((name, about_source));
        }
        let event = |(name, regarding): (&str, Value)| {
            EventObject(json!({
                "apiVersion": EVENTS.api_version,
                "kind": EVENTS.kind,
                "metadata": { "generateName": format!("{name}-"), "namespace": namespace },
                "eventTime": at.to_micro_time(),
                "reportingController": REPORTER,
                "reportingInstance": REPORTER,
                "action": "Restart",
                "type": if self.warning { "Warning" } else { "Normal" },
                "reason": self.reason,
                "regarding": regarding,
                "note": cut(&self.note, MAX_NOTE),
            }))
        };
        about.into_iter().map(event).collect()
    }
}

impl Situation<'_> {
    /// Returns the reason of the conditions.
    #[must_use]
    pub fn reason(&self, status: &Status) -> &'static str {
        match self {
            Self::Settled { missing_keys: Some(_), .. } => "KeyNotFound",
            Self::Settled { .. } if status.pods == Some(0) => "NoPodsSelected",
            Self::Settled { .. } => "UpToDate",
            Self::SourceNotFound(_) => "SourceNotFound",
            Self::QuietPeriod { .. } => "QuietPeriod",
            Self::Held { hold: Hold::OutsideWindow(_), .. } => "OutsideWindow",
            Self::Held { hold: Hold::MinInterval(_), .. } => "MinInterval",
            Self::Held { hold: Hold::BackOff(_), .. } => "RestartBackOff",
            Self::CanaryFailed(_) => "CanaryFailed",
            Self::WaitingForOtherRestart => "WaitingForOtherRestart",
            Self::RestartInProgress(_) => "RestartInProgress",
            Self::ProgressDeadlineExceeded(..) => "ProgressDeadlineExceeded",
            Self::DeletionRefused(..) => "DeletionRefused",
            Self::EvictionBlocked(..) => "EvictionBlocked",
            Self::Suspended { .. } => "Suspended",
            Self::InvalidSpec(_) => "InvalidSpec",
            Self::InvalidStatus(_) => "InvalidStatus",
            Self::Forbidden(_) => "Forbidden",
        }
    }

    /// Returns whether [`Self::WaitingForOtherRestart`] may replace conditions with this reason. Another reason stays,
    /// because it still holds while the restart waits.
    #[must_use]
    pub fn yields_to_waiting(reason: &str) -> bool {
        matches!(
            reason,
            "NoPodsSelected"
                | "UpToDate"
                | "QuietPeriod"
                | "OutsideWindow"
                | "MinInterval"
                | "RestartBackOff"
                | "RestartInProgress"
        )
    }

    fn is_ready(&self, status: &Status) -> bool {
        match self {
            Self::Settled { .. } => true,
            Self::Suspended { requested } => status.restart.is_none() && !requested,
            _ => false,
        }
    }

    fn is_reconciling(&self) -> bool {
        matches!(
            self,
            Self::QuietPeriod { .. }
                | Self::Held { .. }
                | Self::WaitingForOtherRestart
                | Self::RestartInProgress(_)
                | Self::DeletionRefused(..)
                | Self::EvictionBlocked(..)
        )
    }

    fn is_stalled(&self) -> bool {
        matches!(
            self,
            Self::ProgressDeadlineExceeded(..)
                | Self::CanaryFailed(_)
                | Self::InvalidSpec(_)
                | Self::InvalidStatus(_)
                | Self::Forbidden(_)
        )
    }

    /// Returns the reason of the Event when a ConfigMonitor comes into this situation.
    fn event(&self, status: &Status) -> Option<&'static str> {
        match self {
            Self::ProgressDeadlineExceeded(..) => Some("RestartStalled"),
            Self::Settled { missing_keys: None, .. } if status.pods != Some(0) => None,
            Self::Settled { .. }
            | Self::SourceNotFound(_)
            | Self::DeletionRefused(..)
            | Self::EvictionBlocked(..)
            | Self::Held { hold: Hold::BackOff(_), .. }
            | Self::CanaryFailed(_)
            | Self::InvalidSpec(_)
            | Self::InvalidStatus(_)
            | Self::Forbidden(_) => Some(self.reason(status)),
            Self::QuietPeriod { .. }
            | Self::Held { .. }
            | Self::WaitingForOtherRestart
            | Self::RestartInProgress(_)
            | Self::Suspended { .. } => None,
        }
    }

    /// Returns the message of Ready: whether the pods run with the content.
    fn ready_message(&self, status: &Status) -> String {
        match self {
            Self::Settled { selector, missing_keys } => {
                let missing_keys = missing_keys.map(str::to_owned);
                let no_pods = (status.pods == Some(0))
                    .then(|| format!("no pod matched {} when pods were last listed", selector.to_query()));
                missing_keys.into_iter().chain(no_pods).chain([basis(status)]).collect::<Vec<_>>().join("; ")
            }
            Self::SourceNotFound(missing) => {
                let held = status.restart.as_ref().map_or("", |_| "; the restart is held");
                format!("{}{held}", not_found(missing))
            }
            Self::QuietPeriod { .. } | Self::Held { .. } | Self::WaitingForOtherRestart | Self::CanaryFailed(_) => {
                how_far(status)
            }
            Self::RestartInProgress(progress)
            | Self::ProgressDeadlineExceeded(progress, _)
            | Self::DeletionRefused(progress, _)
            | Self::EvictionBlocked(progress, _) => progress.deleted(status),
            Self::Suspended { .. } if status.restart.is_some() => how_far(status),
            Self::Suspended { requested: true } => NOT_BEGUN.to_owned(),
            Self::Suspended { requested: false } => basis(status),
            Self::InvalidSpec(_) => "the spec is invalid, and no pod is restarted".to_owned(),
            Self::InvalidStatus(_) => "the status is invalid, and no pod is restarted".to_owned(),
            Self::Forbidden(error) => match &status.restart {
                Some(restart) => {
                    let pods =
                        restart.begun.as_ref().map_or(String::new(), |begun| format!(" of {}", count(begun.pods)));
                    format!("the restart{pods} waits for the right to {}", right(error))
                }
                None => format!("changes of {} wait for the right to {}", changed(status), right(error)),
            },
        }
    }

    /// Returns the message of Reconciling: what the operator does, or what it waits for and until when.
    fn reconciling_message(&self, status: &Status) -> Cow<'static, str> {
        match self {
            Self::Settled { .. } => NO_RESTART_PENDING.into(),
            Self::SourceNotFound(missing) => format!("waiting for {}", some(missing.iter().map(quoted))).into(),
            Self::QuietPeriod { .. } if status.why() == Why::Requested && !is_interrupted(status) => {
                "waiting until the pods can be listed".into()
            }
            Self::QuietPeriod { seconds } => {
                format!("waiting until the content has been unchanged for {seconds} s").into()
            }
            Self::Held { hold: Hold::OutsideWindow(Some(opens)), .. } => {
                format!("waiting for the next window, which opens at {}", zoned(opens)).into()
            }
            Self::Held { hold: Hold::OutsideWindow(None), .. } => {
                "waiting for a window, but no window will open".into()
            }
            Self::Held { hold: Hold::MinInterval(until), .. } => {
                format!("waiting until {until} (spec.minIntervalSeconds)").into()
            }
            Self::Held { hold: Hold::BackOff(until), .. } => {
                format!("waiting until {until}, because restarts follow each other too fast").into()
            }
            Self::CanaryFailed(_) => "waiting for other content or a request".into(),
            Self::WaitingForOtherRestart => {
                "waiting for another ConfigMonitor, which is replacing pods of the same owners".into()
            }
            Self::RestartInProgress(progress) => progress.activity().into(),
            Self::ProgressDeadlineExceeded(..) => "waiting for a change of the pods or of the content".into(),
            Self::DeletionRefused(progress, why) => {
                progress.with_details(format!("retrying the deletions with exponential backoff: {why}")).into()
            }
            Self::EvictionBlocked(progress, why) => {
                progress.with_details(format!("retrying the evictions with exponential backoff: {why}")).into()
            }
            Self::Suspended { requested } if *requested || status.restart.is_some() => {
                "suspended: restarts the selected pods once spec.suspend is false".into()
            }
            Self::Suspended { .. } => "suspended: records changes, but restarts no pod".into(),
            Self::InvalidSpec(_) => "waiting for a valid spec".into(),
            Self::InvalidStatus(_) => "waiting for a valid status".into(),
            Self::Forbidden(_) => "retrying with exponential backoff".into(),
        }
    }

    /// Returns the message of Stalled: what stops the operator, and what a user must do, or should do if the situation lasts.
    fn stalled_message(&self, status: &Status) -> Cow<'static, str> {
        match self {
            Self::Settled { missing_keys: Some(_), .. } => "check the keys that the spec names".into(),
            Self::Settled { .. } if status.pods == Some(0) => "check spec.podSelector".into(),
            Self::Settled { .. }
            | Self::QuietPeriod { .. }
            | Self::Held { hold: Hold::OutsideWindow(Some(_)) | Hold::MinInterval(_), .. }
            | Self::WaitingForOtherRestart
            | Self::RestartInProgress(_)
            | Self::Suspended { .. } => NO_ACTION_NEEDED.into(),
            Self::Held { hold: Hold::OutsideWindow(None), .. } => "check spec.windows".into(),
            Self::Held { hold: Hold::BackOff(_), writers } => {
                format!("find out why the content changes again and again{}", last_written(writers)).into()
            }
            Self::CanaryFailed(message) => format!(
                "{message}; fix or revert the content, or request another restart (the annotation {REQUEST} of this ConfigMonitor)"
            )
            .into(),
            Self::SourceNotFound(missing) => {
                format!("create {}, or correct the spec", some(missing.iter().map(quoted))).into()
            }
            Self::ProgressDeadlineExceeded(progress, why) => progress.advice(*why).into(),
            Self::DeletionRefused(..) => {
                "if the deletions stay refused, change the webhook or policy that refuses them".into()
            }
            Self::EvictionBlocked(..) => "if the evictions stay blocked, check the PodDisruptionBudgets".into(),
            Self::InvalidSpec(text) => format!("correct the spec: {text}").into(),
            Self::InvalidStatus(text) => format!("upgrade the operator, or clear the status: {text}").into(),
            Self::Forbidden(error) => {
                let how = if error.action.resource == SECRETS {
                    " (deploy/secrets has a Role, deploy/cluster-wide/secrets a ClusterRole)"
                } else {
                    ""
                };
                format!("grant the operator the right to {}{how}; {error}", right(error)).into()
            }
        }
    }
}

/// Returns how far the restart of the status has come.
fn how_far(status: &Status) -> String {
    match (status.restart.as_ref().and_then(|restart| restart.begun.as_ref()), status.why()) {
        (Some(begun), _) => Progress::new(begun).deleted(status),
        (None, Why::Requested) => NOT_BEGUN.to_owned(),
        (None, Why::Changed | Why::Reverted) => {
            format!("the content of {} has changed; the restart has not begun", changed(status))
        }
    }
}

fn is_interrupted(status: &Status) -> bool {
    status.restart.as_ref().is_some_and(|restart| restart.interrupted_at().is_some())
}

/// Returns what a restart is for.
fn purpose(why: Why, source: &str) -> String {
    match why {
        Why::Changed | Why::Reverted => format!("for the content of {source}"),
        Why::Requested => "as requested".to_owned(),
    }
}

fn last_written(writers: &[String]) -> String {
    if writers.is_empty() { String::new() } else { format!("; last written: {}", some(writers.iter())) }
}

/// Formats a time as people in its zone write it.
fn zoned(at: &Zoned) -> String {
    let zone = at.time_zone().iana_name().unwrap_or_default();
    format!("{} ({zone})", at.strftime("%Y-%m-%d %H:%M %Z"))
}

/// Returns why nothing is left to do.
fn basis(status: &Status) -> String {
    let (source, skipped) = (source_of(status), status.skipped);
    let restarted = |pods: usize, by: ServerTime| {
        let left = if skipped > 0 { format!("; skipped: {}", status.skipped_pods) } else { String::new() };
        format!("{pods} of {} restarted for the content of {source} by {by}{left}", count(pods + skipped))
    };
    match (status.baselined_at, status.last_restart()) {
        (Some(at), _) if skipped > 0 => restarted(0, at),
        (Some(at), _) => {
            let assumed = match status.pods {
                None | Some(0) => return format!("the content of {source} was recorded at {at}"),
                Some(1) => "1 selected pod is".to_owned(),
                Some(pods) => format!("{pods} selected pods are"),
            };
            format!(
                "the content of {source} was recorded at {at}, and the {assumed} assumed to run with it; to be sure, run kubectl rollout restart"
            )
        }
        (None, Some(Entry { pods, completed_at, .. })) => restarted(*pods, *completed_at),
        (None, None) => format!("no change of {source} is pending"),
    }
}

fn source_of(status: &Status) -> &str {
    status.source.as_deref().unwrap_or("the sources")
}

/// Returns the changed sources of the restart in the status. Without any, returns all sources in short.
#[must_use]
pub fn changed(status: &Status) -> String {
    let changed = status.restart.as_ref().map(|restart| status.changed(&restart.contents)).unwrap_or_default();
    named(status, &changed)
}

/// Returns these sources. Without any, returns all sources in short.
#[must_use]
pub fn named(status: &Status, sources: &[SourceName]) -> String {
    if sources.is_empty() { source_of(status).to_owned() } else { some(sources.iter().map(ToString::to_string)) }
}

fn not_found(missing: &[SourceName]) -> String {
    let verb = if missing.len() == 1 { "does" } else { "do" };
    format!("{} {verb} not exist", some(missing.iter().map(quoted)))
}

fn quoted(source: &SourceName) -> String {
    format!("{} {:?}", source.kind.resource().kind, source.name)
}

/// Returns the right that a request lacks: a verb and a resource.
fn right(Error { action, .. }: &Error) -> String {
    format!("{} {}", action.verb, action.rule())
}

impl Exempt {
    fn text(self) -> &'static str {
        match self {
            Self::Own => "it is the operator's own pod",
            Self::Mirror => "only a kubelet can restart static pods",
            Self::Bare => "no controller would replace them (spec.unmanagedPods)",
            Self::Job => "they belong to a Job (spec.unmanagedPods)",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Own => "the operator's own",
            Self::Mirror => "static",
            Self::Bare => "no controller",
            Self::Job => "of a Job",
        }
    }
}

/// Returns the first names, and how many more there are: a status and an Event have limits.
fn some(mut names: impl ExactSizeIterator<Item = impl Into<String>>) -> String {
    let first: Vec<String> = names.by_ref().take(MAX_NAMES).map(Into::into).collect();
    match names.len() {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

fn count(pods: usize) -> String {
    if pods == 1 { "1 pod".to_owned() } else { format!("{pods} pods") }
}

#[cfg(test)]
mod tests;
