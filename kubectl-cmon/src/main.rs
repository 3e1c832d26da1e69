//! The plugin of kubectl.

use std::process::ExitCode;

fn main() -> ExitCode {
    kubectl_cmon::main()
}
