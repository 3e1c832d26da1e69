//! What must exist before anything long begins. Every check fails with one line that says what to do.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

const GIB: u64 = 1 << 30;

/// The disk space of a cold build, measured and rounded up: the modules, Go's build cache, and the programs with the
/// linker's temporary files.
const MODULES: u64 = GIB;
const BUILD_CACHE: u64 = 4 * GIB;
const PROGRAMS: u64 = GIB;

/// Checks whether children can be tied to this process, see [`crate::process`].
pub(crate) fn check_setpriv() -> Result<()> {
    let works = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "--", "true"])
        .output()
        .is_ok_and(|output| output.status.success());
    ensure!(works, "setpriv with --pdeathsig is needed: please install util-linux 2.33 or newer");
    Ok(())
}

/// Checks that Go is installed, is new enough for the module in `module`, and has the disk space for a build of `what`
/// whose result goes to `target`.
pub(crate) fn check_go_build(what: &str, module: &Path, go_mod: &str, target: &Path) -> Result<()> {
    let required =
        go_mod.lines().find_map(|line| line.strip_prefix("go ")).context("go.mod names no Go version")?.trim();
    let output = Command::new("go").args(["env", "GOVERSION", "GOMODCACHE", "GOCACHE"]).current_dir(module).output();
    let Ok(output) = output else {
        bail!("Go {required} or newer is needed to build {what}: please install it");
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let &[version, modules, build_cache] = &*text.lines().collect::<Vec<_>>() else {
        let error = String::from_utf8_lossy(&output.stderr);
        bail!("`go env` fails: {}", error.trim());
    };
    ensure!(
        numbers(version.trim_start_matches("go")) >= numbers(required),
        "Go {required} or newer is needed to build {what}; {version} is installed"
    );
    check_disk(what, &[(Path::new(modules), MODULES), (Path::new(build_cache), BUILD_CACHE), (target, PROGRAMS)])
}

/// Returns the numbers of a version such as `1.26.0`, without what follows them.
fn numbers(version: &str) -> Vec<u32> {
    version.split('.').map_while(|part| part.parse().ok()).collect()
}

fn check_disk(what: &str, needs: &[(&Path, u64)]) -> Result<()> {
    let mut file_systems = BTreeMap::<u64, (PathBuf, u64)>::new();
    for &(path, bytes) in needs {
        // A folder that does not exist yet will be on its parent's file system.
        let existing = path.ancestors().find_map(|dir| Some((dir, fs::metadata(dir).ok()?)));
        let (dir, metadata) = existing.with_context(|| format!("no folder above {}", path.display()))?;
        let entry = file_systems.entry(metadata.dev());
        entry.or_insert_with(|| (dir.to_owned(), 0)).1 += bytes;
    }
    for (dir, bytes) in file_systems.values() {
        let system = rustix::fs::statvfs(dir)?;
        let free = system.f_bavail * system.f_frsize;
        ensure!(
            free >= *bytes,
            "{} GiB of disk are needed at {} to build {what}; {:.1} GiB are free",
            bytes / GIB,
            dir.display(),
            free as f64 / GIB as f64
        );
    }
    Ok(())
}
