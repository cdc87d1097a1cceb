//! `--on slurm`: submits the same command as a SLURM job, whose processes are the head and the workers.

use std::ffi::OsString;
use std::fs::{DirBuilder, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use godwit_cli::cli::ClusterArgs;
use godwit_cli::failure::Failure;
use godwit_fleet::launcher::{MemoryRequest, SlurmLauncher, SlurmProfile};
use godwit_fleet::{FleetError, JobHandle, JobOutcome, JobSpec, JobStatus, Launcher};
use godwit_model::{ErrorKind, message_with_causes};
use godwit_pipeline::PipelineError;
use godwit_pipeline::observer::{Event, Observer as _};
use godwit_process::RESUME_ADVICE;

use super::cluster_run::ClusterRunOptions;
use super::cluster_worker::available_cores;
use super::earlier_job::EarlierJob;
use crate::interruption;
use crate::progress::Progress;

/// Interval at which SLURM is queried; shorter intervals would put load on its controller.
const SLURM_POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Time for a job to end after the head has marked it as finished; then the job is cancelled.
const JOB_EXIT_TIMEOUT: Duration = Duration::from_secs(10);
/// File name, in the job directory, of the copy of standard input.
const SPOOLED_INPUT_NAME: &str = "standard-input";
/// Time after which a job that SLURM does not know counts as lost.
const MISSING_JOB_TIMEOUT: Duration = Duration::from_secs(60);
/// Time to cancel jobs after a signal. A busy controller of SLURM takes some seconds for each request.
pub const JOB_CANCEL_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum time without a response from SLURM. After a restart or failover, its controller responds again within this
/// time.
const SLURM_RESPONSE_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// The SLURM job of a command line, and the launcher that submits it.
pub struct SlurmJob {
    slurm: SlurmLauncher,
    spec: JobSpec,
    /// Name of the work, for messages.
    name: String,
    /// True to wait for a job of an earlier command that has not ended.
    resume: bool,
    /// Path for a copy of standard input, if the verb reads it; a SLURM job has no standard input of its own.
    stdin_file: Option<PathBuf>,
}

/// Converts the SLURM options of the command line to those of the launcher, including how memory is requested.
pub fn slurm_profile(place: &ClusterArgs) -> SlurmProfile {
    let slurm = &place.slurm;
    SlurmProfile {
        account: slurm.slurm_account.clone(),
        partition: slurm.slurm_partition.clone(),
        qos: slurm.slurm_qos.clone(),
        constraint: slurm.slurm_constraint.clone(),
        time: slurm.slurm_time.clone(),
        memory: if slurm.slurm_mem_per_cpu { MemoryRequest::PerCpu } else { MemoryRequest::PerNode },
        extra_arguments: slurm.slurm_argument.clone(),
        setup: slurm.slurm_setup.clone(),
        ..SlurmProfile::default()
    }
}

impl SlurmJob {
    /// Creates the job that runs the command line of this process.
    pub fn new(options: &ClusterRunOptions) -> Result<Self, Failure> {
        let machine =
            |what: &'static str| move |error| Failure::new(ErrorKind::Machine, format!("cannot find {what}: {error}"));
        let program = std::env::current_exe().map_err(machine("this program"))?;
        let mut command: Vec<OsString> = vec![program.into()];
        let job_directory = std::path::absolute(&options.job_directory).map_err(machine("the output directory"))?;
        let spooled = job_directory.join(SPOOLED_INPUT_NAME);
        // Put the values from configuration files on the command line, because the files may have changed when the job
        // starts.
        let configured = options.common.configured_flags.iter().map(OsString::from);
        let line =
            godwit_cli::cli::with_arguments(std::env::args_os().skip(1).collect(), &configured.collect::<Vec<_>>());
        command.extend(allocation_arguments(line, &spooled));
        let stdin_file = options.reads_stdin.then_some(spooled);
        let spec = JobSpec {
            name: format!("godwit-{}", slurm_name(&options.job_name)),
            command,
            workers: options.cluster.nodes,
            cpus_per_worker: options.common.threads.unwrap_or_else(|| available_cores() as u32),
            memory_bytes_per_worker: options.cluster.slurm.slurm_memory,
            time_limit: None,
            working_directory: std::env::current_dir().map_err(machine("the working directory"))?,
            environment: Vec::new(),
            job_directory,
        };
        let (name, resume) = (options.job_name.clone(), options.resume);
        Ok(Self { slurm: SlurmLauncher::new(slurm_profile(options.cluster)), spec, name, resume, stdin_file })
    }

    /// Returns the job script that would be submitted to SLURM.
    pub fn render(&self) -> Result<String, Failure> {
        Ok(self.slurm.render_script(&self.spec).map_err(PipelineError::from)?)
    }

    /// Checks whether SLURM would accept the job. Warns if SLURM cannot be queried from this host.
    pub fn test_submission(&self, progress: &Progress) -> Result<(), Failure> {
        match self.slurm.test_submission(&self.spec) {
            Err(error @ (FleetError::MissingProgram { .. } | FleetError::SchedulerUnavailable { .. })) => {
                let message = format!("SLURM did not check the options of the job: {}", message_with_causes(&error));
                progress.event(&Event::Warning { message: message.replace('\n', " | ") });
                Ok(())
            }
            tested => Ok(tested.map_err(PipelineError::from)?),
        }
    }

    /// Submits the job after `check` has succeeded. If a job of an earlier command has not ended, a resumed run uses that
    /// job instead, and any other run fails. If `wait` is true, waits until the job ends and returns its outcome.
    pub fn run(
        &self,
        wait: bool,
        check: impl FnOnce() -> Result<(), Failure>,
        progress: &Progress,
        cancelled: &AtomicBool,
    ) -> Result<(), Failure> {
        let earlier = EarlierJob::find(&self.slurm, &self.spec.job_directory, &self.name, self.resume)?;
        if let Some(EarlierJob { handle, is_completing }) = earlier {
            let message = format!("job {} of an earlier command has not ended", handle.id);
            // A job that SLURM is ending may have been cancelled, and then does no further work.
            if !wait && !is_completing {
                progress.report(&message);
                return Ok(());
            }
            progress.report(&format!("{message}; waiting for it"));
            interruption::flag_with_grace(JOB_CANCEL_TIMEOUT);
            let outcome = self.wait(&handle, progress, cancelled)?;
            if !must_run_again(is_completing, &outcome) {
                return self.finish(&handle, &outcome);
            }
        }
        check()?;
        let handle = self.submit(progress, cancelled)?;
        if !wait {
            return Ok(());
        }
        let outcome = self.wait(&handle, progress, cancelled)?;
        self.finish(&handle, &outcome)
    }

    /// Submits the job, after standard input has been stored for it.
    fn submit(&self, progress: &Progress, cancelled: &AtomicBool) -> Result<JobHandle, Failure> {
        if let Some(path) = &self.stdin_file {
            let failed = |error| {
                Failure::new(ErrorKind::Machine, format!("cannot store standard input in {}: {error}", path.display()))
            };
            spool_stdin(&self.spec.job_directory, path).map_err(failed)?;
        }
        interruption::flag_with_grace(JOB_CANCEL_TIMEOUT);
        if cancelled.load(Ordering::Relaxed) {
            return Err(PipelineError::Interrupted.into());
        }
        let handle = self.slurm.submit(&self.spec).map_err(PipelineError::from)?;
        let place = self.spec.job_directory.display();
        progress.report(&format!("submitted job {}; its script and logs are in {place}", handle.id));
        Ok(handle)
    }

    /// Returns the outcome of a job that has ended, as that of this command.
    fn finish(&self, handle: &JobHandle, outcome: &JobOutcome) -> Result<(), Failure> {
        self.result_of(handle, outcome)?;
        // Remove the copy of standard input only now, because later attempts of an unfinished job need it.
        let _ = self.stdin_file.as_ref().map(std::fs::remove_file);
        Ok(())
    }

    /// Waits until a job ends, and returns its outcome.
    fn wait(&self, handle: &JobHandle, progress: &Progress, cancelled: &AtomicBool) -> Result<JobOutcome, Failure> {
        let (mut last_text, mut known_state, mut finished_since) = (String::new(), "submitted".to_owned(), None);
        let (mut missing, mut silent) = (Timeout::new(MISSING_JOB_TIMEOUT), Timeout::new(SLURM_RESPONSE_TIMEOUT));
        loop {
            if cancelled.load(Ordering::Relaxed) {
                return Err(interruption_failure(&[(handle.id.clone(), self.slurm.cancel(handle))]));
            }
            if handle.is_finished() && finished_since.get_or_insert_with(Instant::now).elapsed() > JOB_EXIT_TIMEOUT {
                // The job has finished its work, but SLURM still waits for a lost host, so cancel the job.
                self.slurm.cancel(handle).map_err(PipelineError::from)?;
                return Ok(JobOutcome::Succeeded);
            }
            let status = self.slurm.status(handle);
            let mut text = state_text(&status);
            match &status {
                Err(FleetError::SchedulerUnavailable { .. }) => {}
                Ok(JobStatus::Unknown { .. }) => silent.reset(),
                _ => {
                    [&mut silent, &mut missing].into_iter().for_each(Timeout::reset);
                    known_state = text.as_deref().map_or(known_state, |text| text.trim_start_matches("is ").to_owned());
                }
            }
            match status {
                Ok(JobStatus::Ended { .. }) if handle.is_finished() => return Ok(JobOutcome::Succeeded),
                Ok(JobStatus::Ended { outcome }) => return Ok(outcome),
                Ok(JobStatus::Running { is_batch_host_lost: true, .. }) => {
                    // SLURM has lost the host of the head, and would let the workers on the other hosts continue
                    // without it.
                    match self.slurm.requeue(handle) {
                        Ok(()) => text = Some("lost its head; requeued".to_owned()),
                        // The state of the job has changed meanwhile; the next query returns the new state.
                        Err(FleetError::CommandRejected { .. } | FleetError::SchedulerUnavailable { .. }) => {}
                        Err(error) => return Err(PipelineError::from(error).into()),
                    }
                }
                Ok(JobStatus::Unknown { reason }) if missing.is_expired(Instant::now()) => {
                    return Err(self.lost_failure(handle, &known_state, &reason));
                }
                Ok(_) => {}
                // If SLURM does not respond, the state of the job is unknown; query it again until the timeout.
                Err(error @ FleetError::SchedulerUnavailable { .. }) => {
                    if silent.is_expired(Instant::now()) {
                        return Err(silence_failure(handle, &error));
                    }
                }
                Err(error) => return Err(PipelineError::from(error).into()),
            }
            if let Some(text) = text.filter(|text| *text != last_text) {
                progress.report(&format!("job {} {text}", handle.id));
                last_text = text;
            }
            let until = Instant::now() + SLURM_POLL_INTERVAL;
            while Instant::now() < until && !cancelled.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }

    /// Returns the failure of a job that SLURM no longer knows, and that did not record its end.
    fn lost_failure(&self, handle: &JobHandle, known_state: &str, reason: &str) -> Failure {
        let (id, log) = (&handle.id, self.spec.job_directory.join("job.log"));
        let message = format!(
            "job {id} is lost: {reason}; its last known state is {known_state}; its log is {}. Check with `sacct -j {id}` and \
             `squeue --me` that it has ended, and {RESUME_ADVICE}",
            log.display()
        );
        Failure::new(ErrorKind::Remote, message)
    }

    fn result_of(&self, handle: &JobHandle, how: &JobOutcome) -> Result<(), Failure> {
        let directory = &self.spec.job_directory;
        let failed = |exit, what: &str| {
            let message = format!("job {} {what}; its logs are job.log and logs in {}", handle.id, directory.display());
            Err(Failure::new(exit, message))
        };
        match how {
            JobOutcome::Succeeded => Ok(()),
            JobOutcome::Cancelled => failed(ErrorKind::Interrupted, &format!("was cancelled; {RESUME_ADVICE}")),
            JobOutcome::TimeLimit => failed(ErrorKind::Remote, "exceeded its time limit; raise it with --slurm-time"),
            JobOutcome::HostLost => failed(ErrorKind::Remote, "lost its hosts"),
            JobOutcome::Preempted => failed(ErrorKind::Remote, "was preempted"),
            JobOutcome::Failed { description, exit_code } => match self.spec.last_error_line(0) {
                Some(message) => Err(Failure::new(ErrorKind::of_exit_code(*exit_code), message)),
                None => failed(ErrorKind::of_exit_code(*exit_code), &format!("failed: {description}")),
            },
        }
    }
}

/// Returns whether a resumed command must submit a job of its own after the job of an earlier command has ended. It must
/// if SLURM was already ending that job when the command began (`was_completing`): the user knows of its failure, and
/// wants the rest of the work to be done.
fn must_run_again(was_completing: bool, outcome: &JobOutcome) -> bool {
    was_completing && *outcome != JobOutcome::Succeeded
}

/// Returns the state of a job for the user, as the rest of a sentence; `None` if it has ended or lost its head.
fn state_text(status: &Result<JobStatus, FleetError>) -> Option<String> {
    match status {
        // SLURM has not considered the job yet.
        Ok(JobStatus::Pending { reason }) if reason == "None" => Some("is pending".to_owned()),
        Ok(JobStatus::Pending { reason }) => Some(format!("is pending ({reason})")),
        Ok(JobStatus::Running { is_batch_host_lost: false, workers, .. }) => {
            Some(format!("is running on {}", workers.join(", ")))
        }
        Ok(JobStatus::Unknown { reason }) => {
            let seconds = MISSING_JOB_TIMEOUT.as_secs();
            Some(format!("has an unknown state: {reason}; waiting for {seconds} s"))
        }
        Err(FleetError::SchedulerUnavailable { .. }) => {
            Some("has an unknown state, because SLURM does not respond".to_owned())
        }
        Ok(JobStatus::Ended { .. } | JobStatus::Running { .. }) | Err(_) => None,
    }
}

/// Returns the failure of a job about which SLURM has not responded until the timeout.
fn silence_failure(handle: &JobHandle, error: &FleetError) -> Failure {
    let (id, minutes) = (&handle.id, SLURM_RESPONSE_TIMEOUT.as_secs() / 60);
    let message = format!(
        "SLURM has not responded about job {id} for {minutes} minutes ({error}); the job may still run: check with \
         squeue, and repeat the command with --resume after the job has ended"
    );
    Failure::new(ErrorKind::Remote, message)
}

/// Returns the failure of a command that was interrupted and has cancelled these jobs. Each job has its number and the
/// result of the request to cancel it.
pub fn interruption_failure(jobs: &[(String, Result<(), FleetError>)]) -> Failure {
    let numbers = |jobs: Vec<&str>| match jobs[..] {
        [] => None,
        [job] => Some(format!("job {job}")),
        _ => Some(format!("jobs {}", jobs.join(", "))),
    };
    let ids = |cancelled: bool| jobs.iter().filter(move |(_, result)| result.is_ok() == cancelled).map(|(id, _)| &**id);
    let mut message = "interrupted".to_owned();
    if let Some(cancelled) = numbers(ids(true).collect()) {
        message += &format!("; cancelled {cancelled} of SLURM");
    }
    if let Some(running) = numbers(ids(false).collect()) {
        let errors = jobs.iter().filter_map(|(_, result)| result.as_ref().err());
        let reason = errors.map(|error| message_with_causes(error)).next().unwrap_or_default();
        let ids = ids(false).collect::<Vec<_>>().join(" ");
        message += &format!("; {running} of SLURM may still run ({reason}): cancel with `scancel {ids}`");
    }
    Failure::new(ErrorKind::Interrupted, format!("{message}; {RESUME_ADVICE}"))
}

/// A time limit for a condition that must not last too long, such as SLURM not responding.
struct Timeout {
    limit: Duration,
    since: Option<Instant>,
}

impl Timeout {
    fn new(limit: Duration) -> Self {
        Self { limit, since: None }
    }

    /// Records that the condition does not hold.
    fn reset(&mut self) {
        self.since = None;
    }

    /// Records that the condition holds. Returns whether it has lasted longer than the limit.
    fn is_expired(&mut self, now: Instant) -> bool {
        now.duration_since(*self.since.get_or_insert(now)) > self.limit
    }
}

/// Copies standard input to a new file that only this user can read.
fn spool_stdin(directory: &Path, path: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    std::io::copy(&mut std::io::stdin().lock(), &mut file).map(drop)
}

/// Converts the command line of this process for the processes of the SLURM job. They do not read configuration files,
/// and read the file `input` instead of standard input. Arguments after `--` are for another program and stay
/// unchanged.
fn allocation_arguments(mut line: Vec<OsString>, input: &Path) -> Vec<OsString> {
    let others = line.split_off(line.iter().position(|word| word == "--").unwrap_or(line.len()));
    let mut words = line.into_iter();
    let mut found: Vec<OsString> = Vec::new();
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("--dry-run" | "--no-wait" | "--no-config") => {}
            Some("--config") => drop(words.next()),
            Some(config) if config.starts_with("--config=") => {}
            Some("-") => found.push(input.into()),
            Some("--reads=-") => found.extend(["--reads".into(), input.into()]),
            Some("--on=slurm") => found.push("--on=allocation".into()),
            Some("slurm") if found.last().is_some_and(|last| last == "--on") => found.push("allocation".into()),
            _ => found.push(word),
        }
    }
    found.push("--no-config".into());
    found.extend(others);
    found
}

/// Returns the name of a sample in which the characters that SLURM rejects in job names are replaced.
pub fn slurm_name(sample: &str) -> String {
    sample
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() || "._-".contains(letter) { letter } else { '_' })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interruption_names_the_jobs_that_were_cancelled_and_those_that_may_still_run() {
        let job = |id: &str, result| (id.to_owned(), result);
        let failed = |id: &str| job(id, Err(FleetError::Cancelled));
        let of = |jobs: &[_]| interruption_failure(jobs).message;
        assert_eq!(of(&[]), "interrupted; add --resume to the same command to resume");
        let some = of(&[job("4", Ok(())), failed("5"), job("6", Ok(())), failed("7")]);
        for words in ["; cancelled jobs 4, 6 of SLURM;", "; jobs 5, 7 of SLURM may still run", "`scancel 5 7`; add"] {
            assert!(some.contains(words), "{words}: {some}");
        }
        assert!(of(&[failed("5")]).starts_with("interrupted; job 5 of SLURM may still run"));
    }

    #[test]
    fn a_resumed_command_runs_again_what_slurm_was_ending_unless_it_succeeded() {
        let failed = JobOutcome::Failed { description: "out of memory".to_owned(), exit_code: None };
        for outcome in
            [JobOutcome::Cancelled, JobOutcome::TimeLimit, JobOutcome::HostLost, JobOutcome::Preempted, failed]
        {
            assert!(must_run_again(true, &outcome), "{outcome:?}");
            assert!(!must_run_again(false, &outcome), "{outcome:?}");
        }
        assert!(!must_run_again(true, &JobOutcome::Succeeded));
    }

    #[test]
    fn the_job_runs_the_same_command_in_its_allocation() {
        let of = |line: &str| {
            let words = allocation_arguments(line.split(' ').map(OsString::from).collect(), Path::new("/out/slurm/in"));
            words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            of("align --on slurm --nodes 4 --sample slurm"),
            "align --on allocation --nodes 4 --sample slurm --no-config"
        );
        assert_eq!(
            of("align --config f --config=g --dry-run --no-wait --on=slurm"),
            "align --on=allocation --no-config"
        );
        assert_eq!(of("align --on slurm --reads -"), "align --on allocation --reads /out/slurm/in --no-config");
        assert_eq!(of("align --reads=- --on=slurm"), "align --reads /out/slurm/in --on=allocation --no-config");
        assert_eq!(
            of("search --on slurm -- blastp --on slurm -"),
            "search --on allocation --no-config -- blastp --on slurm -"
        );
    }

    #[test]
    fn a_timeout_counts_from_the_first_occurrence() {
        let (mut patience, start) = (Timeout::new(SLURM_RESPONSE_TIMEOUT), Instant::now());
        assert!(!patience.is_expired(start) && !patience.is_expired(start + SLURM_RESPONSE_TIMEOUT));
        patience.reset();
        let again = start + SLURM_RESPONSE_TIMEOUT + SLURM_POLL_INTERVAL;
        assert!(!patience.is_expired(again) && !patience.is_expired(again + SLURM_RESPONSE_TIMEOUT));
        assert!(patience.is_expired(again + SLURM_RESPONSE_TIMEOUT + SLURM_POLL_INTERVAL));
    }

    #[test]
    fn names_of_jobs_are_plain() {
        assert_eq!(slurm_name("NA 12878/β"), "NA_12878__");
    }
}
