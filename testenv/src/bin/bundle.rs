//! Writes the bundle for the Operator Lifecycle Manager into a folder, with the operator's image if one is given.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};
use testenv::binaries::Binaries;
use testenv::bundle;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match write().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn write() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (folder, image) = match &*arguments {
        [folder] => (folder, None),
        [folder, image] => (folder, Some(image.as_str())),
        _ => bail!("usage: bundle FOLDER [IMAGE]"),
    };
    let kubectl = Binaries::prepare().await?.program("kubectl");
    for (name, text) in bundle::files(&kubectl, image).await? {
        let file = Path::new(folder).join(name);
        if let Some(parent) = file.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(file, text)?;
    }
    println!("{folder}");
    Ok(())
}
