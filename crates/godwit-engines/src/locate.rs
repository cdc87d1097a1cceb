//! Finds the program of an engine.

use std::path::PathBuf;

use crate::EngineError;

/// The first of: the path in the environment variable `variable`, `program` beside the running executable, `program` in a
/// directory of PATH. A path named by the variable is final: when nothing is there, nothing else is tried.
///
/// # Errors
/// [`EngineError::NotFound`] with every path looked at.
pub(crate) fn locate(program: &'static str, variable: &'static str) -> Result<PathBuf, EngineError> {
    let candidates = match std::env::var_os(variable) {
        Some(named) => vec![PathBuf::from(named)],
        None => candidates(program),
    };
    match candidates.iter().find(|path| path.is_file()) {
        Some(found) => Ok(found.clone()),
        None => Err(EngineError::NotFound { program, tried: candidates, variable }),
    }
}

fn candidates(program: &str) -> Vec<PathBuf> {
    let beside = std::env::current_exe().ok().and_then(|executable| executable.parent().map(|folder| folder.join(program)));
    let path = std::env::var_os("PATH").unwrap_or_default();
    beside.into_iter().chain(std::env::split_paths(&path).map(|folder| folder.join(program))).collect()
}
