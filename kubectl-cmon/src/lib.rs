//! `kubectl cmon`: shows ConfigMonitors, waits for their restarts, and requests or suspends these.
//!
//! Like the operator, it speaks plain HTTP to a `kubectl proxy` (`ambassador`), and so has no kubeconfig, TLS or token of
//! its own. `options` reads the command line, and each command has a module.

mod ambassador;
mod convert;
mod coverage;
mod create;
mod doctor;
mod manifests;
mod monitors;
mod options;
pub mod outcome;
pub mod plan;
mod request;
pub mod shadow;
mod status;
mod text;
mod verdict;
mod wait;
mod why;

use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};

use self::ambassador::Ambassador;
use self::options::{Command, Options};
use self::outcome::Failure;

/// Does what the command line says.
pub fn main() -> ExitCode {
    let options = match Options::read(std::env::args_os()) {
        Ok(options) => options,
        Err(printed) => return printed,
    };
    let outcome = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(until_terminated(options)),
        Err(error) => Err(Failure::failed(error)),
    };
    match outcome {
        Ok(code) => code,
        Err(failure) => {
            if !matches!(failure, Failure::Unread) {
                eprintln!("error: {failure}");
            }
            failure.code()
        }
    }
}

/// Ends the proxy, too, when the plugin is terminated.
async fn until_terminated(options: Options) -> Result<ExitCode, Failure> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::select! {
        outcome = run(options) => outcome,
        _ = interrupt.recv() => Err(Failure::Signal(2)),
        _ = terminate.recv() => Err(Failure::Signal(15)),
        _ = hangup.recv() => Err(Failure::Signal(1)),
    }
}

async fn run(options: Options) -> Result<ExitCode, Failure> {
    let ambassador = Ambassador::start(&options).await?;
    let namespaced = ambassador.client.within(&ambassador.namespace);
    match &options.command {
        Command::Status(status) => status::run(&ambassador, status).await?,
        Command::Wait(wait) => wait::run(&namespaced, wait).await?,
        Command::Plan(plan) => return plan::run(&options, &ambassador, plan).await,
        Command::Why(why) => why::run(&ambassador, why).await?,
        Command::Create(create) => create::run(&namespaced, create).await?,
        Command::Convert(convert) => convert::run(&options, &ambassador, convert).await?,
        Command::Coverage => coverage::run(&namespaced).await?,
        Command::Doctor => doctor::run(&options, &ambassador).await?,
        Command::Restart(restart) => request::restart(&namespaced, restart).await?,
        Command::Suspend(suspend) => request::suspend(&namespaced, suspend).await?,
        Command::Resume(resume) => request::resume(&ambassador, resume).await?,
    }
    Ok(ExitCode::SUCCESS)
}
