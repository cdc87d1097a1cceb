//! DIAMOND: searches proteins and translated nucleotides in proteins.

use std::path::PathBuf;

use crate::EngineError;

/// Name of the program.
pub const PROGRAM: &str = "diamond";
/// Installation instructions.
pub const REMEDY: &str = "install DIAMOND (Debian and Ubuntu: apt-get install diamond-aligner; bioconda: diamond)";

/// Finds the program; returns its path and version, such as `2.1.3`.
///
/// # Errors
/// [`EngineError::NotInstalled`] if it is not on PATH.
pub fn find_program_version() -> Result<(PathBuf, String), EngineError> {
    let (path, line) = super::find_program_version(PROGRAM, "version", REMEDY)?;
    // `diamond version 2.1.3`
    Ok((path, line.rsplit(' ').next().unwrap_or_default().to_owned()))
}
