//! The control plane as a whole: start, outages, restore, end.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::binaries::Binaries;
use crate::client::{Client, DEADLINE, eventually, is_ready};
use crate::history::{self, History, Past};
use crate::kubectl::Kubectl;
use crate::process::Process;
use crate::proxy::Proxy;
use crate::run_dir::RunDir;
use crate::site::{Nodes, Site};

/// The only node.
pub(crate) const NODE: &str = "node";

/// How often another port is tried when another process takes the chosen one first.
const PORT_ATTEMPTS: u32 = 5;

/// A running control plane. Dropping this value kills all its processes and removes its files: nothing needs an orderly
/// end.
///
/// It does not depend on the tokio runtime in which it was started, so the tests of one binary can share it; a
/// [`Client`] does.
#[derive(Debug)]
pub struct ControlPlane {
    // The fields are dropped, and the processes end, in this order, before the folder with their files.
    proxy: Proxy,
    clients: Vec<Process>,
    api_server: Process,
    etcd: Process,
    admin: Kubectl,
    tokens: AtomicU32,
    audited: Mutex<Audited>,
    site: Site,
}

impl ControlPlane {
    /// Builds the programs if necessary, starts everything, and waits until a pod can be scheduled in the namespace
    /// `default`. That takes about four seconds, and half a GB of memory.
    pub async fn start() -> Result<Self> {
        let control_plane = Self::start_on(Binaries::prepare().await?, Nodes::Kwok { port: free_port()? }).await?;
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": {"kubernetes.io/os": "linux"}}});
        control_plane.client().create("/api/v1/nodes", &node).await?.ok()?;
        control_plane.protect_namesakes().await?;
        control_plane.wait_until_schedulable().await?;
        Ok(control_plane)
    }

    /// Protects pods from kwok: it ends a pod by its name, and sometimes a second time when a StatefulSet has created
    /// another pod of that name. A kubelet names the UID.
    async fn protect_namesakes(&self) -> Result<()> {
        let name = json!({"name": "kwok-ends-only-pods-that-go"});
        let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["pods"]});
        let policy = json!({"metadata": name, "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "matchConditions": [{"name": "kwok", "expression": "request.userInfo.username == 'kwok'"}],
            "validations": [{"expression": "has(oldObject.metadata.deletionTimestamp)"}],
        }});
        let binding = json!({"metadata": name, "spec": {"policyName": name["name"], "validationActions": ["Deny"]}});
        let (client, group) = (self.client(), "/apis/admissionregistration.k8s.io/v1");
        client.create(&format!("{group}/validatingadmissionpolicies"), &policy).await?.ok()?;
        client.create(&format!("{group}/validatingadmissionpolicybindings"), &binding).await?.ok()?;
        Ok(())
    }

    /// Starts everything except real nodes.
    pub(crate) async fn start_on(binaries: Binaries, nodes: Nodes) -> Result<Self> {
        let mut site = Site::new(binaries, nodes)?;
        let etcd = site.start_etcd()?;
        let mut attempt = 1;
        let api_server = loop {
            let api_server = site.start_api_server()?;
            match wait_until_ready(&api_server, &site.admin()?).await {
                Ok(()) => break api_server,
                Err(_)
                    if attempt < PORT_ATTEMPTS
                        && matches!(site.nodes, Nodes::Kwok { .. })
                        && port_was_taken(&api_server)? =>
                {
                    attempt += 1;
                    site.nodes = Nodes::Kwok { port: free_port()? };
                }
                // Without its store the API server only logs errors.
                Err(_) if etcd.exit_status().is_some() => return Err(etcd.failure("does not run")),
                Err(error) => return Err(error),
            }
        };
        let admin = site.admin()?;
        Ok(Self {
            clients: site.start_clients()?,
            proxy: Proxy::start(admin.clone(), &[]).await?,
            api_server,
            etcd,
            admin,
            tokens: AtomicU32::new(0),
            audited: Mutex::default(),
            site,
        })
    }

    /// Kills the API server (SIGKILL). All other programs keep running and try to reconnect.
    pub fn kill_api_server(&mut self) {
        self.api_server.kill();
    }

    /// Starts the API server again after [`ControlPlane::kill_api_server`], on the same port with the same content, and
    /// waits until it is ready.
    pub async fn start_api_server(&mut self) -> Result<()> {
        self.api_server = self.site.start_api_server()?;
        wait_until_ready(&self.api_server, &self.admin).await
    }

    /// Starts controllers, scheduler and kwok again if one of them has ended, as a kubelet would: the scheduler exits
    /// when it sees an impossible state of a pod, as after a kill of the API server.
    pub fn start_what_has_ended(&mut self) -> Result<()> {
        if self.clients.iter().any(|client| client.exit_status().is_some()) {
            self.start_clients_anew()?;
        }
        Ok(())
    }

    /// Restarts controllers, scheduler and kwok. kwok may never retry what failed while the API server was unavailable,
    /// such as the end of a pod.
    pub fn start_clients_anew(&mut self) -> Result<()> {
        self.clients.clear();
        self.clients = self.site.start_clients()?;
        Ok(())
    }

    /// Ends controllers, scheduler and kwok: from now on nothing changes by itself.
    pub fn end_clients(&mut self) {
        self.clients.clear();
    }

    /// Ends etcd, copies its data, and starts it again.
    pub async fn back_up(&mut self) -> Result<Backup> {
        let folder = RunDir::create()?;
        self.etcd.kill();
        self.site.copy_etcd_to(&folder.path().join("etcd")).await?;
        // Nothing may be written before the last revision of the copy is known.
        self.api_server.pause()?;
        self.etcd = self.site.start_etcd()?;
        let revision = history::revision(&self.site.etcd_socket()).await;
        self.api_server.resume()?;
        Ok(Backup { folder, revision: revision? })
    }

    /// Restores a backup, and starts all programs anew, because none of them is made for a store that goes back in
    /// time.
    pub async fn restore(&mut self, backup: &Backup) -> Result<()> {
        self.clients.clear();
        self.api_server.kill();
        self.etcd.kill();
        self.site.copy_etcd_from(&backup.folder.path().join("etcd")).await?;
        self.etcd = self.site.start_etcd()?;
        self.start_api_server().await?;
        self.start_clients_anew()?;
        self.wait_until_schedulable().await
    }

    /// Returns the history of all objects whose keys in etcd begin with one of `prefixes`, from the revision after
    /// `past` on.
    pub fn history(&self, prefixes: &[&str], past: Past) -> History {
        History::follow(&self.site.etcd_socket(), prefixes, past)
    }

    /// Returns kubectl as the cluster's administrator.
    pub fn kubectl(&self) -> &Kubectl {
        &self.admin
    }

    pub fn kubectl_with(&self, token: &str) -> Result<Kubectl> {
        let number = self.tokens.fetch_add(1, Ordering::Relaxed);
        self.site.kubectl(&format!("token-{number}"), token)
    }

    /// Starts a proxy with `token` on any free port, and waits until it listens. `args` may restrict the paths that it
    /// accepts.
    pub async fn proxy_with(&self, token: &str, args: &[String]) -> Result<Proxy> {
        Proxy::start(self.kubectl_with(token)?, args).await
    }

    /// Returns a client with the administrator's rights, for the current runtime.
    pub fn client(&self) -> Client {
        Client::new(&self.proxy.url())
    }

    /// Returns a token of a service account, valid for an hour.
    pub async fn service_account_token(&self, namespace: &str, name: &str) -> Result<String> {
        let args = ["create", "token", name, "--namespace", namespace];
        Ok(self.admin.ok(&args).await?.trim().to_owned())
    }

    /// Returns the requests of a ServiceAccount so far, from the API server's audit log: `verb`, `objectRef`,
    /// `responseStatus` and so on, but no bodies. A watch has two entries, when it starts and when it ends (`stage`). Each
    /// line of the log is read once, so that many tests may ask again and again.
    pub fn requests_of(&self, user: &str) -> Result<Vec<Value>> {
        let mut audited = self.audited.lock().unwrap_or_else(PoisonError::into_inner);
        audited.read(&self.audit_log_file())?;
        let lines = audited.by_user.get(user).into_iter().flatten();
        Ok(lines.map(|line| serde_json::from_str(line)).collect::<Result<_, _>>()?)
    }

    pub fn audit_log_file(&self) -> PathBuf {
        self.site.audit_log_file()
    }

    pub(crate) fn site(&self) -> &Site {
        &self.site
    }

    pub(crate) async fn wait_until_schedulable(&self) -> Result<()> {
        let client = self.client();
        eventually("the node is ready", DEADLINE, async || {
            let node = client.get(&format!("/api/v1/nodes/{NODE}")).await?.ok()?;
            ensure!(is_ready(&node) && node["spec"]["taints"].is_null(), "the node is {node}");
            Ok(())
        })
        .await?;
        eventually("the namespace has its service account", DEADLINE, async || {
            client.get("/api/v1/namespaces/default/serviceaccounts/default").await?.ok()
        })
        .await?;
        Ok(())
    }
}

/// How the names of the users begin whose requests [`ControlPlane::requests_of`] returns.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// The lines of the audit log so far.
#[derive(Debug, Default)]
struct Audited {
    by_user: HashMap<String, Vec<String>>,
    /// How many bytes of the file have been read.
    read: u64,
}

#[derive(Deserialize)]
struct AuditedBy {
    user: User,
}

#[derive(Deserialize)]
struct User {
    username: String,
}

impl Audited {
    fn read(&mut self, file: &Path) -> Result<()> {
        let mut file = File::open(file)?;
        file.seek(SeekFrom::Start(self.read))?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        // The last line may be half written.
        for line in text.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")) {
            self.read += line.len() as u64;
            // And so may that of a killed server.
            let Ok(AuditedBy { user }) = serde_json::from_slice(line) else { continue };
            if user.username.starts_with(SERVICE_ACCOUNT) {
                self.by_user.entry(user.username).or_default().push(String::from_utf8_lossy(line).into_owned());
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
pub struct Backup {
    folder: RunDir,
    pub revision: u64,
}

/// Returns a port of 127.0.0.1 that is free at the moment; nothing keeps others from taking it.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

async fn wait_until_ready(api_server: &Process, admin: &Kubectl) -> Result<()> {
    let ready = eventually("the API server is ready", DEADLINE, async || admin.ok(&["get", "--raw=/readyz"]).await);
    tokio::select! {
        result = ready => result.map(|_| ()),
        _ = api_server.ended() => Err(api_server.failure("does not run")),
    }
}

fn port_was_taken(api_server: &Process) -> Result<bool> {
    Ok(api_server.log()?.contains("address already in use"))
}

/// Returns the resource of an entry of the audit log, such as `pods/eviction`.
pub fn resource_of(entry: &Value) -> String {
    let names = ["resource", "subresource"].map(|name| entry["objectRef"][name].as_str());
    names.into_iter().flatten().collect::<Vec<_>>().join("/")
}
