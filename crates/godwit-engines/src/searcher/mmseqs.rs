//! MMseqs2: searches proteins and nucleotides, by k-mers.

use std::path::PathBuf;

use crate::EngineError;

/// Name of the program.
pub const PROGRAM: &str = "mmseqs";
/// Installation instructions.
pub const REMEDY: &str = "install MMseqs2 (Debian and Ubuntu: apt-get install mmseqs2; bioconda: mmseqs2)";

/// Finds the program; returns its path and version, such as `14-7e284`.
///
/// # Errors
/// [`EngineError::NotInstalled`] if it is not on PATH.
pub fn find_program_version() -> Result<(PathBuf, String), EngineError> {
    super::find_program_version(PROGRAM, "version", REMEDY)
}
