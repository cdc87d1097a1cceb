//! Starts the workers of a cluster run: on this host, on others by ssh, or in the allocation of a SLURM job.

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

/// Longest wait for an earlier attempt of a job to exit: file servers hold the locks of a host that lost power for 90 s.
const EARLIER_START_TIMEOUT: Duration = Duration::from_secs(180);
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Time for workers to exit by themselves.
const WORKER_EXIT_TIMEOUT: Duration = Duration::from_secs(3);

/// Workers of one cluster run, started by this process.
struct ClusterWorkers {
    launcher: Box<dyn Launcher>,
    program: PathBuf,
    working_directory: PathBuf,
    /// Workers started by this process.
    worker_count: u32,
    worker_threads: usize,
    temp: Option<PathBuf>,
    allocation: Option<Allocation>,
    submitted: Mutex<Option<(JobSpec, JobHandle)>>,
    /// Workers whose exit was reported.
    reported_exits: Mutex<BTreeSet<u32>>,
}

/// The position of this process in a job that a launcher started.
#[derive(Clone, Debug)]
struct Allocation {
    /// 0 for the head.
    worker_index: u32,
    attempt: u64,
    job_directory: PathBuf,
}

impl Allocation {
    /// Reads the variables that the launcher sets.
    fn from_environment() -> Result<Self, Failure> {
        let text = |name: &str| {
            let wrong = || format!("{name} is not set: --on allocation is for jobs that --on slurm submits");
            std::env::var(name).map_err(|_| Failure::new(Exit::Usage, wrong()))
        };
        let number = |name: &str| {
            let wrong = |_| Failure::new(Exit::Usage, format!("{name} is no number"));
            text(name)?.parse::<u64>().map_err(wrong)
        };
        let job_directory = PathBuf::from(text("GODWIT_JOB_DIRECTORY")?);
        Ok(Self { worker_index: number("GODWIT_NODE")? as u32, attempt: number("GODWIT_ATTEMPT")?, job_directory })
    }

    /// Marks the job as finished: an unreachable worker would keep SLURM from ending the job.
    fn write_finished_marker(&self) -> Result<(), Failure> {
        let path = finished_marker_path(&self.job_directory, self.attempt);
        let failed = |error| Failure::new(Exit::Machine, format!("cannot write {}: {error}", path.display()));
        std::fs::write(&path, "").map_err(failed)
    }

    /// Returns the attempts of the same SLURM job, this one included: a job that was requeued has several.
    fn job_starts(&self) -> Vec<u64> {
        let job =
            |attempt: u64| std::fs::read_to_string(self.job_directory.join(format!("attempts/{attempt}/job"))).ok();
        let Some(own) = job(self.attempt) else { return Vec::new() };
        let entries = std::fs::read_dir(self.job_directory.join("attempts")).into_iter().flatten().flatten();
        let attempts = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u64>().ok());
        attempts.filter(|attempt| job(*attempt).as_ref() == Some(&own)).collect()
    }

    /// Reports whether the job was started before, so that there may be work to resume.
    fn is_restart(&self) -> bool {
        self.job_starts().iter().any(|start| *start < self.attempt)
    }

    /// Runs as a worker until all `jobs` cluster runs are done.
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
                // A head may find that some runs were finished before: then it connects no workers.
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
                // The head continues without this worker, and reports how the job ended.
                Err(error) => {
                    progress.report(&format!("this node left the run: {}", message_with_causes(&error)));
                    Ok(())
                }
                Ok(()) => Ok(()),
            }
        })
    }
}

/// Reports whether this is a requeued SLURM job.
pub fn is_restart() -> bool {
    Allocation::from_environment().is_ok_and(|job| job.is_restart())
}

/// A verb that supports cluster runs, with its options.
pub struct ClusterRunOptions<'a> {
    /// Launcher and workers.
    pub cluster: &'a ClusterArgs,
    /// Common options of the verb.
    pub common: &'a CommonArgs,
    /// True if the job is only printed.
    pub dry_run: bool,
    /// Directory of the script and the logs of a SLURM job.
    pub job_directory: PathBuf,
    /// Name of a SLURM job.
    pub job_name: String,
    /// Number of cluster runs that the verb makes, one after the other.
    pub job_count: u32,
    /// True if the verb reads standard input.
    pub reads_stdin: bool,
}

/// A process that does the work, or is the head of a cluster run.
pub struct HeadProcess(Option<ClusterWorkers>);

impl HeadProcess {
    /// Returns the options of the cluster run; `None` in a single process.
    pub fn cluster_options<'l>(&'l self, place: &ClusterArgs) -> Result<Option<ClusterOptions<'l>>, Failure> {
        self.0.as_ref().map(|nodes| nodes.cluster_options(place)).transpose()
    }

    /// Reports whether this is a later attempt of a job, which resumes the work of earlier ones.
    pub fn is_restart(&self) -> bool {
        self.allocation().is_some_and(Allocation::is_restart)
    }

    /// Marks the job as finished, if this process runs in an allocation.
    pub fn write_finished_marker(&self) -> Result<(), Failure> {
        self.allocation().map_or(Ok(()), Allocation::write_finished_marker)
    }

    fn allocation(&self) -> Option<&Allocation> {
        self.0.as_ref()?.allocation.as_ref()
    }
}

impl ClusterRunOptions<'_> {
    /// Submits the job or runs as its worker; returns `None` if nothing is left to do then, else the head of the verb.
    /// `is_busy` reports whether another process works on the same output.
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

/// Waits until no process works on the output; after the timeout the verb itself rejects the output and reports it.
fn wait_for_earlier_start(is_busy: impl Fn() -> bool, progress: &Progress, cancelled: &AtomicBool) {
    let until = Instant::now() + EARLIER_START_TIMEOUT;
    let mut is_reported = false;
    while is_busy() && Instant::now() < until && !cancelled.load(Ordering::Relaxed) {
        if !is_reported {
            progress.report("an earlier start of this job still works there; waiting for it to end");
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
    /// Creates the workers' launcher; `None` unless this process is the head of a cluster run.
    fn new(place: &ClusterArgs, common: &CommonArgs, allocation: Option<Allocation>) -> Result<Option<Self>, Failure> {
        let launcher: Box<dyn Launcher> = match place.on {
            Some(LauncherName::Ssh) => {
                Box::new(SshLauncher::new(place.hosts.clone().unwrap_or_default(), place.ssh_option.clone()))
            }
            Some(LauncherName::Local | LauncherName::Allocation) => Box::new(LocalLauncher::new()),
            Some(LauncherName::Slurm) | None => return Ok(None),
        };
        let missing = |error| Failure::new(Exit::Machine, format!("cannot find where this is run: {error}"));
        let (program, working_directory) =
            std::env::current_exe().and_then(|program| Ok((program, std::env::current_dir()?))).map_err(missing)?;
        // In an allocation the other workers run already; the head's host needs one too.
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
            Some(error) => format!("node {node} ended: {error}"),
            None => format!("node {node} ended and said nothing"),
        };
        ended.map(exit_message).collect()
    }

    fn all_ended(&self) -> bool {
        // Other workers of the allocation may still connect.
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
        // Running workers are not needed any more; if cancelling fails, they exit when they lose the head.
        let _ = self.launcher.cancel(&handle);
    }
}

/// Returns the threads of each worker: the requested ones, else its part of the cores.
fn threads_per_worker(place: &ClusterArgs, common: &CommonArgs) -> usize {
    let shared_by = if place.on == Some(LauncherName::Local) { place.nodes as usize } else { 1 };
    common.threads.map_or((available_cores() / shared_by).max(1), |threads| threads as usize)
}

/// Returns the workers that a cluster run would start; `None` in a single process.
pub fn planned_workers(place: &ClusterArgs, common: &CommonArgs) -> Option<PlannedWorkers> {
    place.on.map(|on| PlannedWorkers {
        workers: place.nodes,
        single_host: on == LauncherName::Local,
        threads: threads_per_worker(place, common),
    })
}

/// Returns the last error in the log of a worker.
pub fn last_error_line(job: &JobSpec, node: u32) -> Option<String> {
    let said = std::fs::read(job.stderr_path(node)).ok()?;
    let stderr_bytes = String::from_utf8_lossy(&said).into_owned();
    let lines = stderr_bytes.lines().rev();
    lines.filter_map(|line| line.strip_prefix(ERROR_PREFIX)).map(str::to_owned).next()
}
