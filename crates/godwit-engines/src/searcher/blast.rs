//! BLAST: `godwit-blast`, the worker that links NCBI's libraries, and the programs of an installed BLAST+.

use std::path::{Path, PathBuf};

use crate::EngineError;
use crate::program_lookup::locate_program;

/// Name of the worker.
pub const WORKER_PROGRAM: &str = "godwit-blast";
/// Environment variable that names the worker's path.
pub const WORKER_VARIABLE: &str = "GODWIT_BLAST";
/// Installation instructions for the worker.
pub const WORKER_REMEDY: &str =
    "it is built where NCBI's libraries are: run tools/fetch-ncbi.sh and build godwit again";
/// Installation instructions for BLAST+.
pub const REMEDY: &str =
    "install BLAST+ 2.10 or later (Debian and Ubuntu: apt-get install ncbi-blast+; bioconda: blast)";

/// Finds the worker: the path in `GODWIT_BLAST`, else beside this executable, else on PATH.
///
/// # Errors
/// [`EngineError::NotInstalled`] if there is none.
pub fn find_worker() -> Result<PathBuf, EngineError> {
    let missing = |_| EngineError::NotInstalled { program: WORKER_PROGRAM.into(), remedy: WORKER_REMEDY.into() };
    locate_program(WORKER_PROGRAM, WORKER_VARIABLE).map_err(missing)
}

/// Returns the version of the BLAST engine that the worker links: `2.17.0+`. Starts the worker, which fails without its libraries.
///
/// # Errors
/// [`EngineError::NotInstalled`] if it cannot be started.
pub fn query_worker_version(worker: &Path) -> Result<String, EngineError> {
    let missing = || EngineError::NotInstalled { program: worker.display().to_string(), remedy: WORKER_REMEDY.into() };
    super::query_version_line(worker, "--version").ok_or_else(missing)
}

/// Finds a program of an installed BLAST+; returns its path and version.
///
/// # Errors
/// [`EngineError::NotInstalled`] if it is not on PATH.
pub fn find_program_version(program: &str) -> Result<(PathBuf, String), EngineError> {
    let (path, line) = super::find_program_version(program, "-version", REMEDY)?;
    let version = line.rsplit(' ').next().unwrap_or_default().to_owned();
    Ok((path, version))
}
