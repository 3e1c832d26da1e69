//! Builds the control plane's programs where they are missing, so that tests
//! find them; does nothing else. With `--kubelet` that one, too; with
//! `--tools` the tools of the tests instead; with `--tool NAME` that one, and prints where it is.

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
