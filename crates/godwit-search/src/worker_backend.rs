//! Backends that run the workers of a search: as processes of this machine, or on the hosts of a cluster.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use godwit_engines::EngineError;

use crate::database_volumes::DatabaseExtent;
use crate::read_ahead::ReadAhead;
use crate::worker_process::{WarningPrinter, WorkerExit, WorkerProcess, WorkerSpec};
use crate::{SearchError, SearchOptions};

/// Maximum time to wait for a frame from a worker, after which the search checks whether it was cancelled.
const RECEIVE_TIMEOUT: Duration = Duration::from_millis(50);

/// A frame from a worker.
#[derive(Debug)]
pub struct WorkerFrame {
    /// Number of the worker, from 0.
    pub worker: usize,
    /// Number of restarts of the worker before the process that sent the frame.
    pub attempt: u64,
    /// The bytes of the frame; `None` if the worker has exited.
    pub frame: Option<Vec<u8>>,
}

/// A backend that runs workers, sends frames to them, and receives frames from them.
pub trait WorkerBackend {
    /// Returns the number of workers, which does not change during a search.
    fn worker_count(&self) -> usize;

    /// Returns the name and version of the search engine of all workers, such as `BLAST 2.17.0+`.
    fn engine_name(&self) -> String;

    /// Returns whether workers run on several hosts. If so, two workers must not write to the same page of the output
    /// file.
    fn is_multi_host(&self) -> bool;

    /// Starts the worker with this number, which must not be running.
    ///
    /// # Errors
    /// [`SearchError`] if the worker cannot be started.
    fn start_worker(&mut self, worker: usize, attempt: u64) -> Result<(), SearchError>;

    /// Sends a frame to a worker. If the worker has exited, [`WorkerBackend::receive_frame`] reports that.
    fn send_frame(&mut self, worker: usize, frame: Vec<u8>);

    /// Waits a short time for a frame from any worker. Returns `None` if no frame arrives.
    ///
    /// # Errors
    /// [`SearchError`] if the backend can no longer run any worker.
    fn receive_frame(&mut self) -> Result<Option<WorkerFrame>, SearchError>;

    /// Returns the description of a worker's exit, after [`WorkerBackend::receive_frame`] has reported it.
    fn take_exit(&mut self, worker: usize) -> WorkerExit;

    /// Kills a worker if it is running.
    fn kill_worker(&mut self, worker: usize);

    /// Returns a number of the host on which a worker runs; workers of the same host have the same number.
    fn host_number(&self, _worker: usize) -> usize {
        0
    }

    /// Requests the host of a worker to read extents of the database into its page cache. Returns at once.
    fn read_ahead(&mut self, worker: usize, extents: Vec<DatabaseExtent>);

    /// Returns the number of hosts on which workers run, and the number of hosts that failed.
    fn host_counts(&self) -> (u32, u32) {
        (1, 0)
    }
}

/// Worker processes on this machine.
pub struct LocalBackend {
    program: PathBuf,
    engine_name: String,
    worker_spec: WorkerSpec,
    /// Prints the warnings of the engine; `None` if they are not printed.
    warnings: Option<WarningPrinter>,
    workers: Vec<Option<WorkerProcess>>,
    receiver: Receiver<WorkerFrame>,
    sender: Sender<WorkerFrame>,
    /// Started by the first request to read ahead.
    read_ahead: Option<ReadAhead>,
}

impl LocalBackend {
    /// Finds the installed search engine. `query` is the path of the file of the queries, which the workers read.
    ///
    /// # Errors
    /// [`SearchError::Engine`] if the engine is not installed.
    pub fn find_engine(options: &SearchOptions, query: PathBuf) -> Result<Self, SearchError> {
        let worker_spec = options.command.worker_spec(query);
        let (program, engine_name) = worker_spec.find_worker_program()?;
        let (sender, receiver) = std::sync::mpsc::channel();
        let workers = (0..options.workers).map(|_| None).collect();
        Ok(Self {
            program,
            engine_name,
            worker_spec,
            warnings: options.prints_warnings.then(WarningPrinter::default),
            workers,
            receiver,
            sender,
            read_ahead: None,
        })
    }
}

impl WorkerBackend for LocalBackend {
    fn worker_count(&self) -> usize {
        self.workers.len()
    }

    fn engine_name(&self) -> String {
        self.engine_name.clone()
    }

    fn is_multi_host(&self) -> bool {
        false
    }

    fn start_worker(&mut self, worker: usize, attempt: u64) -> Result<(), SearchError> {
        let frame_sender = self.sender.clone();
        let on_frame = move |frame| frame_sender.send(WorkerFrame { worker, attempt, frame }).is_ok();
        let (program, command) = (self.program.clone(), self.worker_spec.worker_command(&self.program));
        let failed = |source| EngineError::Io { program, action: "start", source };
        let process = WorkerProcess::start(command, on_frame, self.warnings.clone()).map_err(failed)?;
        self.workers[worker] = Some(process);
        Ok(())
    }

    fn send_frame(&mut self, worker: usize, frame: Vec<u8>) {
        if let Some(process) = &mut self.workers[worker] {
            process.send_frame(&frame);
        }
    }

    fn receive_frame(&mut self) -> Result<Option<WorkerFrame>, SearchError> {
        match self.receiver.recv_timeout(RECEIVE_TIMEOUT) {
            Ok(received) => Ok(Some(received)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => unreachable!("this holds a sender"),
        }
    }

    fn take_exit(&mut self, worker: usize) -> WorkerExit {
        let never = || WorkerExit { description: "was never started".into(), stderr_tail: "none".into() };
        self.workers[worker].take().map_or_else(never, WorkerProcess::wait_for_exit)
    }

    fn kill_worker(&mut self, worker: usize) {
        self.workers[worker] = None;
    }

    fn read_ahead(&mut self, _worker: usize, extents: Vec<DatabaseExtent>) {
        self.read_ahead.get_or_insert_with(ReadAhead::start).request(extents);
    }
}
