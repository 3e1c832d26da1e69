//! How each program of the control plane is started, and with which files.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::json;

use crate::binaries::Binaries;
use crate::hex;
use crate::kubectl::Kubectl;
use crate::process::{Process, printed};
use crate::run_dir::RunDir;

/// etcd listens on sockets in the run folder, which is its working directory and that of the API server: no port can
/// collide, and no path is too long. etcd insists on something that looks like a port.
const ETCD: &str = "unix://etcd.sock:1";
const ETCD_SOCKET: &str = "etcd.sock:1";
const ETCD_PEER: &str = "unix://etcd.sock:2";
const ETCD_DATA: &str = "etcd";

/// The API server creates its certificate in this folder. The key also signs the service accounts' tokens.
const CERTIFICATE: &str = "certs/apiserver.crt";
const KEY: &str = "certs/apiserver.key";

/// Records every request, without bodies except for the preconditions of deletions and evictions of pods.
const AUDIT_POLICY: &str = r#"{
  "apiVersion": "audit.k8s.io/v1",
  "kind": "Policy",
  "omitStages": ["RequestReceived"],
  "rules": [
    {"level": "Request", "verbs": ["delete"], "resources": [{"group": "", "resources": ["pods"]}]},
    {"level": "Request", "verbs": ["create"], "resources": [{"group": "", "resources": ["pods/eviction"]}]},
    {"level": "Metadata"}
  ]
}"#;

/// The users with all rights: the administrator, and the programs that are not under test. Each has a name of its own
/// in the audit log.
const USERS: [&str; 5] = ["admin", CONTROLLER_MANAGER, SCHEDULER, KWOK, KUBELET];

const CONTROLLER_MANAGER: &str = "kube-controller-manager";
const SCHEDULER: &str = "kube-scheduler";
const KWOK: &str = "kwok";
pub(crate) const KUBELET: &str = "kubelet";

/// The address of the service `kubernetes`, which pods get in their environment.
pub(crate) const SERVICE_ADDRESS: &str = "10.0.0.1";

/// The address of the real node.
pub(crate) const NODE_ADDRESS: &str = "10.244.0.1";

/// Who runs the pods, which decides where the API server listens.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Nodes {
    /// kwok plays the node. The API server listens on this port on loopback.
    Kwok { port: u16 },
    /// A kubelet runs containers, which call the API server themselves. The API server listens on the port of the
    /// service `kubernetes`.
    Kubelet,
}

/// The programs, folder and secret of one control plane.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) nodes: Nodes,
    binaries: Binaries,
    dir: RunDir,
    secret: String,
}

impl Site {
    pub(crate) fn new(binaries: Binaries, nodes: Nodes) -> Result<Self> {
        let site = Self { nodes, binaries, dir: RunDir::create()?, secret: random_secret()? };
        let line = |user| format!("{},{user},{user},\"system:masters\"\n", site.token(user));
        let tokens: String = USERS.into_iter().map(line).collect();
        fs::write(site.dir.path().join("tokens.csv"), tokens)?;
        fs::write(site.dir.path().join("audit-policy.json"), AUDIT_POLICY)?;
        Ok(site)
    }

    pub(crate) fn etcd_socket(&self) -> PathBuf {
        self.dir.path().join(ETCD_SOCKET)
    }

    /// Copies etcd's data. etcd must not run meanwhile.
    pub(crate) async fn copy_etcd_to(&self, folder: &Path) -> Result<()> {
        copy(&self.dir.path().join(ETCD_DATA), folder).await
    }

    /// Restores a copy of etcd's data. etcd must not run meanwhile.
    pub(crate) async fn copy_etcd_from(&self, folder: &Path) -> Result<()> {
        copy(folder, &self.dir.path().join(ETCD_DATA)).await
    }

    pub(crate) fn start_etcd(&self) -> Result<Process> {
        let args = [
            format!("--data-dir={ETCD_DATA}"),
            // A power failure may lose the data, which does not matter here.
            "--unsafe-no-fsync".to_owned(),
            // What the API server can send. As JSON an object takes up to six times what it takes as protobuf.
            "--max-request-bytes=2097152".to_owned(),
            format!("--listen-client-urls={ETCD}"),
            format!("--advertise-client-urls={ETCD}"),
            format!("--listen-peer-urls={ETCD_PEER}"),
            format!("--initial-advertise-peer-urls={ETCD_PEER}"),
            format!("--initial-cluster=default={ETCD_PEER}"),
        ];
        self.start("etcd", &args)
    }

    pub(crate) fn start_api_server(&self) -> Result<Process> {
        let mut args = vec![
            format!("--etcd-servers={ETCD}"),
            // As JSON, so that the history of all objects can be read from etcd.
            "--storage-media-type=application/json".to_owned(),
            // So that nothing of the history is forgotten while a slow machine runs a test.
            "--etcd-compaction-interval=0".to_owned(),
            "--event-ttl=24h".to_owned(),
            "--endpoint-reconciler-type=none".to_owned(),
            "--cert-dir=certs".to_owned(),
            "--authorization-mode=RBAC".to_owned(),
            // As OpenShift does.
            "--enable-admission-plugins=OwnerReferencesPermissionEnforcement".to_owned(),
            "--token-auth-file=tokens.csv".to_owned(),
            format!("--service-cluster-ip-range={SERVICE_ADDRESS}/24"),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={KEY}"),
            format!("--service-account-signing-key-file={KEY}"),
            "--audit-policy-file=audit-policy.json".to_owned(),
            "--audit-log-path=audit.log".to_owned(),
            // In MB: one file for the whole run.
            "--audit-log-maxsize=10000".to_owned(),
        ];
        args.extend(match self.nodes {
            Nodes::Kwok { port } => [
                "--bind-address=127.0.0.1".to_owned(),
                format!("--secure-port={port}"),
                // Otherwise it looks for a network, and there may be none.
                "--advertise-address=127.0.0.1".to_owned(),
                // Pods are created at once, whether or not their service account exists.
                "--disable-admission-plugins=ServiceAccount".to_owned(),
            ],
            Nodes::Kubelet => [
                "--bind-address=0.0.0.0".to_owned(),
                "--secure-port=443".to_owned(),
                format!("--advertise-address={NODE_ADDRESS}"),
                "--kubelet-preferred-address-types=InternalIP".to_owned(),
            ],
        });
        self.start("kube-apiserver", &args)
    }

    /// Starts the controllers and the scheduler, and kwok if it plays the node.
    pub(crate) fn start_clients(&self) -> Result<Vec<Process>> {
        let args = |user| -> Result<Vec<String>> { Ok(vec![self.kubeconfig_flag(user)?]) };
        let controllers = |user| -> Result<Vec<String>> {
            let mut args = args(user)?;
            args.extend([
                "--leader-elect=false".to_owned(),
                "--secure-port=0".to_owned(),
                // Pods are created as fast as the API server can.
                "--kube-api-qps=1000".to_owned(),
                "--kube-api-burst=2000".to_owned(),
            ]);
            Ok(args)
        };
        let mut controller_manager = controllers(CONTROLLER_MANAGER)?;
        // Every namespace gets the ConfigMap kube-root-ca.crt, which goes with a token.
        controller_manager.push(format!("--root-ca-file={CERTIFICATE}"));
        let mut clients = vec![
            self.start(CONTROLLER_MANAGER, &controller_manager)?,
            self.start(SCHEDULER, &controllers(SCHEDULER)?)?,
        ];
        if let Nodes::Kwok { .. } = self.nodes {
            let mut kwok = args(KWOK)?;
            kwok.push("--manage-all-nodes".to_owned());
            kwok.extend(self.binaries.stages().map(|stage| format!("--config={}", stage.display())));
            clients.push(self.start(KWOK, &kwok)?);
        }
        Ok(clients)
    }

    /// Returns the flag that gives a program this user's rights.
    pub(crate) fn kubeconfig_flag(&self, user: &str) -> Result<String> {
        let kubectl = self.kubectl(user, &self.token(user))?;
        Ok(format!("--kubeconfig={}", kubectl.kubeconfig().display()))
    }

    pub(crate) fn admin(&self) -> Result<Kubectl> {
        self.kubectl("admin", &self.token("admin"))
    }

    /// Returns kubectl with a token, in a new kubeconfig NAME.kubeconfig.
    pub(crate) fn kubectl(&self, name: &str, token: &str) -> Result<Kubectl> {
        let server = match self.nodes {
            Nodes::Kwok { port } => format!("https://127.0.0.1:{port}"),
            Nodes::Kubelet => format!("https://{SERVICE_ADDRESS}"),
        };
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "testenv", "cluster": {
                "server": server,
                "certificate-authority": CERTIFICATE,
            }}],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": "testenv", "context": {"cluster": "testenv", "user": name}}],
            "current-context": "testenv",
        });
        let path = self.dir.path().join(format!("{name}.kubeconfig"));
        fs::write(&path, format!("{kubeconfig:#}\n"))?;
        Ok(Kubectl::new(self.binaries.program("kubectl"), path, self.dir.path()))
    }

    pub(crate) fn audit_log_file(&self) -> PathBuf {
        self.dir.path().join("audit.log")
    }

    fn token(&self, user: &str) -> String {
        format!("{user}-{}", self.secret)
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn start(&self, program: &str, args: &[String]) -> Result<Process> {
        let mut command = Command::new(self.binaries.program(program));
        command.args(args).current_dir(self.dir.path()).env("HOME", self.dir.path()).env_remove("KUBECONFIG");
        Process::start(&command, &self.dir.path().join(format!("{program}.log")))
    }
}

/// Copies a folder, and replaces the target.
async fn copy(folder: &Path, to: &Path) -> Result<()> {
    if to.exists() {
        fs::remove_dir_all(to)?;
    }
    let mut command = Command::new("cp");
    printed(command.arg("-r").args([folder, to])).await.map(drop)
}

fn random_secret() -> Result<String> {
    let mut bytes = [0; 16];
    let mut random = File::open("/dev/urandom")?;
    random.read_exact(&mut bytes).context("no random numbers")?;
    Ok(hex(&bytes))
}
