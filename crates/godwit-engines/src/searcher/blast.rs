//! BLAST: `godwit-blast`, the worker that links NCBI's libraries, and the programs of an installed BLAST+.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::EngineError;
use crate::locate::locate;

/// Name of the worker.
pub const WORKER: &str = "godwit-blast";
/// Environment variable that names the worker's path.
pub const WORKER_VARIABLE: &str = "GODWIT_BLAST";
/// How to get the worker.
pub const WORKER_REMEDY: &str =
    "it is built where NCBI's libraries are: run tools/fetch-ncbi.sh and build godwit again";
/// How to get BLAST+.
pub const REMEDY: &str =
    "install BLAST+ 2.10 or later (Debian and Ubuntu: apt-get install ncbi-blast+; bioconda: blast)";

/// Finds the worker: the path in `GODWIT_BLAST`, else beside this executable, else on PATH.
///
/// # Errors
/// [`EngineError::NotInstalled`] when there is none.
pub fn find_worker() -> Result<PathBuf, EngineError> {
    let missing = |_| EngineError::NotInstalled { program: WORKER.into(), remedy: WORKER_REMEDY.into() };
    locate(WORKER, WORKER_VARIABLE).map_err(missing)
}

/// The version of the BLAST engine that the worker links: `2.17.0+`. Starts the worker, which fails where its libraries are gone.
///
/// # Errors
/// [`EngineError::NotInstalled`] when it cannot be started.
pub fn worker_version(worker: &Path) -> Result<String, EngineError> {
    let missing = || EngineError::NotInstalled { program: worker.display().to_string(), remedy: WORKER_REMEDY.into() };
    first_line(worker, "--version").ok_or_else(missing)
}

/// A program of an installed BLAST+ and its version.
///
/// # Errors
/// [`EngineError::NotInstalled`] when it is not on PATH.
pub fn find_program(program: &str) -> Result<(PathBuf, String), EngineError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(program)).find(|path| path.is_file());
    let version = found.and_then(|path| first_line(&path, "-version").map(|line| (path, line)));
    let (path, line) =
        version.ok_or_else(|| EngineError::NotInstalled { program: program.into(), remedy: REMEDY.into() })?;
    let version = line.rsplit(' ').next().unwrap_or_default().to_owned();
    Ok((path, version))
}

fn first_line(program: &Path, option: &str) -> Option<String> {
    let output = Command::new(program).arg(option).stdin(Stdio::null()).output().ok()?;
    let said = String::from_utf8_lossy(&output.stdout).lines().next()?.trim().to_owned();
    (output.status.success() && !said.is_empty()).then_some(said)
}
