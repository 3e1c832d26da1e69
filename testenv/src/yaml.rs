//! Files of YAML.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;
use serde_norway::Deserializer;

/// Reads the documents of a file, such as objects of Kubernetes. A document that has only comments is left out.
pub fn manifests(path: &Path) -> Result<Vec<Value>> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let documents = Deserializer::from_str(&text).map(Value::deserialize);
    let mut documents: Vec<Value> =
        documents.collect::<Result<_, _>>().with_context(|| format!("{}", path.display()))?;
    documents.retain(|document| !document.is_null());
    Ok(documents)
}
