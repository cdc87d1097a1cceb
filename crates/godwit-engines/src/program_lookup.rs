//! Finds the programs of engines, and reads their versions.
//!
//! | function | programs |
//! |---|---|
//! | [`locate_program`] | part of godwit's installation, or with an environment variable for their path |
//! | [`find_program`] | named by the user or installed by the host: a path, or a name on PATH |
//! | [`find_on_path`] | optional, such as tools to compare with |
//! | [`query_program_version`] | any: the first word of the output that looks like a version, if there is one |
//! | [`query_required_version`] | print `NAME VERSION`, and must have a minimum version |
//! | [`query_version_line`] | the first line of the output is the version, and a failure shows that they do not work |
//!
//! On PATH, files that are not executable are skipped, as a shell skips them. If the user names the path of such a file,
//! it counts as found, and the error of its start contains the reason.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::{EngineError, check_version};

/// Returns the first existing path of: the value of the environment variable `variable`, `program` in the directory of
/// the running executable, `program` in a directory of PATH. If the variable is set but its file does not exist, no
/// other path is searched.
///
/// # Errors
/// [`EngineError::NotFound`] with all paths that were searched.
pub(crate) fn locate_program(program: &'static str, variable: &'static str) -> Result<PathBuf, EngineError> {
    let (candidates, is_usable): (_, fn(&Path) -> bool) = match std::env::var_os(variable) {
        Some(named) => (vec![PathBuf::from(named)], Path::is_file),
        None => (candidates(program), is_executable),
    };
    match candidates.iter().find(|path| is_usable(path)) {
        Some(found) => Ok(found.clone()),
        None => Err(EngineError::NotFound { program, searched_paths: candidates, variable }),
    }
}

fn candidates(program: &str) -> Vec<PathBuf> {
    let beside =
        std::env::current_exe().ok().and_then(|executable| executable.parent().map(|folder| folder.join(program)));
    let mut found: Vec<PathBuf> = beside.into_iter().collect();
    for candidate in paths_on_path(program) {
        // The directory of the godwit executable is often on PATH as well; do not list it twice.
        if !found.contains(&candidate) {
            found.push(candidate);
        }
    }
    found
}

/// Returns the path of the program `name`: the name itself if it contains a slash, else the first match on PATH.
///
/// # Errors
/// [`EngineError::NotInstalled`] if the program is not found.
pub(crate) fn find_program(name: &str, remedy: &str) -> Result<PathBuf, EngineError> {
    let found =
        if name.contains('/') { Some(PathBuf::from(name)).filter(|path| path.is_file()) } else { find_on_path(name) };
    found.ok_or_else(|| EngineError::NotInstalled { program: name.to_owned(), remedy: remedy.to_owned() })
}

/// Returns the first executable file with this name on PATH.
pub fn find_on_path(name: &str) -> Option<PathBuf> {
    first_executable(paths_on_path(name))
}

/// Returns the path that a program with this name has in each directory of PATH.
fn paths_on_path(name: &str) -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(name)).collect()
}

fn first_executable(paths: Vec<PathBuf>) -> Option<PathBuf> {
    paths.into_iter().find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Returns the version that a program prints for these arguments, such as `2.24-r1122`; `None` if the output does not
/// contain a word that looks like a version.
pub fn query_program_version(program: &Path, arguments: &[&str]) -> Option<String> {
    version_word(&query_output(program, arguments).ok().map(output_text)?)
}

/// Returns the first word that looks like a version: it starts with a digit, or with `v` and a digit, and contains a
/// dot.
fn version_word(text: &str) -> Option<String> {
    let looks_right = |word: &&str| {
        word.starts_with(|first: char| first.is_ascii_digit())
            && word.contains('.')
            && word.chars().all(|letter| letter.is_ascii_alphanumeric() || ".-_+".contains(letter))
    };
    text.split_whitespace().map(|word| word.trim_start_matches('v')).find(looks_right).map(str::to_owned)
}

/// Returns the version of a program that prints `NAME VERSION` for `--version`.
///
/// # Errors
/// [`EngineError::Io`] if the program does not start, [`EngineError::VersionMismatch`] if it is older than `oldest` or
/// prints no version.
pub(crate) fn query_required_version(
    program: &Path,
    name: &'static str,
    oldest: [u32; 2],
) -> Result<String, EngineError> {
    let output = query_output(program, &["--version"]);
    let output = output.map_err(|source| EngineError::Io { program: program.to_owned(), action: "start", source })?;
    let text = output_text(output);
    let version = |line| str::trim(line).strip_prefix(name)?.strip_prefix(' ');
    let found = text.lines().find_map(version).unwrap_or("an unknown version");
    check_version(program, name, found, oldest)?;
    Ok(found.to_owned())
}

/// Returns the first line that a program prints on stdout for `argument`; `None` if the line is empty or the program
/// fails.
pub(crate) fn query_version_line(program: &Path, argument: &str) -> Option<String> {
    let output = query_output(program, &[argument]).ok()?;
    let line = String::from_utf8_lossy(&output.stdout).lines().next()?.trim().to_owned();
    (output.status.success() && !line.is_empty()).then_some(line)
}

fn query_output(program: &Path, arguments: &[&str]) -> std::io::Result<Output> {
    Command::new(program).args(arguments).stdin(Stdio::null()).output()
}

/// Returns the text of stdout, followed by that of stderr, to which some programs print their version.
fn output_text(output: Output) -> String {
    let Output { stdout, stderr, .. } = output;
    String::from_utf8_lossy(&[&stdout[..], b"\n", &stderr].concat()).into_owned()
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

    #[test]
    fn files_that_are_not_executable_are_skipped() {
        let directory = tempfile::tempdir().unwrap();
        let paths = ["text", "program"].map(|name| directory.path().join(name));
        for (path, mode) in paths.iter().zip([0o644, 0o755]) {
            std::fs::write(path, "").unwrap();
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        assert_eq!(first_executable(paths.to_vec()).as_ref(), Some(&paths[1]));
        // A path that the user names is not searched for.
        assert!(find_program(paths[0].to_str().unwrap(), "").is_ok());
    }

    #[test]
    fn versions_are_found_in_the_output_of_programs() {
        for (text, version) in [
            ("\nProgram: bwa (alignment via Burrows-Wheeler)\nVersion: 0.7.17-r1188\n", Some("0.7.17-r1188")),
            ("samtools 1.16.1\nUsing htslib 1.16\n", Some("1.16.1")),
            ("/usr/bin/bowtie2-align-s version 2.5.0\n64-bit\n", Some("2.5.0")),
            ("version:  v1.3.6\n", Some("1.3.6")),
            ("nothing here", None),
        ] {
            assert_eq!(version_word(text).as_deref(), version, "{text}");
        }
    }
}
