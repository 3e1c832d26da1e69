//! Words for what is wrong with a pod.

use std::sync::Arc;

use crate::kube::objects::{
    ContainerStatus, MAX_TROUBLE, PodCondition, PodStatus, Terminated, Waiting, condition, first_end,
};
use crate::kube::{ServerTime, cut};

/// Why a container waits that has not been started yet.
const CREATING: [&str; 2] = ["ContainerCreating", "PodInitializing"];

impl PodCondition {
    fn text(&self) -> String {
        format!("{}: {}", self.reason, self.message)
    }
}

impl PodStatus {
    /// Why the pod that was `created` then is not ready. The text is the same at each attempt: it contains no number of
    /// attempts, and no other time.
    pub(super) fn trouble(&self, created: ServerTime) -> Option<Arc<str>> {
        if condition(&self.conditions, "Ready", "True").is_some() {
            return None;
        }
        let of_containers = || {
            let mut init = self.init_container_statuses.iter().filter(|container| !container.ready);
            let in_init = init.find_map(|container| container.trouble("has not finished", created));
            let mut containers = self.container_statuses.iter().filter(|container| !container.ready);
            in_init
                .or_else(|| containers.find_map(|container| container.trouble("is not ready: see its probes", created)))
        };
        let trouble = match condition(&self.conditions, "PodScheduled", "False") {
            Some(scheduled) => scheduled.text(),
            None if self.are_containers_ready() => condition(&self.conditions, "Ready", "False")?.text(),
            // Its kubelet has not seen it, or is gone.
            None if self.phase == "Pending" && self.container_statuses.is_empty() => format!("Pending since {created}"),
            None => of_containers()?,
        };
        Some(cut(trouble.trim_end_matches(": "), MAX_TROUBLE)).filter(|trouble| !trouble.is_empty()).map(Arc::from)
    }

    /// Which container restarted, and how its previous run ended, or why the pod as a whole has failed. A pod that is
    /// being deleted fails before it is gone, and does not restart its containers.
    pub(super) fn crash(&self, is_deleted: bool) -> Option<Arc<str>> {
        // What a kubelet evicts alone has exceeded a limit of its own, and may have lost its container as well.
        let is_of_node = self.is_disrupted() || self.is_lost() && self.reason != "Evicted";
        let failure = if is_deleted || is_of_node { None } else { self.failure() };
        failure.or_else(|| self.container_statuses.iter().find_map(ContainerStatus::crash))
    }

    /// Why the pod has failed, for example because its kubelet has evicted it. A pod that its kubelet rejects has
    /// started no container, and says nothing about its content.
    fn failure(&self) -> Option<Arc<str>> {
        let mut containers = self.container_statuses.iter();
        let has_started = containers.any(|ContainerStatus { state, last_state, .. }| {
            state.running.is_some() || first_end([state, last_state]).is_some()
        });
        let reason = if self.reason.is_empty() { "a container has ended" } else { &self.reason };
        (self.phase == "Failed" && has_started).then(|| format!("failed: {reason}").into())
    }
}

impl ContainerStatus {
    /// Why the container is not ready; `runs_and` completes the reason of a running one. Leaves out messages of
    /// the runtime: they may quote an argument that comes from a ConfigMap.
    fn trouble(&self, runs_and: &str, created: ServerTime) -> Option<String> {
        let Self { name, image, restart_count, state, last_state, .. } = self;
        let failed =
            first_end([state, last_state]).filter(|terminated| terminated.exit_code != 0 || *restart_count > 0);
        match (&state.waiting, failed) {
            (_, Some(Terminated { exit_code, .. })) if *restart_count > 0 => {
                Some(format!("CrashLoopBackOff: container {name:?}, last exit code {exit_code}"))
            }
            (_, Some(Terminated { exit_code, .. })) => Some(format!("container {name:?} exited with code {exit_code}")),
            (Some(Waiting { reason, .. }), _) if matches!(&**reason, "ErrImagePull" | "ImagePullBackOff") => {
                Some(format!("ImagePullBackOff: image {image:?}"))
            }
            (Some(Waiting { reason, .. }), _) if reason.is_empty() => None,
            // The container has not been started yet: only time tells whether something is in the way.
            (Some(Waiting { reason, .. }), _) if CREATING.contains(&&**reason) => {
                Some(format!("{reason} since {created}"))
            }
            // The message names the missing object.
            (Some(Waiting { reason, message }), _) if reason == "CreateContainerConfigError" => {
                Some(format!("{reason}: {message}"))
            }
            (Some(Waiting { reason, .. }), _) => Some(format!("{reason}: container {name:?}")),
            (None, _) if state.running.is_some() => Some(format!("container {name:?} runs and {runs_and}")),
            (None, _) => None,
        }
    }

    /// How the previous run of a restarted container ended, with its termination message. Leaves out the message if
    /// the container did not start: the runtime wrote it and may quote an argument that comes from a ConfigMap.
    fn crash(&self) -> Option<Arc<str>> {
        let Self { name, restart_count, state, last_state, .. } = self;
        if *restart_count == 0 || self.is_lost() {
            return None;
        }
        let Some(Terminated { exit_code, reason, message }) = first_end([last_state, state]) else {
            return Some(format!("container {name:?} restarted").into());
        };
        let mut text = format!("container {name:?} restarted, last exit code {exit_code}");
        if !reason.is_empty() {
            text += &format!(" ({reason})");
        }
        let words: Vec<&str> = message.split_whitespace().collect();
        if !words.is_empty() && !matches!(&**reason, "StartError" | "ContainerCannotRun") {
            text += &format!(": {}", words.join(" "));
        }
        Some(cut(&text, MAX_TROUBLE).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(text: &str) -> PodStatus {
        serde_json::from_str(text).expect("a status")
    }

    #[test]
    fn a_pod_has_failed_as_a_whole_if_its_containers_had_started() {
        let crash = |text: &str| status(text).crash(false).map(|text| text.to_string());
        let ended = r#""containerStatuses":[{"name":"app","state":{"terminated":{"exitCode":137}}}]"#;
        let evicted = format!(r#"{{"phase":"Failed","reason":"Evicted",{ended}}}"#);
        assert_eq!(crash(&evicted).as_deref(), Some("failed: Evicted"));
        assert_eq!(
            crash(&format!(r#"{{"phase":"Failed",{ended}}}"#)).as_deref(),
            Some("failed: a container has ended")
        );
        assert_eq!(crash(&format!(r#"{{"phase":"Succeeded",{ended}}}"#)), None);
        let waiting = r#""containerStatuses":[{"name":"app","state":{"waiting":{"reason":"ContainerCreating"}}}]"#;
        for rejected in ["\"reason\":\"NodeAffinity\"", waiting] {
            assert_eq!(crash(&format!(r#"{{"phase":"Failed",{rejected}}}"#)), None, "{rejected}");
        }
        // Somebody drains its node, shuts it down, or deletes it, and it stops with an error.
        let disrupted =
            r#""conditions":[{"type":"DisruptionTarget","status":"True","reason":"EvictionByEvictionAPI"}]"#;
        for reason in [disrupted, r#""reason":"Terminated""#, r#""reason":"NodeShutdown""#] {
            let text = format!(r#"{{"phase":"Failed",{reason},{ended}}}"#);
            assert!(crash(&text).is_none() && status(&text).is_disrupted(), "{reason}");
        }
        let failed = format!(r#"{{"phase":"Failed",{ended}}}"#);
        assert!(status(&failed).crash(true).is_none() && !status(&failed).is_disrupted());
        let restarted =
            r#""containerStatuses":[{"name":"app","restartCount":1,"state":{"terminated":{"exitCode":1}}}]"#;
        assert!(status(&format!(r#"{{"phase":"Failed",{restarted}}}"#)).crash(true).is_some(), "it failed before that");
        let lost = restarted.replace(r#""exitCode":1"#, r#""exitCode":255,"reason":"Unknown""#);
        let of = |more: &str| status(&format!("{{{more}{lost}}}"));
        assert!(of("").crash(false).is_none() && of("").is_lost(), "its node has restarted");
        let failed = |reason: &str| of(&format!(r#""phase":"Failed","reason":"{reason}","#)).crash(false).is_some();
        assert_eq!((failed("UnexpectedAdmissionError"), failed("Evicted")), (false, true));
    }

    #[test]
    fn a_pod_that_is_not_ready_says_why() {
        let created = ServerTime::from_second(7);
        let trouble = |text: &str| status(text).trouble(created).map(|text| text.to_string());
        let container = |more: &str| {
            let container = format!(r#"{{"name":"app","image":"app:9","ready":false,{more}}}"#);
            trouble(&format!(r#"{{"containerStatuses":[{{"name":"b","ready":true}},{container}]}}"#))
        };
        let waiting = |reason: &str| {
            container(&format!(r#""state":{{"waiting":{{"reason":"{reason}","message":"the message"}}}}"#))
        };
        let unscheduled = r#"{"conditions":[{"type":"Ready","status":"False"},
            {"type":"PodScheduled","status":"False","reason":"Unschedulable","message":"0/1 nodes are available"}]}"#;
        assert_eq!(trouble(unscheduled).as_deref(), Some("Unschedulable: 0/1 nodes are available"));
        for reason in ["ErrImagePull", "ImagePullBackOff"] {
            assert_eq!(waiting(reason).as_deref(), Some(r#"ImagePullBackOff: image "app:9""#));
        }
        assert_eq!(waiting("CreateContainerConfigError").as_deref(), Some("CreateContainerConfigError: the message"));
        assert_eq!(waiting("RunContainerError").as_deref(), Some(r#"RunContainerError: container "app""#));
        for reason in ["ContainerCreating", "PodInitializing"] {
            assert_eq!(waiting(reason), Some(format!("{reason} since 1970-01-01T00:00:07Z")));
        }
        let unseen = trouble(r#"{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"True"}]}"#);
        assert_eq!(unseen.as_deref(), Some("Pending since 1970-01-01T00:00:07Z"));
        assert_eq!([waiting(""), trouble("{}")], [None, None]);
        let last = r#""lastState":{"terminated":{"exitCode":3}},"restartCount":2"#;
        for state in [r#"{"waiting":{"reason":"CrashLoopBackOff"}}"#, r#"{"running":{}}"#, "{}"] {
            let text = container(&format!(r#""state":{state},{last}"#));
            assert_eq!(text.as_deref(), Some(r#"CrashLoopBackOff: container "app", last exit code 3"#), "{state}");
        }
        let exited = container(r#""state":{"terminated":{"exitCode":1}}"#);
        assert_eq!(exited.as_deref(), Some(r#"container "app" exited with code 1"#));
        let running = container(r#""state":{"running":{}}"#);
        assert_eq!(running.as_deref(), Some(r#"container "app" runs and is not ready: see its probes"#));
        let init = r#"{"initContainerStatuses":[{"name":"init","ready":false,"state":{"terminated":{"exitCode":1}}}],
            "containerStatuses":[{"name":"app","ready":false,"state":{"waiting":{"reason":"PodInitializing"}}}]}"#;
        assert_eq!(trouble(init).as_deref(), Some(r#"container "init" exited with code 1"#));
        let waits = init.replace(r#""terminated":{"exitCode":1}"#, r#""running":{}"#);
        assert_eq!(trouble(&waits).as_deref(), Some(r#"container "init" runs and has not finished"#));
        let ready = r#"{"conditions":[{"type":"Ready","status":"True"},{"type":"PodScheduled","status":"False"}]}"#;
        assert_eq!(trouble(ready), None);
        let long = unscheduled.replace("0/1", &"0/1 ".repeat(200));
        assert_eq!(trouble(&long).map(|text| text.len()), Some(MAX_TROUBLE));
    }

    #[test]
    fn the_containers_of_a_pod_may_be_ready_although_the_pod_is_not() {
        let of = |condition: &str, containers: &str| {
            let pod = r#"{"type":"Ready","status":"False","reason":"ReadinessGatesNotReady","message":"no target"}"#;
            let status = status(&format!(r#"{{"conditions":[{pod}{condition}],"containerStatuses":[{containers}]}}"#));
            (status.are_containers_ready(), status.trouble(ServerTime::from_second(0)).map(|text| text.to_string()))
        };
        let containers_ready = |value: &str| format!(r#",{{"type":"ContainersReady","status":"{value}"}}"#);
        let (ready, unready) = (r#"{"name":"a","ready":true}"#, r#"{"name":"a"}"#);
        let why = Some("ReadinessGatesNotReady: no target".to_owned());
        for condition in [String::new(), containers_ready("True")] {
            assert_eq!(of(&condition, ready), (true, why.clone()));
        }
        let sidecar = of(&containers_ready("False"), ready);
        assert_eq!((sidecar.0, of("", &format!("{ready},{unready}")).0, of("", "").0), (false, false, false));
        let silent =
            status(r#"{"conditions":[{"type":"Ready","status":"False"}],"containerStatuses":[{"ready":true}]}"#);
        assert_eq!(silent.trouble(ServerTime::from_second(0)), None, "its node is cut off");
    }
}
