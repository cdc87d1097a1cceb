//! DIAMOND, which searches protein databases with protein or translated nucleotide queries.

use std::path::PathBuf;

use crate::EngineError;

/// Name of the program.
pub const PROGRAM: &str = "diamond";
/// Instructions for installing DIAMOND.
pub const REMEDY: &str = "install DIAMOND (Debian and Ubuntu: apt-get install diamond-aligner; bioconda: diamond)";

/// Finds DIAMOND. Returns its path and its version, such as `2.1.3`.
///
/// # Errors
/// [`EngineError::NotInstalled`] if DIAMOND is not on PATH.
pub fn find_program_version() -> Result<(PathBuf, String), EngineError> {
    let (path, line) = super::find_program_version(PROGRAM, "version", REMEDY)?;
    // Example of the output: `diamond version 2.1.3`.
    Ok((path, line.rsplit(' ').next().unwrap_or_default().to_owned()))
}
