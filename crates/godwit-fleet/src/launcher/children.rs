//! Jobs whose processes are children of this one: here, or the near ends of connections.
//!
//! Every job has a keeper, a thread that starts its processes and stays until they are gone: Linux sends the parent-death
//! signal when the *thread* that started a child ends. Each process leads a group of its own, and what is left of the group
//! is killed when the process ends. A process of a group that outlives godwit's own violent death is not reached by that
//! signal; only the leader is.

use std::collections::HashMap;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use godwit_process::Signal;

use super::{Ending, JobHandle, JobSpec, JobStatus};
use crate::FleetError;

/// How often processes are looked at.
const POLL: Duration = Duration::from_millis(20);
/// How long processes that were asked to end may take before they are killed: enough to finish a write, too short to make
/// an impatient user look for another way.
const PATIENCE: Duration = Duration::from_secs(10);

/// How a process is asked to end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    /// By a signal to its group.
    Terminate,
    /// By closing its standard input, which is a pipe for that reason.
    CloseInput,
}

/// A process to be started: what to call it, and how.
pub(super) struct Planned {
    pub(super) name: String,
    pub(super) command: Command,
    pub(super) shown: String,
}

/// Jobs started by this process.
#[derive(Default)]
pub(super) struct Children {
    jobs: Mutex<HashMap<String, Job>>,
}

struct Job {
    shared: Arc<Shared>,
    keeper: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The processes that run: which of the job's, counted from 0, and their names.
    running: Vec<(u32, String)>,
    /// Why they are to end: somebody asked, or their time is over.
    stop: Option<Ending>,
    /// No patience.
    kill: bool,
    /// Set when all of them are gone.
    ending: Option<Ending>,
}

/// A process that was started.
struct Process {
    /// Which of the job's, counted from 0.
    index: u32,
    name: String,
    child: Child,
    ended: Option<ExitStatus>,
}

impl Children {
    /// Starts all processes of a job, or none.
    pub(super) fn start(
        &self,
        launcher: &'static str,
        job: &JobSpec,
        planned: Vec<Planned>,
        request: Request,
    ) -> Result<JobHandle, FleetError> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = format!("{}.{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let handle = JobHandle { launcher: launcher.to_owned(), id, directory: job.job_directory.clone() };
        let shared = Arc::new(Shared::default());
        let deadline = job.time_limit.and_then(|limit| Instant::now().checked_add(limit));
        let (sender, receiver) = mpsc::channel();
        let kept = shared.clone();
        let keep = move || {
            let processes = match start_all(planned, request) {
                Ok(processes) => processes,
                Err(error) => return drop(sender.send(Err(error))),
            };
            kept.lock().running = processes.iter().map(Process::named).collect();
            // The receiver waits for this one message.
            let _ = sender.send(Ok(()));
            kept.mind(processes, request, deadline);
        };
        let started = std::thread::Builder::new().name(format!("job-{}", handle.id)).spawn(keep);
        let failed = |source| FleetError::Start { command: "a thread".to_owned(), source };
        let keeper = started.map_err(failed)?;
        receiver.recv().map_err(|_| failed(std::io::Error::other("it ended without a word")))??;
        let saved = handle.save();
        if saved.is_err() {
            // Nobody could ask after it.
            shared.stop(true);
        }
        self.jobs().insert(handle.id.clone(), Job { shared, keeper: Some(keeper) });
        saved.map(|()| handle)
    }

    pub(super) fn status(&self, launcher: &'static str, handle: &JobHandle) -> Result<JobStatus, FleetError> {
        handle.expect_of(launcher)?;
        let jobs = self.jobs();
        let Some(job) = jobs.get(&handle.id) else {
            let why = format!("the process that started it is not this one ({})", std::process::id());
            return Ok(JobStatus::Unknown { why });
        };
        let state = job.shared.lock();
        Ok(match &state.ending {
            Some(how) => JobStatus::Ended { how: how.clone() },
            None => {
                let (indexes, nodes) = state.running.iter().cloned().unzip();
                JobStatus::Running { nodes, indexes: Some(indexes), headless: false }
            }
        })
    }

    pub(super) fn cancel(&self, launcher: &'static str, handle: &JobHandle) -> Result<(), FleetError> {
        handle.expect_of(launcher)?;
        match self.jobs().get(&handle.id) {
            Some(job) => job.shared.stop(false),
            None => return Err(FleetError::Foreign { id: handle.id.clone(), launcher }),
        }
        Ok(())
    }

    fn jobs(&self) -> MutexGuard<'_, HashMap<String, Job>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for job in self.jobs().values_mut() {
            job.shared.stop(true);
            if let Some(keeper) = job.keeper.take() {
                // A keeper that panicked has nothing left to tell; its children die with its thread.
                let _ = keeper.join();
            }
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stop(&self, kill: bool) {
        let mut state = self.lock();
        state.stop.get_or_insert(Ending::Cancelled);
        state.kill |= kill;
        self.changed.notify_all();
    }

    /// Stays until every process is gone; asks and then makes them end when that is wanted or the time is over.
    fn mind(&self, mut processes: Vec<Process>, request: Request, deadline: Option<Instant>) {
        let mut asked_at: Option<Instant> = None;
        loop {
            let running = reap(&mut processes);
            let mut state = self.lock();
            if running.is_empty() {
                state.ending = Some(ending(&processes, state.stop.as_ref()));
                state.running.clear();
                return;
            }
            state.running = running;
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                state.stop.get_or_insert(Ending::TimeLimit);
            }
            if state.stop.is_some() {
                let since = *asked_at.get_or_insert_with(|| {
                    ask_to_end(&mut processes, request);
                    Instant::now()
                });
                if state.kill || since.elapsed() >= PATIENCE {
                    each_running(&mut processes, |child| godwit_process::signal_group(child.id(), Signal::Kill));
                }
            }
            let waited = self.changed.wait_timeout(state, POLL);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
    }
}

impl Process {
    fn named(&self) -> (u32, String) {
        (self.index, self.name.clone())
    }
}

fn start_all(planned: Vec<Planned>, request: Request) -> Result<Vec<Process>, FleetError> {
    let mut processes = Vec::with_capacity(planned.len());
    for (index, Planned { name, mut command, shown }) in (0..).zip(planned) {
        command.process_group(0).stdin(match request {
            Request::Terminate => Stdio::null(),
            Request::CloseInput => Stdio::piped(),
        });
        godwit_process::die_with_parent(&mut command);
        match command.spawn() {
            Ok(child) => processes.push(Process { index, name, child, ended: None }),
            Err(source) => {
                each_running(&mut processes, |child| {
                    godwit_process::signal_group(child.id(), Signal::Kill);
                    // It was killed: it ends.
                    let _ = child.wait();
                });
                return Err(FleetError::Start { command: shown, source });
            }
        }
    }
    Ok(processes)
}

fn each_running(processes: &mut [Process], mut act: impl FnMut(&mut Child)) {
    for process in processes.iter_mut().filter(|process| process.ended.is_none()) {
        act(&mut process.child);
    }
}

fn ask_to_end(processes: &mut [Process], request: Request) {
    each_running(processes, |child| match request {
        Request::Terminate => godwit_process::signal_group(child.id(), Signal::Terminate),
        Request::CloseInput => drop(child.stdin.take()),
    });
}

/// Takes note of processes that ended, and ends what they left in their groups. Returns the others.
fn reap(processes: &mut [Process]) -> Vec<(u32, String)> {
    for process in processes.iter_mut().filter(|process| process.ended.is_none()) {
        // An error says that there is no such child, and waiting for it says the same.
        if godwit_process::has_ended(process.child.id()).unwrap_or(true) {
            godwit_process::signal_group(process.child.id(), Signal::Kill);
            let lost = ExitStatus::from_raw(libc::SIGKILL);
            process.ended = Some(process.child.wait().unwrap_or(lost));
        }
    }
    processes.iter().filter(|process| process.ended.is_none()).map(Process::named).collect()
}

/// How the job ended: the first process that failed by itself, in the order of the nodes, says it.
fn ending(processes: &[Process], stop: Option<&Ending>) -> Ending {
    let failed = processes.iter().find_map(|process| {
        let status = process.ended.filter(|status| !status.success())?;
        let how = match (status.code(), status.signal()) {
            (Some(code), _) => format!("exited with status {code}"),
            (None, Some(signal)) => format!("was killed by signal {signal}"),
            (None, None) => format!("ended with {status}"),
        };
        Some(Ending::Failed { what: format!("{} {how}", process.name), exit_code: status.code() })
    });
    match (failed, stop) {
        (None, _) => Ending::Succeeded,
        (Some(_), Some(stop)) => stop.clone(),
        (Some(failed), None) => failed,
    }
}
