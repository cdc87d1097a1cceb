//! The built `godwit`, as people run it.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::scratch;

/// A run that takes longer hangs: the largest input here takes seconds. `GODWIT_TEST_TIME_LIMIT` has other seconds, for long tests on a busy machine.
fn time_limit() -> Duration {
    let told = std::env::var("GODWIT_TEST_TIME_LIMIT").ok();
    Duration::from_secs(told.map_or(600, |text| text.parse().expect("GODWIT_TEST_TIME_LIMIT is a number of seconds")))
}

/// The path of the binary under test: `GODWIT_BIN`, or `godwit` in the profile this test was built with.
///
/// # Panics
/// When there is none.
pub fn path() -> PathBuf {
    let path =
        std::env::var_os("GODWIT_BIN").map_or_else(|| scratch::profile_directory().join("godwit"), PathBuf::from);
    assert!(path.is_file(), "{} does not exist: build godwit with this profile, or set GODWIT_BIN", path.display());
    path
}

/// A command line of godwit under construction.
///
/// The process ignores the user's configuration files. It handles SIGHUP even if the tests were started with nohup(1).
pub fn godwit() -> Godwit {
    godwit_at(&path())
}

/// A command line of the godwit at `path`.
pub fn godwit_at(path: &std::path::Path) -> Godwit {
    let mut command = Command::new(path);
    command.env("XDG_CONFIG_HOME", scratch::root().join("no-configuration"));
    // SAFETY: between fork and exec only signal is called, which is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGHUP, libc::SIG_DFL);
            Ok(())
        });
    }
    Godwit { command, stdin: None, stderr: None }
}

/// See [`godwit`].
#[derive(Debug)]
pub struct Godwit {
    command: Command,
    stdin: Option<Stdio>,
    stderr: Option<Stdio>,
}

impl Godwit {
    /// Appends one word.
    pub fn arg(mut self, word: impl AsRef<OsStr>) -> Self {
        self.command.arg(word);
        self
    }

    /// Appends words.
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

    /// Gives it something to read on stdin, which is empty otherwise.
    pub fn stdin(mut self, stdin: impl Into<Stdio>) -> Self {
        self.stdin = Some(stdin.into());
        self
    }

    /// Lets it speak to something else than the test.
    pub fn stderr(mut self, stderr: impl Into<Stdio>) -> Self {
        self.stderr = Some(stderr.into());
        self
    }

    /// Runs it there.
    pub fn current_dir(mut self, directory: &std::path::Path) -> Self {
        self.command.current_dir(directory);
        self
    }

    /// Lets no file grow beyond `bytes`: writes fail with "file too large" as they would on a full disk.
    pub fn largest_file(mut self, bytes: u64) -> Self {
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

    /// Starts it and does not wait.
    pub fn start(mut self) -> Running {
        let shown = format!("{:?}", self.command);
        let child = self
            .command
            .stdin(self.stdin.unwrap_or_else(Stdio::null))
            .stdout(Stdio::piped())
            .stderr(self.stderr.unwrap_or_else(Stdio::piped))
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {shown}: {error}"));
        Running { child, shown }
    }

    /// Runs it to its end, whatever that is.
    pub fn run(self) -> Finished {
        self.start().finish()
    }

    /// Runs it to its end.
    ///
    /// # Panics
    /// When it fails.
    pub fn succeeds(self) -> Finished {
        let finished = self.run();
        assert!(finished.status.success(), "{}", finished.report());
        finished
    }
}

/// A started run.
#[derive(Debug)]
pub struct Running {
    child: Child,
    shown: String,
}

impl Running {
    /// The process.
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it does not end in time; it is killed then.
    pub fn finish(self) -> Finished {
        let Self { child, shown } = self;
        let process_id = child.id();
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || sender.send(child.wait_with_output()));
        match receiver.recv_timeout(time_limit()) {
            Ok(output) => {
                let output = output.unwrap_or_else(|error| panic!("cannot wait for {shown}: {error}"));
                Finished {
                    status: output.status,
                    stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
                    stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
                    shown,
                }
            }
            Err(_) => {
                // SAFETY: kill takes numbers only; the process is our child and not yet waited for.
                unsafe { libc::kill(process_id as libc::pid_t, libc::SIGKILL) };
                panic!("{shown} did not end within {:?}", time_limit());
            }
        }
    }
}

/// A run that has ended.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub status: ExitStatus,
    /// What it printed.
    pub stdout: String,
    /// What it said.
    pub stderr: String,
    shown: String,
}

impl Finished {
    /// Checks that it refused as the command-line contract says: with an exit code of `codes`, and a last line on stderr
    /// that starts with `godwit: error:` and holds each of `words`, in any case.
    ///
    /// # Panics
    /// When it did not.
    pub fn refuses(&self, codes: &[i32], words: &[&str]) {
        let code = self.status.code();
        assert!(code.is_some_and(|code| codes.contains(&code)), "expected exit code {codes:?}\n{}", self.report());
        let last = self.stderr.trim_end().lines().last().unwrap_or("");
        assert!(last.starts_with("godwit: error:"), "the last line is no 'godwit: error:'\n{}", self.report());
        for word in words {
            let held = last.to_lowercase().contains(&word.to_lowercase());
            assert!(held, "the error does not mention {word:?}\n{}", self.report());
        }
    }

    /// Command line, end and words of the run, for a failing test.
    pub fn report(&self) -> String {
        format!("{} ended with {}\nstdout: {}\nstderr: {}", self.shown, self.status, self.stdout, self.stderr)
    }
}
