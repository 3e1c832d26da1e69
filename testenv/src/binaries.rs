//! The control plane's programs, actionlint, Prometheus and kube-state-metrics: found, or built once.
//!
//! They are built from the Go modules in `control-plane/`, `actionlint/`, `prometheus/` and `kube-state-metrics/`, whose
//! `go.mod` and `go.sum` pin every byte, into a cache outside the tree:
//! `$CONFIGMONITOR_CACHE`, else `$XDG_CACHE_HOME/configmonitor-operator`, else
//! `$HOME/.cache/configmonitor-operator`, in a folder named after a hash of the
//! pin. A program of the control plane that the folder `$KUBEBUILDER_ASSETS` offers is used as it is.
//!
//! Nothing is ever downloaded but Go modules, and nothing is installed.

use std::env;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};
use tokio::time::{Instant, sleep};

use crate::preconditions::{check_go_build, check_setpriv};
use crate::process::{Process, output};

/// A program's name and its package.
type Program = (&'static str, &'static str);

/// What every control plane needs. The big ones that share most of their code
/// come first.
const PROGRAMS: [Program; 6] = [
    ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
    ("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
    ("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
    ("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
    ("etcd", "go.etcd.io/etcd/server/v3"),
    ("kwok", "sigs.k8s.io/kwok/cmd/kwok"),
];

/// What a real node needs, too.
const KUBELET: Program = ("kubelet", "k8s.io/kubernetes/cmd/kubelet");

/// What checks the workflows of the hosting service.
const ACTIONLINT: [Program; 1] = [("actionlint", "github.com/rhysd/actionlint/cmd/actionlint")];

/// What scrapes the operator, and what checks metrics and rules.
const PROMETHEUS: [Program; 2] = [
    ("prometheus", "github.com/prometheus/prometheus/cmd/prometheus"),
    ("promtool", "github.com/prometheus/prometheus/cmd/promtool"),
];

/// What shows objects of the API as metrics.
const KUBE_STATE_METRICS: [Program; 1] = [("kube-state-metrics", "k8s.io/kube-state-metrics/v2")];

/// kwok's module, and the files in it that tell kwok how nodes and pods behave.
const KWOK: &str = "sigs.k8s.io/kwok";
const STAGES: [&str; 5] = [
    "node/fast/node-initialize.yaml",
    "node/heartbeat/node-heartbeat.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-complete.yaml",
    "pod/fast/pod-delete.yaml",
];

/// How often a build says that it still goes on.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(30);

/// Programs that are built from one Go module.
struct Module {
    /// Its folder in this crate.
    folder: &'static str,
    /// What the programs are, for messages.
    what: &'static str,
    /// How long a build takes with nothing in Go's caches.
    minutes: &'static str,
    /// How its `go.mod` says that it is built.
    build_flags: fn(&str) -> Result<Vec<String>>,
    /// The files that are copied from kwok's module.
    stages: &'static [&'static str],
}

const CONTROL_PLANE: Module = Module {
    folder: "control-plane",
    what: "the control plane",
    minutes: "ten minutes",
    build_flags: flags_of_kubernetes,
    stages: &STAGES,
};

const OF_ACTIONLINT: Module = Module {
    folder: "actionlint",
    what: "actionlint",
    minutes: "a minute",
    build_flags: |_| Ok(["-trimpath", "-ldflags=-s -w"].map(str::to_owned).to_vec()),
    stages: &[],
};

const OF_PROMETHEUS: Module = Module {
    folder: "prometheus",
    what: "Prometheus",
    minutes: "three minutes",
    build_flags: |_| Ok(FLAGS_OF_PROMETHEUS.map(str::to_owned).to_vec()),
    stages: &[],
};

const OF_KUBE_STATE_METRICS: Module = Module {
    folder: "kube-state-metrics",
    what: "kube-state-metrics",
    minutes: "three minutes",
    build_flags: |_| Ok(FLAGS_OF_KUBE_STATE_METRICS.map(str::to_owned).to_vec()),
    stages: &[],
};

const FLAGS_OF_KUBE_STATE_METRICS: [&str; 2] = ["-trimpath", "-ldflags=-s -w"];

/// Without what discovers the machines of each cloud, which is most of its code.
const FLAGS_OF_PROMETHEUS: [&str; 4] = ["-trimpath", "-tags", "remove_all_sd,netgo", "-ldflags=-s -w"];

/// Where the programs of a module and its files are.
#[derive(Clone, Debug)]
pub struct Binaries {
    assets: Option<PathBuf>,
    cache: PathBuf,
}

impl Binaries {
    /// Finds everything, and builds what is missing. A build says on stderr how
    /// it gets on: the first one takes about ten minutes on two cores.
    ///
    /// # Errors
    /// When something that is needed for running or building is missing, in one
    /// line, before anything long begins; or when the build fails.
    pub async fn prepare() -> Result<Self> {
        Self::prepare_all(&CONTROL_PLANE, &PROGRAMS, folder("KUBEBUILDER_ASSETS")?).await
    }

    /// The same, and the kubelet.
    ///
    /// # Errors
    /// As [`Binaries::prepare`].
    pub async fn prepare_with_kubelet() -> Result<Self> {
        let programs = [&PROGRAMS[..], &[KUBELET]].concat();
        Self::prepare_all(&CONTROL_PLANE, &programs, folder("KUBEBUILDER_ASSETS")?).await
    }

    /// actionlint instead. A build takes less than a minute on two cores.
    ///
    /// # Errors
    /// As [`Binaries::prepare`].
    pub async fn prepare_actionlint() -> Result<Self> {
        Self::prepare_all(&OF_ACTIONLINT, &ACTIONLINT, None).await
    }

    /// Prometheus and promtool instead. A build takes about three minutes on two cores.
    ///
    /// # Errors
    /// As [`Binaries::prepare`].
    pub async fn prepare_prometheus() -> Result<Self> {
        Self::prepare_all(&OF_PROMETHEUS, &PROMETHEUS, None).await
    }

    /// kube-state-metrics instead. A build takes about three minutes on two cores.
    ///
    /// # Errors
    /// As [`Binaries::prepare`].
    pub async fn prepare_kube_state_metrics() -> Result<Self> {
        Self::prepare_all(&OF_KUBE_STATE_METRICS, &KUBE_STATE_METRICS, None).await
    }

    async fn prepare_all(module: &Module, programs: &[Program], assets: Option<PathBuf>) -> Result<Self> {
        check_setpriv()?;
        let pin = Pin::read(module)?;
        let cache = cache_root()?.join(pin.key());
        let binaries = Self { assets, cache };
        if binaries.missing(programs).is_empty() && binaries.has(module.stages) {
            return Ok(binaries);
        }
        check_go_build(module.what, &pin.folder, &pin.go_mod, &binaries.cache)?;
        fs::create_dir_all(&binaries.cache).with_context(|| format!("cannot create {}", binaries.cache.display()))?;
        let _lock = lock(&binaries.cache.join("lock"), module.what).await?;
        binaries.build_missing(module, programs, &pin).await?;
        Ok(binaries)
    }

    /// The file of the program `name`: etcd, kube-apiserver,
    /// kube-controller-manager, kube-scheduler, kubectl, kwok or kubelet; or
    /// prometheus or promtool; or kube-state-metrics; or actionlint.
    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        let offered = self.assets.as_ref().map(|assets| assets.join(name));
        offered.filter(|path| path.is_file()).unwrap_or_else(|| self.cache.join(name))
    }

    /// kwok's stage files.
    pub fn stages(&self) -> impl Iterator<Item = PathBuf> {
        STAGES.iter().map(|stage| self.stage(stage))
    }

    fn stage(&self, stage: &str) -> PathBuf {
        self.cache.join("stages").join(stage)
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
            let Module { what, minutes, .. } = module;
            eprintln!("Building {what}, once, into {}.", self.cache.display());
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
        for (stage, target) in STAGES.iter().zip(self.stages()) {
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

/// What decides about the programs' bytes, the Go version apart.
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
        hash.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn go(&self, verb: &str) -> Command {
        let mut command = Command::new("go");
        command.arg(verb).current_dir(&self.folder).env("CGO_ENABLED", "0").env("GOWORK", "off");
        command
    }
}

/// Kubernetes learns its version only from the linker.
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

/// The folder that a variable names, if it is set. Absolute, since neither Go
/// nor the programs run in the current folder.
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
