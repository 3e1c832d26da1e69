//! A control plane with a real node: a kubelet, containerd and runc run the manifests in containers on a bridge.
//!
//! It needs root and namespaces of its own (network, mounts, processes), in which `testenv/node/in-namespaces.sh`
//! starts this process. The containers, their mounts and the bridge end with these namespaces.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::binaries::Binaries;
use crate::client::{DEADLINE, eventually};
use crate::control_plane::{ControlPlane, NODE};
use crate::process::{Process, printed};
use crate::project;
use crate::site::{KUBELET, NODE_ADDRESS, Nodes, SERVICE_ADDRESS};

/// The image of the container that holds a pod's network, in the archives.
const PAUSE_IMAGE: &str = "localhost/pause:latest";

/// The kernel settings that the kubelet wants and would change. They are the whole machine's, so the kubelet gets files
/// with these values instead.
const KERNEL_SETTINGS: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

/// A running control plane with its node. Everything ends when this value is dropped.
#[derive(Debug)]
pub struct Node {
    // The fields are dropped, and the processes end, in this order.
    _kubelet: Process,
    _containerd: Process,
    control_plane: ControlPlane,
}

impl Node {
    /// Starts everything with these image archives, and waits until a pod can be scheduled in the namespace `default`.
    pub async fn start(images: &[PathBuf]) -> Result<Self> {
        check_namespace()?;
        set_up_network().await?;
        let binaries = Binaries::prepare_with_kubelet().await?;
        let control_plane = ControlPlane::start_on(binaries, Nodes::Kubelet).await?;
        let dir = control_plane.site().dir();
        write_containerd_config(dir)?;
        write_kubelet_config(dir)?;
        shield_kernel_settings(dir).await?;
        let containerd = start_containerd(dir).await?;
        let pause = pack_pause_image(dir).await?;
        for image in [pause].iter().chain(images) {
            printed(&ctr(dir, &["images", "import", "--snapshotter=native", path(image)?])).await?;
        }
        let kubelet = control_plane.site().start(
            KUBELET,
            &[
                "--config=kubelet.json".to_owned(),
                control_plane.site().kubeconfig_flag(KUBELET)?,
                format!("--hostname-override={NODE}"),
                format!("--node-ip={NODE_ADDRESS}"),
                format!("--root-dir={}", dir.join("kubelet").display()),
                format!("--cert-dir={}", dir.join("kubelet-certs").display()),
            ],
        )?;
        let node = Self { _kubelet: kubelet, _containerd: containerd, control_plane };
        node.control_plane.wait_until_schedulable().await?;
        Ok(node)
    }

    pub fn control_plane(&self) -> &ControlPlane {
        &self.control_plane
    }

    /// Returns the process of a running container, by the id in the pod's status, such as `containerd://0123456789ab`.
    pub async fn container_process(&self, container_id: &str) -> Result<u32> {
        let id = container_id.trim_start_matches("containerd://");
        let tasks = printed(&ctr(self.control_plane.site().dir(), &["tasks", "list"])).await?;
        // TASK PID STATUS
        let mut fields = tasks.lines().map(str::split_whitespace);
        let mut fields = fields.find_map(|mut fields| (fields.next() == Some(id)).then_some(fields));
        let process = fields.as_mut().and_then(Iterator::next).with_context(|| format!("no container {id}"))?;
        Ok(process.parse()?)
    }
}

/// Packs a folder as the image `name`, which runs `entrypoint`, into an archive beside the folder.
pub async fn pack_image(name: &str, entrypoint: &str, folder: &Path) -> Result<PathBuf> {
    let (dockerfile, archive) = (folder.with_extension("Dockerfile"), folder.with_extension("tar"));
    fs::write(&dockerfile, format!("FROM scratch\nENTRYPOINT [\"{entrypoint}\"]\n"))?;
    let mut command = Command::new(project("deploy/image.sh"));
    printed(command.arg(name).args([&*dockerfile, &*archive, folder])).await?;
    Ok(archive)
}

/// Checks that this process may set up a network without harm.
fn check_namespace() -> Result<()> {
    let devices = fs::read_to_string("/proc/net/dev")?;
    // Two lines of headings, then one for each device.
    let others = devices.lines().skip(2).filter(|line| !line.trim_start().starts_with("lo:")).count();
    ensure!(others == 0 && std::process::id() == 1, "a node needs namespaces of its own: please run `make test-node`");
    Ok(())
}

/// Sets up the bridge, which is the pods' gateway. The address of the service is the machine's own, so that pods reach
/// the API server there without any rule.
async fn set_up_network() -> Result<()> {
    let bridge = format!("{NODE_ADDRESS}/24");
    let service = format!("{SERVICE_ADDRESS}/32");
    for args in [
        &["link", "set", "lo", "up"][..],
        &["address", "add", &service, "dev", "lo"],
        &["link", "add", "cni0", "type", "bridge"],
        &["address", "add", &bridge, "dev", "cni0"],
        &["link", "set", "cni0", "up"],
    ] {
        let mut command = Command::new("ip");
        printed(command.args(args)).await?;
    }
    Ok(())
}

fn write_containerd_config(dir: &Path) -> Result<()> {
    let text = format!(
        r#"version = 2
root = "{dir}/containerd"
state = "{dir}/containerd-state"
[grpc]
address = "{dir}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE_IMAGE}"
disable_apparmor = true
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{dir}/cni"
[plugins."io.containerd.internal.v1.opt"]
path = "{dir}/opt"
"#,
        dir = path(dir)?
    );
    fs::write(dir.join("containerd.toml"), text)?;
    let network = json!({
        "cniVersion": "0.4.0",
        "name": "testenv",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "cni0",
                "isGateway": true,
                "ipam": {
                    "type": "host-local",
                    "dataDir": dir.join("addresses"),
                    "ranges": [[{"subnet": "10.244.0.0/24"}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
        ],
    });
    fs::create_dir(dir.join("cni"))?;
    fs::write(dir.join("cni/testenv.conflist"), network.to_string())?;
    Ok(())
}

fn write_kubelet_config(dir: &Path) -> Result<()> {
    let config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": NODE_ADDRESS,
        "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": format!("unix://{}/containerd.sock", path(dir)?),
        "podLogsDir": dir.join("pod-logs"),
        // There is no resolver for containers.
        "resolvConf": "",
        "volumePluginDir": dir.join("volume-plugins"),
        // Nor a cluster DNS; but without an address every pod gets a Warning.
        "clusterDNS": ["10.0.0.10"],
        // Any control groups of the machine will do.
        "failCgroupV1": false,
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": false,
        "enforceNodeAllocatable": [],
        "failSwapOn": false,
        "oomScoreAdj": 0,
        // A full disk of the machine does not concern this node.
        "localStorageCapacityIsolation": false,
        "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%"},
        "imageGCHighThresholdPercent": 100,
    });
    fs::write(dir.join("kubelet.json"), config.to_string())?;
    Ok(())
}

async fn shield_kernel_settings(dir: &Path) -> Result<()> {
    for (setting, value) in KERNEL_SETTINGS {
        let file = dir.join(setting.replace('/', "-"));
        fs::write(&file, value)?;
        let mut command = Command::new("mount");
        printed(command.arg("--bind").arg(file).arg(Path::new("/proc/sys").join(setting))).await?;
    }
    Ok(())
}

async fn start_containerd(dir: &Path) -> Result<Process> {
    let mut command = Command::new("containerd");
    command.arg("--config").arg(dir.join("containerd.toml"));
    let containerd = Process::start(&command, &dir.join("containerd.log"))?;
    let up = eventually("containerd answers", DEADLINE, async || printed(&ctr(dir, &["version"])).await);
    tokio::select! {
        result = up => result.map_err(|error| containerd.failure(&format!("does not answer ({error:#})")))?,
        _ = containerd.ended() => return Err(containerd.failure("does not run")),
    };
    Ok(containerd)
}

async fn pack_pause_image(dir: &Path) -> Result<PathBuf> {
    let folder = dir.join("pause");
    fs::create_dir(&folder)?;
    let mut rustc = Command::new("rustc");
    rustc.args(["--edition=2024", "-Ctarget-feature=+crt-static", "-Cpanic=abort", "-Cstrip=symbols"]);
    printed(rustc.arg("-o").arg(folder.join("pause")).arg(project("testenv/node/pause.rs"))).await?;
    pack_image(PAUSE_IMAGE, "/pause", &folder).await
}

/// Returns containerd's own client, for the containers of Kubernetes.
fn ctr(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new("ctr");
    command.arg("--address").arg(dir.join("containerd.sock")).args(["--namespace", "k8s.io"]).args(args);
    command
}

fn path(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is no UTF-8", path.display()))
}
