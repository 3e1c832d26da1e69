//! Many ConfigMaps that change within seconds.

use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use testenv::Proxy;
use testenv::fixture::{Fixture, share_proxy};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::audit::{Audit, Request};
use crate::contestants::{Contestant, Pods, limit};
use crate::ground::{self, all_ready, all_up_to_date, control_plane, edit_all, start_operator};
use crate::restarts::Case;
use crate::table;
use crate::usage::{Usage, mib};

const CASE: Case = Case {
    title: "A storm: 500 ConfigMaps change at once, 2 pods each",
    deployments: 500,
    replicas: 2,
    one_config_map: false,
    one_monitor: false,
    repetitions: 3,
};

pub(crate) async fn run() -> Result<()> {
    table::title(CASE.title);
    table::head(&["who", "last DELETE after, s", "requests per s", "all at rest after, s", "peak, MiB"]);
    let control_plane = control_plane().await?;
    let fixtures = [Fixture::new(&control_plane).await, Fixture::new(&control_plane).await];
    let proxy = share_proxy(&control_plane, &fixtures).await;
    for fixture in &fixtures {
        CASE.set_up(fixture).await?;
    }
    let (pods, known) = watch::channel(Pods::new());
    let limit = Some(limit(&proxy.url(), &fixtures[0], known).await?);
    let audit = ground::audit(&control_plane)?;
    let mut place = Place { proxy, audit, pods, limit };
    for repetition in 0..CASE.repetitions {
        let content = format!("content {repetition}");
        place.limit(&fixtures[0], &content).await?;
        place.operator(&fixtures[1], &content).await?;
    }
    Ok(())
}

struct Place {
    proxy: Proxy,
    audit: Audit,
    pods: watch::Sender<Pods>,
    limit: Option<Contestant>,
}

impl Place {
    async fn limit(&mut self, fixture: &Fixture, content: &str) -> Result<()> {
        self.pods.send_replace(CASE.by_config_map(&all_ready(fixture, CASE.pods()).await?));
        let requests = self.storm(fixture, content).await?;
        self.limit = self.limit.take().map(Contestant::check).transpose()?;
        show("limit", &requests, None)
    }

    async fn operator(&mut self, fixture: &Fixture, content: &str) -> Result<()> {
        let operator = start_operator(&self.proxy.url(), fixture, &[])?;
        operator.wait_for_message("synced").await?;
        all_up_to_date(fixture).await?;
        let mut requests = self.storm(fixture, content).await?;
        all_up_to_date(fixture).await?;
        sleep(Duration::from_secs(2)).await;
        requests.extend(self.audit.news(&fixture.namespace)?);
        show("operator", &requests, Some(Usage::of(operator.process().id())?))
    }

    /// Edits all ConfigMaps. Returns the requests in this namespace until the pods are replaced.
    async fn storm(&mut self, fixture: &Fixture, content: &str) -> Result<Vec<Request>> {
        let mut requests = edit_all(&mut self.audit, fixture, &CASE.config_maps(), content, CASE.pods()).await?;
        all_ready(fixture, CASE.pods()).await?;
        requests.extend(self.audit.news(&fixture.namespace)?);
        Ok(requests)
    }
}

fn show(who: &str, requests: &[Request], usage: Option<Usage>) -> Result<()> {
    let edits = requests.iter().filter(|request| request.is_edit());
    let first_edit = edits.map(|edit| edit.received).min().context("no edit")?;
    let of_contestant = || requests.iter().filter(|request| request.is_of_contestant());
    let first = of_contestant().map(|request| request.received).min().context("no request")?;
    let last = of_contestant().filter(|request| request.is_deletion()).map(|request| request.answered).max();
    let last = last.context("no deletion")?;
    let end = of_contestant().map(|request| request.answered).max().context("no request")?;
    let drained = of_contestant().filter(|request| request.answered <= last).count();
    let after_edit = |at: Timestamp| format!("{:.1}", at.duration_since(first_edit).as_secs_f64());
    table::row(&[
        who.to_owned(),
        after_edit(last),
        format!("{:.0}", drained as f64 / last.duration_since(first).as_secs_f64()),
        after_edit(end),
        usage.map(|usage| format!("{:.1}", mib(usage.peak))).unwrap_or_default(),
    ]);
    Ok(())
}
