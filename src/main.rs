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

/// A flag or a variable is wrong.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let options = match Options::read(std::env::args_os()) {
        Ok(options) => options,
        Err(Stop::Wrong(line)) => {
            eprintln!("{line}");
            return ExitCode::from(USAGE);
        }
        Err(Stop::Asked(text)) => {
            return match stdout().write_all(text.as_bytes()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    eprintln!("error: {error}");
                    ExitCode::FAILURE
                }
            };
        }
    };
    start_log(&options);
    match run(options) {
        Ok(End::Asked) => ExitCode::SUCCESS,
        Ok(End::LeadershipLost) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: Options) -> Result<End, Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(operate(options));
    // A look-up of the proxy's name, which cannot be cut short, must not hold up the end.
    runtime.shutdown_background();
    ended
}

async fn operate(options: Options) -> Result<End, Box<dyn std::error::Error>> {
    let shutdown = CancellationToken::new();
    let signals =
        tokio::spawn(obey(signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?, shutdown.clone()));
    let end = configmonitor_operator::run(options, shutdown).await?;
    signals.abort();
    Ok(end)
}

/// The first signal ends the operator in good order, the second at once.
async fn obey(mut terminate: Signal, mut interrupt: Signal, shutdown: CancellationToken) {
    loop {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        if shutdown.is_cancelled() {
            std::process::exit(1);
        }
        info!("ending: nothing new is begun");
        shutdown.cancel();
    }
}

fn start_log(options: &Options) {
    let lines = tracing_subscriber::fmt::layer().with_target(false).with_writer(std::io::stderr);
    let layer = match options.log_format {
        LogFormat::Text => lines.with_ansi(false).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_current_span(false).with_span_list(false).boxed(),
    };
    tracing_subscriber::registry().with(layer.with_filter(options.log.clone())).init();
}
