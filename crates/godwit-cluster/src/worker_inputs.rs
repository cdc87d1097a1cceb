//! The inputs of the main thread of a worker: commands of the head, and failures of other threads.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use crate::error::{ClusterError, ConnectionError};
use crate::messages::JobMessages;
use crate::worker_endpoint::WorkerEndpoint;

/// Interval at which the main thread checks whether the worker is cancelled.
const CANCEL_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// An input of the main thread: the next command, `None` after the last one, or the failure of another thread.
enum WorkerInput<C, E> {
    Command(Result<Option<C>, ConnectionError>),
    Failed(E),
}

/// The inputs of the main thread of a worker, with commands `C` and errors `E`.
pub struct WorkerInputs<C, E>(Receiver<WorkerInput<C, E>>);

/// The sender of inputs, for the other threads of the worker.
pub struct WorkerInputSender<C, E>(Sender<WorkerInput<C, E>>);

impl<C, E> Clone for WorkerInputSender<C, E> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<C, E: From<ClusterError>> WorkerInputs<C, E> {
    /// Creates the inputs and their sender.
    pub fn new() -> (WorkerInputSender<C, E>, Self) {
        let (sender, receiver) = mpsc::channel();
        (WorkerInputSender(sender), Self(receiver))
    }

    /// Passes the commands of the head to `execute` until the run has finished.
    ///
    /// # Errors
    /// The error of another thread or of `execute`; [`ClusterError::Interrupted`] if the worker is cancelled, and
    /// [`ClusterError::Connection`] if the head is lost.
    pub fn process_commands(
        &self,
        cancelled: &AtomicBool,
        mut execute: impl FnMut(C) -> Result<(), E>,
    ) -> Result<(), E> {
        loop {
            match self.0.recv_timeout(CANCEL_CHECK_INTERVAL) {
                Ok(WorkerInput::Command(command)) => match command.map_err(ClusterError::from)? {
                    Some(command) => execute(command)?,
                    None => return Ok(()),
                },
                Ok(WorkerInput::Failed(error)) => return Err(error),
                Err(_) if cancelled.load(Ordering::Relaxed) => return Err(ClusterError::Interrupted.into()),
                Err(_) => {}
            }
        }
    }
}

impl<C, E: From<ClusterError>> WorkerInputSender<C, E> {
    /// Forwards the commands of the head to the main thread, until the last command or an error.
    pub fn forward_commands<J: JobMessages<Command = C>>(&self, endpoint: WorkerEndpoint<'_, J>) {
        loop {
            let command = endpoint.next_command();
            let last = !matches!(command, Ok(Some(_)));
            if self.0.send(WorkerInput::Command(command)).is_err() || last {
                return;
            }
        }
    }

    /// Runs the work of a thread, and sends its failure to the main thread of the worker. The main thread also receives
    /// a message if the work panics: without it, the worker would never end, and the head would wait for its results.
    /// The scope of the thread then reports the panic.
    pub fn run(&self, work: impl FnOnce() -> Result<(), E>) {
        // If sending fails, the main thread and thus the worker have already ended.
        match std::panic::catch_unwind(AssertUnwindSafe(work)) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => drop(self.0.send(WorkerInput::Failed(error))),
            Err(panic) => {
                drop(self.0.send(WorkerInput::Failed(ClusterError::Interrupted.into())));
                std::panic::resume_unwind(panic);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_panics_ends_its_worker() {
        let (sender, inputs) = WorkerInputs::<(), ClusterError>::new();
        let panics = std::thread::spawn(move || sender.run(|| panic!("a test panics")));
        let error = inputs.process_commands(&AtomicBool::new(false), |()| Ok(())).unwrap_err();
        assert!(matches!(error, ClusterError::Interrupted));
        assert!(panics.join().is_err(), "the panic is reported");
    }
}
