//! A real Prometheus on loopback, and promtool.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use reqwest::Url;
use serde_json::{Value, json};

use crate::binaries::tool;
use crate::client::{Client, DEADLINE, eventually};
use crate::process::{Process, output};
use crate::run_dir::RunDir;

/// What Prometheus logs, before its address, once it listens.
const LISTENING: &str = "msg=\"Listening on\"";

/// Scrapes every second, and evaluates its rules as often.
const CONFIG: &str = "
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: [rules.yml]
scrape_configs:
  - job_name: configmonitor-operator
    honor_labels: true
    file_sd_configs: [{files: [targets.json], refresh_interval: 1s}]
";

/// A running Prometheus, killed when this value is dropped.
#[derive(Debug)]
pub struct Prometheus {
    // Dropped before the folder that holds its files.
    process: Process,
    client: Client,
    dir: RunDir,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The labels, with the name.
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

impl Prometheus {
    /// Builds the program if necessary, starts it with these rules (a file of rules, as text), and waits until it is
    /// ready. It scrapes nothing yet.
    pub async fn start(rules: &str) -> Result<Self> {
        let dir = RunDir::create()?;
        fs::write(dir.path().join("config.yml"), CONFIG)?;
        fs::write(dir.path().join("rules.yml"), rules)?;
        fs::write(dir.path().join("targets.json"), "[]")?;
        let mut command = Command::new(tool("prometheus").await?);
        command.current_dir(dir.path()).args([
            "--config.file=config.yml",
            "--storage.tsdb.path=data",
            "--web.listen-address=127.0.0.1:0",
            // Otherwise targets are first scraped after 5 s.
            "--scrape.discovery-reload-interval=100ms",
        ]);
        let process = Process::start(&command, &dir.path().join("prometheus.log"))?;
        let line = process.wait_for_line(LISTENING, DEADLINE).await?;
        let (_, address) = line.rsplit_once("address=").with_context(|| format!("no address: {line}"))?;
        let client = Client::new(&format!("http://{}", address.trim()));
        let ready = eventually("Prometheus is ready", DEADLINE, async || client.get("/-/ready").await?.ok());
        tokio::select! {
            ready = ready => ready?,
            _ = process.ended() => return Err(process.failure("does not run")),
        };
        Ok(Self { process, client, dir })
    }

    /// Scrapes these addresses (`http://HOST:PORT`) from now on, each with these labels. Takes about a second.
    pub fn scrape(&self, targets: &[(String, Value)]) -> Result<()> {
        let targets: Vec<Value> = targets
            .iter()
            .map(|(url, labels)| json!({"targets": [url.trim_start_matches("http://")], "labels": labels}))
            .collect();
        let unfinished = self.dir.path().join("targets.unfinished");
        fs::write(&unfinished, Value::from(targets).to_string())?;
        Ok(fs::rename(unfinished, self.dir.path().join("targets.json"))?)
    }

    pub async fn query(&self, query: &str) -> Result<Vec<Sample>> {
        let mut url = Url::parse("http://prometheus/api/v1/query")?;
        url.query_pairs_mut().append_pair("query", query);
        let path = format!("{}?{}", url.path(), url.query().unwrap_or_default());
        let answer = self.client.get(&path).await?;
        let data = &answer.body["data"];
        ensure!(answer.body["status"] == "success", "{query}: {}", answer.body);
        // A scalar is a pair by itself.
        let scalar = [json!({"metric": {}, "value": data["result"]})];
        let series = if data["resultType"] == "scalar" {
            &scalar[..]
        } else {
            data["result"].as_array().context("no result")?
        };
        series.iter().map(Sample::of).collect()
    }

    /// Returns the alerts, each with its `state` and `health`.
    pub async fn alerts(&self) -> Result<Vec<Value>> {
        let answer = self.client.get("/api/v1/rules?type=alert").await?.ok()?;
        let groups = answer["data"]["groups"].as_array().context("no groups")?;
        Ok(groups.iter().flat_map(|group| group["rules"].as_array().cloned().unwrap_or_default()).collect())
    }

    pub fn process(&self) -> &Process {
        &self.process
    }
}

impl Sample {
    pub fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or("", String::as_str)
    }

    fn of(series: &Value) -> Result<Self> {
        let labels = serde_json::from_value(series["metric"].clone())?;
        let value = series["value"][1].as_str().with_context(|| format!("no value: {series}"))?;
        Ok(Self { labels, value: value.parse()? })
    }
}

/// Runs promtool in a folder, with the text of a file of that folder as its input.
pub async fn promtool(folder: &Path, arguments: &[&str], input: &str) -> Result<Output> {
    let mut command = Command::new("sh");
    let redirect = r#"exec "$@" < "$0""#;
    command.current_dir(folder).args(["-c", redirect, input]).arg(tool("promtool").await?).args(arguments);
    output(&command).await
}
