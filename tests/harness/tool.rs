//! Programs on `PATH`, which run with captured standard error.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The path of a program that was found.
#[derive(Clone, Debug)]
pub struct Tool {
    path: PathBuf,
}

impl Tool {
    /// Returns the first executable file called `name` on `PATH`.
    pub fn find(name: &str) -> Option<Self> {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path)
            .map(|directory| directory.join(name))
            .find(|candidate| is_executable(candidate))
            .map(|path| Self { path })
    }

    /// Returns the program, which a test has already required with [`crate::needs!`].
    ///
    /// # Panics
    /// When it is not on `PATH`.
    pub fn require(name: &str) -> Self {
        Self::find(name).unwrap_or_else(|| panic!("{name} is not on PATH"))
    }

    /// Returns a command line that starts with this program.
    pub fn command(&self) -> Command {
        Command::new(&self.path)
    }

    /// Runs the program with `words` as arguments and returns its output.
    ///
    /// # Panics
    /// When it fails.
    pub fn run<I, S>(&self, words: I) -> Output
    where
        I: IntoIterator<Item = S>,
        S: AsRef<std::ffi::OsStr>,
    {
        let mut command = self.command();
        command.args(words);
        run_checked(&mut command)
    }
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Runs `command` until it exits with status 0, and returns its output.
///
/// # Panics
/// When it cannot be started or fails, with its command line and its standard error.
pub fn run_checked(command: &mut Command) -> Output {
    let output =
        command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?} ended with {}:\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    output
}
