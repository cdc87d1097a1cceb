//! External programs that search sequence databases.

pub mod blast;
pub mod diamond;
pub mod mmseqs;

use std::path::PathBuf;

use crate::EngineError;
use crate::program_lookup::{find_program, query_version_line};

/// Finds an external program on PATH. Returns its path, and the first line that it prints for the argument `question`.
fn find_program_version(program: &str, question: &str, remedy: &str) -> Result<(PathBuf, String), EngineError> {
    let path = find_program(program, remedy)?;
    let missing = || EngineError::NotInstalled { program: program.into(), remedy: remedy.into() };
    let line = query_version_line(&path, question).ok_or_else(missing)?;
    Ok((path, line))
}
