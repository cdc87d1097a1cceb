//! Where workers run: here, or wherever somebody else starts them.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use godwit_engines::EngineError;

use crate::worker::{Ending, Engine, WorkerProcess};
use crate::{SearchError, SearchOptions};

/// How long one waits for something to be said before one looks whether the user has had enough.
const PATIENCE: Duration = Duration::from_millis(50);

/// Something that a worker said.
#[derive(Debug)]
pub struct Said {
    /// Its number.
    pub worker: usize,
    /// Which start of it.
    pub attempt: u64,
    /// The frame; `None`: it has ended.
    pub frame: Option<Vec<u8>>,
}

/// Where workers run.
pub trait Place {
    /// How many there are, all the time.
    fn workers(&self) -> usize;

    /// The engine that all of them have: `BLAST 2.17.0+`.
    fn engine(&self) -> String;

    /// Whether workers are on several machines, so that the page of a file is written by one of them only.
    fn is_spread(&self) -> bool;

    /// Starts the worker of that number, which is not running.
    ///
    /// # Errors
    /// [`SearchError`].
    fn start(&mut self, worker: usize, attempt: u64) -> Result<(), SearchError>;

    /// Sends it a frame. That it is gone is heard from [`Place::hear`].
    fn ask(&mut self, worker: usize, frame: Vec<u8>);

    /// Waits a moment for something that a worker says.
    ///
    /// # Errors
    /// [`SearchError`] where there cannot be any workers any more.
    fn hear(&mut self) -> Result<Option<Said>, SearchError>;

    /// How a worker ended, of which this was heard.
    fn end(&mut self, worker: usize) -> Ending;

    /// Ends a worker, whatever it does.
    fn kill(&mut self, worker: usize);

    /// Machines that workers are on, and how many of them were lost on the way.
    fn nodes(&self) -> (u32, u32) {
        (1, 0)
    }
}

/// Processes of this machine.
pub struct LocalPlace {
    program: PathBuf,
    version: String,
    engine: Engine,
    tells: bool,
    workers: Vec<Option<WorkerProcess>>,
    heard: Receiver<Said>,
    speaker: Sender<Said>,
}

impl LocalPlace {
    /// Finds the engine. `query` is the file that workers read.
    ///
    /// # Errors
    /// [`SearchError::Engine`].
    pub fn find(options: &SearchOptions, query: PathBuf) -> Result<Self, SearchError> {
        let engine = options.command.engine(query);
        let (program, version) = engine.find()?;
        let (speaker, heard) = std::sync::mpsc::channel();
        let workers = (0..options.workers).map(|_| None).collect();
        Ok(Self { program, version, engine, tells: options.tells, workers, heard, speaker })
    }
}

impl Place for LocalPlace {
    fn workers(&self) -> usize {
        self.workers.len()
    }

    fn engine(&self) -> String {
        self.version.clone()
    }

    fn is_spread(&self) -> bool {
        false
    }

    fn start(&mut self, worker: usize, attempt: u64) -> Result<(), SearchError> {
        let speaker = self.speaker.clone();
        let heard = move |frame| speaker.send(Said { worker, attempt, frame }).is_ok();
        // All complain of the same.
        let tells = self.tells && worker == 0 && attempt == 0;
        let program = self.program.clone();
        let failed = |source| EngineError::Io { program, action: "start", source };
        let process = WorkerProcess::start(self.engine.command(&self.program), heard, tells).map_err(failed)?;
        self.workers[worker] = Some(process);
        Ok(())
    }

    fn ask(&mut self, worker: usize, frame: Vec<u8>) {
        if let Some(process) = &mut self.workers[worker] {
            process.ask(&frame);
        }
    }

    fn hear(&mut self) -> Result<Option<Said>, SearchError> {
        match self.heard.recv_timeout(PATIENCE) {
            Ok(said) => Ok(Some(said)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => unreachable!("this holds a sender"),
        }
    }

    fn end(&mut self, worker: usize) -> Ending {
        let never = || Ending { how: "was never started".into(), last_words: "none".into() };
        self.workers[worker].take().map_or_else(never, WorkerProcess::end)
    }

    fn kill(&mut self, worker: usize) {
        self.workers[worker] = None;
    }
}
