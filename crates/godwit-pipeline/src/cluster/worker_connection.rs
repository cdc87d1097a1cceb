//! The end of a cluster run at a worker: options, and the commands of the head.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use godwit_exchange::{Command, ExchangeError, WorkerEndpoint};

use crate::error::PipelineError;

/// Options of a worker.
#[derive(Clone, Debug)]
pub struct WorkerOptions {
    /// Directory of the rendezvous file, by which the worker finds the head.
    pub rendezvous_directory: PathBuf,
    /// The attempt of the job to which this process belongs; a worker of an earlier attempt ends.
    pub attempt: u64,
    /// Number of threads of the aligner, and number of output parts written at a time.
    pub threads: usize,
    /// Directory for slices and other scratch files; `None` for a directory that the head names.
    pub temp: Option<PathBuf>,
    /// Maximum time to wait for the rendezvous file.
    pub join_timeout: Duration,
}

/// An input of the main thread of a worker: a command of the head, or the failure of another thread.
pub(crate) enum WorkerInput {
    Command(Result<Command, ExchangeError>),
    Failed(PipelineError),
}

/// Forwards the commands of the head to the main thread, until the last command or an error.
pub(crate) fn forward_commands(link: &WorkerEndpoint, inputs: &Sender<WorkerInput>) {
    loop {
        let order = link.next_command();
        let last = order.is_err() || matches!(order, Ok(Command::Finish));
        if inputs.send(WorkerInput::Command(order)).is_err() || last {
            return;
        }
    }
}

/// Runs the work of a thread, and sends its failure to the main thread of the worker. The main thread also receives a
/// message if the work panics: without it, the worker would never end, and the head would wait for its results. The
/// scope of the thread then reports the panic.
pub(crate) fn run_reporting_failure(inputs: &Sender<WorkerInput>, work: impl FnOnce() -> Result<(), PipelineError>) {
    // If sending fails, the main thread and thus the worker have already ended.
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)) {
        Ok(Ok(())) => {}
        Ok(Err(error)) => drop(inputs.send(WorkerInput::Failed(error))),
        Err(panic) => {
            drop(inputs.send(WorkerInput::Failed(PipelineError::Interrupted)));
            std::panic::resume_unwind(panic);
        }
    }
}

/// Waits for a command or a failure.
pub(crate) fn receive_input(
    inputs: &Receiver<WorkerInput>,
    cancelled: &AtomicBool,
) -> Result<WorkerInput, PipelineError> {
    loop {
        match inputs.recv_timeout(Duration::from_millis(100)) {
            Ok(input) => return Ok(input),
            Err(_) if cancelled.load(Ordering::Relaxed) => return Err(PipelineError::Interrupted),
            Err(_) => {}
        }
    }
}

/// Returns the name of this host.
pub(crate) fn host_name() -> String {
    let read = std::fs::read_to_string("/proc/sys/kernel/hostname");
    read.map_or_else(|_| "this machine".to_owned(), |name| name.trim().to_owned())
}

/// Returns the error for an invalid message of the head.
pub(crate) fn malformed_command(problem: String) -> PipelineError {
    ExchangeError::InvalidMessage { peer: "the head", problem }.into()
}

/// Returns the error for a command that is not valid for the task of the worker.
pub(crate) fn unexpected_command(order: &Command) -> PipelineError {
    malformed_command(format!("unexpected command {order:?}"))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_thread_that_panics_ends_its_worker() {
        let (sender, inputs) = mpsc::channel();
        let panics = std::thread::spawn(move || run_reporting_failure(&sender, || panic!("a test panics")));
        let input = receive_input(&inputs, &AtomicBool::new(false)).unwrap();
        assert!(matches!(input, WorkerInput::Failed(PipelineError::Interrupted)));
        assert!(panics.join().is_err(), "the panic is reported");
    }
}
