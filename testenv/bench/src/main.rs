//! The benchmark: what the operator costs, compared with the least that any program needs. All contestants share one run on a real control plane, through a real kubectl proxy. No machine is the same twice, so the
//! ratios are the result.

mod audit;
mod contestants;
mod discover;
mod floor;
mod ground;
mod memory;
mod namespaces;
mod restarts;
mod rolling;
mod table;
mod usage;

use std::env;
use std::fs;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use testenv::operator;

const PARTS: [&str; 6] = ["restarts", "rolling", "storm", "memory", "namespaces", "discover"];

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let part = env::args().nth(1);
    if part.as_deref().is_some_and(|part| !PARTS.contains(&part)) {
        eprintln!("usage: bench [{}]", PARTS.join(" | "));
        return ExitCode::from(2);
    }
    match run(part.as_deref()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nerror: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(only: Option<&str>) -> Result<()> {
    ensure!(
        !cfg!(debug_assertions),
        "this is not built for speed, nor is what lies beside it: please run `make bench`"
    );
    let binary = operator::binary()?;
    println!("operator: {:.2} MB; {}", fs::metadata(&binary)?.len() as f64 / 1e6, machine()?);
    for part in PARTS.into_iter().filter(|part| only.is_none_or(|only| only == *part)) {
        match part {
            "restarts" => restarts::run().await?,
            "rolling" => rolling::run().await?,
            "storm" => restarts::storm().await?,
            "memory" => memory::run().await?,
            "namespaces" => namespaces::run().await?,
            _ => discover::run().await?,
        }
    }
    Ok(())
}

fn machine() -> Result<String> {
    let model = fs::read_to_string("/proc/cpuinfo")?;
    let model = model.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let processors = std::thread::available_parallelism()?;
    Ok(format!("{processors} processors, {}", model.trim_start_matches([' ', '\t', ':'])))
}
