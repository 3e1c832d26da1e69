//! The demo on a real node: edit the ConfigMap, and the page shows the new content.

use crate::lab::{Pages, lab};

/// The number of repetitions of steps that may fail now and then.
const TIMES: usize = 10;

#[tokio::test]
async fn an_edit_shows_on_the_page_in_new_pods_ten_times_in_a_row() {
    let lab = lab().await;
    let mut before = lab.shows(&lab.edit().await).await;
    for _ in 0..TIMES {
        let message = lab.edit().await;
        let after = lab.shows(&message).await;
        assert!(all_new(&before, &after), "{before:?}, {after:?}");
        lab.service_shows(&message).await;
        before = after;
    }
}

/// Returns whether no page comes from a pod that is one of `before`.
fn all_new(before: &Pages, after: &Pages) -> bool {
    after.values().all(|(uid, _)| !before.values().any(|(old, _)| old == uid))
}
