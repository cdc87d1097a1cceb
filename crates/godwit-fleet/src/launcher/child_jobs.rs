//! Jobs whose processes are children of this process: workers on this host, or ssh clients of remote workers.
//!
//! Each job has a supervisor, a thread that starts the processes and runs until they have ended. It must not end
//! earlier, because Linux sends the parent-death signal when the *thread* that started a child ends. Each process is
//! the leader of its own process group. When the leader ends, the supervisor kills the rest of the group. If godwit
//! itself is killed, only the leaders receive the parent-death signal, and other processes of a group may continue.

use std::collections::HashMap;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use godwit_process::Signal;
use parking_lot::{Condvar, Mutex};

use super::{JobHandle, JobOutcome, JobSpec, JobStatus};
use crate::FleetError;

/// Interval between two checks whether processes have ended.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Time between a stop request and the kill of a process. It suffices to finish a write, but does not keep the user
/// waiting for long.
const STOP_GRACE_PERIOD: Duration = Duration::from_secs(10);

/// The way in which a process is requested to stop.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum StopMethod {
    /// Send SIGTERM to the process group.
    Terminate,
    /// Close the standard input of the process, which is a pipe for this purpose.
    CloseInput,
}

/// A process that is to be started: its name for users, its command and the command as text.
pub(super) struct ProcessSpec {
    pub(super) name: String,
    pub(super) command: Command,
    pub(super) command_line: String,
}

/// The jobs that this godwit process started, by identifier.
#[derive(Default)]
pub(super) struct ChildJobs {
    jobs: Mutex<HashMap<String, ChildJob>>,
}

struct ChildJob {
    supervised: Arc<SupervisedJob>,
    supervisor: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct SupervisedJob {
    state: Mutex<JobState>,
    changed: Condvar,
}

#[derive(Default)]
struct JobState {
    /// The running processes of the job: 0-based index of the worker, and name.
    running: Vec<(u32, String)>,
    /// The outcome of the job if it was requested to stop or reached its time limit; `None` otherwise.
    stop_outcome: Option<JobOutcome>,
    /// True if the processes are killed immediately, without the grace period.
    kills_at_once: bool,
    /// The outcome of the job; `None` until all processes have ended.
    outcome: Option<JobOutcome>,
}

/// A started process of a job.
struct Process {
    /// 0-based index of the worker.
    index: u32,
    name: String,
    child: Child,
    exit_status: Option<ExitStatus>,
}

impl ChildJobs {
    /// Starts all processes of a job. If one does not start, the others are killed.
    pub(super) fn start_job(
        &self,
        launcher: &'static str,
        job: &JobSpec,
        planned: Vec<ProcessSpec>,
        request: StopMethod,
    ) -> Result<JobHandle, FleetError> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = format!("{}.{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let handle =
            JobHandle { launcher: launcher.to_owned(), id, directory: job.job_directory.clone(), first_attempt: 0 };
        let supervised = Arc::new(SupervisedJob::default());
        let deadline = job.time_limit.and_then(|limit| Instant::now().checked_add(limit));
        let (sender, receiver) = mpsc::channel();
        let shared = supervised.clone();
        let supervise = move || {
            let processes = match start_processes(planned, request) {
                Ok(processes) => processes,
                Err(error) => return drop(sender.send(Err(error))),
            };
            shared.state.lock().running = processes.iter().map(Process::named).collect();
            // Sending cannot fail, because the receiver waits for this message.
            let _ = sender.send(Ok(()));
            shared.supervise(processes, request, deadline);
        };
        let started = std::thread::Builder::new().name(format!("job-{}", handle.id)).spawn(supervise);
        let failed = |source| FleetError::ProcessStart { command: "a thread".to_owned(), source };
        let keeper = started.map_err(failed)?;
        receiver.recv().map_err(|_| failed(std::io::Error::other("the process ended without a status")))??;
        let saved = handle.save();
        if saved.is_err() {
            // The handle was not saved, so the job could not be queried or cancelled later. Stop it.
            supervised.request_stop(true);
        }
        self.jobs.lock().insert(handle.id.clone(), ChildJob { supervised, supervisor: Some(keeper) });
        saved.map(|()| handle)
    }

    pub(super) fn job_status(&self, launcher: &'static str, handle: &JobHandle) -> Result<JobStatus, FleetError> {
        handle.check_launcher(launcher)?;
        let jobs = self.jobs.lock();
        let Some(job) = jobs.get(&handle.id) else {
            let reason = format!("this process ({}) did not start the job", std::process::id());
            return Ok(JobStatus::Unknown { reason });
        };
        let state = job.supervised.state.lock();
        Ok(match &state.outcome {
            Some(how) => JobStatus::Ended { outcome: how.clone() },
            None => {
                let (indexes, workers) = state.running.iter().cloned().unzip();
                JobStatus::Running { workers, indexes: Some(indexes), is_batch_host_lost: false, is_completing: false }
            }
        })
    }

    pub(super) fn cancel_job(&self, launcher: &'static str, handle: &JobHandle) -> Result<(), FleetError> {
        handle.check_launcher(launcher)?;
        match self.jobs.lock().get(&handle.id) {
            Some(job) => job.supervised.request_stop(false),
            None => return Err(FleetError::ForeignJob { id: handle.id.clone(), launcher }),
        }
        Ok(())
    }
}

impl Drop for ChildJobs {
    fn drop(&mut self) {
        for job in self.jobs.lock().values_mut() {
            job.supervised.request_stop(true);
            if let Some(keeper) = job.supervisor.take() {
                // Ignore the panic of a supervisor: Linux kills its children when its thread ends.
                let _ = keeper.join();
            }
        }
    }
}

impl SupervisedJob {
    fn request_stop(&self, kill: bool) {
        let mut state = self.state.lock();
        state.stop_outcome.get_or_insert(JobOutcome::Cancelled);
        state.kills_at_once |= kill;
        self.changed.notify_all();
    }

    /// Waits until every process has ended. After a stop request or at the time limit, stops the processes, and kills
    /// them after the grace period.
    fn supervise(&self, mut processes: Vec<Process>, request: StopMethod, deadline: Option<Instant>) {
        let mut asked_at: Option<Instant> = None;
        loop {
            let running = reap(&mut processes);
            let mut state = self.state.lock();
            if running.is_empty() {
                state.outcome = Some(job_outcome(&processes, state.stop_outcome.as_ref()));
                state.running.clear();
                return;
            }
            state.running = running;
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                state.stop_outcome.get_or_insert(JobOutcome::TimeLimit);
            }
            if state.stop_outcome.is_some() {
                let since = *asked_at.get_or_insert_with(|| {
                    signal_stop(&mut processes, request);
                    Instant::now()
                });
                if state.kills_at_once || since.elapsed() >= STOP_GRACE_PERIOD {
                    for_each_running(&mut processes, |child| godwit_process::signal_group(child.id(), Signal::Kill));
                }
            }
            self.changed.wait_for(&mut state, POLL_INTERVAL);
        }
    }
}

impl Process {
    fn named(&self) -> (u32, String) {
        (self.index, self.name.clone())
    }
}

fn start_processes(planned: Vec<ProcessSpec>, request: StopMethod) -> Result<Vec<Process>, FleetError> {
    let mut processes = Vec::with_capacity(planned.len());
    for (index, ProcessSpec { name, mut command, command_line }) in (0..).zip(planned) {
        command.process_group(0).stdin(match request {
            StopMethod::Terminate => Stdio::null(),
            StopMethod::CloseInput => Stdio::piped(),
        });
        godwit_process::set_parent_death_signal(&mut command);
        match command.spawn() {
            Ok(child) => processes.push(Process { index, name, child, exit_status: None }),
            Err(source) => {
                for_each_running(&mut processes, |child| {
                    godwit_process::signal_group(child.id(), Signal::Kill);
                    // This call returns soon, because the process was killed.
                    let _ = child.wait();
                });
                return Err(FleetError::ProcessStart { command: command_line, source });
            }
        }
    }
    Ok(processes)
}

fn for_each_running(processes: &mut [Process], mut act: impl FnMut(&mut Child)) {
    for process in processes.iter_mut().filter(|process| process.exit_status.is_none()) {
        act(&mut process.child);
    }
}

fn signal_stop(processes: &mut [Process], request: StopMethod) {
    for_each_running(processes, |child| match request {
        StopMethod::Terminate => godwit_process::signal_group(child.id(), Signal::Terminate),
        StopMethod::CloseInput => drop(child.stdin.take()),
    });
}

/// Stores the exit statuses of the processes that have ended, and kills the rest of their process groups. Returns the
/// processes that are still running.
fn reap(processes: &mut [Process]) -> Vec<(u32, String)> {
    for process in processes.iter_mut().filter(|process| process.exit_status.is_none()) {
        // An error means that the child does not exist, and waiting for it then also fails.
        if godwit_process::has_exited(process.child.id()).unwrap_or(true) {
            godwit_process::signal_group(process.child.id(), Signal::Kill);
            let lost = ExitStatus::from_raw(libc::SIGKILL);
            process.exit_status = Some(process.child.wait().unwrap_or(lost));
        }
    }
    processes.iter().filter(|process| process.exit_status.is_none()).map(Process::named).collect()
}

/// Returns the outcome of the job. If it was not stopped, the first process that failed, in the order of the workers,
/// determines the outcome.
fn job_outcome(processes: &[Process], stop: Option<&JobOutcome>) -> JobOutcome {
    let failed = processes.iter().find_map(|process| {
        let status = process.exit_status.filter(|status| !status.success())?;
        let description = format!("{} {}", process.name, godwit_process::describe_exit(status));
        Some(JobOutcome::Failed { description, exit_code: status.code() })
    });
    match (failed, stop) {
        (None, _) => JobOutcome::Succeeded,
        (Some(_), Some(stop)) => stop.clone(),
        (Some(failed), None) => failed,
    }
}
