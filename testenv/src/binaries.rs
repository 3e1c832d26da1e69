//! The control plane's programs and the tools of the tests: found, or built once.
//!
//! They are built from the Go modules in `control-plane/`, `actionlint/`, `prometheus/`, `kube-state-metrics/` and
//! `packaging/`, whose `go.mod` and `go.sum` pin every byte. The cache is outside the tree: `$CONFIGMONITOR_CACHE`,
//! else `$XDG_CACHE_HOME/configmonitor-operator`, else `$HOME/.cache/configmonitor-operator`, in a folder named after a
//! hash of the pin. If the folder `$KUBEBUILDER_ASSETS` offers a program of the control plane, that program is used as
//! it is.
//!
//! `$CONFIGMONITOR_KUBERNETES` selects an older version of Kubernetes, such as `1.30`, and `$CONFIGMONITOR_KUBECTL`
//! another one for kubectl alone: see `docs/versions.md`. Then `$KUBEBUILDER_ASSETS` does not count.
//!
//! Nothing but Go modules is downloaded, and nothing is installed.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};
use tokio::time::{Instant, sleep};

use crate::hex;
use crate::preconditions::{check_go_build, check_setpriv};
use crate::process::{Process, output};

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

/// The server that scrapes the operator, and the checker of metrics and rules.
const PROMETHEUS: [Program; 2] = [
    ("prometheus", "github.com/prometheus/prometheus/cmd/prometheus"),
    ("promtool", "github.com/prometheus/prometheus/cmd/promtool"),
];

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
pub const VERSIONS: [(&str, &str); 5] = [
    ("1.30", "control-plane/1.30"),
    ("1.33", "control-plane/1.33"),
    ("1.34", "control-plane/1.34"),
    ("1.35", "control-plane/1.35"),
    ("1.36", NEWEST),
];

/// The folder of the newest version, which is the default.
const NEWEST: &str = "control-plane";

/// The programs of one Go module.
struct Module {
    /// The folder in this crate.
    folder: &'static str,
    /// What the programs are, for messages.
    what: &'static str,
    /// The minutes of a build with nothing in Go's caches.
    minutes: &'static str,
    /// Returns the build flags that follow from `go.mod`.
    build_flags: fn(&str) -> Result<Vec<String>>,
    /// The files to copy from kwok's module.
    stages: &'static [&'static str],
}

const CONTROL_PLANE: Module = Module {
    folder: NEWEST,
    what: "the control plane",
    minutes: "ten minutes",
    build_flags: flags_of_kubernetes,
    stages: &STAGES,
};

/// The tools that tests use beside the control plane, each with the module from which it is built.
const TOOLS: [(Module, &[Program]); 4] = [
    (module_of("actionlint", "actionlint", "a minute", |_| Ok(strings(&SMALL))), &ACTIONLINT),
    (module_of("prometheus", "Prometheus", "three minutes", |_| Ok(strings(&WITHOUT_CLOUDS))), &PROMETHEUS),
    (
        module_of("kube-state-metrics", "kube-state-metrics", "three minutes", |_| Ok(strings(&SMALL))),
        &KUBE_STATE_METRICS,
    ),
    (
        module_of("packaging", "Helm, kustomize, kubeconform and helm-docs", "three minutes", |_| Ok(strings(&SMALL))),
        &PACKAGING,
    ),
];

const fn module_of(
    folder: &'static str,
    what: &'static str,
    minutes: &'static str,
    build_flags: fn(&str) -> Result<Vec<String>>,
) -> Module {
    Module { folder, what, minutes, build_flags, stages: &[] }
}

fn strings(flags: &[&str]) -> Vec<String> {
    flags.iter().map(|flag| (*flag).to_owned()).collect()
}

const SMALL: [&str; 2] = ["-trimpath", "-ldflags=-s -w"];

/// Leaves out the discovery of each cloud's machines, which is most of the code.
const WITHOUT_CLOUDS: [&str; 4] = ["-trimpath", "-tags", "remove_all_sd,netgo", "-ldflags=-s -w"];

/// Existing programs and files, each in the folder of its module.
#[derive(Clone, Debug)]
pub struct Binaries {
    programs: BTreeMap<&'static str, PathBuf>,
    stages: Vec<PathBuf>,
}

impl Binaries {
    /// Finds everything, and builds what is missing. A build reports its progress on stderr: the first one takes about
    /// ten minutes on two cores.
    ///
    /// # Errors
    /// When something that is needed for running or building is missing, in one line, before anything long begins; or
    /// when the build fails.
    pub async fn prepare() -> Result<Self> {
        Self::prepare_control_plane(&KUBERNETES).await
    }

    /// Finds or builds everything and the kubelet.
    ///
    /// # Errors
    /// As [`Binaries::prepare`].
    pub async fn prepare_with_kubelet() -> Result<Self> {
        Self::prepare_control_plane(&[&KUBERNETES[..], &[KUBELET]].concat()).await
    }

    /// Finds or builds kubectl of the newest version, which the manifests name, whatever version is selected.
    ///
    /// # Errors
    /// As [`Binaries::prepare`].
    pub async fn prepare_kubectl_of_the_manifests() -> Result<Self> {
        Self::prepare_all(&CONTROL_PLANE, &[KUBECTL], None).await
    }

    async fn prepare_control_plane(of_kubernetes: &[Program]) -> Result<Self> {
        let (kubernetes, kubectl) = (version("CONFIGMONITOR_KUBERNETES")?, version("CONFIGMONITOR_KUBECTL")?);
        let assets = match (kubernetes, kubectl) {
            (None, None) => folder("KUBEBUILDER_ASSETS")?,
            _ => None,
        };
        let kubernetes = kubernetes.unwrap_or(NEWEST);
        let mut modules = BTreeMap::<_, Vec<Program>>::new();
        modules.entry(kubernetes).or_default().extend(of_kubernetes);
        modules.entry(kubectl.unwrap_or(kubernetes)).or_default().push(KUBECTL);
        modules.entry(NEWEST).or_default().extend(COMPANIONS);
        let mut all = Self { programs: BTreeMap::new(), stages: Vec::new() };
        for (folder, programs) in modules {
            let stages: &[&str] = if folder == NEWEST { &STAGES } else { &[] };
            let module = Module { folder, stages, ..CONTROL_PLANE };
            let Self { programs, stages } = Self::prepare_all(&module, &programs, assets.as_deref()).await?;
            all.programs.extend(programs);
            all.stages.extend(stages);
        }
        Ok(all)
    }

    async fn prepare_all(module: &Module, programs: &[Program], assets: Option<&Path>) -> Result<Self> {
        check_setpriv()?;
        let pin = Pin::read(module)?;
        let place = Place { assets, cache: cache_root()?.join(pin.key()) };
        if !place.is_complete(module, programs) {
            check_go_build(module.what, &pin.folder, &pin.go_mod, &place.cache)?;
            fs::create_dir_all(&place.cache).with_context(|| format!("cannot create {}", place.cache.display()))?;
            let _lock = lock(&place.cache.join("lock"), module.what).await?;
            place.build_missing(module, programs, &pin).await?;
        }
        Ok(Self {
            programs: programs.iter().map(|&(name, _)| (name, place.program(name))).collect(),
            stages: module.stages.iter().map(|stage| place.stage(stage)).collect(),
        })
    }

    /// Returns the file of the program `name`: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl,
    /// kwok or kubelet. A program that was not prepared comes from the `PATH`.
    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        self.programs.get(name).cloned().unwrap_or_else(|| name.into())
    }

    /// Returns kwok's stage files.
    pub fn stages(&self) -> impl Iterator<Item = &Path> {
        self.stages.iter().map(PathBuf::as_path)
    }
}

/// Returns the file of a tool, and builds the tools of its module if necessary: actionlint, prometheus, promtool,
/// kube-state-metrics, helm, helm3, kustomize, kubeconform or helm-docs.
///
/// # Errors
/// As [`Binaries::prepare`], and when no tool has this name.
pub async fn tool(name: &str) -> Result<PathBuf> {
    let mut modules = TOOLS.iter();
    let found = modules.find(|(_, programs)| programs.iter().any(|(program, _)| *program == name));
    let (module, programs) = found.with_context(|| format!("there is no tool {name}"))?;
    Ok(Binaries::prepare_all(module, programs, None).await?.program(name))
}

/// Builds the missing tools.
///
/// # Errors
/// As [`Binaries::prepare`].
pub async fn prepare_tools() -> Result<()> {
    for (module, programs) in &TOOLS {
        Binaries::prepare_all(module, programs, None).await?;
    }
    Ok(())
}

/// The folder of one module's programs and files.
struct Place<'a> {
    assets: Option<&'a Path>,
    cache: PathBuf,
}

impl Place<'_> {
    fn program(&self, name: &str) -> PathBuf {
        let offered = self.assets.map(|assets| assets.join(name));
        offered.filter(|path| path.is_file()).unwrap_or_else(|| self.cache.join(name))
    }

    fn stage(&self, stage: &str) -> PathBuf {
        self.cache.join("stages").join(stage)
    }

    fn is_complete(&self, module: &Module, programs: &[Program]) -> bool {
        self.missing(programs).is_empty() && self.has(module.stages)
    }

    fn missing(&self, programs: &[Program]) -> Vec<Program> {
        programs.iter().filter(|(name, _)| !self.program(name).is_file()).copied().collect()
    }

    fn has(&self, stages: &[&str]) -> bool {
        stages.iter().all(|stage| self.stage(stage).is_file())
    }

    async fn build_missing(&self, module: &Module, programs: &[Program], pin: &Pin) -> Result<()> {
        let missing = self.missing(programs);
        if !missing.is_empty() {
            let Module { folder, what, minutes, .. } = module;
            eprintln!("Building {what} of testenv/{folder}, once, into {}.", self.cache.display());
            eprintln!("With nothing in Go's caches this takes about {minutes} on 2 cores.");
        }
        for (index, (name, package)) in missing.iter().enumerate() {
            let step = format!("[{}/{}] {name}", index + 1, missing.len());
            self.build(pin, name, package, &step).await?;
        }
        if !self.has(module.stages) {
            self.copy_stages(pin).await?;
        }
        Ok(())
    }

    async fn build(&self, pin: &Pin, name: &str, package: &str, step: &str) -> Result<()> {
        eprintln!("{step}: building");
        let started = Instant::now();
        let unfinished = self.cache.join(format!("{name}.unfinished"));
        let log = self.cache.join("build.log");
        let mut command = pin.go("build");
        command.args(&pin.build_flags).arg("-o").arg(&unfinished).arg(package);
        let go = Process::start(&command, &log)?;
        let status = loop {
            match go.wait(PROGRESS_INTERVAL).await {
                Ok(status) => break status,
                Err(_) => eprintln!("{step}: still building, {} s", started.elapsed().as_secs()),
            }
        };
        if !status.success() {
            return Err(go.failure(&format!("could not build {name}")));
        }
        fs::rename(&unfinished, self.cache.join(name))?;
        eprintln!("{step}: done in {} s", started.elapsed().as_secs());
        Ok(())
    }

    async fn copy_stages(&self, pin: &Pin) -> Result<()> {
        let mut download = pin.go("mod");
        let result = output(download.args(["download", KWOK])).await?;
        ensure!(result.status.success(), "cannot download {KWOK}: {}", String::from_utf8_lossy(&result.stderr).trim());
        let mut list = pin.go("list");
        let result = output(list.args(["-m", "-f", "{{.Dir}}", KWOK])).await?;
        let module = String::from_utf8_lossy(&result.stdout).into_owned();
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
}

/// What determines the programs' bytes, except for the Go version.
struct Pin {
    folder: PathBuf,
    go_mod: String,
    go_sum: String,
    build_flags: Vec<String>,
}

impl Pin {
    fn read(module: &Module) -> Result<Self> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(module.folder);
        let read = |name: &str| {
            let path = folder.join(name);
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        let (go_mod, go_sum) = (read("go.mod")?, read("go.sum")?);
        let build_flags = (module.build_flags)(&go_mod)?;
        Ok(Self { folder, go_mod, go_sum, build_flags })
    }

    fn key(&self) -> String {
        let mut hash = Sha256::new();
        for part in [&self.go_mod, &self.go_sum, &self.build_flags.join(" ")] {
            hash.update(part.len().to_le_bytes());
            hash.update(part);
        }
        hex(&hash.finalize()[..8])
    }

    fn go(&self, verb: &str) -> Command {
        let mut command = Command::new("go");
        command.arg(verb).current_dir(&self.folder).env("CGO_ENABLED", "0").env("GOWORK", "off");
        command
    }
}

/// Kubernetes gets its version only from the linker.
fn flags_of_kubernetes(go_mod: &str) -> Result<Vec<String>> {
    let version = go_mod
        .lines()
        .find_map(|line| line.trim().strip_prefix("k8s.io/kubernetes "))
        .and_then(|rest| rest.split_whitespace().next())
        .context("go.mod does not require k8s.io/kubernetes")?;
    let mut numbers = version.trim_start_matches('v').split('.');
    let (Some(major), Some(minor)) = (numbers.next(), numbers.next()) else {
        bail!("k8s.io/kubernetes has the odd version {version}");
    };
    let variables = "-X k8s.io/component-base/version.git";
    Ok(vec![
        "-trimpath".to_owned(),
        format!("-ldflags=-s -w {variables}Version={version} {variables}Major={major} {variables}Minor={minor}"),
    ])
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

/// Waits for the lock, so that two processes do not build at once.
async fn lock(path: &Path, what: &str) -> Result<File> {
    let file = File::create(path)?;
    let mut waiting = false;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(error.into()),
            Err(TryLockError::WouldBlock) if !waiting => {
                eprintln!("Another process is building {what}; waiting for it.");
                waiting = true;
            }
            Err(TryLockError::WouldBlock) => {}
        }
        sleep(Duration::from_millis(500)).await;
    }
}
