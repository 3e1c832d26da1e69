//! Feeds the events of the watches to the index, and the changes of the index to one keeper per ConfigMonitor.

mod clock;
mod keeper;
mod keepers;
mod latest;
mod limits;
mod owners;
mod shared;
mod surge_task;
mod watching;

use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;
use tracing::info;

use self::clock::timer_now;
use self::keepers::Keepers;
use self::limits::Limits;
pub use self::shared::Settings;
use self::watching::{Dispatcher, Watches};
pub use self::watching::{Excluded, NamespaceSelector, Namespaces, Readiness};
use crate::kube::client::Client;

/// Runs until the client is stopped, and reports in `readiness` what the watches say. Until `elected` is cancelled, only
/// watches are open.
pub async fn run(
    client: Client,
    namespaces: Namespaces,
    settings: Settings,
    readiness: Readiness,
    elected: CancellationToken,
) {
    let client = namespaces.divide(client);
    let mut dispatcher = Dispatcher::new(client.clone(), namespaces, settings, Limits::new(elected));
    let mut watches = Watches::new(client.clone(), readiness.clone());
    watches.set(&dispatcher.scopes());
    let mut keepers = Keepers::new(client.clone());
    let (mut is_complete, mut watches_changed) = (false, false);
    loop {
        let relist_due = dispatcher.relist_due();
        tokio::select! {
            biased;
            () = client.stop().cancelled() => break,
            Some(_) = keepers.tasks.join_next() => {}
            (scope, update) = watches.next() => {
                let (others, changes) = dispatcher.handle(&scope, update, timer_now());
                if !is_complete && readiness.why_not_ready().is_none() {
                    is_complete = true;
                    info!(config_monitors = dispatcher.config_monitors(), "synced");
                }
                changes.into_iter().for_each(|changes| keepers.apply(changes));
                watches_changed |= others;
            }
            // Last, after all pending updates: one list may name thousands of Secrets.
            () = std::future::ready(()), if watches_changed => {
                watches.set(&dispatcher.scopes());
                watches_changed = false;
            }
            () = sleep_until(relist_due.unwrap_or_else(timer_now).into()), if relist_due.is_some() => {
                dispatcher.relist(timer_now()).iter().for_each(|scope| watches.close(scope));
                watches.set(&dispatcher.scopes());
            }
        }
    }
    dispatcher.limits.close();
    keepers.shut_down().await;
}
