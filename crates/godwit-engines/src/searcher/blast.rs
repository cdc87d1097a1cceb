//! BLAST: `godwit-blast`, the worker that links NCBI's libraries, and the programs of an installed BLAST+.

use std::path::{Path, PathBuf};

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
    super::first_line(worker, "--version").ok_or_else(missing)
}

/// A program of an installed BLAST+ and its version.
///
/// # Errors
/// [`EngineError::NotInstalled`] when it is not on PATH.
pub fn find_program(program: &str) -> Result<(PathBuf, String), EngineError> {
    let (path, line) = super::on_path(program, "-version", REMEDY)?;
    let version = line.rsplit(' ').next().unwrap_or_default().to_owned();
    Ok((path, version))
}
