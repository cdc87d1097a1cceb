//! Starts the workers of a cluster run on this host, on other hosts with ssh, or in the allocation of a SLURM job.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use godwit_fleet::launcher::{LocalLauncher, SshLauncher};
use godwit_fleet::{FleetError, JobHandle, JobSpec, JobStatus, Launcher};
use godwit_formats::message_with_causes;
use godwit_pipeline::{ClusterOptions, PipelineError, PlannedWorkers, WorkerLauncher, WorkerOptions, run_worker};

use super::cluster_worker::{HEAD_TIMEOUT, available_cores};
use super::slurm_job::SlurmJob;
use crate::cli::{ClusterArgs, CommonArgs, LauncherName};
use crate::failure::{ERROR_PREFIX, Exit, Failure};
use crate::progress::Progress;

/// Maximum time to wait for an earlier attempt of the job to exit. If the host of that attempt has lost power, a file
/// server keeps the locks of this host for another 90 s.
const EARLIER_START_TIMEOUT: Duration = Duration::from_secs(180);
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Time for workers to exit by themselves at the end of the run, before they are cancelled.
const WORKER_EXIT_TIMEOUT: Duration = Duration::from_secs(3);

/// The workers of a cluster run, as seen by the head, and how to start them.
struct ClusterWorkers {
    launcher: Box<dyn Launcher>,
    program: PathBuf,
    working_directory: PathBuf,
    /// Number of workers that this process starts.
    worker_count: u32,
    worker_threads: usize,
    temp: Option<PathBuf>,
    allocation: Option<Allocation>,
    submitted: Mutex<Option<(JobSpec, JobHandle)>>,
    /// Numbers of the workers whose exit was reported to the user.
    reported_exits: Mutex<BTreeSet<u32>>,
}

/// The job to which this process belongs, and its worker number, from the variables that the launcher sets.
#[derive(Clone, Debug)]
struct Allocation {
    /// Number of this process in the job; 0 is the head.
    worker_index: u32,
    attempt: u64,
    job_directory: PathBuf,
}

impl Allocation {
    /// Reads the environment variables that the launcher sets.
    fn from_environment() -> Result<Self, Failure> {
        let text = |name: &str| {
            let wrong = || format!("{name} is not set: --on allocation is only for jobs that --on slurm submits");
            std::env::var(name).map_err(|_| Failure::new(Exit::Usage, wrong()))
        };
        let number = |name: &str| {
            let wrong = |_| Failure::new(Exit::Usage, format!("{name} is not a number"));
            text(name)?.parse::<u64>().map_err(wrong)
        };
        let job_directory = PathBuf::from(text("GODWIT_JOB_DIRECTORY")?);
        Ok(Self { worker_index: number("GODWIT_NODE")? as u32, attempt: number("GODWIT_ATTEMPT")?, job_directory })
    }

    /// Creates a file that marks the job as finished. The process that has submitted the job then cancels it if it does
    /// not end, because SLURM waits forever for a worker on an unreachable host.
    fn write_finished_marker(&self) -> Result<(), Failure> {
        let path = finished_marker_path(&self.job_directory, self.attempt);
        let failed = |error| Failure::new(Exit::Machine, format!("cannot write {}: {error}", path.display()));
        std::fs::write(&path, "").map_err(failed)
    }

    /// Returns the numbers of all attempts of this SLURM job, including the current attempt. A requeued job has several
    /// attempts.
    fn job_starts(&self) -> Vec<u64> {
        let job =
            |attempt: u64| std::fs::read_to_string(self.job_directory.join(format!("attempts/{attempt}/job"))).ok();
        let Some(own) = job(self.attempt) else { return Vec::new() };
        let entries = std::fs::read_dir(self.job_directory.join("attempts")).into_iter().flatten().flatten();
        let attempts = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u64>().ok());
        attempts.filter(|attempt| job(*attempt).as_ref() == Some(&own)).collect()
    }

    /// Returns whether the job has earlier attempts, whose work can be resumed.
    fn is_restart(&self) -> bool {
        self.job_starts().iter().any(|start| *start < self.attempt)
    }

    /// Runs this process as a worker of `jobs` cluster runs, one after another, until all have finished.
    fn run_worker(
        &self,
        jobs: u32,
        common: &CommonArgs,
        progress: &Progress,
        cancelled: &Arc<AtomicBool>,
    ) -> Result<(), Failure> {
        let options = WorkerOptions {
            rendezvous_directory: self.job_directory.clone(),
            attempt: self.attempt,
            threads: common.threads.map_or_else(available_cores, |threads| threads as usize),
            temp: common.temp.clone(),
            join_timeout: HEAD_TIMEOUT,
        };
        let is_over = || finished_marker_path(&self.job_directory, self.attempt).exists();
        let stop = Arc::new(AtomicBool::new(false));
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let watching = scope.spawn(|| {
                // Stop also when the job has its success mark: if the outputs of the run were complete before, its head
                // does not connect to workers.
                while !ended.load(Ordering::Relaxed) && !stop.load(Ordering::Relaxed) {
                    stop.store(cancelled.load(Ordering::Relaxed) || is_over(), Ordering::Relaxed);
                    std::thread::park_timeout(POLL_INTERVAL);
                }
            });
            let mut worked = Ok(());
            for _ in 0..jobs {
                if worked.is_ok() {
                    worked = run_worker(&options, &stop);
                }
            }
            ended.store(true, Ordering::Relaxed);
            watching.thread().unpark();
            match worked {
                Err(PipelineError::Interrupted) if !cancelled.load(Ordering::Relaxed) => Ok(()),
                Err(error @ PipelineError::Interrupted) => Err(error.into()),
                // This is not a failure of the job: the head continues without this worker, and reports the outcome.
                Err(error) => {
                    progress.report(&format!("this worker left the job: {}", message_with_causes(&error)));
                    Ok(())
                }
                Ok(()) => Ok(()),
            }
        })
    }
}

/// Returns whether this process belongs to a SLURM job that was requeued, so that it has earlier attempts.
pub fn is_restart() -> bool {
    Allocation::from_environment().is_ok_and(|job| job.is_restart())
}

/// The options of a verb that matter for a cluster run.
pub struct ClusterRunOptions<'a> {
    /// Options for the launcher and the workers.
    pub cluster: &'a ClusterArgs,
    /// Common options of the verb.
    pub common: &'a CommonArgs,
    /// True to print the script of the SLURM job instead of submitting it.
    pub dry_run: bool,
    /// Directory for the script and the logs of a SLURM job.
    pub job_directory: PathBuf,
    /// Name of the SLURM job.
    pub job_name: String,
    /// Number of cluster runs that the verb executes, one after another.
    pub job_count: u32,
    /// True if the verb reads standard input.
    pub reads_stdin: bool,
}

/// The process that runs the verb: the head of a cluster run or, without workers (`None`), the only process.
pub struct HeadProcess(Option<ClusterWorkers>);

impl HeadProcess {
    /// Returns the options of the cluster run; `None` if there is only this process.
    pub fn cluster_options<'l>(&'l self, place: &ClusterArgs) -> Result<Option<ClusterOptions<'l>>, Failure> {
        self.0.as_ref().map(|nodes| nodes.cluster_options(place)).transpose()
    }

    /// Returns whether the job has earlier attempts, whose work this attempt must resume.
    pub fn is_restart(&self) -> bool {
        self.allocation().is_some_and(Allocation::is_restart)
    }

    /// Marks the SLURM job as finished; does nothing if this process does not run in an allocation.
    pub fn write_finished_marker(&self) -> Result<(), Failure> {
        self.allocation().map_or(Ok(()), Allocation::write_finished_marker)
    }

    fn allocation(&self) -> Option<&Allocation> {
        self.0.as_ref()?.allocation.as_ref()
    }
}

impl ClusterRunOptions<'_> {
    /// Decides the role of this process. With `--on slurm`, submits the job and returns `None`. In a worker process of
    /// a SLURM job, runs as a worker until the job ends and returns `None`. Otherwise returns a [`HeadProcess`], and
    /// the caller runs the verb. `is_busy` must return true while another process writes to the same output.
    pub fn dispatch(
        &self,
        progress: &Progress,
        cancelled: &Arc<AtomicBool>,
        is_busy: impl Fn() -> bool,
    ) -> Result<Option<HeadProcess>, Failure> {
        let place = self.cluster.on;
        if place == Some(LauncherName::Slurm) {
            let job = SlurmJob::new(self)?;
            if self.dry_run {
                super::print(&job.render()?)?;
            } else {
                job.run(!self.cluster.slurm.no_wait, progress, cancelled)?;
            }
            return Ok(None);
        }
        let allocation = match place {
            Some(LauncherName::Allocation) => Some(Allocation::from_environment()?),
            _ => None,
        };
        if let Some(allocation) = allocation.as_ref().filter(|allocation| allocation.worker_index > 0) {
            allocation.run_worker(self.job_count, self.common, progress, cancelled)?;
            return Ok(None);
        }
        if allocation.as_ref().is_some_and(Allocation::is_restart) {
            wait_for_earlier_start(is_busy, progress, cancelled);
        }
        Ok(Some(HeadProcess(ClusterWorkers::new(self.cluster, self.common, allocation)?)))
    }
}

/// Waits while another process, an earlier attempt of the job, writes to the output. After a timeout, returns
/// nevertheless; the verb then rejects the output with an error.
fn wait_for_earlier_start(is_busy: impl Fn() -> bool, progress: &Progress, cancelled: &AtomicBool) {
    let until = Instant::now() + EARLIER_START_TIMEOUT;
    let mut is_reported = false;
    while is_busy() && Instant::now() < until && !cancelled.load(Ordering::Relaxed) {
        if !is_reported {
            progress.report("an earlier attempt of this job is still running; waiting for it to exit");
            is_reported = true;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Returns the path of the file that marks an attempt of a job as finished.
pub fn finished_marker_path(job_directory: &Path, attempt: u64) -> PathBuf {
    job_directory.join(format!("attempts/{attempt}/finished"))
}

impl ClusterWorkers {
    /// Creates the launcher of the workers; returns `None` if this process is not the head of a cluster run.
    fn new(place: &ClusterArgs, common: &CommonArgs, allocation: Option<Allocation>) -> Result<Option<Self>, Failure> {
        let launcher: Box<dyn Launcher> = match place.on {
            Some(LauncherName::Ssh) => {
                Box::new(SshLauncher::new(place.hosts.clone().unwrap_or_default(), place.ssh_option.clone()))
            }
            Some(LauncherName::Local | LauncherName::Allocation) => Box::new(LocalLauncher::new()),
            Some(LauncherName::Slurm) | None => return Ok(None),
        };
        let missing = |error| Failure::new(Exit::Machine, format!("cannot determine the working directory: {error}"));
        let (program, working_directory) =
            std::env::current_exe().and_then(|program| Ok((program, std::env::current_dir()?))).map_err(missing)?;
        // SLURM has already started the workers on the other hosts, so only that on the host of the head is missing.
        let worker_count = if allocation.is_some() { 1 } else { place.nodes };
        let worker_threads = threads_per_worker(place, common);
        let temp = common.temp.as_ref().map(|temp| working_directory.join(temp));
        let (submitted, reported_exits) = Default::default();
        Ok(Some(Self {
            launcher,
            program,
            working_directory,
            worker_count,
            worker_threads,
            temp,
            allocation,
            submitted,
            reported_exits,
        }))
    }

    /// Returns the options of the cluster run.
    fn cluster_options<'l>(&'l self, place: &ClusterArgs) -> Result<ClusterOptions<'l>, Failure> {
        let single_host = place.on == Some(LauncherName::Local);
        let addresses = match &place.interface {
            Some(choice) => vec![choice.resolve().map_err(PipelineError::from)?],
            None if single_host => vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
            None => godwit_fleet::address::reachable_addresses().map_err(PipelineError::from)?,
        };
        Ok(ClusterOptions {
            workers: place.nodes,
            addresses,
            rendezvous_directory: self.allocation.as_ref().map(|allocation| allocation.job_directory.clone()),
            attempt: self.allocation.as_ref().map_or(0, |allocation| allocation.attempt),
            single_host,
            launcher: self,
        })
    }

    fn job_spec(&self, meeting: &Path) -> JobSpec {
        let program = self.program.clone().into();
        let mut command: Vec<OsString> = vec![program, "node".into(), "--meeting".into(), meeting.into()];
        let attempt = self.allocation.as_ref().map_or(0, |allocation| allocation.attempt);
        command.extend(["--attempt".into(), attempt.to_string().into()]);
        command.extend(["--threads".into(), self.worker_threads.to_string().into()]);
        if let Some(temp) = &self.temp {
            command.extend(["--temp".into(), temp.into()]);
        }
        JobSpec {
            name: "godwit-nodes".into(),
            command,
            workers: self.worker_count,
            cpus_per_worker: self.worker_threads as u32,
            memory_bytes_per_worker: None,
            time_limit: None,
            working_directory: self.working_directory.clone(),
            environment: Vec::new(),
            job_directory: meeting.join("nodes"),
        }
    }

    fn status(&self) -> Option<(JobSpec, Result<JobStatus, FleetError>)> {
        let started = self.submitted.lock().unwrap_or_else(PoisonError::into_inner).clone();
        started.map(|(job, handle)| (job, self.launcher.status(&handle)))
    }
}

impl WorkerLauncher for ClusterWorkers {
    fn start_workers(&self, meeting: &Path) -> Result<(), PipelineError> {
        let job = self.job_spec(meeting);
        let handle = self.launcher.submit(&job)?;
        *self.submitted.lock().unwrap_or_else(PoisonError::into_inner) = Some((job, handle));
        self.reported_exits.lock().unwrap_or_else(PoisonError::into_inner).clear();
        Ok(())
    }

    fn exit_messages(&self) -> Vec<String> {
        let Some((job, Ok(status))) = self.status() else { return Vec::new() };
        let runs = |node: u32| match &status {
            JobStatus::Ended { .. } => false,
            JobStatus::Running { indexes, .. } => indexes.as_ref().is_some_and(|indexes| indexes.contains(&node)),
            JobStatus::Pending { .. } | JobStatus::Unknown { .. } => true,
        };
        let mut reported = self.reported_exits.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = (0..job.workers).filter(|node| !runs(*node) && reported.insert(*node));
        let exit_message = |node| match last_error_line(&job, node) {
            Some(error) => format!("worker {node} exited: {error}"),
            None => format!("worker {node} exited without an error message"),
        };
        ended.map(exit_message).collect()
    }

    fn all_ended(&self) -> bool {
        // In an allocation, workers on other hosts may still connect, even if the worker of this host has exited.
        let ended = matches!(self.status(), Some((_, Ok(JobStatus::Ended { .. } | JobStatus::Unknown { .. }))));
        ended && self.allocation.is_none()
    }

    fn newer_attempt(&self) -> Option<u64> {
        let allocation = self.allocation.as_ref()?;
        allocation.job_starts().into_iter().filter(|start| *start > allocation.attempt).max()
    }

    fn stop_workers(&self) {
        let Some((_, handle)) = self.submitted.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        let until = Instant::now() + WORKER_EXIT_TIMEOUT;
        while Instant::now() < until {
            match self.launcher.status(&handle) {
                Ok(JobStatus::Ended { .. }) => return,
                _ => std::thread::sleep(Duration::from_millis(10)),
            }
        }
        // Ignore errors: workers that cannot be cancelled exit when they lose the connection to the head.
        let _ = self.launcher.cancel(&handle);
    }
}

/// Returns the number of threads of each worker: the requested number, or by default the cores of a host divided by its
/// workers.
fn threads_per_worker(place: &ClusterArgs, common: &CommonArgs) -> usize {
    let shared_by = if place.on == Some(LauncherName::Local) { place.nodes as usize } else { 1 };
    common.threads.map_or((available_cores() / shared_by).max(1), |threads| threads as usize)
}

/// Returns the workers that a cluster run with these options would start; `None` without `--on`.
pub fn planned_workers(place: &ClusterArgs, common: &CommonArgs) -> Option<PlannedWorkers> {
    place.on.map(|on| PlannedWorkers {
        workers: place.nodes,
        single_host: on == LauncherName::Local,
        threads: threads_per_worker(place, common),
    })
}

/// Returns the last error message in the log of a worker, without its prefix.
pub fn last_error_line(job: &JobSpec, node: u32) -> Option<String> {
    let stderr_bytes = std::fs::read(job.stderr_path(node)).ok()?;
    let stderr_text = String::from_utf8_lossy(&stderr_bytes).into_owned();
    let lines = stderr_text.lines().rev();
    lines.filter_map(|line| line.strip_prefix(ERROR_PREFIX)).map(str::to_owned).next()
}
