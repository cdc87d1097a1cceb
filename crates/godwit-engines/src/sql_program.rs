//! The program `godwit-sql`, which runs SQL statements.

use std::path::{Path, PathBuf};

use crate::EngineError;
use crate::program_lookup::{locate_program, query_version_line};

/// Name of the program.
pub const PROGRAM: &str = "godwit-sql";
/// Name of the environment variable that contains the path of the program.
pub const PROGRAM_VARIABLE: &str = "GODWIT_SQL_PROGRAM";
/// Instructions for installing the program.
pub const REMEDY: &str = "put the godwit-sql of the same version beside godwit or on PATH (./install builds both; from \
                          the sources: cargo build --release -p godwit-sql)";

/// Finds `godwit-sql`: the path in `GODWIT_SQL_PROGRAM`, else beside this executable, else on PATH.
///
/// # Errors
/// [`EngineError::NotInstalled`] if the program does not exist.
pub fn find_program() -> Result<PathBuf, EngineError> {
    let missing = |_| EngineError::NotInstalled { program: PROGRAM.into(), remedy: REMEDY.into() };
    locate_program(PROGRAM, PROGRAM_VARIABLE).map_err(missing)
}

/// Returns the version of the program, such as `0.1.0`. Starts the program.
///
/// # Errors
/// [`EngineError::NotInstalled`] if the program does not start.
pub fn query_version(program: &Path) -> Result<String, EngineError> {
    let missing = || EngineError::NotInstalled { program: program.display().to_string(), remedy: REMEDY.into() };
    let line = query_version_line(program, "--version").ok_or_else(missing)?;
    Ok(line.rsplit(' ').next().unwrap_or_default().to_owned())
}
