//! Where the nodes of a run are started: this machine, others by ssh, or the allocation of a SLURM job.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use godwit_fleet::launcher::{Local, Ssh};
use godwit_fleet::{FleetError, JobHandle, JobSpec, JobStatus, Launcher};
use godwit_formats::with_causes;
use godwit_pipeline::{Launch, NodeOptions, PipelineError, PlannedNodes, Spread, work};

use super::node::{PATIENCE, cores};
use super::slurm_job::SlurmJob;
use crate::cli::{Common, Place, PlaceArgs};
use crate::failure::{ERROR_PREFIX, Exit, Failure};
use crate::progress::Progress;

/// How long an earlier start of a job may take to be gone: servers of files hold the locks of a machine that lost its power for
/// a minute and a half.
const EARLIER_START: Duration = Duration::from_secs(180);
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// How long nodes have to end by themselves.
const GRACE: Duration = Duration::from_secs(3);

/// Nodes of one run, started by this process.
struct Nodes {
    launcher: Box<dyn Launcher>,
    program: PathBuf,
    directory: PathBuf,
    /// How many are started here.
    count: u32,
    threads: usize,
    temp: Option<PathBuf>,
    allocation: Option<Allocation>,
    started: Mutex<Option<(JobSpec, JobHandle)>>,
    /// Nodes whose end was told.
    told: Mutex<BTreeSet<u32>>,
}

/// This process's part in a job that a launcher started.
#[derive(Clone, Debug)]
struct Allocation {
    /// 0 for the head.
    node: u32,
    attempt: u64,
    directory: PathBuf,
}

impl Allocation {
    /// From what the launcher put into the environment.
    fn from_environment() -> Result<Self, Failure> {
        let text = |name: &str| {
            let wrong = || format!("{name} is not set: --on allocation is for jobs that --on slurm submits");
            std::env::var(name).map_err(|_| Failure::new(Exit::Usage, wrong()))
        };
        let number = |name: &str| {
            let wrong = |_| Failure::new(Exit::Usage, format!("{name} is no number"));
            text(name)?.parse::<u64>().map_err(wrong)
        };
        let directory = PathBuf::from(text("GODWIT_JOB_DIRECTORY")?);
        Ok(Self { node: number("GODWIT_NODE")? as u32, attempt: number("GODWIT_ATTEMPT")?, directory })
    }

    /// Leaves word that the run is whole: a node that nobody can reach keeps SLURM from seeing the end of the job.
    fn finished(&self) -> Result<(), Failure> {
        let path = finished_mark(&self.directory, self.attempt);
        let failed = |error| Failure::new(Exit::Machine, format!("cannot write {}: {error}", path.display()));
        std::fs::write(&path, "").map_err(failed)
    }

    /// Numbers of all starts of the very job that this is a start of, this one included: a job of SLURM that was queued again.
    fn starts(&self) -> Vec<u64> {
        let job = |attempt: u64| std::fs::read_to_string(self.directory.join(format!("attempts/{attempt}/job"))).ok();
        let Some(own) = job(self.attempt) else { return Vec::new() };
        let entries = std::fs::read_dir(self.directory.join("attempts")).into_iter().flatten().flatten();
        let attempts = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u64>().ok());
        attempts.filter(|attempt| job(*attempt).as_ref() == Some(&own)).collect()
    }

    /// Whether the job was started before, so that there may be something to go on with.
    fn is_restart(&self) -> bool {
        self.starts().iter().any(|start| *start < self.attempt)
    }

    /// Is one of the nodes beside the head until all of so many jobs are done.
    fn work(
        &self,
        jobs: u32,
        common: &Common,
        progress: &Progress,
        cancelled: &Arc<AtomicBool>,
    ) -> Result<(), Failure> {
        let options = NodeOptions {
            meeting: self.directory.clone(),
            attempt: self.attempt,
            threads: common.threads.map_or_else(cores, |threads| threads as usize),
            temp: common.temp.clone(),
            wait: PATIENCE,
        };
        let is_over = || finished_mark(&self.directory, self.attempt).exists();
        let stop = Arc::new(AtomicBool::new(false));
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let watching = scope.spawn(|| {
                // A head may find that some of the jobs were done before: then nobody calls for nodes.
                while !ended.load(Ordering::Relaxed) && !stop.load(Ordering::Relaxed) {
                    stop.store(cancelled.load(Ordering::Relaxed) || is_over(), Ordering::Relaxed);
                    std::thread::park_timeout(LOOK_AGAIN);
                }
            });
            let mut worked = Ok(());
            for _ in 0..jobs {
                if worked.is_ok() {
                    worked = work(&options, &stop);
                }
            }
            ended.store(true, Ordering::Relaxed);
            watching.thread().unpark();
            match worked {
                Err(PipelineError::Interrupted) if !cancelled.load(Ordering::Relaxed) => Ok(()),
                Err(error @ PipelineError::Interrupted) => Err(error.into()),
                // The head goes on without this node, and it is the head that tells how the job ended.
                Err(error) => {
                    progress.say(&format!("this node left the run: {}", with_causes(&error)));
                    Ok(())
                }
                Ok(()) => Ok(()),
            }
        })
    }
}

/// Whether a launcher started this very job before: one of SLURM that was queued again.
pub fn is_restart() -> bool {
    Allocation::from_environment().is_ok_and(|job| job.is_restart())
}

/// A verb that may be spread over nodes, as it was asked for.
pub struct Spreadable<'a> {
    /// Where.
    pub place: &'a PlaceArgs,
    /// With what.
    pub common: &'a Common,
    /// Only to be shown.
    pub dry_run: bool,
    /// Where a job of SLURM keeps its script and its logs.
    pub directory: PathBuf,
    /// What such a job is called.
    pub name: String,
    /// Jobs that it does over nodes, one after the other.
    pub jobs: u32,
    /// Whether it reads standard input.
    pub reads_stdin: bool,
}

/// A process that does the work, or leads those that do.
pub struct Lead(Option<Nodes>);

impl Lead {
    /// How the work is spread, where it is.
    pub fn spread<'l>(&'l self, place: &PlaceArgs) -> Result<Option<Spread<'l>>, Failure> {
        self.0.as_ref().map(|nodes| nodes.spread(place)).transpose()
    }

    /// Whether this is a later start of a job, which goes on with what its earlier one did.
    pub fn is_restart(&self) -> bool {
        self.allocation().is_some_and(Allocation::is_restart)
    }

    /// Leaves word that the run is whole, where others wait for it.
    pub fn finished(&self) -> Result<(), Failure> {
        self.allocation().map_or(Ok(()), Allocation::finished)
    }

    fn allocation(&self) -> Option<&Allocation> {
        self.0.as_ref()?.allocation.as_ref()
    }
}

impl Spreadable<'_> {
    /// Does what is not to be done by the verb itself; `None` where nothing is left, because this process submitted a job, or was
    /// a node of one. `is_busy`: whether another process works on the same output.
    pub fn lead(
        &self,
        progress: &Progress,
        cancelled: &Arc<AtomicBool>,
        is_busy: impl Fn() -> bool,
    ) -> Result<Option<Lead>, Failure> {
        let place = self.place.on;
        if place == Some(Place::Slurm) {
            let job = SlurmJob::new(self)?;
            if self.dry_run {
                super::print(&job.render()?)?;
            } else {
                job.run(!self.place.slurm.no_wait, progress, cancelled)?;
            }
            return Ok(None);
        }
        let allocation = match place {
            Some(Place::Allocation) => Some(Allocation::from_environment()?),
            _ => None,
        };
        if let Some(allocation) = allocation.as_ref().filter(|allocation| allocation.node > 0) {
            allocation.work(self.jobs, self.common, progress, cancelled)?;
            return Ok(None);
        }
        if allocation.as_ref().is_some_and(Allocation::is_restart) {
            wait_for_earlier_start(is_busy, progress, cancelled);
        }
        Ok(Some(Lead(Nodes::new(self.place, self.common, allocation)?)))
    }
}

/// Waits until no process works on the output; not for ever, for then it is refused, and that is told.
fn wait_for_earlier_start(is_busy: impl Fn() -> bool, progress: &Progress, cancelled: &AtomicBool) {
    let until = Instant::now() + EARLIER_START;
    let mut told = false;
    while is_busy() && Instant::now() < until && !cancelled.load(Ordering::Relaxed) {
        if !told {
            progress.say("an earlier start of this job still works there; waiting for it to end");
            told = true;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// What says that an attempt of a job has done all there was to do.
pub fn finished_mark(job_directory: &Path, attempt: u64) -> PathBuf {
    job_directory.join(format!("attempts/{attempt}/finished"))
}

impl Nodes {
    /// What starts the nodes, where this process leads a run over several.
    fn new(place: &PlaceArgs, common: &Common, allocation: Option<Allocation>) -> Result<Option<Self>, Failure> {
        let launcher: Box<dyn Launcher> = match place.on {
            Some(Place::Ssh) => Box::new(Ssh::new(place.hosts.clone().unwrap_or_default(), place.ssh_option.clone())),
            Some(Place::Local | Place::Allocation) => Box::new(Local::new()),
            Some(Place::Slurm) | None => return Ok(None),
        };
        let missing = |error| Failure::new(Exit::Machine, format!("cannot find where this is run: {error}"));
        let (program, directory) =
            std::env::current_exe().and_then(|program| Ok((program, std::env::current_dir()?))).map_err(missing)?;
        // In an allocation the other nodes are there already; the head's machine has one too.
        let count = if allocation.is_some() { 1 } else { place.nodes };
        let threads = node_threads(place, common);
        let temp = common.temp.as_ref().map(|temp| directory.join(temp));
        let (started, told) = Default::default();
        Ok(Some(Self { launcher, program, directory, count, threads, temp, allocation, started, told }))
    }

    /// How the run is spread.
    fn spread<'l>(&'l self, place: &PlaceArgs) -> Result<Spread<'l>, Failure> {
        let one_machine = place.on == Some(Place::Local);
        let addresses = match &place.interface {
            Some(choice) => vec![choice.resolve().map_err(PipelineError::from)?],
            None if one_machine => vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
            None => godwit_fleet::address::all().map_err(PipelineError::from)?,
        };
        Ok(Spread {
            nodes: place.nodes,
            addresses,
            meeting: self.allocation.as_ref().map(|allocation| allocation.directory.clone()),
            attempt: self.allocation.as_ref().map_or(0, |allocation| allocation.attempt),
            one_machine,
            launch: self,
        })
    }

    fn job(&self, meeting: &Path) -> JobSpec {
        let program = self.program.clone().into();
        let mut command: Vec<OsString> = vec![program, "node".into(), "--meeting".into(), meeting.into()];
        let attempt = self.allocation.as_ref().map_or(0, |allocation| allocation.attempt);
        command.extend(["--attempt".into(), attempt.to_string().into()]);
        command.extend(["--threads".into(), self.threads.to_string().into()]);
        if let Some(temp) = &self.temp {
            command.extend(["--temp".into(), temp.into()]);
        }
        JobSpec {
            name: "godwit-nodes".into(),
            command,
            nodes: self.count,
            cpus_per_node: self.threads as u32,
            memory_bytes_per_node: None,
            time_limit: None,
            working_directory: self.directory.clone(),
            environment: Vec::new(),
            job_directory: meeting.join("nodes"),
        }
    }

    fn status(&self) -> Option<(JobSpec, Result<JobStatus, FleetError>)> {
        let started = self.started.lock().unwrap_or_else(PoisonError::into_inner).clone();
        started.map(|(job, handle)| (job, self.launcher.status(&handle)))
    }
}

impl Launch for Nodes {
    fn start(&self, meeting: &Path) -> Result<(), PipelineError> {
        let job = self.job(meeting);
        let handle = self.launcher.submit(&job)?;
        *self.started.lock().unwrap_or_else(PoisonError::into_inner) = Some((job, handle));
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clear();
        Ok(())
    }

    fn gone(&self) -> Vec<String> {
        let Some((job, Ok(status))) = self.status() else { return Vec::new() };
        let runs = |node: u32| match &status {
            JobStatus::Ended { .. } => false,
            JobStatus::Running { indexes, .. } => indexes.as_ref().is_some_and(|indexes| indexes.contains(&node)),
            JobStatus::Pending { .. } | JobStatus::Unknown { .. } => true,
        };
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = (0..job.nodes).filter(|node| !runs(*node) && told.insert(*node));
        let said = |node| match last_error(&job, node) {
            Some(error) => format!("node {node} ended: {error}"),
            None => format!("node {node} ended and said nothing"),
        };
        ended.map(said).collect()
    }

    fn ended(&self) -> bool {
        // Others of the allocation may still come.
        let ended = matches!(self.status(), Some((_, Ok(JobStatus::Ended { .. } | JobStatus::Unknown { .. }))));
        ended && self.allocation.is_none()
    }

    fn later_start(&self) -> Option<u64> {
        let allocation = self.allocation.as_ref()?;
        allocation.starts().into_iter().filter(|start| *start > allocation.attempt).max()
    }

    fn stop(&self) {
        let Some((_, handle)) = self.started.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        let until = Instant::now() + GRACE;
        while Instant::now() < until {
            match self.launcher.status(&handle) {
                Ok(JobStatus::Ended { .. }) => return,
                _ => std::thread::sleep(Duration::from_millis(10)),
            }
        }
        // Those that still run are of no use any more; where even this fails they end when they find the head gone.
        let _ = self.launcher.cancel(&handle);
    }
}

/// Threads of each node: those asked for, else its share of the cores.
fn node_threads(place: &PlaceArgs, common: &Common) -> usize {
    let shared_by = if place.on == Some(Place::Local) { place.nodes as usize } else { 1 };
    common.threads.map_or((cores() / shared_by).max(1), |threads| threads as usize)
}

/// The nodes that a run would start, where it is spread.
pub fn planned(place: &PlaceArgs, common: &Common) -> Option<PlannedNodes> {
    place.on.map(|on| PlannedNodes {
        nodes: place.nodes,
        one_machine: on == Place::Local,
        threads: node_threads(place, common),
    })
}

/// The last thing that a node of a job found wrong.
pub fn last_error(job: &JobSpec, node: u32) -> Option<String> {
    let said = std::fs::read(job.error_path(node)).ok()?;
    let said = String::from_utf8_lossy(&said).into_owned();
    let lines = said.lines().rev();
    lines.filter_map(|line| line.strip_prefix(ERROR_PREFIX)).map(str::to_owned).next()
}
