//! Programs that run together, each reading what the one before it prints.
//!
//! A chain succeeds only when every program in it does: one that dies in the middle of its output leaves a reader that may
//! well take the rest for the end.

use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use super::{ChildState, PIPE_BYTES, POLL, spawn, system};
use crate::EngineError;

/// How long the others of a chain may take to end by themselves once one has failed: the reason may be theirs.
const PATIENCE: Duration = Duration::from_secs(1);

/// A program of a chain that is to be started.
pub struct Link {
    /// Its path.
    pub program: PathBuf,
    /// Its version, for messages; empty where it tells none.
    pub version: String,
    /// Its command line. What it says of stdin and stdout is not used.
    pub command: Command,
}

/// Programs at work. Dropping it kills those that still run.
pub struct Chain {
    links: Vec<ChildState>,
}

impl Chain {
    /// Starts all programs; the last one prints to `output`. Each is in a process group of its own, so that what it starts
    /// is stopped with it.
    ///
    /// # Errors
    /// [`EngineError::Io`]; those that were started are stopped again.
    pub fn start(links: Vec<Link>, output: Stdio) -> Result<Self, EngineError> {
        let mut chain = Self { links: Vec::new() };
        let (mut input, mut output, last) = (Stdio::null(), Some(output), links.len().saturating_sub(1));
        for (at, Link { program, version, mut command }) in links.into_iter().enumerate() {
            command.stdin(std::mem::replace(&mut input, Stdio::null()));
            if at == last {
                command.stdout(output.take().unwrap_or_else(Stdio::null));
            } else {
                let failed = |source| EngineError::Io { program: program.clone(), action: "start", source };
                let (reader, writer) = std::io::pipe().map_err(failed)?;
                system::widen_pipe(&reader, PIPE_BYTES);
                command.stdout(writer);
                input = reader.into();
            }
            let state = spawn(program, command)?;
            state.set_version(if version.is_empty() { "unknown" } else { &version });
            chain.links.push(state);
        }
        Ok(chain)
    }

    /// Waits until all have ended. Stops them once `stop` says so.
    ///
    /// # Errors
    /// [`EngineError::Died`] of the program that failed first, as far as that can be told.
    pub fn wait(&self, stop: impl Fn() -> bool) -> Result<(), EngineError> {
        loop {
            let mut statuses = self.statuses()?;
            if statuses.iter().flatten().any(|status| !status.success()) {
                let patience = PATIENCE.as_millis() / POLL.as_millis();
                for _ in 0..patience {
                    if statuses.iter().all(Option::is_some) {
                        break;
                    }
                    std::thread::sleep(POLL);
                    statuses = self.statuses()?;
                }
                self.kill();
                return Err(self.failure(&statuses));
            }
            if statuses.iter().all(Option::is_some) {
                return Ok(());
            }
            if stop() {
                self.kill();
                return Err(self.failure(&self.statuses()?));
            }
            std::thread::sleep(POLL);
        }
    }

    /// An error about what the last program wrote, with its last words.
    pub fn wrong_output(&self, problem: String) -> EngineError {
        match self.links.last() {
            Some(last) => last.explain_output(problem, false),
            None => EngineError::Arguments { message: problem },
        }
    }

    /// Process ids, in the order of the chain.
    pub fn ids(&self) -> Vec<u32> {
        self.links.iter().map(|link| link.lock().id()).collect()
    }

    fn statuses(&self) -> Result<Vec<Option<ExitStatus>>, EngineError> {
        self.links.iter().map(ChildState::status).collect()
    }

    /// The reason among those that failed: a program whose reader is gone dies of the broken pipe, and one whose writer
    /// died finds its input cut short. So the first that did not die of a pipe.
    fn failure(&self, statuses: &[Option<ExitStatus>]) -> EngineError {
        use std::os::unix::process::ExitStatusExt;
        let failed: Vec<_> = self
            .links
            .iter()
            .zip(statuses)
            .filter_map(|(link, status)| status.filter(|status| !status.success()).map(|status| (link, status)))
            .collect();
        let reason = failed.iter().find(|(_, status)| status.signal() != Some(libc::SIGPIPE)).or(failed.first());
        match reason {
            Some((link, status)) => link.died(*status),
            None => self.wrong_output("it was stopped".to_owned()),
        }
    }

    fn kill(&self) {
        self.links.iter().for_each(ChildState::kill);
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use godwit_tests::processes::wait_until_gone;

    use super::*;

    fn shell(script: &str) -> Link {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Link { program: "/bin/sh".into(), version: script.to_owned(), command }
    }

    fn run(scripts: &[&str]) -> Result<(), String> {
        let chain = Chain::start(scripts.iter().map(|script| shell(script)).collect(), Stdio::null()).unwrap();
        chain.wait(|| false).map_err(|error| error.to_string())
    }

    #[test]
    fn text_goes_through_all_programs() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("out");
        let output = std::fs::File::create(&path).unwrap();
        let chain = Chain::start(vec![shell("seq 100000"), shell("grep 7"), shell("wc -l")], output.into()).unwrap();
        chain.wait(|| false).unwrap();
        assert_eq!(std::fs::read_to_string(path).unwrap().trim(), "40951");
    }

    #[test]
    fn any_failure_is_the_chains_and_the_reason_is_named() {
        assert_eq!(run(&["true", "cat"]), Ok(()));
        // The reader is content with what it got.
        let error = run(&["echo half; echo broken >&2; exit 3", "cat >/dev/null; exit 0"]).unwrap_err();
        assert!(error.contains("exited with status 3") && error.contains("broken"), "{error}");
        // The writer dies of the pipe that the reader left.
        let error = run(&["exec seq 100000000", "echo unwilling >&2; exit 4"]).unwrap_err();
        assert!(error.contains("exited with status 4") && error.contains("unwilling"), "{error}");
        let error = run(&["kill -9 $$", "cat; exit 1"]).unwrap_err();
        assert!(error.contains("signal 9"), "{error}");
    }

    #[test]
    fn a_cancelled_chain_and_what_it_started_are_stopped() {
        let directory = tempfile::tempdir().unwrap();
        let started = directory.path().join("started");
        let script = format!("sleep 1000 & echo $! >&2; touch {}; wait", started.display());
        let chain = Chain::start(vec![shell(&script)], Stdio::null()).unwrap();
        let error = chain.wait(|| started.exists()).unwrap_err();
        assert!(error.was_stopped(), "{error}");
        let EngineError::Died { stderr_tail, .. } = error else { panic!("{error}") };
        // Nobody waits for what was started by the shell: it is sent the signal, and dies a moment later.
        wait_until_gone(&[stderr_tail[0].parse().unwrap()]);
    }
}
