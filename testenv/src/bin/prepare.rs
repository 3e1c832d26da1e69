//! Builds the control plane's programs where they are missing, so that tests
//! find them; does nothing else.

use std::process::ExitCode;

use testenv::binaries::Binaries;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match Binaries::prepare().await {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
