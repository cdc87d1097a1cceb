//! DIAMOND: proteins and translated nucleotides in proteins.

use std::path::PathBuf;

use crate::EngineError;

/// Name of the program.
pub const PROGRAM: &str = "diamond";
/// How to get it.
pub const REMEDY: &str = "install DIAMOND (Debian and Ubuntu: apt-get install diamond-aligner; bioconda: diamond)";

/// The program and its version, such as `2.1.3`.
///
/// # Errors
/// [`EngineError::NotInstalled`] when it is not on PATH.
pub fn find() -> Result<(PathBuf, String), EngineError> {
    let (path, line) = super::on_path(PROGRAM, "version", REMEDY)?;
    // diamond version 2.1.3
    Ok((path, line.rsplit(' ').next().unwrap_or_default().to_owned()))
}
