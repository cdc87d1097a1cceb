//! BLAST: the program `godwit-blast`, which links NCBI's libraries, and the programs of an installed BLAST+.

use std::path::{Path, PathBuf};

use crate::EngineError;
use crate::program_lookup::{locate_program, query_version_line};

/// Name of godwit's BLAST program.
pub const WORKER_PROGRAM: &str = "godwit-blast";
/// Name of the environment variable that contains the path of `godwit-blast`.
pub const WORKER_VARIABLE: &str = "GODWIT_BLAST";
/// Instructions for building `godwit-blast`.
pub const WORKER_REMEDY: &str = "its build needs NCBI's libraries: run tools/fetch-ncbi.sh and build godwit again";
/// Instructions for installing BLAST+.
pub const REMEDY: &str =
    "install BLAST+ 2.10 or later (Debian and Ubuntu: apt-get install ncbi-blast+; bioconda: blast)";

/// Finds `godwit-blast`: the path in `GODWIT_BLAST`, else beside this executable, else on PATH.
///
/// # Errors
/// [`EngineError::NotInstalled`] if the program does not exist.
pub fn find_worker() -> Result<PathBuf, EngineError> {
    let missing = |_| EngineError::NotInstalled { program: WORKER_PROGRAM.into(), remedy: WORKER_REMEDY.into() };
    locate_program(WORKER_PROGRAM, WORKER_VARIABLE).map_err(missing)
}

/// Returns the version of the NCBI libraries in `godwit-blast`, such as `2.17.0+`. Starts the program, which fails if
/// its shared libraries are missing.
///
/// # Errors
/// [`EngineError::NotInstalled`] if the program does not start.
pub fn query_worker_version(worker: &Path) -> Result<String, EngineError> {
    let missing = || EngineError::NotInstalled { program: worker.display().to_string(), remedy: WORKER_REMEDY.into() };
    query_version_line(worker, "--version").ok_or_else(missing)
}

/// Finds a program of an installed BLAST+ on PATH. Returns its path and its version.
///
/// # Errors
/// [`EngineError::NotInstalled`] if the program is not on PATH.
pub fn find_program_version(program: &str) -> Result<(PathBuf, String), EngineError> {
    let (path, line) = super::find_program_version(program, "-version", REMEDY)?;
    let version = line.rsplit(' ').next().unwrap_or_default().to_owned();
    Ok((path, version))
}
