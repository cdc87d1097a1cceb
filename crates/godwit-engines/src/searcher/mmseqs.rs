//! MMseqs2, which searches protein or nucleotide databases by k-mers.

use std::path::PathBuf;

use crate::EngineError;

/// Name of the program.
pub const PROGRAM: &str = "mmseqs";
/// Instructions for installing MMseqs2.
pub const REMEDY: &str = "install MMseqs2 (Debian and Ubuntu: apt-get install mmseqs2; bioconda: mmseqs2)";

/// Finds MMseqs2. Returns its path and its version, such as `14-7e284`.
///
/// # Errors
/// [`EngineError::NotInstalled`] if MMseqs2 is not on PATH.
pub fn find_program_version() -> Result<(PathBuf, String), EngineError> {
    super::find_program_version(PROGRAM, "version", REMEDY)
}
