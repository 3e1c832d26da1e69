//! The longest poll: for how long one task keeps all others from running, whatever users write.
//!
//! `/livez` is answered between two polls. While a probe waits for its answer, the thread has run for at least as long
//! as the poll that was under way.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use futures_util::future::try_join_all;
use serde_json::json;
use testenv::fixture::{Fixture, share_proxy};
use tokio::time::sleep;

use crate::ground::{all_ready, all_up_to_date, config_map, control_plane, create_all, monitor, start_operator};
use crate::table;
use crate::usage::cpu_of_thread;

const PAUSE: Duration = Duration::from_millis(1);
/// Each case takes this long.
const TIME: Duration = Duration::from_secs(15);

const MONITORS: usize = 20;
/// The most sources of a ConfigMonitor. The probe would wait for the polls of more such ConfigMonitors, one after the
/// other.
const SOURCES: usize = 16;
const OF_ALL: usize = 2;
/// The most windows of a ConfigMonitor. The search takes longest for those that open on a leap day only.
const WINDOWS: usize = 16;
const SCHEDULE: &str = "59 23 29 2 *";
/// The most that fits into a ConfigMap.
const SIZE: usize = 1_000_000;
const PODS: usize = 500;

pub(crate) async fn run() -> Result<()> {
    table::title("The longest poll, in ms of CPU");
    table::head(&["what happens", "longest"]);
    let control_plane = control_plane().await?;
    let fixture = Fixture::new(&control_plane).await;
    let proxy = share_proxy(&control_plane, std::slice::from_ref(&fixture)).await;
    fixture.create_deployment("many", PODS, &json!({"app": "many"})).await;
    all_ready(&fixture, PODS).await?;
    let large = || (0..SOURCES).map(|nth| format!("large-{nth}"));
    let names = large().chain(["held".to_owned(), "many".to_owned()]);
    let with_all_keys = |name: String| {
        let mut config_map = config_map(&name, "0");
        (0..OF_ALL).for_each(|nth| config_map["data"][key(nth)] = "".into());
        config_map
    };
    create_all(&fixture, "configmaps", names.map(with_all_keys)).await?;
    let held = (0..MONITORS).map(|nth| {
        let mut held = monitor(&format!("held-{nth}"), "held", "many");
        held["spec"]["windows"] = vec![json!({"schedule": SCHEDULE, "durationSeconds": 60}); WINDOWS].into();
        held
    });
    // Each with a selection of keys of its own, which none can hash for the others.
    let all_large = (0..OF_ALL).map(|nth| {
        let mut monitor = monitor(&format!("large-{nth}"), "", "nobody");
        let keys = ["config.cfg".to_owned(), key(nth)];
        let sources = large().map(|name| json!({"configMap": {"name": name, "keys": keys}}));
        monitor["spec"]["sources"] = sources.collect();
        monitor["spec"].as_object_mut().map(|spec| spec.remove("configMap"));
        monitor
    });
    let many = monitor("many", "many", "many");
    create_all(&fixture, "configmonitors", held.chain(all_large).chain([many])).await?;
    let operator = start_operator(&proxy.url(), &fixture, &[])?;
    operator.wait_for_message("synced").await?;
    all_up_to_date(&fixture).await?;
    let (url, process) = (operator.url().await?, operator.process().id());
    // What is edited, how large the content is, and how often it is edited.
    let cases = [
        ("nothing", Vec::new(), 0, 1),
        ("other content twice a second, 20 ConfigMonitors with 16 windows each", vec!["held".to_owned()], 10, 30),
        ("other content of 16 ConfigMaps of 1 MB, 2 ConfigMonitors of all of them", large().collect(), SIZE, 3),
        ("a restart of 500 pods", vec!["many".to_owned()], 10, 1),
    ];
    for (what, edited, size, times) in cases {
        let probe = Probe::start(&url, process)?;
        for nth in 0..times {
            let patch = json!({"data": {"config.cfg": format!("{nth}{}", "x".repeat(size))}});
            let edits = edited.iter().map(|name| async {
                fixture.client.merge_patch(&fixture.path("configmaps", name), &patch).await?.ok().map(drop)
            });
            try_join_all(edits).await?;
            sleep(TIME / times).await;
        }
        table::row(&[what.to_owned(), format!("{:.1}", probe.stop()?.as_secs_f64() * 1000.0)]);
    }
    Ok(())
}

fn key(nth: usize) -> String {
    format!("key-{nth}")
}

/// A thread that asks for `/livez` all the time.
struct Probe {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Result<Duration>>,
}

impl Probe {
    fn start(url: &str, process: u32) -> Result<Self> {
        let address = url.strip_prefix("http://").context("no address")?.to_owned();
        let request = format!("GET /livez HTTP/1.1\r\nHost: {address}\r\n\r\n");
        let is_over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let mut longest = Duration::ZERO;
            while !until.load(Ordering::Relaxed) {
                // The operator closes the connection after its answer.
                let mut stream = TcpStream::connect(&address)?;
                let before = cpu_of_thread(process, process)?;
                stream.write_all(request.as_bytes())?;
                let read = stream.read(&mut [0; 1024])?;
                ensure!(read > 0, "the operator has not answered");
                longest = longest.max(cpu_of_thread(process, process)? - before);
                thread::sleep(PAUSE);
            }
            Ok(longest)
        });
        Ok(Self { is_over, thread })
    }

    /// Returns the most CPU time that the operator used while a probe waited.
    fn stop(self) -> Result<Duration> {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the probe panicked"))?
    }
}
