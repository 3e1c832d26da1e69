//! What a file would change, by the API server's own dry run.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::Arc;

use configmonitor_operator::monitor::source::SourceName;
use serde_json::Value;

use crate::ambassador::kubectl;
use crate::monitors::Monitor;
use crate::options::{Access, source};
use crate::outcome::Failure;

/// What becomes of an object.
#[derive(Clone, Debug)]
pub(crate) enum Edit {
    /// A ConfigMap or a Secret. None: it is deleted.
    Source {
        name: SourceName,
        object: Option<Value>,
    },
    Monitor(Value),
    /// A workload, as `KIND/NAME`, whose pod template is another one.
    Template(String),
    /// Restarts nothing.
    Other,
}

impl Edit {
    pub(crate) fn delete(name: SourceName) -> Self {
        Self::Source { name, object: None }
    }

    /// Returns whether this may matter to a ConfigMonitor.
    pub(crate) fn concerns(&self, monitor: &Monitor) -> bool {
        match self {
            Self::Source { name, .. } => monitor.has(name),
            Self::Monitor(edited) => edited["metadata"]["name"] == *monitor.metadata.name,
            Self::Template(_) | Self::Other => false,
        }
    }

    /// Returns the object with its path, if it is a source.
    pub(crate) fn object(&self, namespace: &str) -> Option<(String, Option<Value>)> {
        let Self::Source { name: SourceName { kind, name }, object } = self else { return None };
        Some((format!("/api/v1/namespaces/{namespace}/{}/{name}", kind.resource().plural), object.clone()))
    }
}

/// Returns what `kubectl apply` of this file would change in each namespace.
pub(crate) async fn dry_run(access: &Access, file: &str) -> Result<BTreeMap<Arc<str>, Vec<Edit>>, Failure> {
    let mut edits: BTreeMap<Arc<str>, Vec<Edit>> = BTreeMap::new();
    let mut by = vec!["apply", "--dry-run=server"];
    // Given, it refuses objects of other namespaces.
    by.extend(access.namespace.iter().flat_map(|namespace| ["--namespace", namespace]));
    for object in printed(access, file, &by).await? {
        // What is in no namespace restarts nothing.
        let Some(namespace) = object["metadata"]["namespace"].as_str().map(Arc::from) else { continue };
        let edit = edit(access, &namespace, object).await?;
        edits.entry(namespace).or_default().push(edit);
    }
    Ok(edits)
}

/// Returns the objects of a file, as this command of kubectl prints them.
async fn printed(access: &Access, file: &str, by: &[&str]) -> Result<Vec<Value>, Failure> {
    let mut command = kubectl(access);
    command.args(by).args(["--output=json", "--recursive", "--filename", file]);
    let output = command.stdin(Stdio::inherit()).stderr(Stdio::piped()).output().await?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::Failed(format!("kubectl {} of {file} fails: {}", by[0], said.trim())));
    }
    let documents = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Value>();
    let documents: Vec<Value> = documents.collect::<Result<_, _>>().map_err(Failure::failed)?;
    let of = |document: Value| match document["items"].as_array() {
        Some(items) if document["kind"] == "List" => items.clone(),
        _ => vec![document],
    };
    Ok(documents.into_iter().flat_map(of).collect())
}

async fn edit(access: &Access, namespace: &str, mut object: Value) -> Result<Edit, Failure> {
    let of = |object: &Value, field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let (kind, name) = (of(&object, "kind"), of(&object["metadata"], "name"));
    if let Ok(source) = source(&format!("{kind}/{name}")) {
        // A dry run leaves the version as it is.
        object["metadata"]["resourceVersion"] = "plan".into();
        return Ok(Edit::Source { name: source, object: Some(object) });
    }
    if kind == "ConfigMonitor" {
        return Ok(Edit::Monitor(object));
    }
    let template = &object["spec"]["template"];
    if template.is_null() {
        return Ok(Edit::Other);
    }
    let mut command = kubectl(access);
    command.args(["get", &kind, &name, "--namespace", namespace, "--output=json", "--ignore-not-found"]);
    let output = command.output().await?;
    let known: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    match known.is_null() || known["spec"]["template"] == *template {
        true => Ok(Edit::Other),
        false => Ok(Edit::Template(format!("{kind}/{name}"))),
    }
}
