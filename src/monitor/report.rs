//! What is reported about a ConfigMonitor: its conditions, and the Event that goes with a new reason.

use std::borrow::Cow;
use std::collections::BTreeSet;

use jiff::Zoned;

use super::REQUEST;
use super::discover::MAX_SOURCES;
use super::hold::Hold;
use super::notice::Notice;
use super::reason::{Holds, Reason};
use super::situation::{Progress, Situation};
use super::source::SourceName;
use super::status::{Condition, Entry, NO_ACTION_NEEDED, NO_RESTART_PENDING, Status, Why};
use super::words::{changed, count, quoted, some, source_of};
use crate::kube::objects::DataObject;
use crate::kube::{CONFIG_MAPS, SECRETS, ServerTime};

/// Why no pod can be handed over.
pub(crate) const NO_SURGE: &str = "spec.maxSurge needs the Component deploy/surge, or surge.enabled in the chart";
/// Why no restart begins, if the schema of an older CustomResourceDefinition drops what it would need.
pub(crate) const NOT_STORED: &str = "the API server has not stored the restart";
/// The message of Ready while a request waits.
const NOT_BEGUN: &str = "a restart is requested, and has not begun";
type Message = Cow<'static, str>;

/// Sets the conditions for a situation. Returns a notice if the situation is new and deserves an Event.
pub fn report(situation: &Situation<'_>, status: &mut Status, generation: i64, now: ServerTime) -> Option<Notice> {
    let (reason, messages) = situation.described(status);
    let is_waiting = match situation {
        Situation::Suspended { requested } => status.restart.is_some() || *requested,
        _ => false,
    };
    let before = |r#type: &str| status.conditions.iter().find(|condition| condition.r#type == r#type);
    let is_new = before("Ready").is_none_or(|condition| condition.reason != reason.word());
    let notice = (is_new && reason.is_warning()).then(|| {
        let [ready, reconciling, stalled] = &messages;
        let activity = if reason.holds() == Holds::Reconciling { format!("; {reconciling}") } else { String::new() };
        let note = format!("{ready}{activity}; {stalled}");
        Notice { warning: true, line: "attention needed", reason: reason.word(), note, sources: Vec::new() }
    });
    let condition = |(holds, message): (Holds, Message)| {
        let r#type: &str = holds.into();
        let status = if reason.holds() == holds && !is_waiting { "True" } else { "False" };
        let since = before(r#type).filter(|condition| condition.status == status);
        Condition {
            r#type: r#type.into(),
            status: status.into(),
            observed_generation: Some(generation),
            last_transition_time: since.map_or(now, |condition| condition.last_transition_time),
            reason: reason.word().into(),
            message,
        }
    };
    let each = [Holds::Ready, Holds::Reconciling, Holds::Stalled].into_iter().zip(messages);
    let conditions = each.map(condition).collect();
    status.conditions = conditions;
    status.observed_generation = Some(generation);
    notice
}

/// Says that a request waits, if a restart is under way.
pub(crate) fn report_request(status: &mut Status) {
    if status.begun().is_none() {
        return;
    }
    let reconciling: &str = Holds::Reconciling.into();
    for condition in status.conditions.iter_mut().filter(|condition| condition.r#type == reconciling) {
        condition.message.to_mut().push_str("; another restart is requested, and begins once this one is over");
    }
}

/// Says which of these keys an object lacks, if it lacks any.
pub(crate) fn missing_keys(source: &SourceName, object: &DataObject, keys: &BTreeSet<String>) -> Option<String> {
    let has =
        |key: &String| [&object.data, &object.binary_data].into_iter().flatten().any(|data| data.contains_key(key));
    let missing: Vec<String> = keys.iter().filter(|key| !has(key)).map(|key| format!("{key:?}")).collect();
    (!missing.is_empty()).then(|| format!("{} lacks {}, which the spec names", quoted(source), some(missing.iter())))
}

impl Situation<'_> {
    /// Returns the reason, and the messages of Ready, Reconciling and Stalled: whether the pods run with the content;
    /// what the operator does, or what it waits for and until when; what stops the operator, and what a user must do, or
    /// should do if the situation lasts.
    fn described(&self, status: &Status) -> (Reason, [Message; 3]) {
        match self {
            Self::Settled { selector, missing_keys, has_sources } => {
                let has_no_pods = status.pods == Some(0);
                let (reason, advice) = match missing_keys {
                    Some(_) => (Reason::KeyNotFound, "check the keys that the spec names"),
                    None if has_no_pods => (Reason::NoPodsSelected, "check spec.podSelector"),
                    None if !has_sources => (Reason::NoSourcesFound, "check spec.podSelector and spec.discover"),
                    None => (Reason::UpToDate, NO_ACTION_NEEDED),
                };
                let no_pods =
                    has_no_pods.then(|| format!("no pod matched {} when pods were last listed", selector.to_query()));
                let missing_keys = missing_keys.map(str::to_owned);
                let basis = match has_sources {
                    true => basis(status),
                    false => "no selected pod refers to an object that can be discovered".to_owned(),
                };
                let ready: Vec<String> = missing_keys.into_iter().chain(no_pods).chain([basis]).collect();
                said(reason, ready.join("; "), NO_RESTART_PENDING, advice)
            }
            Self::SecretsNotWatched(secrets) => said(
                Reason::Forbidden,
                format!(
                    "changes of the discovered Secrets ({secrets}) wait for the right to watch them; {}",
                    basis(status)
                ),
                "asking for the right once a minute",
                "grant the operator the right to get, list and watch secrets (deploy/secrets has a Role, \
                 deploy/cluster-wide/secrets a ClusterRole, the chart secrets.enabled), or leave Secret out of spec.discover.kinds",
            ),
            Self::NoSurge => said(
                Reason::Forbidden,
                format!("no restart can hand pods over; {}", basis(status)),
                NO_RESTART_PENDING,
                NO_SURGE,
            ),
            Self::TooManySources(first) => said(
                Reason::TooManySources,
                format!("changes of {first} and of what follows it by name restart no pod; {}", basis(status)),
                format!("waiting until there is room for {first}: a ConfigMonitor has at most {MAX_SOURCES} sources"),
                "use several ConfigMonitors, or spec.discover.exclude",
            ),
            Self::SourceNotFound(missing) => {
                let names = some(missing.iter().map(quoted));
                let verb = if missing.len() == 1 { "does" } else { "do" };
                let held = if status.restart.is_some() { "; the restart is held" } else { "" };
                said(
                    Reason::SourceNotFound,
                    format!("{names} {verb} not exist{held}"),
                    format!("waiting for {names}"),
                    format!("create {names}, or correct the spec"),
                )
            }
            Self::QuietPeriod { seconds } => {
                let activity = match status.awaiting().next() {
                    None => "waiting until the pods can be listed".to_owned(),
                    Some(_) => format!("waiting until the content has been unchanged for {seconds} s"),
                };
                said(Reason::QuietPeriod, how_far(status), activity, NO_ACTION_NEEDED)
            }
            Self::Held { hold: Hold::OutsideWindow(opens), .. } => {
                let opens = opens.as_ref().map_or_else(|| "never opens".to_owned(), zoned);
                let activity = format!("waiting for the next window, which {opens}");
                said(Reason::OutsideWindow, how_far(status), activity, NO_ACTION_NEEDED)
            }
            Self::Held { hold: Hold::MinInterval(until), .. } => said(
                Reason::MinInterval,
                how_far(status),
                format!("waiting until {until} (spec.minIntervalSeconds)"),
                NO_ACTION_NEEDED,
            ),
            Self::Held { hold: Hold::BackOff(until), writers } => said(
                Reason::RestartBackOff,
                how_far(status),
                format!("waiting until {until}, because restarts follow each other too fast"),
                format!(
                    "if an application writes the source, leave its keys out of spec.keys; if such restarts are \
                     intended, set spec.minIntervalSeconds{}",
                    last_written(writers)
                ),
            ),
            Self::WaitingForOtherRestart => said(
                Reason::WaitingForOtherRestart,
                how_far(status),
                "waiting for another ConfigMonitor, which is replacing pods of the same owners",
                NO_ACTION_NEEDED,
            ),
            Self::RestartInProgress(progress) => {
                said(Reason::RestartInProgress, progress.deleted(status), progress.activity(), NO_ACTION_NEEDED)
            }
            Self::DeletionRefused(progress, why) => said(
                Reason::DeletionRefused,
                progress.deleted(status),
                progress.with_details(format!("retrying the deletions with exponential backoff: {why}")),
                "if the deletions stay refused, change the webhook or policy that refuses them",
            ),
            Self::EvictionBlocked(progress, why) => said(
                Reason::EvictionBlocked,
                progress.deleted(status),
                progress.with_details(format!("retrying the evictions with exponential backoff: {why}")),
                "if the evictions stay blocked, check the PodDisruptionBudgets",
            ),
            Self::ProgressDeadlineExceeded(progress, why) => said(
                Reason::ProgressDeadlineExceeded,
                progress.deleted(status),
                "waiting for a change of the pods or of the content",
                progress.advice(*why),
            ),
            Self::CanaryFailed(message) => said(
                Reason::CanaryFailed,
                how_far(status),
                "waiting for other content or a request",
                format!(
                    "{message}; fix or revert the content, or request another restart (the annotation {REQUEST} of this ConfigMonitor)"
                ),
            ),
            Self::Suspended { requested } => {
                let ready = match status.restart {
                    Some(_) => how_far(status),
                    None if *requested => NOT_BEGUN.to_owned(),
                    None => basis(status),
                };
                let activity = if *requested || status.restart.is_some() {
                    "suspended: restarts the selected pods once spec.suspend is false"
                } else {
                    "suspended: records changes, but restarts no pod"
                };
                said(Reason::Suspended, ready, activity, NO_ACTION_NEEDED)
            }
            Self::InvalidSpec(text) => said(
                Reason::InvalidSpec,
                "the spec is invalid, and no pod is restarted",
                "waiting for a valid spec",
                format!("correct the spec: {text}"),
            ),
            Self::InvalidStatus(hash) => said(
                Reason::InvalidStatus,
                "the status is invalid, and no pod is restarted",
                "waiting for a valid status",
                format!("upgrade the operator, or clear the status: the hash \"{hash}\" was not made by this version"),
            ),
            Self::Forbidden(error) => {
                // Whichever request was refused first, a source takes all three.
                let of_source = [CONFIG_MAPS, SECRETS].contains(&error.action.resource);
                let verb = if of_source { "get, list and watch" } else { error.action.verb };
                let right = format!("the right to {verb} {}", error.action.rule());
                let waiting = if status.restart.is_some() { "the restart waits" } else { "changes wait" };
                let how = if error.action.resource == SECRETS {
                    " (deploy/secrets has a Role, deploy/cluster-wide/secrets a ClusterRole, the chart secrets.enabled)"
                } else {
                    ""
                };
                let advice = format!("grant the operator {right}{how}; {error}");
                said(Reason::Forbidden, format!("{waiting} for {right}"), "retrying with exponential backoff", advice)
            }
        }
    }
}

fn said(
    reason: Reason,
    ready: impl Into<Message>,
    reconciling: impl Into<Message>,
    stalled: impl Into<Message>,
) -> (Reason, [Message; 3]) {
    (reason, [ready.into(), reconciling.into(), stalled.into()])
}

fn how_far(status: &Status) -> String {
    match (status.begun(), status.why()) {
        (Some(begun), _) => Progress::new(begun).deleted(status),
        (None, Why::Requested) => NOT_BEGUN.to_owned(),
        (None, Why::Changed | Why::Reverted) => {
            format!("the content of {} has changed; the restart has not begun", changed(status))
        }
    }
}

fn last_written(writers: &[String]) -> String {
    if writers.is_empty() { String::new() } else { format!("; last written: {}", some(writers.iter())) }
}

/// Says when a window opens, as people in its zone write it.
fn zoned(at: &Zoned) -> String {
    let zone = at.time_zone().iana_name().unwrap_or_default();
    format!("opens at {} ({zone})", at.strftime("%Y-%m-%d %H:%M %Z"))
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
                None | Some(0) => "",
                Some(_) => "; the selected pods are assumed to run with it",
            };
            format!("the content of {source} was recorded at {at}{assumed}")
        }
        (None, Some(Entry { pods, completed_at, .. })) => restarted(*pods, *completed_at),
        (None, None) => format!("no change of {source} is pending"),
    }
}

#[cfg(test)]
mod tests;
