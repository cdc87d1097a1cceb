//! The built program `godwit`, run as users run it.

use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::{processes, scratch};

/// Returns the time after which a run counts as hanging: the largest input here takes seconds. `GODWIT_TEST_TIME_LIMIT`
/// sets other seconds, for long tests on a busy machine.
pub fn process_timeout() -> Duration {
    let told = std::env::var("GODWIT_TEST_TIME_LIMIT").ok();
    Duration::from_secs(told.map_or(600, |text| text.parse().expect("GODWIT_TEST_TIME_LIMIT is a number of seconds")))
}

/// Returns the path of the binary under test: `GODWIT_BIN`, or `godwit` in the profile this test was built with.
///
/// # Panics
/// When the file does not exist.
pub fn path() -> PathBuf {
    let path =
        std::env::var_os("GODWIT_BIN").map_or_else(|| scratch::profile_directory().join("godwit"), PathBuf::from);
    assert!(path.is_file(), "{} does not exist: build godwit with this profile, or set GODWIT_BIN", path.display());
    path
}

/// Returns a builder of a godwit command line.
///
/// The process ignores the user's configuration files. It handles SIGHUP even if the tests were started with nohup(1).
pub fn godwit() -> GodwitCommand {
    godwit_at(&path())
}

/// Runs a statement of SQL on a directory of data. `words`: further arguments of `godwit query`.
pub fn run_query(data: &std::path::Path, sql: &str, words: &[&str]) -> GodwitOutput {
    godwit().arg("query").arg(sql).arg("--data").arg(data).args(words).run()
}

/// Returns a builder of a command line for the godwit executable at `path`.
pub fn godwit_at(path: &std::path::Path) -> GodwitCommand {
    godwit_by(Command::new(path))
}

/// Returns a builder of a godwit command line that begins with `command`, which ends with the program.
pub fn godwit_by(mut command: Command) -> GodwitCommand {
    command.env("XDG_CONFIG_HOME", scratch::root().join("no-configuration"));
    // SAFETY: between fork and exec only signal is called, which is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGHUP, libc::SIG_DFL);
            Ok(())
        });
    }
    GodwitCommand { command, stdin: None, stderr: None }
}

/// A builder of a godwit command line; see [`godwit`].
#[derive(Debug)]
pub struct GodwitCommand {
    command: Command,
    stdin: Option<Stdio>,
    stderr: Option<Stdio>,
}

impl GodwitCommand {
    /// Appends one argument.
    pub fn arg(mut self, word: impl AsRef<OsStr>) -> Self {
        self.command.arg(word);
        self
    }

    /// Appends arguments.
    pub fn args<I, S>(mut self, words: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.command.args(words);
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Sets the standard input, which is empty otherwise.
    pub fn stdin(mut self, stdin: impl Into<Stdio>) -> Self {
        self.stdin = Some(stdin.into());
        self
    }

    /// Redirects the standard error, which the test captures otherwise.
    pub fn stderr(mut self, stderr: impl Into<Stdio>) -> Self {
        self.stderr = Some(stderr.into());
        self
    }

    /// Sets the working directory.
    pub fn current_dir(mut self, directory: &std::path::Path) -> Self {
        self.command.current_dir(directory);
        self
    }

    /// Limits the size of files to `bytes`: writes beyond it fail with "file too large", as they would on a full disk.
    pub fn limit_file_size(mut self, bytes: u64) -> Self {
        let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
        // SAFETY: between fork and exec only the async-signal-safe calls signal and setrlimit are made.
        unsafe {
            self.command.pre_exec(move || {
                libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
                match libc::setrlimit(libc::RLIMIT_FSIZE, &limit) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                }
            });
        }
        self
    }

    /// Sends SIGTERM to the process when the calling thread ends, also if the tests are killed (prctl(2)).
    pub fn end_with_this_thread(mut self) -> Self {
        processes::end_with_this_thread(&mut self.command);
        self
    }

    /// Starts the process and does not wait.
    pub fn spawn(mut self) -> GodwitProcess {
        let command_line = format!("{:?}", self.command);
        let child = self
            .command
            .stdin(self.stdin.unwrap_or_else(Stdio::null))
            .stdout(Stdio::piped())
            .stderr(self.stderr.unwrap_or_else(Stdio::piped))
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {command_line}: {error}"));
        GodwitProcess { child, command_line }
    }

    /// Runs the process until it exits, with any exit status.
    pub fn run(self) -> GodwitOutput {
        self.spawn().wait_with_output()
    }

    /// Runs the process until it exits with status 0.
    ///
    /// # Panics
    /// When it fails.
    pub fn run_ok(self) -> GodwitOutput {
        let finished = self.run();
        assert!(finished.status.success(), "{}", finished.describe());
        finished
    }
}

/// A started process of godwit.
#[derive(Debug)]
pub struct GodwitProcess {
    child: Child,
    command_line: String,
}

impl GodwitProcess {
    /// Returns the process id.
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the next line of the standard output; it is empty if the process has ended. The line is not part of the
    /// output that [`Self::wait_with_output`] returns.
    pub fn read_line(&mut self) -> String {
        let stdout = self.child.stdout.as_mut().expect("it is a pipe");
        let (mut line, mut byte) = (Vec::new(), [0]);
        // A buffer would take more than the line.
        while !line.ends_with(b"\n") && stdout.read(&mut byte).is_ok_and(|count| count == 1) {
            line.push(byte[0]);
        }
        String::from_utf8_lossy(&line).into_owned()
    }

    /// Waits until the process exits, and returns its output.
    ///
    /// # Panics
    /// When it does not end in time; the process is killed then.
    pub fn wait_with_output(self) -> GodwitOutput {
        let Self { child, command_line } = self;
        let process_id = child.id();
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || sender.send(child.wait_with_output()));
        match receiver.recv_timeout(process_timeout()) {
            Ok(output) => {
                let output = output.unwrap_or_else(|error| panic!("cannot wait for {command_line}: {error}"));
                GodwitOutput {
                    status: output.status,
                    stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
                    stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
                    command_line,
                }
            }
            Err(_) => {
                // SAFETY: kill takes numbers only; the process is our child and not yet waited for.
                unsafe { libc::kill(process_id as libc::pid_t, libc::SIGKILL) };
                panic!("{command_line} did not end within {:?}", process_timeout());
            }
        }
    }
}

/// The exit status and the output of a process that has ended.
#[derive(Debug)]
pub struct GodwitOutput {
    /// The exit status.
    pub status: ExitStatus,
    /// The standard output.
    pub stdout: String,
    /// The standard error.
    pub stderr: String,
    command_line: String,
}

impl GodwitOutput {
    /// Checks that godwit rejected the command as the command-line contract requires: the exit code is one of `codes`,
    /// and the last line on stderr starts with `godwit: error:` and contains each of `words`, in any case.
    ///
    /// # Panics
    /// When it did not.
    pub fn assert_rejected(&self, codes: &[i32], words: &[&str]) {
        let code = self.status.code();
        assert!(code.is_some_and(|code| codes.contains(&code)), "expected exit code {codes:?}\n{}", self.describe());
        let last = self.stderr.trim_end().lines().last().unwrap_or("");
        assert!(last.starts_with("godwit: error:"), "the last line is no 'godwit: error:'\n{}", self.describe());
        for word in words {
            let held = last.to_lowercase().contains(&word.to_lowercase());
            assert!(held, "the error does not mention {word:?}\n{}", self.describe());
        }
    }

    /// Returns the number of events of a kind on the standard error of a command with `--json`.
    pub fn count_events(&self, event: &str) -> usize {
        self.stderr.matches(&format!("{{\"event\":\"{event}\"")).count()
    }

    /// Returns the command line, exit status and output as text for the message of a failed test.
    pub fn describe(&self) -> String {
        format!("{} ended with {}\nstdout: {}\nstderr: {}", self.command_line, self.status, self.stdout, self.stderr)
    }
}
