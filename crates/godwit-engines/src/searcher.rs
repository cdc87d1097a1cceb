//! External programs that search sequence databases.

pub mod blast;
pub mod diamond;
pub mod mmseqs;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::EngineError;
use crate::aligner::sam_program::find_program;

/// Finds an external program on PATH. Returns its path, and the first line that it prints for the argument `question`.
fn find_program_version(program: &str, question: &str, remedy: &str) -> Result<(PathBuf, String), EngineError> {
    let path = find_program(program, remedy)?;
    let missing = || EngineError::NotInstalled { program: program.into(), remedy: remedy.into() };
    let line = query_version_line(&path, question).ok_or_else(missing)?;
    Ok((path, line))
}

pub(crate) fn query_version_line(program: &Path, question: &str) -> Option<String> {
    let output = Command::new(program).arg(question).stdin(Stdio::null()).output().ok()?;
    let version_line = String::from_utf8_lossy(&output.stdout).lines().next()?.trim().to_owned();
    (output.status.success() && !version_line.is_empty()).then_some(version_line)
}
