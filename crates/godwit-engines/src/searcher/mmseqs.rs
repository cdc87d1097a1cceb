//! MMseqs2: proteins and nucleotides, by k-mers.

use std::path::PathBuf;

use crate::EngineError;

/// Name of the program.
pub const PROGRAM: &str = "mmseqs";
/// How to get it.
pub const REMEDY: &str = "install MMseqs2 (Debian and Ubuntu: apt-get install mmseqs2; bioconda: mmseqs2)";

/// The program and its version, such as `14-7e284`.
///
/// # Errors
/// [`EngineError::NotInstalled`] when it is not on PATH.
pub fn find() -> Result<(PathBuf, String), EngineError> {
    super::on_path(PROGRAM, "version", REMEDY)
}
