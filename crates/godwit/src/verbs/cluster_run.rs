//! Starts the workers of a cluster run on this host, on other hosts with ssh, or in the allocation of a SLURM job.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use godwit_align::PlannedWorkers;
use godwit_cli::cli::{ClusterArgs, CommonArgs, LauncherName};
use godwit_cli::failure::Failure;
use godwit_cluster::{ClusterOptions, WorkerCommand, WorkerOptions, WorkerProcesses};
use godwit_fleet::launcher::{LocalLauncher, SshLauncher};
use godwit_fleet::{Allocation, Launcher};
use godwit_model::ErrorKind;
use godwit_pipeline::PipelineError;

use super::cluster_worker::{HEAD_TIMEOUT, WorkError, available_cores, run_worker};
use super::slurm_job::SlurmJob;
use crate::progress::Progress;

/// Maximum time to wait for an earlier attempt of the job to exit. If the host of that attempt has lost power, a file
/// server keeps the locks of this host for another 90 s.
const EARLIER_START_TIMEOUT: Duration = Duration::from_secs(180);
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Runs this process as a worker of `jobs` cluster runs, one after another, until all have finished.
fn run_allocated_worker(
    allocation: &Allocation,
    jobs: u32,
    common: &CommonArgs,
    progress: &Progress,
    cancelled: &Arc<AtomicBool>,
) -> Result<(), Failure> {
    let options = WorkerOptions {
        rendezvous_directory: allocation.job_directory.clone(),
        attempt: allocation.attempt,
        threads: common.threads.map_or_else(available_cores, |threads| threads as usize),
        temp: common.temp.clone(),
        join_timeout: HEAD_TIMEOUT,
    };
    let stop = Arc::new(AtomicBool::new(false));
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            // Also stop when the job is marked as finished: if a cluster run was complete before, its head never
            // connects. Nor does a head that has failed.
            while !ended.load(Ordering::Relaxed) && !stop.load(Ordering::Relaxed) {
                let is_over = allocation.is_finished() || allocation.has_head_ended();
                stop.store(cancelled.load(Ordering::Relaxed) || is_over, Ordering::Relaxed);
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
            Err(WorkError::Pipeline(PipelineError::Interrupted)) if !cancelled.load(Ordering::Relaxed) => Ok(()),
            Err(error @ WorkError::Pipeline(PipelineError::Interrupted)) => Err(error.into()),
            // This is not a failure of the job: the head continues without this worker, and reports the outcome.
            Err(error) => {
                progress.report(&format!("this worker left the job: {}", Failure::from(error).message));
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    })
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
    /// True if the verb resumes the work of an earlier command.
    pub resume: bool,
}

/// The process that runs the verb: the head of a cluster run or, without workers (`None`), the only process.
pub struct HeadProcess(Option<WorkerProcesses>);

impl HeadProcess {
    /// Returns the options of the cluster run; `None` if there is only this process.
    pub fn cluster_options<'l>(&'l self, place: &ClusterArgs) -> Result<Option<ClusterOptions<'l>>, Failure> {
        self.0.as_ref().map(|processes| cluster_options(processes, place)).transpose()
    }

    /// Returns whether the job has earlier attempts, whose work this attempt must resume.
    pub fn is_restart(&self) -> bool {
        self.allocation().is_some_and(Allocation::is_restart)
    }

    /// Marks the SLURM job as finished; does nothing if this process does not run in an allocation.
    pub fn write_finished_marker(&self) -> Result<(), Failure> {
        let Some(allocation) = self.allocation() else { return Ok(()) };
        Ok(allocation.write_finished_marker().map_err(PipelineError::from)?)
    }

    fn allocation(&self) -> Option<&Allocation> {
        self.0.as_ref()?.allocation()
    }
}

impl ClusterRunOptions<'_> {
    /// Decides the role of this process. With `--on slurm`, submits the job and returns `None`. In a worker process of
    /// a SLURM job, runs as a worker until the job ends and returns `None`. Otherwise returns a [`HeadProcess`], and
    /// the caller runs the verb. `check` checks inputs and options before a SLURM job is submitted, which may wait for its
    /// hosts for hours. `is_busy` must return true while another process writes to the same output.
    pub fn dispatch(
        &self,
        progress: &Progress,
        cancelled: &Arc<AtomicBool>,
        check: impl FnOnce() -> Result<(), Failure>,
        is_busy: impl Fn() -> bool,
    ) -> Result<Option<HeadProcess>, Failure> {
        let place = self.cluster.on;
        if place == Some(LauncherName::Slurm) {
            let job = SlurmJob::new(self)?;
            if self.dry_run {
                check()?;
                super::print(&job.render()?)?;
                job.test_submission(progress)?;
            } else {
                job.run(!self.cluster.slurm.no_wait, check, progress, cancelled)?;
            }
            return Ok(None);
        }
        let allocation = match place {
            Some(LauncherName::Allocation) => Some(Allocation::from_environment().map_err(PipelineError::from)?),
            _ => None,
        };
        if let Some(allocation) = allocation.as_ref().filter(|allocation| allocation.worker_index > 0) {
            run_allocated_worker(allocation, self.job_count, self.common, progress, cancelled)?;
            return Ok(None);
        }
        if allocation.as_ref().is_some_and(Allocation::is_restart) {
            wait_for_earlier_start(is_busy, progress, cancelled);
        }
        Ok(Some(HeadProcess(worker_processes(self.cluster, self.common, allocation)?)))
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

/// Returns the processes of the workers; `None` if this process is not the head of a cluster run.
fn worker_processes(
    place: &ClusterArgs,
    common: &CommonArgs,
    allocation: Option<Allocation>,
) -> Result<Option<WorkerProcesses>, Failure> {
    let launcher: Box<dyn Launcher> = match place.on {
        Some(LauncherName::Ssh) => {
            Box::new(SshLauncher::new(place.hosts.clone().unwrap_or_default(), place.ssh_option.clone()))
        }
        Some(LauncherName::Local | LauncherName::Allocation) => Box::new(LocalLauncher::new()),
        Some(LauncherName::Slurm) | None => return Ok(None),
    };
    let missing = |error| Failure::new(ErrorKind::Machine, format!("cannot determine the working directory: {error}"));
    let (program, working_directory) =
        std::env::current_exe().and_then(|program| Ok((program, std::env::current_dir()?))).map_err(missing)?;
    let temp = common.temp.as_ref().map(|temp| working_directory.join(temp));
    let threads = threads_per_worker(place, common);
    let command = WorkerCommand { program, working_directory, threads, temp };
    Ok(Some(WorkerProcesses::new(launcher, command, place.nodes, allocation)))
}

/// Returns the options of the cluster run.
fn cluster_options<'l>(processes: &'l WorkerProcesses, place: &ClusterArgs) -> Result<ClusterOptions<'l>, Failure> {
    let single_host = place.on == Some(LauncherName::Local);
    let addresses = match &place.interface {
        Some(choice) => vec![choice.resolve().map_err(PipelineError::from)?],
        None if single_host => vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
        None => godwit_fleet::address::reachable_addresses().map_err(PipelineError::from)?,
    };
    Ok(ClusterOptions { workers: place.nodes, addresses, single_host, processes })
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
