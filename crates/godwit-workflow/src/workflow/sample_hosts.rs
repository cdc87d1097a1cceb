//! Processing of samples on several hosts at the same time. Each sample has a separate process, which writes its result
//! to a file.
//!
//! [`Scheduler`] assigns samples to hosts and decides whether a failed sample is retried. The caller of this crate
//! implements [`SampleHosts`], which starts and polls the processes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use godwit_files::write_atomically;
use godwit_fleet::Scheduler;
use godwit_fleet::scheduler::{ItemOutcome, RetryDecision};
use godwit_model::ErrorKind;
use godwit_pipeline::PipelineError;
use godwit_pipeline::observer::{Event, Observer, SampleState};
use godwit_pipeline::scratch::create_private_directory;
use serde::{Deserialize, Serialize};

use super::report::{FailedAttempt, SampleOutcome};
use super::sample_sheet::SheetSample;
use super::{WorkflowJob, WorkflowOptions};

/// Maximum number of attempts to process a sample.
const MAX_ATTEMPTS: usize = 3;
/// Subdirectory of the output directory for the scripts, logs and results of the samples. No sample can have this name.
const JOBS_DIRECTORY: &str = ".godwit-run";
/// Longest wait between checks of the cancel flag.
const CANCEL_CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Name of the file to which the process of a sample writes its result.
const OUTCOME_FILE: &str = "outcome.json";

/// The way in which the process of a sample ended.
#[derive(Clone, Debug)]
pub enum JobExit {
    /// The process exited by itself.
    Exited {
        /// Exit code of the process; `None` if it is unknown, for example because a signal killed the process.
        code: Option<i32>,
        /// Error message of the process, or a description of the reason for its end.
        message: String,
    },
    /// The process was lost, for example because its host failed.
    Lost {
        /// The reason for the loss.
        reason: String,
    },
    /// The user, or the administrator of the hosts, cancelled the job of the process. The sample is not retried.
    Cancelled {
        /// The job, and how to resume.
        message: String,
    },
}

/// The hosts on which samples are processed. Starts and polls a process for each sample.
pub trait SampleHosts: Sync {
    /// Returns the number of hosts on which samples are processed.
    fn host_count(&self) -> usize;
    /// Returns the number of samples that each host processes at the same time.
    fn samples_per_host(&self) -> usize;
    /// Returns the name of the host with number `node`.
    fn host_name(&self, node: usize) -> String;
    /// Returns the interval at which the processes are polled.
    fn poll_interval(&self) -> Duration;

    /// Starts a process that calls [`run_sample`] with these options and the directory of the job.
    ///
    /// # Errors
    /// A [`PipelineError`] if the process cannot be started.
    fn start_sample(&self, job: &SampleJob<'_>) -> Result<(), PipelineError>;

    /// Takes over the job that an earlier process of this run has started for a sample, if it still runs, and returns its
    /// name, such as `job 7`. [`SampleHosts::poll_exit`] then returns its end. `None` if there is no such job.
    ///
    /// # Errors
    /// [`PipelineError::Options`] if there is such a job, but the run does not resume.
    fn adopt_sample(&self, job: &SampleJob<'_>) -> Result<Option<String>, PipelineError>;

    /// Returns how the process of a sample ended; `None` while the process runs. Each end is returned only once.
    fn poll_exit(&self, sample: usize) -> Option<JobExit>;

    /// Stops all running processes.
    fn cancel_all(&self);
}

/// The job of processing one sample on a host.
#[derive(Clone, Copy, Debug)]
pub struct SampleJob<'j> {
    /// Number of the sample in the sheet, 0-based.
    pub sample: usize,
    /// Name of the sample.
    pub name: &'j str,
    /// Number of the host, 0-based.
    pub host: usize,
    /// Directory for the script, the logs and the result of the sample.
    pub directory: &'j Path,
    /// True if the sample was started before. Its job can then be resumed.
    pub is_retry: bool,
}

/// The result of a sample, which its process writes to a file.
#[derive(Debug, Serialize, Deserialize)]
struct SampleResult {
    outcome: SampleOutcome,
    /// True if a retry on another host may succeed.
    #[serde(rename = "elsewhere")]
    may_succeed_on_other_host: bool,
    #[serde(rename = "blame")]
    error_kind: String,
}

impl SampleResult {
    fn new(outcome: SampleOutcome, error: Option<&PipelineError>) -> Self {
        let kind = error.map(PipelineError::kind);
        let may_succeed_on_other_host = kind.is_some_and(may_be_host_failure);
        Self {
            outcome,
            may_succeed_on_other_host,
            error_kind: kind.map(ErrorKind::outcome_text).unwrap_or_default().to_owned(),
        }
    }
}

/// Reports whether a problem of the host may have caused an error of this kind.
fn may_be_host_failure(kind: ErrorKind) -> bool {
    match kind {
        ErrorKind::Machine | ErrorKind::Engine | ErrorKind::Remote | ErrorKind::Interrupted => true,
        ErrorKind::Usage | ErrorKind::Input | ErrorKind::Bug => false,
    }
}

/// Processes one sample of the sheet and writes its result to `directory`. The process that runs the workflow reads the
/// result.
///
/// # Errors
/// The error of the sample, which is also in the result file.
pub fn run_sample(
    options: &WorkflowOptions,
    name: &str,
    directory: &Path,
    observer: &dyn Observer,
    cancelled: &std::sync::Arc<std::sync::atomic::AtomicBool>,
) -> Result<(), PipelineError> {
    let samples = super::read_samples(options)?;
    let Some(sample) = samples.iter().find(|sample| sample.name == name) else {
        let problem = format!("the sample {name:?} was removed from the sample sheet after the start");
        return Err(PipelineError::Options { problem });
    };
    let run = WorkflowJob::new(options, &samples, observer, cancelled)?;
    let mut outcome = SampleOutcome::new(sample);
    let done = run.run_sample(sample, &mut outcome);
    if let Err(error @ PipelineError::Interrupted) = done {
        return Err(error);
    }
    outcome.error = done.as_ref().err().map(super::one_line_message);
    let left =
        serde_json::to_vec_pretty(&SampleResult::new(outcome, done.as_ref().err())).map_err(std::io::Error::other);
    let path = directory.join(OUTCOME_FILE);
    let written = left.and_then(|left| write_atomically(&path, &left));
    written.map_err(PipelineError::file("write", &path))?;
    done
}

/// The outcome of a sample whose process has ended or was not started.
struct JobOutcome {
    outcome: SampleOutcome,
    scheduler_end: ItemOutcome,
    error_kind: ErrorKind,
}

impl JobOutcome {
    /// Returns the outcome of a sample that has no result of its own, because of an error of this kind.
    fn without_result(sample: &SheetSample, message: String, error_kind: ErrorKind) -> Self {
        let scheduler_end = if may_be_host_failure(error_kind) { ItemOutcome::Lost } else { ItemOutcome::Failed };
        Self {
            outcome: SampleOutcome { error: Some(message), ..SampleOutcome::new(sample) },
            scheduler_end,
            error_kind,
        }
    }
}

impl WorkflowJob<'_> {
    fn job_directory(&self, sample: usize) -> PathBuf {
        self.options.out.join(JOBS_DIRECTORY).join(&self.samples[sample].name)
    }

    /// Processes all samples on the hosts, as many at the same time as the hosts allow.
    pub(super) fn run_on_hosts(&mut self, nodes: &dyn SampleHosts) -> Result<(), PipelineError> {
        let worked = self.schedule_samples(nodes);
        // Stop all processes even after an error.
        nodes.cancel_all();
        worked
    }

    fn schedule_samples(&mut self, nodes: &dyn SampleHosts) -> Result<(), PipelineError> {
        let jobs = self.options.out.join(JOBS_DIRECTORY);
        create_private_directory(&jobs).map_err(PipelineError::file("create", &jobs))?;
        let mut scheduler =
            Scheduler::new(self.samples.len(), nodes.host_count(), nodes.samples_per_host(), MAX_ATTEMPTS);
        let mut outcomes: Vec<SampleOutcome> = self.samples.iter().map(SampleOutcome::new).collect();
        let mut working = BTreeMap::new();
        while !scheduler.is_finished() {
            if self.cancelled.load(Ordering::Relaxed) {
                return Err(PipelineError::Interrupted);
            }
            while let Some((sample, node)) = scheduler.start_next() {
                let failed = self.start_sample(nodes, sample, node, !outcomes[sample].failed_attempts.is_empty());
                working.insert(sample, (node, failed.err()));
            }
            let known: Vec<usize> = working.keys().copied().collect();
            for sample in known {
                let failed = working.get_mut(&sample).and_then(|(_, failed)| failed.take());
                let judged = match failed {
                    // Do not read a result file of this sample, because it is from an earlier attempt.
                    Some(error) => {
                        let message = super::one_line_message(&error);
                        Some(JobOutcome::without_result(&self.samples[sample], message, error.kind()))
                    }
                    None => nodes.poll_exit(sample).map(|ended| self.read_outcome(sample, ended)),
                };
                let Some(judged) = judged else { continue };
                let (node, _) = working.remove(&sample).unwrap_or_default();
                let verdict = scheduler.finish_item(sample, judged.scheduler_end);
                self.record_outcome(&mut outcomes[sample], judged, verdict, nodes.host_name(node));
            }
            if scheduler.is_finished() {
                break;
            }
            self.wait_for_next_poll(nodes.poll_interval());
        }
        self.report.samples = outcomes;
        Ok(())
    }

    /// Waits for an interval, or until the run is cancelled.
    fn wait_for_next_poll(&self, interval: Duration) {
        let until = Instant::now() + interval;
        while let Some(rest) = until.checked_duration_since(Instant::now())
            && !self.cancelled.load(Ordering::Relaxed)
        {
            std::thread::sleep(rest.min(CANCEL_CHECK_INTERVAL));
        }
    }

    fn start_sample(
        &self,
        nodes: &dyn SampleHosts,
        sample: usize,
        host: usize,
        is_retry: bool,
    ) -> Result<(), PipelineError> {
        let (name, directory) = (&*self.samples[sample].name, self.job_directory(sample));
        create_private_directory(&directory).map_err(PipelineError::file("create", &directory))?;
        let absolute = std::path::absolute(&directory).map_err(PipelineError::file("find", &directory))?;
        let job = SampleJob { sample, name, host, directory: &absolute, is_retry };
        // Do this before the result file is removed, because an adopted job may just be writing it.
        if let Some(adopted) = nodes.adopt_sample(&job)? {
            let message = format!("{name}: {adopted} of an earlier command has not ended; waiting for it");
            self.observer.event(&Event::Warning { message });
            self.report_sample_state(name, SampleState::Started, Some(&nodes.host_name(host)));
            return Ok(());
        }
        let before = directory.join(OUTCOME_FILE);
        match std::fs::remove_file(&before) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(PipelineError::file("remove", &before)(error));
            }
            _ => {}
        }
        nodes.start_sample(&job)?;
        self.report_sample_state(name, SampleState::Started, Some(&nodes.host_name(host)));
        Ok(())
    }

    /// Reports the state of a sample and the name of its host as an event.
    pub(super) fn report_sample_state(&self, sample: &str, state: SampleState, node: Option<&str>) {
        self.observer.event(&Event::Sample { sample: sample.to_owned(), state, host: node.map(str::to_owned) });
    }

    /// Reads the result file of a sample. If the file does not exist, the exit code of the process determines the
    /// outcome.
    fn read_outcome(&self, sample: usize, ended: JobExit) -> JobOutcome {
        let left = std::fs::read(self.job_directory(sample).join(OUTCOME_FILE)).ok();
        let left: Option<SampleResult> = left.and_then(|left| serde_json::from_slice(&left).ok());
        let is_cancelled = matches!(ended, JobExit::Cancelled { .. });
        let (kind, failure_text) = match ended {
            JobExit::Exited { code, message } => (ErrorKind::of_exit_code(code), message),
            JobExit::Lost { reason } => (ErrorKind::of_exit_code(None), reason),
            JobExit::Cancelled { message } => (ErrorKind::Interrupted, message),
        };
        match left {
            Some(SampleResult { outcome, .. }) if outcome.error.is_none() => {
                JobOutcome { outcome, scheduler_end: ItemOutcome::Done, error_kind: ErrorKind::Bug }
            }
            _ if is_cancelled => JobOutcome {
                scheduler_end: ItemOutcome::Failed,
                ..JobOutcome::without_result(&self.samples[sample], failure_text, kind)
            },
            Some(SampleResult { outcome, may_succeed_on_other_host, .. }) => JobOutcome {
                outcome,
                scheduler_end: if may_succeed_on_other_host { ItemOutcome::Lost } else { ItemOutcome::Failed },
                error_kind: kind,
            },
            None => JobOutcome::without_result(&self.samples[sample], failure_text, kind),
        }
    }

    fn record_outcome(
        &mut self,
        outcome: &mut SampleOutcome,
        judged: JobOutcome,
        verdict: RetryDecision,
        node: String,
    ) {
        let JobOutcome { outcome: found, error_kind, .. } = judged;
        let mut failed_attempts = std::mem::take(&mut outcome.failed_attempts);
        found.steps.iter().for_each(|step| self.report_step(&found.sample, step));
        let Some(cause) = found.error.clone() else {
            self.report_sample_state(&found.sample, SampleState::Done, Some(&node));
            *outcome = SampleOutcome { failed_attempts, host: Some(node), ..found };
            return;
        };
        failed_attempts.push(FailedAttempt { host: node.clone(), cause: cause.clone() });
        let name = &found.sample;
        let message = match verdict {
            RetryDecision::Retry => format!("{name} failed on {node} and is retried: {cause}"),
            RetryDecision::NoRetry => format!("{name} failed: {cause}"),
        };
        self.observer.event(&Event::Warning { message });
        if verdict == RetryDecision::NoRetry {
            self.report_sample_state(&found.sample, SampleState::Failed, Some(&node));
            self.first_error_kind.get_or_insert(error_kind);
        }
        *outcome = SampleOutcome { failed_attempts, host: Some(node), ..found };
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize};

    use super::*;
    use crate::workflow::Workflow;
    use crate::workflow::remote_files::tests::options;
    use godwit_pipeline::observer::NullObserver;

    /// A host on which no sample can be started, and which leaves the result file of an earlier attempt.
    #[derive(Default)]
    struct BrokenHost {
        starts: AtomicUsize,
    }

    impl SampleHosts for BrokenHost {
        fn host_count(&self) -> usize {
            1
        }

        fn samples_per_host(&self) -> usize {
            1
        }

        fn host_name(&self, node: usize) -> String {
            format!("host {node}")
        }

        fn poll_interval(&self) -> Duration {
            Duration::ZERO
        }

        fn start_sample(&self, job: &SampleJob<'_>) -> Result<(), PipelineError> {
            self.starts.fetch_add(1, Ordering::Relaxed);
            let outcome = SampleOutcome { sample: job.name.to_owned(), ..SampleOutcome::default() };
            let earlier = serde_json::to_vec(&SampleResult::new(outcome, None)).unwrap();
            std::fs::write(job.directory.join(OUTCOME_FILE), earlier).unwrap();
            Err(PipelineError::file("write", job.directory)(io::Error::other("no space left")))
        }

        fn adopt_sample(&self, _: &SampleJob<'_>) -> Result<Option<String>, PipelineError> {
            Ok(None)
        }

        fn poll_exit(&self, _: usize) -> Option<JobExit> {
            panic!("the sample was not started")
        }

        fn cancel_all(&self) {}
    }

    #[test]
    fn a_sample_that_cannot_be_started_has_failed_even_if_an_earlier_attempt_left_a_result() {
        let directory = tempfile::tempdir().unwrap();
        let reference = directory.path().join("reference.fa");
        std::fs::write(&reference, ">chr1\nACGT\n").unwrap();
        let out = directory.path().join("out");
        let options = WorkflowOptions { reference, out, workflow: Workflow::Gatk, ..options() };
        let sample = SheetSample { name: "s1".to_owned(), sex: None, lanes: Vec::new(), missing_file: None };
        let (samples, cancelled) = ([sample], Arc::new(AtomicBool::new(false)));
        let mut run = WorkflowJob::new(&options, &samples, &NullObserver, &cancelled).unwrap();
        let host = BrokenHost::default();
        run.run_on_hosts(&host).unwrap();
        let outcome = &run.report.samples[0];
        assert!(outcome.error.as_ref().is_some_and(|error| error.contains("no space left")), "{outcome:?}");
        assert_eq!((outcome.failed_attempts.len(), host.starts.into_inner()), (MAX_ATTEMPTS, MAX_ATTEMPTS));
        assert_eq!(run.first_error_kind, Some(ErrorKind::Machine));
    }
}
