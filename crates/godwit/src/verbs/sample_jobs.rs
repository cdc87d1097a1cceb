//! Starts the jobs of `godwit run --on`: one job for each sample, which runs the same command with `--one-sample`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use godwit_cli::cli::{LauncherName, RunArgs};
use godwit_cli::failure::Failure;
use godwit_fleet::launcher::{LocalLauncher, SlurmLauncher, SshLauncher};
use godwit_fleet::{FleetError, JobHandle, JobOutcome, JobSpec, JobStatus, Launcher};
use godwit_model::{ErrorKind, message_with_causes};
use godwit_pipeline::PipelineError;
use godwit_process::RESUME_ADVICE;
use godwit_workflow::{JobExit, SampleHosts, SampleJob};
use parking_lot::Mutex;

use super::cluster_worker::available_cores;
use super::earlier_job::EarlierJob;
use super::slurm_job::{JOB_CANCEL_TIMEOUT, interruption_failure, slurm_name, slurm_profile};
use crate::interruption;

/// Interval at which the state of local and ssh processes is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Interval at which SLURM is queried; shorter intervals would put load on its controller.
const SLURM_POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Time after which a job that its launcher does not know counts as lost.
const MISSING_JOB_TIMEOUT: Duration = Duration::from_secs(60);

/// The hosts of a run, and the jobs that run on them.
pub struct SampleJobLauncher {
    launcher_name: LauncherName,
    /// One launcher for each host, or a single one for all hosts.
    launchers: Vec<Box<dyn Launcher>>,
    command: Vec<OsString>,
    /// True if the command already contains `--resume`.
    is_resumed: bool,
    working_directory: PathBuf,
    hosts: usize,
    samples_per_host: usize,
    threads: u32,
    memory_bytes: Option<u64>,
    jobs: Mutex<BTreeMap<usize, SampleJobState>>,
    /// Numbers of the SLURM jobs that [`SampleHosts::cancel_all`] had to cancel, each with the result.
    cancelled_jobs: Mutex<Vec<(String, Result<(), FleetError>)>>,
}

/// The job of a sample.
struct SampleJobState {
    launcher: usize,
    spec: JobSpec,
    handle: JobHandle,
    /// Time of the first poll at which the launcher did not know the job; `None` if the last poll found it.
    missing_since: Option<Instant>,
    /// True if SLURM was already ending the job when it was adopted.
    was_completing: bool,
}

impl SampleJobLauncher {
    /// Creates the launchers for the hosts that the command line names.
    pub fn new(args: &RunArgs, launcher_name: LauncherName) -> Result<Self, Failure> {
        let (nodes, samples_per_host) = (args.cluster.nodes as usize, args.per_node as usize);
        let launchers: Vec<Box<dyn Launcher>> = match launcher_name {
            LauncherName::Local => vec![Box::new(LocalLauncher::new())],
            LauncherName::Slurm => vec![Box::new(SlurmLauncher::new(slurm_profile(&args.cluster)))],
            LauncherName::Ssh => {
                let (hosts, options) = (args.cluster.hosts.clone().unwrap_or_default(), &args.cluster.ssh_option);
                let of = |node| {
                    Box::new(SshLauncher::new(&hosts, options.clone()).with_first_slot(node)) as Box<dyn Launcher>
                };
                (0..nodes).map(of).collect()
            }
            LauncherName::Allocation => {
                let problem = "godwit run starts its jobs from this host: use --on local, ssh or slurm";
                return Err(Failure::new(ErrorKind::Usage, problem.to_owned()));
            }
        };
        if args.cluster.slurm.no_wait {
            let problem = "godwit run starts a sample when another has finished, so it must keep running; omit \
                           --no-wait";
            return Err(Failure::new(ErrorKind::Usage, problem.to_owned()));
        }
        let missing =
            |error| Failure::new(ErrorKind::Machine, format!("cannot determine the working directory: {error}"));
        let (program, working_directory) =
            std::env::current_exe().and_then(|program| Ok((program, std::env::current_dir()?))).map_err(missing)?;
        let shared_by = if launcher_name == LauncherName::Local { nodes * samples_per_host } else { samples_per_host };
        let threads = args.common.threads.unwrap_or_else(|| (available_cores() / shared_by).max(1) as u32);
        let mut words: Vec<OsString> = args.common.configured_flags.iter().map(OsString::from).collect();
        words.push("--no-config".into());
        if args.common.threads.is_none() {
            words.extend(["--threads".into(), threads.to_string().into()]);
        }
        let line = without_config_options(std::env::args_os().skip(1).collect());
        let mut command = vec![program.into()];
        command.extend(godwit_cli::cli::with_arguments(line, &words));
        if launcher_name == LauncherName::Slurm {
            interruption::flag_with_grace(JOB_CANCEL_TIMEOUT);
        }
        let (jobs, cancelled_jobs) = Default::default();
        let (is_resumed, memory_bytes) = (args.resume, args.cluster.slurm.slurm_memory);
        Ok(Self {
            launcher_name,
            launchers,
            command,
            is_resumed,
            working_directory,
            hosts: nodes,
            samples_per_host,
            threads,
            memory_bytes,
            jobs,
            cancelled_jobs,
        })
    }

    /// Returns the failure of a run that was interrupted: which jobs were cancelled, and how to resume.
    pub fn interruption_failure(&self) -> Failure {
        interruption_failure(&self.cancelled_jobs.lock())
    }

    fn job_spec(&self, job: &SampleJob<'_>) -> JobSpec {
        let mut words: Vec<OsString> = vec!["--one-sample".into(), job.name.into()];
        // A retry resumes the work of the earlier attempt.
        words.extend((job.is_retry && !self.is_resumed).then(|| OsString::from("--resume")));
        JobSpec {
            name: format!("godwit-{}", slurm_name(job.name)),
            command: godwit_cli::cli::with_arguments(self.command.clone(), &words),
            workers: 1,
            cpus_per_worker: self.threads,
            memory_bytes_per_worker: self.memory_bytes,
            time_limit: None,
            working_directory: self.working_directory.clone(),
            environment: Vec::new(),
            job_directory: job.directory.to_owned(),
        }
    }
}

impl SampleHosts for SampleJobLauncher {
    fn host_count(&self) -> usize {
        self.hosts
    }

    fn samples_per_host(&self) -> usize {
        self.samples_per_host
    }

    fn host_name(&self, node: usize) -> String {
        match self.launcher_name {
            LauncherName::Slurm => "a SLURM host".to_owned(),
            _ => format!("host {node}"),
        }
    }

    fn poll_interval(&self) -> Duration {
        if self.launcher_name == LauncherName::Slurm { SLURM_POLL_INTERVAL } else { POLL_INTERVAL }
    }

    fn start_sample(&self, job: &SampleJob<'_>) -> Result<(), PipelineError> {
        let launcher = job.host.min(self.launchers.len() - 1);
        let spec = self.job_spec(job);
        // Remove the log of an earlier attempt, whose error could be mistaken for one of this attempt.
        let _ = std::fs::remove_file(spec.stderr_path(0));
        let handle = self.launchers[launcher].submit(&spec)?;
        let state = SampleJobState { launcher, spec, handle, missing_since: None, was_completing: false };
        self.jobs.lock().insert(job.sample, state);
        Ok(())
    }

    fn adopt_sample(&self, job: &SampleJob<'_>) -> Result<Option<String>, PipelineError> {
        // Only SLURM jobs outlive the process that has started them, and a retry follows the end of a job.
        if self.launcher_name != LauncherName::Slurm || job.is_retry {
            return Ok(None);
        }
        let launcher = job.host.min(self.launchers.len() - 1);
        let earlier = EarlierJob::find(&*self.launchers[launcher], job.directory, job.name, self.is_resumed)?;
        let Some(EarlierJob { handle, is_completing: was_completing }) = earlier else { return Ok(None) };
        let name = format!("job {}", handle.id);
        let state = SampleJobState { launcher, spec: self.job_spec(job), handle, missing_since: None, was_completing };
        self.jobs.lock().insert(job.sample, state);
        Ok(Some(name))
    }

    fn poll_exit(&self, sample: usize) -> Option<JobExit> {
        let mut jobs = self.jobs.lock();
        let job = jobs.get_mut(&sample)?;
        let ended = match self.launchers[job.launcher].status(&job.handle) {
            Ok(JobStatus::Ended { outcome }) => Some(job_end(job, &outcome)),
            Ok(JobStatus::Unknown { reason }) => {
                let since = *job.missing_since.get_or_insert_with(Instant::now);
                (since.elapsed() > MISSING_JOB_TIMEOUT).then(|| lost_job(job, &reason))
            }
            Ok(JobStatus::Pending { .. } | JobStatus::Running { .. }) => {
                job.missing_since = None;
                None
            }
            // If the scheduler does not respond, the state of the job is unknown; poll again later.
            Err(FleetError::SchedulerUnavailable { .. }) => None,
            Err(error) => Some(JobExit::Lost { reason: message_with_causes(&error) }),
        };
        if ended.is_some() {
            jobs.remove(&sample);
        }
        ended
    }

    fn cancel_all(&self) {
        let jobs = std::mem::take(&mut *self.jobs.lock());
        for job in jobs.into_values() {
            let result = self.launchers[job.launcher].cancel(&job.handle);
            // Other processes exit with this process.
            if self.launcher_name == LauncherName::Slurm {
                self.cancelled_jobs.lock().push((job.handle.id, result));
            }
        }
    }
}

/// Returns the end of a job that its launcher no longer knows.
fn lost_job(job: &SampleJobState, reason: &str) -> JobExit {
    let directory = job.spec.job_directory.display();
    JobExit::Lost { reason: format!("job {} is lost: {reason}; its logs are in {directory}", job.handle.id) }
}

fn job_end(job: &SampleJobState, how: &JobOutcome) -> JobExit {
    let gone = |why: &str| JobExit::Lost { reason: format!("job {} {why}", job.handle.id) };
    match how {
        JobOutcome::Succeeded => {
            JobExit::Exited { code: Some(0), message: "it exited without reporting its outcome".to_owned() }
        }
        JobOutcome::Failed { description, exit_code } => {
            let error_text = job.spec.last_error_line(0).unwrap_or_else(|| description.clone());
            JobExit::Exited { code: *exit_code, message: error_text }
        }
        // The user has cancelled the job before this run, which has to do the rest of its work.
        JobOutcome::Cancelled if job.was_completing => gone("of an earlier command was cancelled"),
        JobOutcome::Cancelled => {
            let message = format!("job {} was cancelled; {RESUME_ADVICE}", job.handle.id);
            JobExit::Cancelled { message }
        }
        JobOutcome::TimeLimit => gone("exceeded its time limit; raise it with --slurm-time"),
        JobOutcome::HostLost => gone("lost its host"),
        JobOutcome::Preempted => gone("was preempted"),
    }
}

/// Removes the options that name configuration files, because the values from these files are already arguments of the
/// command.
fn without_config_options(line: Vec<OsString>) -> Vec<OsString> {
    let mut words = line.into_iter();
    let mut found = Vec::new();
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("--no-config") => {}
            Some("--config") => drop(words.next()),
            Some(config) if config.starts_with("--config=") => {}
            _ => found.push(word),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_read_no_configuration_of_their_own() {
        let of = |line: &str| {
            let words = without_config_options(line.split(' ').map(OsString::from).collect());
            words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of("run --config f --out o --no-config --config=g --on local"), "run --out o --on local");
    }
}
