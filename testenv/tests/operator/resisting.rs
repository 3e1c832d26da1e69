//! A pod that does not terminate holds up no pods of other owners, and the message names it.

use serde_json::json;
use testenv::{DEADLINE, eventually};

use crate::test_namespace::TestNamespace;
use testenv::fixture::{APP, NAME, condition};

#[tokio::test]
async fn a_pod_whose_deletion_is_refused_is_named_and_goes_last() {
    let (ns, observer) = TestNamespace::observed(0).await;
    for of in ["one", "two"] {
        ns.deployment(of, 3, json!({"app": NAME, "of": of})).await;
    }
    let before = ns.pods(APP).await;
    let (resists, _) = ns.pods("of=one").await.pop_first().unwrap();
    let refusal = ns.refuse_deletion(&resists).await;
    let _operator = ns.operator().await;
    ns.monitor(NAME, json!({"maxUnavailable": 1})).await;
    ns.edit(NAME, "two").await;
    eventually("all others are replaced", DEADLINE, async || {
        let now = ns.pods(APP).await;
        let left: Vec<&String> = now.keys().filter(|name| before.contains_key(*name)).collect();
        anyhow::ensure!(now.len() == 6 && left == [&resists], "left: {left:?}, of {now:?}");
        Ok(())
    })
    .await
    .unwrap();
    let refused = ns.messages_have(&[&resists, "not for now"]).await;
    assert_eq!(condition(&refused, "Ready")["reason"], "DeletionRefused");
    // The first deletion may have been in order, and after that all others go first.
    let deletions = ns.sent_deletions();
    let others_end = deletions.iter().rposition(|name| *name != resists).unwrap();
    assert!(deletions[..others_end].iter().filter(|name| **name == resists).count() <= 1, "{resists}: {deletions:?}");

    refusal.lift().await;
    let settled = ns.settled(NAME, "UpToDate").await;
    ns.replaced(APP, &before).await;
    let seen = observer.end(&settled).await;
    assert_eq!((seen.most_missing(), seen.gone().len()), (1, 6));
}
