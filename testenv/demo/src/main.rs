//! The demo: edits a ConfigMap, and the operator, as a process, restarts the pods that read it. It shows every command
//! that it runs, and touches nothing but the cluster that it starts itself: a simulated one, or a real control plane.

mod play;
mod record;
mod show;
mod world;

use std::env;
use std::future::Future;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Error, Result};
use testenv::project;
use tokio::signal::unix::{SignalKind, signal};

use crate::play::Stage;

/// As shells report a program that Ctrl-C has stopped.
const INTERRUPTED: u8 = 130;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let (is_real, keep) = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["simulated"] => (false, false),
        ["simulated", "--keep"] => (false, true),
        ["real"] => (true, false),
        ["real", "--keep"] => (true, true),
        [cluster, "--record", path] => {
            return record::record(cluster, Path::new(path)).map_or_else(failure, |()| ExitCode::SUCCESS);
        }
        _ => {
            eprintln!("usage: demo simulated|real [--keep | --record FILE]");
            return ExitCode::from(2);
        }
    };
    run(is_real, keep).await.unwrap_or_else(failure)
}

fn failure(error: Error) -> ExitCode {
    eprintln!("\nerror: {error:#}");
    ExitCode::FAILURE
}

async fn run(is_real: bool, keep: bool) -> Result<ExitCode> {
    let mut interrupted = std::pin::pin!(interrupted()?);
    env::set_current_dir(project(""))?;

    // An interrupt drops the stage, and its processes with it.
    let stage = tokio::select! {
        stage = Stage::play(is_real) => stage?,
        () = &mut interrupted => {
            eprintln!("\nInterrupted: everything is stopped.");
            return Ok(ExitCode::from(INTERRUPTED));
        }
    };
    if keep {
        stage.show_how_to_go_on();
        tokio::select! {
            error = stage.follow() => return Err(error),
            () = &mut interrupted => {}
        }
    }
    println!("\nEverything is stopped.");
    if !keep {
        println!("To try it by hand: make demo KEEP=1");
        stage.show_what_else();
    }
    drop(stage);
    Ok(ExitCode::SUCCESS)
}

/// Ends at Ctrl-C and at SIGTERM.
fn interrupted() -> Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
