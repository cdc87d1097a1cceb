//! A pipeline of programs, in which each program reads the output of the preceding one.
//!
//! A pipeline succeeds only if all of its programs succeed. If a program fails in the middle of its output, the next
//! program may accept the truncated input as complete. Some programs exit with status 0 although they could not read
//! their input to the end; [`ProcessPipeline::check_inputs_were_read`] detects this.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use super::{ChildState, PIPE_BYTES, POLL_INTERVAL, descriptors, spawn_in_group};
use crate::{EngineError, UnreadableInput};

/// Time that the other programs get to exit by themselves after one has failed, because the actual cause may be the
/// failure of another one.
const EXIT_TIMEOUT_AFTER_FAILURE: Duration = Duration::from_secs(1);

/// A program of a pipeline, which has not been started yet.
pub struct PipelineCommand {
    /// Path of the program.
    pub program: PathBuf,
    /// Version of the program for error messages; empty if the program does not print one.
    pub version: String,
    /// Command line of the program. The pipeline replaces its stdin and stdout.
    pub command: Command,
}

/// A running pipeline. Dropping it kills the programs that are still running.
pub struct ProcessPipeline {
    processes: Vec<ChildState>,
}

impl ProcessPipeline {
    /// Starts all programs; the last one writes to `output`. Each program gets its own process group, so that its child
    /// processes can be killed with it.
    ///
    /// # Errors
    /// [`EngineError::Io`] if a program does not start. The programs that were already started are killed.
    pub fn start(links: Vec<PipelineCommand>, output: Stdio) -> Result<Self, EngineError> {
        let mut chain = Self { processes: Vec::new() };
        let (mut input, mut output, last) = (Stdio::null(), Some(output), links.len().saturating_sub(1));
        for (at, PipelineCommand { program, version, mut command }) in links.into_iter().enumerate() {
            command.stdin(std::mem::replace(&mut input, Stdio::null()));
            if at == last {
                command.stdout(output.take().unwrap_or_else(Stdio::null));
            } else {
                let failed = |source| EngineError::Io { program: program.clone(), action: "start", source };
                let (reader, writer) = std::io::pipe().map_err(failed)?;
                descriptors::set_pipe_capacity(&reader, PIPE_BYTES);
                command.stdout(writer);
                input = reader.into();
            }
            let state = spawn_in_group(program, command)?;
            state.set_version(if version.is_empty() { "unknown" } else { &version });
            chain.processes.push(state);
        }
        Ok(chain)
    }

    /// Waits until all programs have exited. Kills them as soon as `stop` returns true.
    ///
    /// # Errors
    /// [`EngineError::Exited`] for the program that caused the failure, as far as that can be determined.
    pub fn wait(&self, stop: impl Fn() -> bool) -> Result<(), EngineError> {
        loop {
            let mut statuses = self.exit_statuses()?;
            if statuses.iter().flatten().any(|status| !status.success()) {
                let polls = EXIT_TIMEOUT_AFTER_FAILURE.as_millis() / POLL_INTERVAL.as_millis();
                for _ in 0..polls {
                    if statuses.iter().all(Option::is_some) {
                        break;
                    }
                    std::thread::sleep(POLL_INTERVAL);
                    statuses = self.exit_statuses()?;
                }
                self.kill();
                return Err(self.first_failure(&statuses));
            }
            if statuses.iter().all(Option::is_some) {
                return Ok(());
            }
            if stop() {
                self.kill();
                return Err(self.first_failure(&self.exit_statuses()?));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Checks that no program printed an error message of htslib, after all of them have exited with status 0. Such a
    /// program could not read an input to the end, so its output may be incomplete (`bcftools mpileup` before 1.21).
    /// `inputs` are the input files.
    ///
    /// # Errors
    /// [`EngineError::UnreadableInput`] with the first error message.
    pub fn check_inputs_were_read<'p>(&self, inputs: impl Iterator<Item = &'p Path>) -> Result<(), EngineError> {
        let error_of = |process: &ChildState| process.stderr_tail.wait_for_htslib_error();
        let found = self.processes.iter().find_map(|process| Some((process, error_of(process)?)));
        let Some((process, message)) = found else { return Ok(()) };
        Err(EngineError::UnreadableInput(Box::new(UnreadableInput {
            program: process.program.clone(),
            version: process.version.get().cloned().unwrap_or_default(),
            command_line: process.command_line.clone(),
            inputs: inputs.map(Path::to_owned).collect(),
            message,
        })))
    }

    /// Returns an error about the output of the last program, with the last lines of its stderr.
    pub fn output_error(&self, problem: String) -> EngineError {
        match self.processes.last() {
            Some(last) => last.output_error(problem, false),
            None => EngineError::Arguments { message: problem },
        }
    }

    /// Returns the process ids of the programs, in the order of the pipeline.
    pub fn ids(&self) -> Vec<u32> {
        self.processes.iter().map(|link| link.child.lock().id()).collect()
    }

    fn exit_statuses(&self) -> Result<Vec<Option<ExitStatus>>, EngineError> {
        self.processes.iter().map(ChildState::exit_status).collect()
    }

    /// Returns the error of the program that caused the failure: the first failed program that was not killed by
    /// SIGPIPE. If a program exits, the preceding one is killed by SIGPIPE, and the next one finds its input truncated.
    fn first_failure(&self, statuses: &[Option<ExitStatus>]) -> EngineError {
        use std::os::unix::process::ExitStatusExt;
        let failed: Vec<_> = self
            .processes
            .iter()
            .zip(statuses)
            .filter_map(|(link, status)| status.filter(|status| !status.success()).map(|status| (link, status)))
            .collect();
        let reason = failed.iter().find(|(_, status)| status.signal() != Some(libc::SIGPIPE)).or(failed.first());
        match reason {
            Some((link, status)) => link.exit_error(*status),
            None => self.output_error("it was stopped".to_owned()),
        }
    }

    fn kill(&self) {
        self.processes.iter().for_each(ChildState::kill);
    }
}

impl Drop for ProcessPipeline {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use godwit_tests::processes::wait_until_exited;

    use super::*;

    fn shell(script: &str) -> PipelineCommand {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        PipelineCommand { program: "/bin/sh".into(), version: script.to_owned(), command }
    }

    fn run(scripts: &[&str]) -> Result<(), String> {
        let chain =
            ProcessPipeline::start(scripts.iter().map(|script| shell(script)).collect(), Stdio::null()).unwrap();
        chain.wait(|| false).map_err(|error| error.to_string())
    }

    #[test]
    fn text_goes_through_all_programs() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("out");
        let output = std::fs::File::create(&path).unwrap();
        let chain =
            ProcessPipeline::start(vec![shell("seq 100000"), shell("grep 7"), shell("wc -l")], output.into()).unwrap();
        chain.wait(|| false).unwrap();
        assert_eq!(std::fs::read_to_string(path).unwrap().trim(), "40951");
    }

    #[test]
    fn any_failure_is_the_chains_and_the_reason_is_named() {
        assert_eq!(run(&["true", "cat"]), Ok(()));
        // The second program accepts the truncated input.
        let error = run(&["echo half; echo broken >&2; exit 3", "cat >/dev/null; exit 0"]).unwrap_err();
        assert!(error.contains("exited with status 3") && error.contains("broken"), "{error}");
        // The first program is killed by SIGPIPE, because the second one has exited.
        let error = run(&["exec seq 100000000", "echo unwilling >&2; exit 4"]).unwrap_err();
        assert!(error.contains("exited with status 4") && error.contains("unwilling"), "{error}");
        let error = run(&["kill -9 $$", "cat; exit 1"]).unwrap_err();
        assert!(error.contains("signal 9"), "{error}");
    }

    #[test]
    fn an_htslib_error_before_status_0_is_an_unread_input() {
        let check = |scripts: &[&str]| {
            let links = scripts.iter().map(|script| shell(script)).collect();
            let chain = ProcessPipeline::start(links, Stdio::null()).unwrap();
            chain.wait(|| false).unwrap();
            chain.check_inputs_were_read([Path::new("a.bam")].into_iter()).map_err(|error| error.to_string())
        };
        // The message is found although more lines follow than are kept.
        let broken = "echo '[E::bgzf_uncompress] CRC32 checksum mismatch' >&2; seq 100 >&2";
        for scripts in [&[broken, "cat"][..], &["true", broken]] {
            let error = check(scripts).unwrap_err();
            for words in [
                "cannot read a.bam to the end",
                "printed `[E::bgzf_uncompress] CRC32 checksum mismatch` and exited with status 0",
                "`godwit verify a.bam`",
                "`samtools index a.bam`",
            ] {
                assert!(error.contains(words), "{words}: {error}");
            }
        }
        for line in [
            "[W::bgzf_read_block] EOF marker",
            "[E::idx_find_and_load] Could not",
            "[E::faidx_adjust_position] The sequence \"c2\" was not found",
            "not [E::x]",
            "[mpileup] 1",
        ] {
            let script = format!("echo '{line}' >&2");
            assert_eq!(check(&[script.as_str(), "cat"]), Ok(()), "{line}");
        }
        // A process that keeps stderr open delays the check, but not until it exits.
        let start = std::time::Instant::now();
        assert!(check(&["echo '[E::x]' >&2; sleep 8 &"]).is_err());
        assert!(start.elapsed() < Duration::from_secs(6), "{:?}", start.elapsed());
    }

    #[test]
    fn a_cancelled_chain_and_what_it_started_are_stopped() {
        let directory = tempfile::tempdir().unwrap();
        let started = directory.path().join("started");
        let script = format!("sleep 1000 & echo $! >&2; touch {}; wait", started.display());
        let chain = ProcessPipeline::start(vec![shell(&script)], Stdio::null()).unwrap();
        let error = chain.wait(|| started.exists()).unwrap_err();
        assert!(error.is_stopped_by_godwit(), "{error}");
        let EngineError::Exited { stderr_tail, .. } = error else { panic!("{error}") };
        // The pipeline does not wait for processes that the shell started: they receive the signal and exit a moment
        // later.
        wait_until_exited(&[stderr_tail[0].parse().unwrap()]);
    }
}
