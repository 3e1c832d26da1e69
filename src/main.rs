//! The binary: options, log, signals, exit code.

use std::io::{Write as _, stdout};
use std::process::ExitCode;

use configmonitor_operator::End;
use configmonitor_operator::options::{LogFormat, Options, Stop};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::info;
use tracing_subscriber::Layer as _;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Exit code for a wrong flag or variable.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let result = match Options::read(std::env::args_os()) {
        Ok(options) => run(options),
        Err(Stop::Print(text)) => stdout().write_all(text.as_bytes()).map(|()| ExitCode::SUCCESS).map_err(Into::into),
        Err(Stop::Usage(line)) => {
            eprintln!("{line}");
            return ExitCode::from(USAGE);
        }
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}

fn run(options: Options) -> Result<ExitCode, Box<dyn std::error::Error>> {
    start_log(&options);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let end = runtime.block_on(operate(options));
    // A DNS lookup of the proxy's name cannot be cancelled and must not delay the exit.
    runtime.shutdown_background();
    Ok(match end? {
        End::Requested => ExitCode::SUCCESS,
        End::LeadershipLost => ExitCode::FAILURE,
    })
}

async fn operate(options: Options) -> Result<End, Box<dyn std::error::Error>> {
    let shutdown = CancellationToken::new();
    tokio::spawn(shut_down_on_signal(
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
        shutdown.clone(),
    ));
    configmonitor_operator::run(options, shutdown).await
}

/// Shuts down at the first signal and exits at the second.
async fn shut_down_on_signal(mut terminate: Signal, mut interrupt: Signal, shutdown: CancellationToken) {
    loop {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        if shutdown.is_cancelled() {
            std::process::exit(1);
        }
        info!("signal received: shutting down");
        shutdown.cancel();
    }
}

fn start_log(options: &Options) {
    let lines = tracing_subscriber::fmt::layer().with_target(false).with_writer(std::io::stderr);
    let layer = match options.log_format {
        LogFormat::Text => lines.compact().with_ansi(false).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_span_list(false).boxed(),
    };
    tracing_subscriber::registry().with(layer.with_filter(options.log.clone())).init();
}
