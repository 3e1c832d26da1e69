//! Builds the control plane's programs where they are missing, so that tests
//! find them; does nothing else. With `--kubelet` that one, too.

use std::process::ExitCode;

use testenv::binaries::Binaries;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let with_kubelet = std::env::args().nth(1).is_some_and(|argument| argument == "--kubelet");
    let result = if with_kubelet { Binaries::prepare_with_kubelet().await } else { Binaries::prepare().await };
    match result {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
