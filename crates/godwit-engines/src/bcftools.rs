//! The program bcftools: a [variant caller](crate::caller::bcftools) and a
//! [normalizer of variants](crate::normalizer::bcftools). Each requires a minimum version of its own.

use std::path::PathBuf;

use crate::EngineError;
use crate::program_lookup::locate_program;

/// Name of the program.
pub const PROGRAM: &str = "bcftools";
/// Name of the environment variable that contains the path of the program.
pub const PROGRAM_VARIABLE: &str = "GODWIT_BCFTOOLS";
/// Instructions for installing a bcftools that can call and normalize.
pub const REMEDY: &str =
    "install bcftools 1.13 or later (Debian and Ubuntu: apt-get install bcftools; bioconda: bcftools)";

/// Finds bcftools: the path in `GODWIT_BCFTOOLS`, else beside this executable, else on PATH.
///
/// # Errors
/// [`EngineError::NotFound`] if the program does not exist.
pub(crate) fn find_program() -> Result<PathBuf, EngineError> {
    locate_program(PROGRAM, PROGRAM_VARIABLE)
}
