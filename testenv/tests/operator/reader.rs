//! Whoever follows the documentation: runs the commands of the pages, and what they print is what the pages say.

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;
use testenv::fixture::file;
use testenv::pages::{Section, Step, blocks};
use testenv::process::printed;
use testenv::{ControlPlane, DEADLINE, RunDir, binaries, eventually};

use crate::recipes::Kitchen;

/// A shell in the folder that holds the clone, with kubectl and the rights of the administrator.
pub(crate) struct Reader {
    dir: RunDir,
    path: String,
    variables: Vec<(String, String)>,
    /// What stands for what in the commands.
    placeholders: Vec<(String, String)>,
}

/// What does not depend on when, and of which pods, it is said.
fn shape(text: &str) -> Vec<&str> {
    let depends = |word: &str| {
        let (digits, hyphens) = (word.contains(|c: char| c.is_ascii_digit()), word.matches('-').count());
        let is_age = word.ends_with(['s', 'm', 'h', 'd']) && word.starts_with(|c: char| c.is_ascii_digit());
        hyphens > 1 || (digits && (hyphens > 0 || word.contains(':') || is_age))
    };
    text.split_whitespace().map(|word| if depends(word) { "..." } else { word }).collect()
}

impl Reader {
    /// A reader whose commands go to this namespace.
    pub(crate) async fn new(control_plane: &ControlPlane, namespace: &str) -> Self {
        let (dir, kubectl) = (RunDir::create().unwrap(), control_plane.kubectl());
        let kubeconfig = kubectl.ok(&["config", "view", "--raw", "--flatten"]).await.unwrap();
        fs::write(dir.path().join("kubeconfig"), kubeconfig).unwrap();
        symlink(fs::canonicalize(file("")).unwrap(), dir.path().join("configmonitor-operator")).unwrap();
        // kubectl finds the plugin beside the operator.
        let operator = testenv::operator::binary().unwrap();
        let folder = |program: &Path| program.parent().unwrap().to_owned();
        let programs = [dir.path().to_owned(), folder(kubectl.program()), folder(&operator)];
        let others = env::var_os("PATH").unwrap();
        let path = env::join_paths(programs.into_iter().chain(env::split_paths(&others))).unwrap();
        let path = path.into_string().unwrap();
        let mut reader = Self { dir, path, variables: Vec::new(), placeholders: Vec::new() };
        reader.run(&format!("kubectl config set-context --current --namespace {namespace}")).await.unwrap();
        reader
    }

    /// The same with Helm 4.
    pub(crate) async fn with_helm(mut self) -> Self {
        let helm = binaries::tool("helm").await.unwrap();
        self.path = format!("{}:{}", helm.parent().unwrap().to_str().unwrap(), self.path);
        self
    }

    /// From now on a command that contains this text is run with the other one.
    pub(crate) fn replace(&mut self, text: &str, other: &str) {
        self.placeholders.retain(|(earlier, _)| earlier != text);
        self.placeholders.push((text.to_owned(), other.to_owned()));
    }

    /// From now on each program has this variable.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.variables.push((name.to_owned(), value.to_owned()));
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs a command and returns what it prints.
    pub(crate) async fn run(&mut self, line: &str) -> Result<String> {
        let line = self.placeholders.iter().fold(line.to_owned(), |line, (text, other)| line.replace(text, other));
        let is_name = |name: &&str| name.chars().all(|c| c.is_alphanumeric() || c == '_');
        let assigned = line.split_once('=').map(|(name, _)| name).filter(is_name).map(str::to_owned);
        let script = assigned.as_ref().map_or(line.clone(), |name| format!("{line} && printf %s \"${name}\""));
        let mut command = Command::new("sh");
        command.args(["-c", &script]).env("PATH", &self.path).env("HOME", self.dir.path()).env("KUBERC", "off");
        command.env("KUBECONFIG", self.file("kubeconfig")).envs(self.variables.iter().cloned());
        let text = printed(command.current_dir(self.dir.path())).await?;
        let Some(name) = assigned else { return Ok(text) };
        self.variables.push((name, text));
        Ok(String::new())
    }

    /// Applies this, unless a field of it is unknown.
    pub(crate) async fn apply(&mut self, yaml: &str) {
        fs::write(self.file("applied.yaml"), yaml).unwrap();
        self.run("kubectl apply --validate=strict --filename applied.yaml").await.unwrap();
    }

    /// Runs the commands, and compares what they print where the page shows that.
    pub(crate) async fn follow(&mut self, steps: impl IntoIterator<Item = &Step>) {
        for step in steps {
            step.record_run();
            if step.prints.is_empty() {
                self.run(&step.command).await.unwrap();
            } else {
                self.prints(&step.command, &step.prints).await;
            }
        }
    }

    /// Runs a command that prints this. One that only reads is run until it does.
    async fn prints(&mut self, command: &str, text: &str) {
        let patience = if command.starts_with("kubectl get") { DEADLINE } else { Duration::ZERO };
        eventually(&format!("{command} prints what it should"), patience, async || {
            let printed = self.run(command).await.unwrap();
            ensure!(shape(&printed) == shape(text), "{printed}");
            Ok(())
        })
        .await
        .unwrap();
    }
}

/// The page that the README leads to first.
#[tokio::test]
async fn whoever_follows_the_first_page_sees_a_restart_after_an_edit() {
    let mut kitchen = Kitchen::with(&[]).await;
    for section in Section::all_of("docs/five-fields.md").unwrap() {
        fs::write(kitchen.reader.file("web.yaml"), &section.yaml[0]).unwrap();
        kitchen.reader.follow(section.steps()).await;
    }
}

/// The pages that say where to look. Their commands are run one after the other, where there is something to see.
#[tokio::test]
async fn whoever_looks_at_what_the_pages_name_finds_it() {
    let mut kitchen = Kitchen::with(&[("shop", 3)]).await;
    let namespace = kitchen.ns.namespace.clone();
    let (ns, reader) = (&kitchen.ns, &mut kitchen.reader);
    for folder in ["deploy", "demo-app"] {
        reader.run(&format!("kubectl apply -k configmonitor-operator/{folder}")).await.unwrap();
    }
    reader.run("kubectl apply -f configmonitor-operator/deploy/secrets/role/role.yml").await.unwrap();
    let pods = ns.ready_pods("app=frontend", 3).await;
    ns.settled("flakapp-config-monitor", "UpToDate").await;
    let readme = fs::read_to_string(file("README.md")).unwrap();
    let table = blocks(&readme, "console").into_iter().find(|block| block.starts_with("NAME ")).unwrap();
    let readme = Section::of("README.md", "ConfigMonitor operator").unwrap();
    reader.apply(&readme.yaml[0]).await;
    ns.settled("frontend", "UpToDate").await;
    reader.follow(readme.steps()).await;
    ns.replaced("app=frontend", &pods).await;

    let sources = json!([{"configMap": {"name": "shop-config"}}, {"configMap": {"name": "shop-logging", "optional": true}},
        {"secret": {"name": "shop", "optional": true}}]);
    ns.create_monitor("shop", json!({"configMap": null, "sources": sources, "podSelector": {"app": "shop"}})).await;
    for (text, other) in [
        ("NAMESPACE", &*namespace),
        ("OPERATOR_NS", &namespace),
        ("configmap NAME", "configmap shop-config"),
        ("SOURCE", "shop-config"),
        ("NAME", "shop"),
        ("POD", ns.ready_pods("app=shop", 3).await.first_key_value().unwrap().0),
    ] {
        reader.replace(text, other);
    }
    ns.create("leases", json!({"metadata": {"name": "configmonitor-operator"}})).await;
    let pages = [Section::all_of("docs/operations.md"), Section::all_of("docs/troubleshooting.md")];
    for section in pages.into_iter().flat_map(Result::unwrap) {
        reader.follow(section.steps()).await;
    }
    reader.follow(Section::of("docs/concepts.md", "Restart on request").unwrap().steps()).await;
    let request = json!({"metadata": {"annotations": {"magalix.com/restart-requested-at": "now"}}});
    ns.patch("configmonitors", "flakapp-config-monitor", request).await;
    for name in ["shop", "flakapp-config-monitor"] {
        let is_over = async || {
            let monitor = ns.get("configmonitors", name).await;
            ensure!(monitor["status"]["lastHandledRestartRequest"].is_string(), "{}", monitor["status"]);
            Ok(())
        };
        eventually(&format!("the restart of {name} is over"), DEADLINE, is_over).await.unwrap();
    }
    for section in Section::all_of("docs/reference.md").unwrap() {
        if section.heading == "Columns" {
            ns.patch("configmonitors", "shop", json!({"spec": {"canary": {"pods": 2, "bakeSeconds": 3600}}})).await;
            ns.patch("configmaps", "shop-config", json!({"data": {"app.cfg": "two"}})).await;
            reader.prints("kubectl get cmon | grep -v flakapp", &table).await;
            ns.delete("configmonitors", "frontend").await;
        }
        reader.follow(section.steps()).await;
    }
}
