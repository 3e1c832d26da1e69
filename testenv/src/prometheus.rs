//! promtool, which checks metrics, and rules for Prometheus.

use std::path::Path;
use std::process::{Command, Output};

use anyhow::Result;

use crate::binaries::tool;
use crate::process::output;

/// Runs promtool in a folder, with the text of a file of that folder as its input.
pub async fn promtool(folder: &Path, arguments: &[&str], input: &str) -> Result<Output> {
    let mut command = Command::new("sh");
    let redirect = r#"exec "$@" < "$0""#;
    command.current_dir(folder).args(["-c", redirect, input]).arg(tool("promtool").await?).args(arguments);
    output(&command).await
}
