//! The control plane's programs and the tools of the tests: found, or built once.
//!
//! They are built from the Go modules in `control-plane/` and the other folders with a `go.mod`, which with `go.sum`
//! pins every byte. The cache is outside the tree: `$CONFIGMONITOR_CACHE`, else `$XDG_CACHE_HOME/configmonitor-operator`,
//! else `$HOME/.cache/configmonitor-operator`, in a folder named after a hash of the pin. Nothing but Go modules is
//! downloaded, and nothing is installed.
//!
//! `$CONFIGMONITOR_KUBERNETES` selects an older version of Kubernetes, such as `1.31`, and `$CONFIGMONITOR_KUBECTL`
//! another one for kubectl alone: see `docs/versions.md`.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::hex;
use crate::process::{Process, printed};

/// A program's name and its package.
type Program = (&'static str, &'static str);

/// The programs of every control plane, of the selected version.
const KUBERNETES: [Program; 3] = [
    ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
    ("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
    ("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
];

/// The additional program of a real node.
const KUBELET: Program = ("kubelet", "k8s.io/kubernetes/cmd/kubelet");

const KUBECTL: Program = ("kubectl", "k8s.io/kubernetes/cmd/kubectl");

/// The programs that are the same for every version of Kubernetes.
const COMPANIONS: [Program; 2] = [("etcd", "go.etcd.io/etcd/server/v3"), ("kwok", "sigs.k8s.io/kwok/cmd/kwok")];

/// The checker of the hosting service's workflows.
const ACTIONLINT: [Program; 1] = [("actionlint", "github.com/rhysd/actionlint/cmd/actionlint")];

/// The checker of metrics and of rules for Prometheus.
const PROMETHEUS: [Program; 1] = [("promtool", "github.com/prometheus/prometheus/cmd/promtool")];

/// The exporter of objects as metrics.
const KUBE_STATE_METRICS: [Program; 1] = [("kube-state-metrics", "k8s.io/kube-state-metrics/v2")];

/// The programs that render and check the chart and the manifests. Helm 3 is still in use beside Helm 4.
const PACKAGING: [Program; 5] = [
    ("helm", "helm.sh/helm/v4/cmd/helm"),
    ("helm3", "helm.sh/helm/v3/cmd/helm"),
    ("kustomize", "sigs.k8s.io/kustomize/kustomize/v5"),
    ("kubeconform", "github.com/yannh/kubeconform/cmd/kubeconform"),
    ("helm-docs", "github.com/norwoodj/helm-docs/cmd/helm-docs"),
];

/// The interpreter with which Argo CD runs health checks and actions.
const LUA: [Program; 1] = [("glua", "github.com/yuin/gopher-lua/cmd/glua")];

/// The registry to which a release is pushed.
const REGISTRY: [Program; 1] = [("registry", "github.com/distribution/distribution/v3/cmd/registry")];

/// The program that signs what a release pushes, for `make release-check` only.
const COSIGN: [Program; 1] = [("cosign", "github.com/sigstore/cosign/v3/cmd/cosign")];

/// kwok's module, and its files that define how nodes and pods behave.
const KWOK: &str = "sigs.k8s.io/kwok";
const STAGES: [&str; 5] = [
    "node/fast/node-initialize.yaml",
    "node/heartbeat/node-heartbeat.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-complete.yaml",
    "pod/fast/pod-delete.yaml",
];

/// How often a build reports that it is still running.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(30);

/// The versions of Kubernetes that are built, oldest first, and the folders that pin them.
pub const VERSIONS: [(&str, &str); 6] = [
    ("1.31", "control-plane/1.31"),
    ("1.33", "control-plane/1.33"),
    ("1.34", "control-plane/1.34"),
    ("1.35", "control-plane/1.35"),
    ("1.36", "control-plane/1.36"),
    ("1.37", NEWEST),
];

/// The folder of the newest version, which is the default.
const NEWEST: &str = "control-plane";

#[derive(Clone, Copy)]
struct Module {
    folder: &'static str,
    /// What the programs are, for messages.
    what: &'static str,
    tags: Option<&'static str>,
    /// The files to copy from kwok's module.
    stages: &'static [&'static str],
}

const CONTROL_PLANE: Module = Module { folder: NEWEST, what: "the control plane", tags: None, stages: &STAGES };

/// The tools that tests use beside the control plane, each with the module from which it is built.
const TOOLS: [(Module, &[Program]); 6] = [
    (tools("actionlint", "actionlint", None), &ACTIONLINT),
    // Without the discovery of each cloud's machines, which is most of the code.
    (tools("prometheus", "promtool", Some("remove_all_sd,netgo")), &PROMETHEUS),
    (tools("kube-state-metrics", "kube-state-metrics", None), &KUBE_STATE_METRICS),
    (tools("packaging", "Helm, kustomize, kubeconform and helm-docs", None), &PACKAGING),
    (tools("lua", "Lua", None), &LUA),
    (tools("registry", "the registry", None), &REGISTRY),
];

/// The tools that are built when something asks for them.
const RARE_TOOLS: [(Module, &[Program]); 1] = [(tools("cosign", "cosign", None), &COSIGN)];

const fn tools(folder: &'static str, what: &'static str, tags: Option<&'static str>) -> Module {
    Module { folder, what, tags, stages: &[] }
}

/// Existing programs and files, each in the folder of its module.
#[derive(Clone, Debug)]
pub struct Binaries {
    programs: BTreeMap<&'static str, PathBuf>,
    stages: Vec<PathBuf>,
}

impl Binaries {
    /// Finds everything, and builds what is missing, in about ten minutes on two cores. Fails with one line, before
    /// anything long begins, if something is missing that is needed for running or building.
    pub async fn prepare() -> Result<Self> {
        Self::prepare_control_plane(&KUBERNETES).await
    }

    /// Does the same with the kubelet.
    pub async fn prepare_with_kubelet() -> Result<Self> {
        Self::prepare_control_plane(&[&KUBERNETES[..], &[KUBELET]].concat()).await
    }

    /// Finds or builds kubectl of the newest version, which the manifests name, whatever version is selected.
    pub async fn prepare_kubectl_of_the_manifests() -> Result<Self> {
        Self::prepare_all(CONTROL_PLANE, &[KUBECTL]).await
    }

    /// Returns whether the cache has the programs of a control plane, so that nothing needs to be built.
    pub fn are_built() -> Result<bool> {
        let mut missing = false;
        for (module, programs) in control_plane(&KUBERNETES)? {
            missing |= !Build::new(module, &programs)?.is_done();
        }
        Ok(!missing)
    }

    async fn prepare_control_plane(of_kubernetes: &[Program]) -> Result<Self> {
        let mut all = Self { programs: BTreeMap::new(), stages: Vec::new() };
        for (module, programs) in control_plane(of_kubernetes)? {
            let Self { programs, stages } = Self::prepare_all(module, &programs).await?;
            all.programs.extend(programs);
            all.stages.extend(stages);
        }
        Ok(all)
    }

    async fn prepare_all(module: Module, programs: &[Program]) -> Result<Self> {
        let works = Command::new("setpriv").args(["--pdeathsig", "KILL", "--", "true"]).output();
        let works = works.is_ok_and(|output| output.status.success());
        ensure!(works, "setpriv with --pdeathsig is needed: please install util-linux 2.33 or newer");
        let build = Build::new(module, programs)?;
        if !build.is_done() {
            build.run().await?;
        }
        let programs = programs.iter().map(|&(name, _)| (name, build.cache.join(name)));
        Ok(Self {
            programs: programs.collect(),
            stages: module.stages.iter().map(|stage| build.stage(stage)).collect(),
        })
    }

    /// Returns the file of the program `name`: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl,
    /// kwok or kubelet. A program that was not prepared comes from the `PATH`.
    pub fn program(&self, name: &str) -> PathBuf {
        self.programs.get(name).cloned().unwrap_or_else(|| name.into())
    }

    pub(crate) fn stages(&self) -> impl Iterator<Item = &Path> {
        self.stages.iter().map(PathBuf::as_path)
    }
}

/// Returns the modules of a control plane of the selected version, each with the programs to build from it.
fn control_plane(of_kubernetes: &[Program]) -> Result<Vec<(Module, Vec<Program>)>> {
    let kubernetes = version("CONFIGMONITOR_KUBERNETES")?.unwrap_or(NEWEST);
    let kubectl = version("CONFIGMONITOR_KUBECTL")?.unwrap_or(kubernetes);
    let mut modules = BTreeMap::<_, Vec<Program>>::new();
    modules.entry(kubernetes).or_default().extend(of_kubernetes);
    modules.entry(kubectl).or_default().push(KUBECTL);
    modules.entry(NEWEST).or_default().extend(COMPANIONS);
    let module = |folder| Module { folder, stages: if folder == NEWEST { &STAGES } else { &[] }, ..CONTROL_PLANE };
    Ok(modules.into_iter().map(|(folder, programs)| (module(folder), programs)).collect())
}

/// Returns the file of a tool, and builds the tools of its module if necessary: actionlint, promtool,
/// kube-state-metrics, helm, helm3, kustomize, kubeconform, helm-docs, glua, registry or cosign.
pub async fn tool(name: &str) -> Result<PathBuf> {
    let mut modules = TOOLS.into_iter().chain(RARE_TOOLS);
    let found = modules.find(|(_, programs)| programs.iter().any(|(program, _)| *program == name));
    let (module, programs) = found.with_context(|| format!("there is no tool {name}"))?;
    Ok(Binaries::prepare_all(module, programs).await?.program(name))
}

pub async fn prepare_tools() -> Result<()> {
    for (module, programs) in TOOLS {
        Binaries::prepare_all(module, programs).await?;
    }
    Ok(())
}

/// The build of programs of one module into a folder of the cache.
struct Build<'a> {
    module: Module,
    programs: &'a [Program],
    folder: PathBuf,
    flags: Vec<String>,
    cache: PathBuf,
}

impl<'a> Build<'a> {
    fn new(module: Module, programs: &'a [Program]) -> Result<Self> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(module.folder);
        let read = |name: &str| {
            let path = folder.join(name);
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        let (go_mod, go_sum) = (read("go.mod")?, read("go.sum")?);
        let mut flags = vec!["-trimpath".to_owned()];
        flags.extend(module.tags.into_iter().flat_map(|tags| ["-tags".to_owned(), tags.to_owned()]));
        flags.push(format!("-ldflags=-s -w{}", variables_of_kubernetes(&go_mod)?));
        // All but the version of Go that determines the programs' bytes.
        let mut hash = Sha256::new();
        for part in [&go_mod, &go_sum, &flags.join(" ")] {
            hash.update(part.len().to_le_bytes());
            hash.update(part);
        }
        let cache = cache_root()?.join(hex(&hash.finalize()[..8]));
        Ok(Self { module, programs, folder, flags, cache })
    }

    fn stage(&self, stage: &str) -> PathBuf {
        self.cache.join("stages").join(stage)
    }

    fn missing(&self) -> impl Iterator<Item = &Program> {
        self.programs.iter().filter(|(name, _)| !self.cache.join(name).is_file())
    }

    fn has_stages(&self) -> bool {
        self.module.stages.iter().all(|stage| self.stage(stage).is_file())
    }

    fn is_done(&self) -> bool {
        self.missing().next().is_none() && self.has_stages()
    }

    async fn run(&self) -> Result<()> {
        let Module { folder, what, .. } = self.module;
        let is_installed = Command::new("go").arg("version").output().is_ok();
        ensure!(is_installed, "Go is needed to build {what}: please install it");
        fs::create_dir_all(&self.cache).with_context(|| format!("cannot create {}", self.cache.display()))?;
        let lock = File::create(self.cache.join("lock"))?;
        if lock.try_lock().is_err() {
            eprintln!("Another process is building {what}; waiting for it.");
            lock.lock()?;
        }
        if self.missing().next().is_some() {
            eprintln!("Building {what} of testenv/{folder}, once, into {}.", self.cache.display());
            eprintln!("With nothing in Go's caches this takes up to ten minutes on 2 cores.");
        }
        for (name, package) in self.missing() {
            self.build(name, package).await?;
        }
        if self.has_stages() { Ok(()) } else { self.copy_stages().await }
    }

    async fn build(&self, name: &str, package: &str) -> Result<()> {
        eprintln!("{name}: building");
        let started = Instant::now();
        let unfinished = self.cache.join(format!("{name}.unfinished"));
        let mut command = self.go(&["build"]);
        command.args(&self.flags).arg("-o").arg(&unfinished).arg(package);
        let go = Process::start(&command, &self.cache.join("build.log"))?;
        let status = loop {
            match go.wait(PROGRESS_INTERVAL).await {
                Ok(status) => break status,
                Err(_) => eprintln!("{name}: still building, {} s", started.elapsed().as_secs()),
            }
        };
        if !status.success() {
            return Err(go.failure(&format!("could not build {name}")));
        }
        Ok(fs::rename(&unfinished, self.cache.join(name))?)
    }

    async fn copy_stages(&self) -> Result<()> {
        printed(&self.go(&["mod", "download", KWOK])).await?;
        let module = printed(&self.go(&["list", "-m", "-f", "{{.Dir}}", KWOK])).await?;
        let source = Path::new(module.trim()).join("kustomize/stage");
        for stage in STAGES {
            let target = self.stage(stage);
            if let Some(parent) = target.parent() {
                fs::create_dir_all(parent)?;
            }
            // Read and write instead of a copy: the modules are read-only.
            let text = fs::read(source.join(stage)).with_context(|| format!("{KWOK} has no stage {stage}"))?;
            let unfinished = target.with_extension("unfinished");
            fs::write(&unfinished, text)?;
            fs::rename(unfinished, target)?;
        }
        Ok(())
    }

    fn go(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("go");
        command.args(arguments).current_dir(&self.folder).env("CGO_ENABLED", "0").env("GOWORK", "off");
        command
    }
}

/// Returns the linker's flags about the version of Kubernetes, which has it from nowhere else; empty if the module does
/// not build Kubernetes.
fn variables_of_kubernetes(go_mod: &str) -> Result<String> {
    let required = go_mod.lines().find_map(|line| line.trim().strip_prefix("k8s.io/kubernetes "));
    let Some(version) = required.and_then(|rest| rest.split_whitespace().next()) else { return Ok(String::new()) };
    let mut numbers = version.trim_start_matches('v').split('.');
    let (Some(major), Some(minor)) = (numbers.next(), numbers.next()) else {
        bail!("k8s.io/kubernetes has the odd version {version}");
    };
    let variables = "-X k8s.io/component-base/version.git";
    Ok(format!(" {variables}Version={version} {variables}Major={major} {variables}Minor={minor}"))
}

/// Returns the folder of the version of Kubernetes that a variable names, if it is set.
fn version(variable: &str) -> Result<Option<&'static str>> {
    let value = env::var(variable).unwrap_or_default();
    if value.is_empty() {
        return Ok(None);
    }
    let found = VERSIONS.iter().find(|(version, _)| *version == value);
    let known = || VERSIONS.map(|(version, _)| version).join(", ");
    let (_, folder) = found.with_context(|| format!("{variable} is {value}, and must be one of {}", known()))?;
    Ok(Some(folder))
}

fn cache_root() -> Result<PathBuf> {
    let named = "configmonitor-operator";
    if let Some(cache) = folder("CONFIGMONITOR_CACHE")? {
        return Ok(cache);
    }
    if let Some(caches) = folder("XDG_CACHE_HOME")? {
        return Ok(caches.join(named));
    }
    let home = folder("HOME")?.context("no place for the cache: please set CONFIGMONITOR_CACHE or HOME")?;
    Ok(home.join(".cache").join(named))
}

/// Returns the folder that a variable names, if it is set. The path must be absolute, because neither Go nor the
/// programs run in the current folder.
fn folder(variable: &str) -> Result<Option<PathBuf>> {
    let value = env::var_os(variable).filter(|value| !value.is_empty());
    Ok(value.map(std::path::absolute).transpose()?)
}
