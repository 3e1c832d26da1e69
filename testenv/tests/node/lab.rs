//! The lab that all tests share: a node, the operator and the demo application in one namespace.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use testenv::binaries::Binaries;
use testenv::fixture::{is_established, relative};
use testenv::node::pack_image;
use testenv::process::printed;
use testenv::{Client, Kubectl, Node, RunDir, eventually, is_ready};
use tokio::sync::{Mutex, MutexGuard, OnceCell};
use tokio::time::timeout;

const NAMESPACE: &str = "lab";

pub(crate) const REPLICAS: usize = 3;

/// The deadline of steps that take seconds on an idle machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(300);

/// The API server would wait 30 s for a pod that has just gone.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

static LAB: OnceCell<Mutex<Lab>> = OnceCell::const_new();
static MESSAGES: AtomicU32 = AtomicU32::new(0);

pub(crate) struct Lab {
    pub(crate) node: Node,
    dir: RunDir,
    /// The version of kubectl, which is the tag of its image.
    kubectl: String,
}

/// The pods of the demo application: UID and answer by name.
pub(crate) type Pages = BTreeMap<String, (String, String)>;

/// Returns the lab, for one test at a time: faults of one would disturb the figures of another.
pub(crate) async fn lab() -> MutexGuard<'static, Lab> {
    let lab = LAB.get_or_init(|| async { Mutex::new(Lab::start().await.expect("the lab")) }).await;
    lab.lock().await
}

impl Lab {
    async fn start() -> Result<Self> {
        let dir = RunDir::create()?;
        let (images, kubectl) = images(dir.path()).await?;
        let node = Node::start(&images).await?;
        let lab = Self { node, dir, kubectl };
        lab.kubectl(&["create", "namespace", NAMESPACE]).await?;
        // Pods that need more than the strictest profile allows are refused.
        let profile = "pod-security.kubernetes.io/enforce=restricted";
        lab.kubectl(&["label", "namespace", NAMESPACE, profile]).await?;
        lab.apply("", &["deploy/surge"]).await?;
        is_established(lab.admin(), "configmonitors.magalix.com").await;
        lab.apply("demo-app", &[]).await?;
        // The tests edit the ConfigMap more often than an application would: the guard against loops would hold their
        // restarts, and one pod at a time would take minutes.
        let often = r#"{"spec":{"minIntervalSeconds":1,"maxUnavailable":"100%"}}"#;
        lab.kubectl(&["patch", "cmon", "flakapp-config-monitor", "--type=merge", "-p", often]).await?;
        for deployment in ["deployment/configmonitor-operator", "deployment/frontend"] {
            if let Err(error) = lab.kubectl(&["rollout", "status", deployment, "--timeout=300s"]).await {
                bail!("{error:#}\n{}", lab.describe().await);
            }
        }
        lab.shows("Welcome to Kubernetes!").await;
        Ok(lab)
    }

    /// Applies a folder of the project with these Components as a user would, with the name of the one image replaced that is not built here. With
    /// a tag, kustomize leaves the digest out, which only the image of the registry has.
    async fn apply(&self, folder: &str, components: &[&str]) -> Result<()> {
        let overlay = self.dir.path().join("overlay");
        fs::create_dir_all(&overlay)?;
        let kustomization = json!({
            "resources": [relative(&overlay, folder)],
            "components": components.iter().map(|name| relative(&overlay, name)).collect::<Vec<_>>(),
            "images": [{"name": "registry.k8s.io/kubectl", "newName": "localhost/kubectl", "newTag": self.kubectl}],
        });
        fs::write(overlay.join("kustomization.yaml"), kustomization.to_string())?;
        self.kubectl(&["apply", "-k", overlay.to_str().context("UTF-8")?]).await?;
        Ok(())
    }

    pub(crate) async fn kubectl(&self, args: &[&str]) -> Result<String> {
        self.admin().ok(&[&["--namespace", NAMESPACE], args].concat()).await
    }

    pub(crate) fn admin(&self) -> &Kubectl {
        self.node.control_plane().kubectl()
    }

    pub(crate) fn client(&self) -> Client {
        self.node.control_plane().client()
    }

    /// Gives the ConfigMap a message that it never had, and returns the message.
    pub(crate) async fn edit(&self) -> String {
        let message = new_message();
        let patch = json!({"data": {"config.cfg": format!("MSG = \"{message}\"\n")}}).to_string();
        self.kubectl(&["patch", "configmap", "flaskapp-config", "--type=merge", "-p", &patch]).await.unwrap();
        message
    }

    /// Waits until all expected pages exist and show `message`.
    pub(crate) async fn shows(&self, message: &str) -> Pages {
        self.eventually(&format!("the pages show {message:?}"), async || {
            let pages = self.pages().await?;
            ensure!(pages.values().all(|(_, shown)| shown == message), "the pages show {pages:?}");
            Ok(pages)
        })
        .await
    }

    /// Calls `probe` until it succeeds. Panics after [`DEADLINE`], and describes all pods.
    pub(crate) async fn eventually<T>(&self, what: &str, probe: impl AsyncFnMut() -> Result<T>) -> T {
        match eventually(what, DEADLINE, probe).await {
            Ok(value) => value,
            Err(error) => panic!("{error:#}\n{}", self.describe().await),
        }
    }

    /// Returns the answer of every pod of the demo application.
    ///
    /// # Errors
    /// When the number of pods is wrong, or a pod is not Ready or does not answer.
    pub(crate) async fn pages(&self) -> Result<Pages> {
        let pods = self.pods("app=frontend").await?;
        ensure!(pods.len() == REPLICAS && pods.iter().all(is_ready), "of {} pods not all are Ready", pods.len());
        let mut pages = Pages::new();
        for pod in pods {
            let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default().to_owned();
            let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{}:8080/proxy/", text("name"));
            let page = timeout(ANSWER_TIMEOUT, self.client().get(&path)).await??.ok()?;
            let page = page.as_str().context("no text")?.trim().to_owned();
            pages.insert(text("name"), (text("uid"), page));
        }
        Ok(pages)
    }

    /// Returns the pods with this label, whether or not they are being deleted.
    pub(crate) async fn pods(&self, label: &str) -> Result<Vec<Value>> {
        self.client().list(&format!("/api/v1/namespaces/{NAMESPACE}/pods?labelSelector={label}")).await
    }

    /// Waits until the operator has exactly one pod, and it is Ready. Returns the pod.
    pub(crate) async fn operator_pod(&self) -> Value {
        self.eventually("the operator's pod is Ready", async || {
            let mut pods = self.pods("app.kubernetes.io/name=configmonitor-operator").await?;
            ensure!(pods.len() == 1, "the operator has {} pods", pods.len());
            let pod = pods.remove(0);
            ensure!(is_ready(&pod), "{}", pod["status"]["conditions"]);
            Ok(pod)
        })
        .await
    }

    /// Describes all pods for messages: how each container last ended (exit code, reason, message), and the Events.
    pub(crate) async fn describe(&self) -> String {
        self.kubectl(&["describe", "pods", "--show-events"]).await.unwrap_or_else(|error| format!("{error:#}"))
    }

    pub(crate) async fn process(&self, pod: &Value, container: &str) -> u32 {
        let id = container_status(pod, container)["containerID"].as_str().unwrap();
        self.node.container_process(id).await.unwrap()
    }
}

/// Returns a message that the page never showed.
pub(crate) fn new_message() -> String {
    format!("message {}", MESSAGES.fetch_add(1, Ordering::Relaxed))
}

/// Returns the status of a container, a sidecar or not.
pub(crate) fn container_status<'a>(pod: &'a Value, container: &str) -> &'a Value {
    let status = &pod["status"];
    named([&status["initContainerStatuses"], &status["containerStatuses"]], container)
}

/// Returns the spec of a container, a sidecar or not.
pub(crate) fn container_spec<'a>(pod: &'a Value, container: &str) -> &'a Value {
    let spec = &pod["spec"];
    named([&spec["initContainers"], &spec["containers"]], container)
}

fn named<'a>(lists: [&'a Value; 2], name: &str) -> &'a Value {
    let mut all = lists.into_iter().filter_map(Value::as_array).flatten();
    all.find(|entry| entry["name"] == name).unwrap()
}

/// Returns the archives that the Makefile has made, and kubectl's with its version.
async fn images(dir: &Path) -> Result<(Vec<PathBuf>, String)> {
    let made =
        env::var_os("CONFIGMONITOR_IMAGES").context("CONFIGMONITOR_IMAGES is not set: please run `make test-node`")?;
    let made = |name: &str| Path::new(&made).join(name);
    let kubectl = Binaries::prepare_kubectl_of_the_manifests().await?.program("kubectl");
    let folder = dir.join("kubectl");
    fs::create_dir_all(folder.join("bin"))?;
    fs::copy(&kubectl, folder.join("bin/kubectl"))?;
    let version = version(&kubectl).await?;
    let kubectl = pack_image(&format!("localhost/kubectl:{version}"), "/bin/kubectl", &folder).await?;
    Ok((vec![made("configmonitor-operator.tar"), made("demo-app.tar"), kubectl], version))
}

async fn version(kubectl: &Path) -> Result<String> {
    let mut command = Command::new(kubectl);
    let text = printed(command.args(["version", "--client", "--output=json"])).await?;
    let version: Value = serde_json::from_str(&text)?;
    Ok(version["clientVersion"]["gitVersion"].as_str().context("no version")?.to_owned())
}
