//! Builds the control plane's programs where they are missing, so that tests
//! find them; does nothing else. With `--kubelet` that one, too; with
//! `--monitoring` Prometheus and kube-state-metrics instead; with `--packaging` Helm and its like,
//! and then prints where helm-docs is.

use std::process::ExitCode;

use anyhow::anyhow;
use testenv::binaries::Binaries;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match &*arguments {
        [] => Binaries::prepare().await,
        [argument] if argument == "--kubelet" => Binaries::prepare_with_kubelet().await,
        [argument] if argument == "--monitoring" => match Binaries::prepare_prometheus().await {
            Ok(_) => Binaries::prepare_kube_state_metrics().await,
            failed => failed,
        },
        [argument] if argument == "--packaging" => {
            let prepared = Binaries::prepare_packaging().await;
            prepared.inspect(|binaries| println!("{}", binaries.program("helm-docs").display()))
        }
        _ => Err(anyhow!("usage: prepare [--kubelet | --monitoring | --packaging]")),
    };
    match result {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
