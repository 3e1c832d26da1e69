//! `wait`: until the pods run with the content as of now.

use std::collections::BTreeMap;
use std::time::Duration;

use configmonitor_operator::kube::client::Client;
use tokio::time::{Instant, sleep};

use crate::monitors::Monitor;
use crate::options::{Limit, Wait};
use crate::outcome::Failure;
use crate::text::{in_one_line, print, say};
use crate::verdict::Verdict;

/// How long a source may be missing that another tool is about to create.
const PATIENCE: Duration = Duration::from_secs(60);
/// The time between two looks.
const PAUSE: Duration = Duration::from_secs(1);

pub(crate) async fn run(client: &Client, wait: &Wait) -> Result<(), Failure> {
    let mut monitors = match &wait.name {
        Some(name) => vec![Monitor::read(client, name).await?],
        None => Monitor::all(client).await?,
    };
    monitors.retain(|monitor| wait.for_source.as_ref().is_none_or(|source| monitor.may_have(source)));
    if monitors.is_empty() {
        let (namespace, name) =
            (client.namespace(), wait.name.iter().map(|name| format!(" {name:?}")).collect::<String>());
        let with = wait.for_source.as_ref().map_or(String::new(), |source| format!(" with the source {source}"));
        return Err(Failure::Failed(format!("no ConfigMonitor{name}{with} in namespace {namespace:?}")));
    }
    let names: Vec<String> = monitors.iter().map(|monitor| monitor.metadata.name.to_string()).collect();
    until_done(client, &names, &wait.limit).await
}

/// Waits until all are done, and says of each what it waits for. The first that cannot be waited for ends it.
pub(crate) async fn until_done(client: &Client, names: &[String], limit: &Limit) -> Result<(), Failure> {
    let began = Instant::now();
    let deadline = began + limit.timeout;
    let mut left: BTreeMap<&String, String> = names.iter().map(|name| (name, String::new())).collect();
    loop {
        let mut done = Vec::new();
        for (name, said) in &mut left {
            let about = |why: &str| format!("ConfigMonitor {name:?}: {}", in_one_line(why));
            let verdict = match look(client, name).await {
                Err(Failure::Away(why)) => Verdict::NotYet(why),
                looked => looked?,
            };
            match verdict {
                Verdict::Done => done.push(*name),
                Verdict::Failed(why) => return Err(Failure::Failed(about(&why))),
                Verdict::Stalled(why) => return Err(Failure::Stalled(about(&why))),
                Verdict::Held(why) => return Err(Failure::Held(about(&why))),
                Verdict::Missing(why) if began.elapsed() >= PATIENCE => return Err(Failure::Failed(about(&why))),
                Verdict::NotYet(why) | Verdict::Missing(why) if why != *said => {
                    say(about(&why));
                    *said = why;
                }
                Verdict::NotYet(_) | Verdict::Missing(_) => {}
            }
        }
        for name in done {
            left.remove(name);
            print(format_args!("configmonitor/{name} has its content\n"))?;
        }
        let Some((name, why)) = left.first_key_value() else { return Ok(()) };
        let remains = deadline.saturating_duration_since(Instant::now());
        if remains.is_zero() {
            return Err(Failure::TimedOut(format!("timed out: ConfigMonitor {name:?}: {why}")));
        }
        sleep(PAUSE.min(remains)).await;
    }
}

async fn look(client: &Client, name: &str) -> Result<Verdict, Failure> {
    let monitor = Monitor::read(client, name).await?;
    let contents = monitor.contents(client).await?;
    let has_pods = monitor.has_pods(client).await?;
    Ok(Verdict::of(&monitor, &contents, has_pods))
}
