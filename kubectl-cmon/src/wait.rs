//! `wait`: until the pods run with the content as of now.

use std::time::Duration;

use configmonitor_operator::kube::client::Client;
use configmonitor_operator::kube::error::{Cause, Error};
use tokio::time::{Instant, sleep};

use crate::monitors::Monitor;
use crate::options::{Patience, Wait};
use crate::outcome::Failure;
use crate::verdict::Verdict;

/// The time between two looks.
const PAUSE: Duration = Duration::from_secs(1);

pub(crate) async fn run(client: &Client, wait: &Wait) -> Result<(), Failure> {
    if let Some(name) = &wait.name {
        return until_done(client, std::slice::from_ref(name), &wait.patience).await;
    }
    let mut monitors = Monitor::all(client).await?;
    monitors.retain(|monitor| wait.for_source.as_ref().is_none_or(|source| monitor.has(source)));
    if monitors.is_empty() {
        let namespace = client.namespace();
        let with = wait.for_source.as_ref().map_or(String::new(), |source| format!(" with the source {source}"));
        return Err(Failure::Failed(format!("no ConfigMonitor{with} in namespace {namespace:?}")));
    }
    let names: Vec<String> = monitors.iter().map(|monitor| monitor.metadata.name.to_string()).collect();
    until_done(client, &names, &wait.patience).await
}

async fn look(client: &Client, name: &str) -> Result<Verdict, Error> {
    let monitor = Monitor::read(client, name).await?;
    let contents = monitor.contents(client).await?;
    Ok(Verdict::of(&monitor, &contents))
}

/// Waits for each of them, and says so. The first that cannot be waited for ends it.
pub(crate) async fn until_done(client: &Client, names: &[String], patience: &Patience) -> Result<(), Failure> {
    let deadline = Instant::now() + patience.timeout;
    for name in names {
        let mut said = String::new();
        loop {
            let about = |why: String| format!("ConfigMonitor {name:?}: {why}");
            let verdict = match look(client, name).await {
                Ok(verdict) => verdict,
                // The API server may be away for a while.
                Err(error) if matches!(error.cause, Cause::Unreachable(_) | Cause::Busy(_)) => {
                    Verdict::NotYet(error.to_string())
                }
                Err(error) => return Err(error.into()),
            };
            match verdict {
                Verdict::Done => break,
                Verdict::Failed(why) => return Err(Failure::Failed(about(why))),
                Verdict::Stalled(why) => return Err(Failure::Stalled(about(why))),
                Verdict::Held(why) => return Err(Failure::Held(about(why))),
                Verdict::NotYet(why) if Instant::now() >= deadline => {
                    return Err(Failure::TimedOut(format!("timed out: {}", about(why))));
                }
                Verdict::NotYet(why) => {
                    if why != said {
                        eprintln!("{}", about(why.clone()));
                        said = why;
                    }
                }
            }
            sleep(PAUSE.min(deadline.saturating_duration_since(Instant::now()))).await;
        }
        println!("configmonitor/{name} has its content");
    }
    Ok(())
}
