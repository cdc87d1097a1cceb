//! Programs on `PATH`, and running them with their errors kept.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A program that was found.
#[derive(Clone, Debug)]
pub struct Tool {
    path: PathBuf,
}

impl Tool {
    /// The first executable file called `name` on `PATH`.
    pub fn find(name: &str) -> Option<Self> {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path)
            .map(|directory| directory.join(name))
            .find(|candidate| is_executable(candidate))
            .map(|path| Self { path })
    }

    /// The program, which a test has already asked for with [`crate::needs!`].
    ///
    /// # Panics
    /// When it is not on `PATH`.
    pub fn need(name: &str) -> Self {
        Self::find(name).unwrap_or_else(|| panic!("{name} is not on PATH"))
    }

    /// A command line that starts with this program.
    pub fn command(&self) -> Command {
        Command::new(&self.path)
    }

    /// Runs it with `words` and returns what it printed.
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
        succeed(&mut command)
    }
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Runs `command` to its end.
///
/// # Panics
/// When it cannot be started or fails, with its command line and what it said.
pub fn succeed(command: &mut Command) -> Output {
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
