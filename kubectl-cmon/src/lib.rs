//! `kubectl cmon`: shows ConfigMonitors, waits for their restarts, and requests or suspends these.
//!
//! Like the operator, it speaks plain HTTP to a `kubectl proxy` (`ambassador`), and so has no kubeconfig, TLS or token of
//! its own. `options` reads the command line, and each command has a module.

mod ambassador;
mod conditions;
mod convert;
mod create;
mod doctor;
mod documents;
mod manifests;
mod monitors;
mod options;
pub mod outcome;
pub mod plan;
mod request;
mod restarters;
pub mod shadow;
mod status;
mod text;
mod verdict;
mod wait;

use std::ffi::OsString;
use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};

use self::ambassador::Ambassador;
use self::options::{Command, Options};
use self::outcome::Failure;

/// Does what the command line says.
pub fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let task = match arguments.nth(1) {
        Some(word) if word == ambassador::TIED => Task::Tied(arguments.collect()),
        _ => match Options::read(std::env::args_os()) {
            Ok(options) => Task::Run(options),
            Err(printed) => return printed,
        },
    };
    let is_tied = matches!(task, Task::Tied(_));
    let outcome = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(until_terminated(task)),
        Err(error) => Err(Failure::failed(error)),
    };
    match outcome {
        Ok(code) => code,
        Err(failure) => {
            // The plugin itself says that it was interrupted.
            let is_said = matches!(failure, Failure::Unread) || is_tied && matches!(failure, Failure::Signal(_));
            if !is_said {
                text::say(format_args!("error: {failure}"));
            }
            failure.code()
        }
    }
}

/// What to do.
enum Task {
    Run(Options),
    /// Run kubectl for another process of this program.
    Tied(Vec<OsString>),
}

/// Ends the proxy, too, when the plugin is terminated.
async fn until_terminated(task: Task) -> Result<ExitCode, Failure> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut hangup = signal(SignalKind::hangup())?;
    let work = async {
        match task {
            Task::Run(options) => run(options).await,
            Task::Tied(words) => ambassador::tied(words).await,
        }
    };
    tokio::select! {
        outcome = work => outcome,
        _ = interrupt.recv() => Err(Failure::Signal(2)),
        _ = terminate.recv() => Err(Failure::Signal(15)),
        _ = hangup.recv() => Err(Failure::Signal(1)),
    }
}

async fn run(Options { access, command }: Options) -> Result<ExitCode, Failure> {
    let ambassador = Ambassador::start(&access).await?;
    let namespaced = ambassador.client.within(&ambassador.namespace);
    match &command {
        Command::Status(status) => status::run(&ambassador, status).await?,
        Command::Wait(wait) => wait::run(&namespaced, wait).await?,
        Command::Plan(plan) => return plan::run(&access, &ambassador, plan).await,
        Command::Create(create) => create::run(&access, &ambassador, create).await?,
        Command::Convert(convert) => convert::run(&access, &ambassador, convert).await?,
        Command::Doctor(search) => doctor::run(&ambassador, search).await?,
        Command::Restart(restart) => request::restart(&namespaced, restart).await?,
        Command::Suspend(suspend) => request::suspend(&namespaced, suspend).await?,
        Command::Resume(resume) => request::resume(&namespaced, resume).await?,
    }
    Ok(ExitCode::SUCCESS)
}
