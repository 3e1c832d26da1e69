//! What happens to a restart when the content changes in the middle of it, for both kinds: all at once and rolling.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use testenv::Operator;
use tokio::time::sleep;

use crate::refusal::{Refusal, not_ready, wait_for_not_ready};
use crate::test_namespace::TestNamespace;
use testenv::fixture::{APP, NAME};

/// All at once, or rolling with a budget of one.
const KINDS: [Kind; 2] = [Kind::AllAtOnce, Kind::Rolling];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    AllAtOnce,
    Rolling,
}

/// A restart that is held in its middle. All at once: no pod may be deleted. Rolling: one pod has gone, and its
/// successor does not get Ready.
struct Held<'a> {
    ns: &'a TestNamespace,
    operator: Operator,
    refusal: Option<Refusal<'a>>,
    before: BTreeMap<String, String>,
}

impl<'a> Held<'a> {
    /// Restarts the existing pods.
    async fn begin(ns: &'a TestNamespace, kind: Kind) -> Self {
        let operator = ns.operator().await;
        let before = ns.pods(APP).await;
        let refusal = match kind {
            Kind::AllAtOnce => {
                ns.monitor(NAME, json!({})).await;
                ns.revoke("pods", "delete").await;
                None
            }
            Kind::Rolling => {
                ns.monitor(NAME, json!({"maxUnavailable": 1})).await;
                Some(ns.keep_new_pods_from_getting_ready().await)
            }
        };
        ns.edit(NAME, "two").await;
        match kind {
            Kind::AllAtOnce => drop(ns.settled(NAME, "Forbidden").await),
            Kind::Rolling => drop(wait_for_not_ready(ns, 1).await),
        }
        Self { ns, operator, refusal, before }
    }

    /// Removes the obstacle.
    async fn release(self) -> (Operator, BTreeMap<String, String>) {
        match self.refusal {
            Some(refusal) => refusal.lift_for_all().await,
            None => self.ns.grant("pods", "delete").await,
        }
        (self.operator, self.before)
    }
}

#[tokio::test]
async fn new_content_supersedes_a_restart_and_replaces_the_pods_that_it_created() {
    for kind in KINDS {
        let (ns, observer) = TestNamespace::observed(3).await;
        let held = Held::begin(&ns, kind).await;
        let with_two = ns.pods(APP).await;
        ns.edit(NAME, "three").await;
        let (_operator, before) = held.release().await;
        let settled = ns.settled(NAME, "UpToDate").await;
        let results: Vec<&Value> =
            settled["status"]["history"].as_array().unwrap().iter().map(|entry| &entry["result"]).collect();
        assert_eq!(results, ["Completed", "Superseded"], "{kind:?}");
        ns.replaced(APP, &with_two).await;
        ns.replaced(APP, &before).await;
        let most = observer.end(&settled).await.most_missing();
        assert!(kind == Kind::AllAtOnce || most == 1, "{kind:?}: {most}");
    }
}

/// Of the earlier pods none has gone all at once, and one has gone rolling.
#[tokio::test]
async fn a_revert_replaces_only_the_pods_that_the_restart_created() {
    for kind in KINDS {
        let (ns, observer) = TestNamespace::observed(3).await;
        // Creation times and the times of contents are whole seconds.
        sleep(Duration::from_secs(3)).await;
        let held = Held::begin(&ns, kind).await;
        let brought = not_ready(&ns).await;
        ns.edit(NAME, "one").await;
        let (_operator, _) = held.release().await;
        let settled = ns.settled(NAME, "UpToDate").await;
        ns.ready_pods(APP, 3).await;
        let seen = observer.end(&settled).await;
        let after: Vec<String> = seen.gone().iter().skip(brought.len()).map(|gone| gone.name.clone()).collect();
        assert_eq!(after, brought, "{kind:?}");
    }
}
