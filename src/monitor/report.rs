//! What is told about a ConfigMonitor: its conditions, its Events and the log lines that go with them, all from one place,
//! so that they never disagree.

use std::borrow::Cow;
use std::collections::BTreeSet;

use jiff::Zoned;
use serde::Serialize;
use serde_json::{Value, json};

use super::hold::Hold;
use super::rollout::{CanaryStanding, Exempt, Skipped, Standing, Unsettled};
use super::selector::Selector;
use super::source::{Kind, SourceName};
use super::status::{Begun, Condition, Entry, NOTHING_NEEDED, NOTHING_TO_DO, Status, Why};
use super::{CONFIG_MONITORS, REQUEST};
use crate::kube::error::Error;
use crate::kube::objects::{DataObject, Identity, Pod};
use crate::kube::{EVENTS, MicroTime, ServerTime, Uid, cut};

/// Who tells.
const REPORTER: &str = "magalix.com/configmonitor-operator";
/// So many pods are named.
const MOST_NAMES: usize = 5;
/// The API takes no longer note, in bytes.
const LONGEST_NOTE: usize = 1024;

/// How things stand with a ConfigMonitor.
#[derive(Clone, Debug, PartialEq)]
pub enum Situation<'a> {
    /// Nothing is left to do.
    Settled {
        /// What selects the pods.
        selector: &'a Selector,
        /// Which keys of the spec its sources lack, for a person, if they lack any.
        missing_keys: Option<&'a str>,
    },
    /// These sources do not exist.
    SourceNotFound(&'a [SourceName]),
    /// The content has changed and must come to rest first.
    QuietPeriod {
        /// The length of the period.
        seconds: u64,
    },
    /// It is not the time to begin.
    Held {
        /// Why not.
        hold: &'a Hold,
        /// Who last wrote the sources that have changed, as far as is known.
        writers: Vec<String>,
    },
    /// Another ConfigMonitor is replacing pods of the same owners.
    WaitingForOtherRestart,
    /// Pods are being replaced.
    RestartInProgress(Progress),
    /// Nothing has moved for too long, maybe for this reason.
    ProgressDeadlineExceeded(Progress, Option<&'a Error>),
    /// Some pods cannot be deleted.
    DeletionRefused(Progress, &'a Error),
    /// No pod can be evicted now.
    EvictionBlocked(Progress, &'a Error),
    /// A pod that went first has failed: this one, for this reason.
    CanaryFailed(&'a str),
    /// Nothing is done because the author wants so.
    Suspended {
        /// Somebody asks for a restart all the same.
        requested: bool,
    },
    /// The spec cannot be acted on.
    InvalidSpec(&'a str),
    /// The status cannot be understood.
    InvalidStatus(&'a str),
    /// A right is missing.
    Forbidden(&'a Error),
}

/// How far a restart has come.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    pods: usize,
    /// How many of them are gone or terminating.
    gone: usize,
    /// What it waits for.
    details: Vec<String>,
    /// The commands that show why that does not come.
    commands: Vec<String>,
}

/// An Event to be made, and a line to be logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Whether somebody should look.
    pub warning: bool,
    /// The line to log.
    pub line: &'static str,
    /// The reason of the Event.
    pub reason: &'static str,
    /// What happened, for a person.
    pub note: String,
    /// The sources at which it is told, too: at ConfigMaps. An Event at a Secret would have its UID.
    pub sources: Vec<SourceName>,
}

/// An Event as the API takes it.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct EventObject(Value);

impl Progress {
    /// A restart that has just begun.
    #[must_use]
    pub fn new(begun: &Begun) -> Self {
        let gone = begun.gone(begun.remaining).max(begun.deleted);
        Self { pods: begun.pods, gone, details: Vec::new(), commands: Vec::new() }
    }

    /// A restart that stands like this.
    #[must_use]
    pub fn of(begun: &Begun, standing: &Standing<'_>) -> Self {
        let mut progress = Self { gone: begun.gone(standing.waiting), ..Self::new(begun) };
        if let Some(CanaryStanding { pods, until }) = standing.canary {
            let until = until.map_or(String::new(), |until| format!(", until {until}"));
            progress.details.push(format!("canary: {} first, which must stay available{until}", count(pods)));
        }
        if standing.is_halted {
            progress.details.push("halted: the budget (maxUnavailable) is used up".to_owned());
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
        progress.add("not available: ", unavailable);
        progress.add("terminating: ", standing.terminating.iter().copied());
        progress.add("stuck while terminating: ", standing.stuck.iter().copied());
        let pods = standing.unavailable.iter().map(|pod| format!("kubectl describe pod {}", pod.name));
        let owners = standing.unsettled.iter().map(|Unsettled { owner, .. }| {
            format!("kubectl describe {} {}", owner.kind.to_ascii_lowercase(), owner.name)
        });
        progress.commands.extend(pods.take(1).chain(owners.take(1)));
        progress
    }

    /// Adds pods that were not deleted when it was tried.
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

    fn text(&self) -> String {
        let Self { pods, gone, details, .. } = self;
        let deleted = format!("{gone} of {} deleted", count(*pods));
        [&[deleted], &details[..]].concat().join("; ")
    }

    /// What is being done.
    fn activity(&self) -> String {
        if self.details.is_empty() {
            "deleting pods".to_owned()
        } else {
            format!("waiting: {}", self.details.join("; "))
        }
    }

    /// What a person should do if that does not end.
    fn advice(&self) -> String {
        let details = self.details.join("; ");
        match &self.commands[..] {
            [] => format!("find out why the pods do not end: {details}"),
            commands => format!("find out why the pods do not become available: {details}; {}", commands.join("; ")),
        }
    }
}

/// Sets the conditions to a situation, and says what is worth an Event because it was not so before.
pub fn report(situation: &Situation<'_>, status: &mut Status, generation: i64, now: ServerTime) -> Option<Notice> {
    let reason = situation.reason(status);
    let note = situation.ready_message(status);
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
    let conditions = vec![
        condition("Ready", situation.is_ready(status), note.clone().into()),
        condition("Reconciling", situation.is_reconciling(), situation.reconciling_message(status)),
        condition("Stalled", situation.is_stalled(), situation.stalled_message(status)),
    ];
    status.conditions = conditions;
    status.observed_generation = Some(generation);
    let event = situation.event(status).filter(|_| was.as_deref() != Some(reason))?;
    Some(Notice { warning: true, line: "attention needed", reason: event, note, sources: Vec::new() })
}

/// What is told when a restart begins: that it does, and which pods it leaves alone.
#[must_use]
pub fn started(source: &str, why: Why, pods: usize, skipped: &[Skipped]) -> Vec<Notice> {
    let note = match why {
        Why::Changed => format!("the content of {source} has changed: restarting {}", count(pods)),
        Why::Reverted => {
            format!(
                "the content of {source} has gone back: restarting {} that may have read what was there",
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

/// Which pods were left alone and why, for the history and the message of Ready.
#[must_use]
pub fn skipped_pods(skipped: &[Skipped]) -> String {
    some(skipped.iter().map(|skipped| format!("{} ({})", skipped.pod, skipped.why.word())))
}

/// What is told when a restart is over.
#[must_use]
pub fn completed(
    source: &str,
    why: Why,
    sources: Vec<SourceName>,
    begun: &Begun,
    stuck: &[String],
    now: ServerTime,
) -> Notice {
    let seconds = now.since(begun.started_at).as_secs();
    let pods = match begun.pods.saturating_sub(begun.deleted) {
        0 => count(begun.pods),
        others => {
            format!("{} of {} (somebody else deleted {others}, or they have ended)", begun.deleted, count(begun.pods))
        }
    };
    let why = match why {
        Why::Changed | Why::Reverted => format!("for the content of {source}"),
        Why::Requested => "as requested".to_owned(),
    };
    let mut note = format!("restarted {pods} {why} in {seconds} s");
    if !stuck.is_empty() {
        note += &format!("; still terminating, and not waited for: {}", some(stuck.iter()));
    }
    Notice { warning: !stuck.is_empty(), line: "restart over", reason: "RestartCompleted", note, sources }
}

/// Which of these keys an object lacks, and which keys it has, if it lacks any. Who may read this need not be allowed to read a Secret: of one, it is not
/// said which keys it has.
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
    let has = match source.kind {
        Kind::Secret => String::new(),
        Kind::ConfigMap if existing.is_empty() => ", and has no key".to_owned(),
        Kind::ConfigMap => format!(", and has {}", some(existing.iter().map(text))),
    };
    Some(format!("{} lacks {}, which the spec names{has}", quoted(source), some(missing.iter().map(text))))
}

/// What is told when an object takes the place of an immutable one, and has other content.
#[must_use]
pub fn immutable_replaced(source: SourceName) -> Notice {
    let note = format!(
        "{} was immutable, and was deleted and created anew: a kubelet may go on with the \
         old content for as long as a pod of its node refers to it; give new content a new name, or do not make it immutable",
        quoted(&source)
    );
    let reason = "ImmutableSourceReplaced";
    Notice { warning: true, line: "immutable source replaced", reason, note, sources: vec![source] }
}

/// What is told when the API server does not take a request, or the operator not a status, as it is.
#[must_use]
pub fn refused(error: &str) -> Notice {
    Notice { warning: true, line: "refused", reason: "Refused", note: error.to_owned(), sources: Vec::new() }
}

impl Notice {
    /// The Events of this notice.
    #[must_use]
    pub fn events(
        &self,
        name: &str,
        uid: &Uid,
        known: &[(&SourceName, &Identity)],
        namespace: &str,
        at: MicroTime,
    ) -> Vec<EventObject> {
        let about_monitor = json!({
            "apiVersion": CONFIG_MONITORS.api_version, "kind": CONFIG_MONITORS.kind,
            "namespace": namespace, "name": name, "uid": uid,
        });
        let mut about = vec![(name, about_monitor)];
        let is_concerned = |source: &SourceName| source.kind == Kind::ConfigMap && self.sources.contains(source);
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
                "eventTime": at.to_string(),
                "reportingController": REPORTER,
                "reportingInstance": REPORTER,
                "action": "Restart",
                "type": if self.warning { "Warning" } else { "Normal" },
                "reason": self.reason,
                "regarding": regarding,
                "note": cut(&self.note, LONGEST_NOTE),
            }))
        };
        about.into_iter().map(event).collect()
    }
}

impl Situation<'_> {
    /// The reason of the conditions.
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

    /// Returns whether [`Self::WaitingForOtherRestart`] may replace conditions with this reason. A reason that names a problem stays: the problem
    /// lasts while the restart waits.
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

    /// The reason of the Event that says that it has come to this.
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

    /// What holds.
    fn ready_message(&self, status: &Status) -> String {
        let source = || changed(status);
        match self {
            Self::Settled { selector, missing_keys } => {
                let missing_keys = missing_keys.map(str::to_owned);
                let no_pods = (status.pods == Some(0))
                    .then(|| format!("no pod matched {} when they were last listed", selector.to_query()));
                missing_keys.into_iter().chain(no_pods).chain([basis(status)]).collect::<Vec<_>>().join("; ")
            }
            Self::SourceNotFound(missing) => {
                let held = status.restart.as_ref().map_or("", |_| "; the restart is held until then");
                format!("{}{held}", not_found(missing))
            }
            Self::QuietPeriod { .. } if status.why() == Why::Requested => {
                format!("{}, and begins once the pods can be listed", due(status))
            }
            Self::QuietPeriod { seconds } => {
                format!("{}; pods are restarted once it has been unchanged for {seconds} s", due(status))
            }
            Self::Held { hold, writers } => format!("{}; {}", due(status), held(hold, writers)),
            Self::WaitingForOtherRestart => format!(
                "{}; another ConfigMonitor is replacing pods of the same owners, and this restart goes on after it",
                due(status)
            ),
            Self::CanaryFailed(message) => {
                let pods = status.restart.as_ref().and_then(|restart| restart.begun()).map_or(0, |begun| begun.pods);
                format!("the restart of {} for the content of {} has stopped: {message}", count(pods), source())
            }
            Self::RestartInProgress(progress) => progress.text(),
            Self::ProgressDeadlineExceeded(progress, None) => format!("no progress for too long: {}", progress.text()),
            Self::ProgressDeadlineExceeded(progress, Some(why)) => {
                format!("no progress for too long: {}; {why}", progress.text())
            }
            Self::Suspended { .. } if status.restart.is_some() => {
                format!("suspended: {}, and lifting spec.suspend restarts the selected pods", due(status))
            }
            Self::Suspended { requested: true } => {
                "suspended: a restart is requested, and lifting spec.suspend restarts the selected pods".to_owned()
            }
            Self::Suspended { requested: false } => {
                "suspended: changes are observed, and no pod is restarted".to_owned()
            }
            Self::DeletionRefused(progress, why) | Self::EvictionBlocked(progress, why) => {
                format!("{}; {why}", progress.text())
            }
            Self::InvalidSpec(text) | Self::InvalidStatus(text) => (*text).to_owned(),
            Self::Forbidden(error) => match &status.restart {
                Some(restart) => {
                    let pods = restart.begun().map_or(String::new(), |begun| format!(" of {}", count(begun.pods)));
                    format!("the restart{pods} waits for the right to {}; {error}", right(error))
                }
                None => format!("changes of {} wait for the right to {}; {error}", source(), right(error)),
            },
        }
    }

    /// What is being done.
    fn reconciling_message(&self, status: &Status) -> Cow<'static, str> {
        match self {
            Self::Settled { .. } => NOTHING_TO_DO.into(),
            Self::SourceNotFound(missing) => format!("waiting for {}", some(missing.iter().map(quoted))).into(),
            Self::QuietPeriod { seconds } => {
                format!("waiting until the content has been unchanged for {seconds} s").into()
            }
            Self::Held { hold: Hold::OutsideWindow(Some(opens)), .. } => {
                format!("waiting for the window that opens at {}", zoned(opens)).into()
            }
            Self::Held { hold: Hold::OutsideWindow(None), .. } => "waiting for a window".into(),
            Self::Held { hold: Hold::MinInterval(until) | Hold::BackOff(until), .. } => {
                format!("waiting until {until}").into()
            }
            Self::CanaryFailed(_) => "waiting for other content, or for a request".into(),
            Self::WaitingForOtherRestart => "waiting for the restart of another ConfigMonitor".into(),
            Self::RestartInProgress(progress) => progress.activity().into(),
            Self::ProgressDeadlineExceeded(..) => "waiting for a change of the pods".into(),
            Self::DeletionRefused(..) => "retrying the deletions with exponential backoff".into(),
            Self::EvictionBlocked(..) => "retrying the evictions with exponential backoff".into(),
            Self::Suspended { requested } if *requested || status.restart.is_some() => {
                "waiting until spec.suspend is lifted".into()
            }
            Self::Suspended { .. } => NOTHING_TO_DO.into(),
            Self::InvalidSpec(_) => "waiting for a valid spec".into(),
            Self::InvalidStatus(_) => "waiting for a valid status".into(),
            Self::Forbidden(_) => "retrying with exponential backoff".into(),
        }
    }

    /// What a person must do, or should if it lasts.
    fn stalled_message(&self, status: &Status) -> Cow<'static, str> {
        match self {
            Self::Settled { missing_keys: Some(_), .. } => "check the keys that the spec names".into(),
            Self::Settled { .. } if status.pods == Some(0) => "check spec.podSelector".into(),
            Self::Settled { .. }
            | Self::QuietPeriod { .. }
            | Self::Held { hold: Hold::OutsideWindow(Some(_)) | Hold::MinInterval(_), .. }
            | Self::WaitingForOtherRestart
            | Self::RestartInProgress(_)
            | Self::Suspended { .. } => NOTHING_NEEDED.into(),
            Self::Held { hold: Hold::OutsideWindow(None), .. } => "check spec.windows".into(),
            Self::Held { hold: Hold::BackOff(_), writers } => {
                format!("find out why the content changes again and again{}", last_written(writers)).into()
            }
            Self::CanaryFailed(message) => format!(
                "fix or revert the content, or request another restart (the annotation {REQUEST} of this ConfigMonitor): {message}"
            )
            .into(),
            Self::SourceNotFound(missing) => {
                format!("create {}, or correct the spec", some(missing.iter().map(quoted))).into()
            }
            Self::ProgressDeadlineExceeded(progress, None) => progress.advice().into(),
            Self::ProgressDeadlineExceeded(_, Some(why)) => format!("see to what is in the way: {why}").into(),
            Self::DeletionRefused(_, why) | Self::EvictionBlocked(_, why) => {
                format!("if this lasts, see to what is in the way: {why}").into()
            }
            Self::InvalidSpec(text) => format!("correct the spec: {text}").into(),
            Self::InvalidStatus(text) => format!("correct or clear the status: {text}").into(),
            Self::Forbidden(error) => {
                let right = right(error);
                let how = if right.ends_with(" secrets") {
                    " (deploy/secrets has a Role, deploy/cluster-wide/secrets a ClusterRole)"
                } else {
                    ""
                };
                format!("grant the operator the right to {right}{how}; {error}").into()
            }
        }
    }
}

/// Why a restart is due.
fn due(status: &Status) -> String {
    match status.why() {
        Why::Requested => "a restart is requested".to_owned(),
        Why::Changed | Why::Reverted => format!("the content of {} has changed", changed(status)),
    }
}

/// Why it does not begin yet.
fn held(hold: &Hold, writers: &[String]) -> String {
    match hold {
        Hold::OutsideWindow(Some(opens)) => {
            format!("the restart waits for the next window, which opens at {}", zoned(opens))
        }
        Hold::OutsideWindow(None) => "the restart waits for a window, and none will open any more".to_owned(),
        Hold::MinInterval(until) => format!("by spec.minIntervalSeconds the restart may begin at {until}"),
        Hold::BackOff(until) => {
            format!("restarts follow each other too fast, and this one may begin at {until}{}", last_written(writers))
        }
    }
}

fn last_written(writers: &[String]) -> String {
    if writers.is_empty() { String::new() } else { format!("; last written: {}", some(writers.iter())) }
}

/// A time as people in its zone write it.
fn zoned(at: &Zoned) -> String {
    let zone = at.time_zone().iana_name().unwrap_or_default();
    format!("{} ({zone})", at.strftime("%Y-%m-%d %H:%M %Z"))
}

/// What it rests on that nothing is left to do.
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

/// The sources that the restart in the status is about; if there is none, or it is about content that has gone back, what is watched.
#[must_use]
pub fn changed(status: &Status) -> String {
    let changed = status.restart.as_ref().map(|restart| status.changed(&restart.contents)).unwrap_or_default();
    if changed.is_empty() { source_of(status).to_owned() } else { some(changed.iter().map(ToString::to_string)) }
}

fn not_found(missing: &[SourceName]) -> String {
    let verb = if missing.len() == 1 { "does" } else { "do" };
    format!("{} {verb} not exist", some(missing.iter().map(quoted)))
}

fn quoted(source: &SourceName) -> String {
    format!("{} {:?}", source.kind.resource().kind, source.name)
}

/// The right that a request lacks: a verb and a resource.
fn right(error: &Error) -> &str {
    match error.request.split(" \"").next().unwrap_or_default() {
        "evict pod" => "create pods/eviction",
        right => right,
    }
}

impl Exempt {
    fn text(self) -> &'static str {
        match self {
            Self::Own => "that is the operator's own",
            Self::Mirror => "only their kubelet can restart static pods",
            Self::Bare => "no controller would create them again (spec.unmanagedPods)",
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

/// Some of these names, and how many more there are: a status and an Event have limits.
fn some(mut names: impl ExactSizeIterator<Item = impl Into<String>>) -> String {
    let first: Vec<String> = names.by_ref().take(MOST_NAMES).map(Into::into).collect();
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
