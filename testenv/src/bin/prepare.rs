//! Builds the control plane's programs where they are missing, so that tests
//! find them; does nothing else. With `--kubelet` that one, too; with
//! `--prometheus` Prometheus instead.

use std::process::ExitCode;

use anyhow::anyhow;
use testenv::binaries::Binaries;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match &*arguments {
        [] => Binaries::prepare().await,
        [argument] if argument == "--kubelet" => Binaries::prepare_with_kubelet().await,
        [argument] if argument == "--prometheus" => Binaries::prepare_prometheus().await,
        _ => Err(anyhow!("usage: prepare [--kubelet | --prometheus]")),
    };
    match result {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
