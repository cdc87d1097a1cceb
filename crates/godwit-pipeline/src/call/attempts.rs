//! Starting a program on a piece of work, once more if it fails.

use std::path::Path;
use std::time::Instant;

use godwit_engines::EngineError;

use crate::error::PipelineError;
use crate::observer::{Event, Observer};

/// How often a program is started on one piece before the run is given up.
const ATTEMPTS: u32 = 2;

/// A piece of work as messages have it.
#[derive(Clone, Copy)]
pub(super) struct Named<'n> {
    /// What is done to it, as `calling`.
    pub(super) doing: &'static str,
    /// What it is, as `chr1:1-1000`.
    pub(super) piece: &'n str,
}

/// What came of it.
pub(super) struct Attempted<T> {
    pub(super) value: T,
    /// Wall time of the attempt that went well.
    pub(super) seconds: f64,
    pub(super) attempts: u32,
}

/// Has `attempt` do a piece of work in `directory`, which is empty each time, and is removed when it is done.
///
/// # Errors
/// [`PipelineError::Region`] after the second failure, [`PipelineError::Interrupted`] where `stop` says so.
pub(super) fn attempted<T>(
    named: Named,
    directory: &Path,
    observer: &dyn Observer,
    stop: &impl Fn() -> bool,
    attempt: impl Fn() -> Result<T, EngineError>,
) -> Result<Attempted<T>, PipelineError> {
    let Named { doing, piece } = named;
    let mut attempts = 0;
    loop {
        attempts += 1;
        // What a first attempt left must not be taken for the second's.
        let _ = std::fs::remove_dir_all(directory);
        std::fs::create_dir(directory).map_err(PipelineError::file("create", directory))?;
        let started = Instant::now();
        let outcome = attempt();
        let seconds = crate::observer::seconds(started.elapsed());
        match outcome {
            Ok(value) => {
                let _ = std::fs::remove_dir_all(directory);
                return Ok(Attempted { value, seconds, attempts });
            }
            Err(_) if stop() => return Err(PipelineError::Interrupted),
            Err(error @ EngineError::Arguments { .. }) => return Err(error.into()),
            Err(source) if attempts < ATTEMPTS => {
                let message = format!("{doing} {piece} failed and is tried again: {source}");
                observer.event(&Event::Warning { message: message.replace('\n', " | ") });
            }
            Err(error) => {
                let (region, source) = (piece.to_owned(), Box::new(error));
                return Err(PipelineError::Region { doing, region, attempts, source });
            }
        }
    }
}
