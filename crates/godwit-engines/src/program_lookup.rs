//! Finds the path of an engine's program.

use std::path::PathBuf;

use crate::EngineError;

/// Returns the first existing path of: the value of the environment variable `variable`, `program` in the directory of
/// the running executable, `program` in a directory of PATH. If the variable is set but its file does not exist, no
/// other path is searched.
///
/// # Errors
/// [`EngineError::NotFound`] with all paths that were searched.
pub(crate) fn locate_program(program: &'static str, variable: &'static str) -> Result<PathBuf, EngineError> {
    let candidates = match std::env::var_os(variable) {
        Some(named) => vec![PathBuf::from(named)],
        None => candidates(program),
    };
    match candidates.iter().find(|path| path.is_file()) {
        Some(found) => Ok(found.clone()),
        None => Err(EngineError::NotFound { program, searched_paths: candidates, variable }),
    }
}

fn candidates(program: &str) -> Vec<PathBuf> {
    let beside =
        std::env::current_exe().ok().and_then(|executable| executable.parent().map(|folder| folder.join(program)));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found: Vec<PathBuf> = beside.into_iter().collect();
    for candidate in std::env::split_paths(&path).map(|folder| folder.join(program)) {
        // The directory of the godwit executable is often on PATH as well; do not list it twice.
        if !found.contains(&candidate) {
            found.push(candidate);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_candidate_path_is_tried_and_named() {
        let error = locate_program("godwit-no-such-program", "GODWIT_NO_SUCH_VARIABLE").unwrap_err();
        let EngineError::NotFound { searched_paths, .. } = error else { panic!("{error}") };
        let beside = std::env::current_exe().unwrap().with_file_name("godwit-no-such-program");
        assert_eq!(searched_paths[0], beside);
        assert!(searched_paths.iter().all(|path| path.ends_with("godwit-no-such-program")));
        assert!(locate_program("sh", "GODWIT_NO_SUCH_VARIABLE").is_ok());
    }
}
