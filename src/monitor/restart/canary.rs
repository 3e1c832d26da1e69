//! The canary of a restart: how many more pods may go first, and whether their successors stay available.

use std::collections::BTreeSet;

use super::SKEW;
use crate::kube::{ServerTime, Uid};
use crate::monitor::pod::Pod;
use crate::monitor::spec::CanaryPolicy;
use crate::monitor::status::{Canary, CanaryState};

/// What a process knows of the canary.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CanarySight<'a> {
    pub(crate) canary: &'a Canary,
    /// When the restart began. Pods created earlier are not judged.
    pub(crate) since: ServerTime,
    /// The new pods that this process has seen ready.
    pub(crate) seen_ready: &'a BTreeSet<Uid>,
    /// A new pod that this process has seen fail. It may be gone.
    pub(crate) failed: Option<&'a Pod>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verdict {
    Replace(usize),
    /// Wait until a pod changes, or until this time.
    Wait(Option<ServerTime>),
    Becomes(CanaryState),
}

impl CanarySight<'_> {
    /// Judges by the new pods. `to_go` old pods are still to be deleted for the canary, and `left` remain whose owner would
    /// create a successor. `is_settled`: every successor of a deleted pod exists and is available.
    pub(super) fn judge(
        &self,
        policy: &CanaryPolicy,
        (to_go, left, is_settled): (usize, usize, bool),
        new: &[&Pod],
        now: ServerTime,
    ) -> Verdict {
        // The clocks of two API servers may differ.
        let is_judged = |pod: &&&Pod| pod.created.plus(SKEW) >= self.since;
        let new = || new.iter().filter(is_judged);
        if let Some(message) = self.failed.iter().filter(is_judged).chain(new()).find_map(|pod| self.failure(pod)) {
            return Verdict::Becomes(CanaryState::Failed { message });
        }
        if to_go > 0 {
            return Verdict::Replace(to_go);
        }
        if left > 0 && new().next().is_none() {
            // Somebody else has deleted the canary, for example by scaling down. Another pod must prove the content.
            return if is_settled { Verdict::Replace(1) } else { Verdict::Wait(None) };
        }
        let ready: Option<Vec<ServerTime>> = new().map(|pod| pod.ready_from()).collect();
        let Some(ready) = ready.filter(|_| is_settled) else { return Verdict::Wait(None) };
        let Some(last) = ready.into_iter().max().filter(|_| !policy.bake.is_zero()) else {
            return Verdict::Becomes(CanaryState::Passed);
        };
        let CanaryState::Baking { available_at } = self.canary.state else {
            return Verdict::Becomes(CanaryState::Baking { available_at: now });
        };
        let since = last.max(available_at);
        // Times are whole seconds, so one more second must have passed.
        let is_baked = now.since(since) > policy.bake;
        if is_baked { Verdict::Becomes(CanaryState::Passed) } else { Verdict::Wait(Some(since.plus(policy.bake))) }
    }

    /// Returns why a pod created since the restart began has failed. A container restart always counts: it is not part
    /// of starting up, and may be forgotten by the time all canaries are available. A pod that was never ready may
    /// still be starting. What somebody else does to a pod or to its node says nothing about the content.
    fn failure(&self, pod: &Pod) -> Option<String> {
        if let Some(crash) = &pod.crash {
            return Some(format!("pod {}: {crash}", pod.name));
        }
        let was_ready = match self.canary.state {
            // After a crash of the operator, only pods created before this time are known to have been ready, by clocks that
            // may differ.
            CanaryState::Baking { available_at } => pod.created.plus(SKEW) < available_at,
            _ => false,
        };
        let has_lost_it = (was_ready || self.seen_ready.contains(&pod.uid)) && !pod.may_serve();
        if pod.is_disrupted || !has_lost_it {
            return None;
        }
        let trouble = pod.trouble.as_ref().map_or(String::new(), |trouble| format!(": {trouble}"));
        Some(format!("pod {} was ready and is no longer ready{trouble}", pod.name))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::monitor::spec::PodCount;
    use std::num::NonZeroU32;

    const AVAILABLE: i64 = 100;

    fn at(second: i64) -> ServerTime {
        ServerTime::from_second(second)
    }

    fn pod(ready_since: Option<i64>) -> Pod {
        Pod { created: at(90), ready_since: ready_since.map(at), ..Pod::named("new") }
    }

    /// Judges a canary of one pod of two that must stay available for 10 s.
    fn judge(state: CanaryState, seen: bool, gone: usize, new: &[&Pod], now: i64) -> Verdict {
        let policy = CanaryPolicy { pods: PodCount::Pods(NonZeroU32::MIN), bake: Duration::from_secs(10) };
        let (canary, seen_ready) = (Canary { pods: 1, state }, seen.then(|| Uid::from("new")).into_iter().collect());
        let since = at(90);
        CanarySight { canary: &canary, since, seen_ready: &seen_ready, failed: None }.judge(
            &policy,
            (1 - gone, 1, true),
            new,
            at(now),
        )
    }

    fn baking() -> CanaryState {
        CanaryState::Baking { available_at: at(AVAILABLE) }
    }

    #[test]
    fn a_canary_is_replaced_then_bakes_then_passes() {
        let (starting, ready) = (pod(None), pod(Some(AVAILABLE)));
        let replacing = || CanaryState::Replacing;
        assert_eq!(judge(replacing(), false, 0, &[], 95), Verdict::Replace(1));
        assert_eq!(judge(replacing(), false, 1, &[&starting], 99), Verdict::Wait(None));
        assert_eq!(judge(replacing(), true, 1, &[&ready], AVAILABLE), Verdict::Becomes(baking()));
        assert_eq!(judge(baking(), true, 1, &[&ready], 101), Verdict::Wait(Some(at(110))));
        assert_eq!(judge(baking(), true, 1, &[&ready], 110), Verdict::Wait(Some(at(110))));
        let slow = pod(Some(AVAILABLE - 600));
        assert_eq!(
            judge(replacing(), true, 1, &[&slow], AVAILABLE),
            Verdict::Becomes(baking()),
            "the node's clock is slow"
        );
        assert_eq!(judge(baking(), true, 1, &[&slow], 101), Verdict::Wait(Some(at(110))));
        assert_eq!(judge(baking(), true, 1, &[&ready], 111), Verdict::Becomes(CanaryState::Passed));
    }

    #[test]
    fn a_canary_that_is_no_longer_ready_has_failed_and_one_that_is_not_ready_yet_has_not() {
        let failed = |verdict: &Verdict| matches!(verdict, Verdict::Becomes(CanaryState::Failed { .. }));
        let starting = Pod { trouble: Some("probe".into()), ..pod(None) };
        let seen = judge(CanaryState::Replacing, true, 0, &[&starting], 99);
        let CanaryState::Failed { message } = (match seen {
            Verdict::Becomes(state) => state,
            other => panic!("{other:?}"),
        }) else {
            panic!("it has not failed")
        };
        assert_eq!(message, "pod new was ready and is no longer ready: probe");
        let before = Pod { created: at(89), ..starting };
        assert!(failed(&judge(baking(), false, 1, &[&before], 105)), "after a crash of the operator");
        let cut_off = [Pod { are_containers_ready: true, ..before.clone() }, Pod { is_disrupted: true, ..before }];
        assert_eq!(
            cut_off.map(|pod| judge(baking(), true, 1, &[&pod], 105)),
            [Verdict::Wait(None), Verdict::Wait(None)]
        );
        let later = Pod { created: at(AVAILABLE), ..pod(None) };
        assert_eq!(
            judge(baking(), false, 1, &[&later], 105),
            Verdict::Wait(None),
            "somebody has deleted the first one"
        );
    }

    #[test]
    fn a_canary_with_a_restarted_container_has_failed() {
        let crashed = Pod { crash: Some("container \"app\" restarted".into()), ..pod(Some(AVAILABLE)) };
        let message = "pod new: container \"app\" restarted".to_owned();
        assert_eq!(judge(baking(), true, 1, &[&crashed], 120), Verdict::Becomes(CanaryState::Failed { message }));
    }

    /// A StatefulSet deletes it at once, and creates another one, which would bake in its place.
    #[test]
    fn a_canary_that_has_failed_and_is_gone_has_failed() {
        let policy = CanaryPolicy { pods: PodCount::Pods(NonZeroU32::MIN), bake: Duration::from_secs(10) };
        let (canary, seen_ready) = (Canary { pods: 1, state: baking() }, BTreeSet::new());
        let failed = |created| {
            let failed =
                Pod { created: at(created), crash: Some("failed: Evicted".into()), finished: true, ..pod(None) };
            let sight = CanarySight { canary: &canary, since: at(90), seen_ready: &seen_ready, failed: Some(&failed) };
            sight.judge(&policy, (0, 1, true), &[&pod(Some(AVAILABLE))], at(120))
        };
        let message = "pod new: failed: Evicted".to_owned();
        assert_eq!(failed(90), Verdict::Becomes(CanaryState::Failed { message }));
        assert_eq!(failed(79), Verdict::Becomes(CanaryState::Passed), "it is older than the restart");
    }

    #[test]
    fn pods_created_before_the_restart_are_not_judged() {
        let crashed = |created| Pod { created: at(created), crash: Some("crash".into()), ..pod(Some(AVAILABLE)) };
        let ready = pod(Some(AVAILABLE));
        assert_eq!(judge(baking(), false, 1, &[&crashed(79), &ready], 111), Verdict::Becomes(CanaryState::Passed));
        let verdict = judge(baking(), false, 1, &[&crashed(80)], 111);
        assert!(matches!(verdict, Verdict::Becomes(CanaryState::Failed { .. })), "by another clock");
    }

    #[test]
    fn a_canary_does_not_pass_while_pods_are_still_to_come() {
        let policy = CanaryPolicy { pods: PodCount::Pods(NonZeroU32::MIN), bake: Duration::ZERO };
        let (canary, seen_ready) = (Canary { pods: 1, state: CanaryState::Replacing }, BTreeSet::new());
        let judge = |is_settled, new: &[&Pod]| {
            let sight = CanarySight { canary: &canary, since: at(90), seen_ready: &seen_ready, failed: None };
            sight.judge(&policy, (0, 1, is_settled), new, at(AVAILABLE))
        };
        assert_eq!(judge(false, &[]), Verdict::Wait(None));
        assert_eq!(judge(true, &[&pod(Some(AVAILABLE))]), Verdict::Becomes(CanaryState::Passed), "nothing to wait for");
    }

    #[test]
    fn once_the_canary_is_gone_another_pod_goes_first_unless_none_is_left() {
        let policy = CanaryPolicy { pods: PodCount::Pods(NonZeroU32::MIN), bake: Duration::from_secs(10) };
        let (canary, seen_ready) = (Canary { pods: 1, state: baking() }, BTreeSet::new());
        let sight = CanarySight { canary: &canary, since: at(90), seen_ready: &seen_ready, failed: None };
        let judge = |left, is_settled| sight.judge(&policy, (0, left, is_settled), &[], at(111));
        assert_eq!((judge(1, true), judge(1, false)), (Verdict::Replace(1), Verdict::Wait(None)));
        assert_eq!(judge(0, true), Verdict::Becomes(CanaryState::Passed));
    }
}
