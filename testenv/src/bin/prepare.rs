//! Builds the missing programs of the control plane for the tests, and does nothing else. `--kubelet` adds the kubelet;
//! `--tools` builds the tools of the tests instead; `--tool NAME` builds one tool, and prints its path.

use std::process::ExitCode;

use anyhow::anyhow;
use testenv::binaries::{Binaries, prepare_tools, tool};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => Binaries::prepare().await.map(drop),
        ["--kubelet"] => Binaries::prepare_with_kubelet().await.map(drop),
        ["--tools"] => prepare_tools().await,
        ["--tool", name] => tool(name).await.map(|file| println!("{}", file.display())),
        _ => Err(anyhow!("usage: prepare [--kubelet | --tools | --tool NAME]")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
