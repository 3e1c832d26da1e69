//! Folders that exist as long as the process that uses them.

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

const LOCK: &str = "lock";

/// A folder of one run, removed when this value is dropped. It lies in `configmonitor-testenv-UID` under the system's
/// temporary folder, readable by its user only, because it may hold tokens. The value holds a lock on a file in the
/// folder. A folder whose lock is free was left by a killed process, and is removed when the next one is created.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    _lock: File,
}

impl RunDir {
    /// Removes the folders of killed processes, then creates a new one.
    pub fn create() -> Result<Self> {
        let base = std::env::temp_dir().join(format!("configmonitor-testenv-{}", rustix::process::getuid().as_raw()));
        Self::create_in(&base).with_context(|| format!("cannot use {}", base.display()))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    fn create_in(base: &Path) -> Result<Self> {
        private_dir().recursive(true).create(base)?;
        // Nobody sweeps while a new folder has no lock yet.
        let sweeping = File::create(base.join(LOCK))?;
        sweeping.lock()?;
        sweep(base)?;
        for number in 0..u32::MAX {
            let path = base.join(format!("{}-{number}", std::process::id()));
            if path.exists() {
                continue;
            }
            private_dir().create(&path)?;
            let lock = File::create(path.join(LOCK))?;
            lock.lock()?;
            return Ok(Self { path, _lock: lock });
        }
        bail!("no name is free")
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        // A folder that cannot be removed now is swept later.
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn private_dir() -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    builder
}

fn sweep(base: &Path) -> Result<()> {
    for entry in fs::read_dir(base)? {
        let path = entry?.path();
        if path.is_dir() && !is_in_use(&path) {
            // A dying process may still write; the next sweep removes the folder.
            let _ = fs::remove_dir_all(&path);
        }
    }
    Ok(())
}

fn is_in_use(dir: &Path) -> bool {
    File::open(dir.join(LOCK)).is_ok_and(|lock| lock.try_lock().is_err())
}
