//! Starting a program on a piece of work, once more if it fails.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use godwit_engines::EngineError;

use crate::error::PipelineError;
use crate::observer::{Event, Observer, seconds};

/// How often a program is started on one piece before the run is given up.
pub(super) const ATTEMPTS: u32 = 2;

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

/// The failure of the first piece in their order, of many that are worked on at a time.
#[derive(Default)]
pub(super) struct FirstFailure {
    is_set: AtomicBool,
    first: Mutex<Option<(usize, PipelineError)>>,
}

impl FirstFailure {
    /// Whether any piece has failed.
    pub(super) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Relaxed)
    }

    /// Takes what ended a piece. An interruption is no failure: that of another piece, or the user, stopped this one.
    pub(super) fn take(&self, index: usize, error: PipelineError) {
        if matches!(error, PipelineError::Interrupted) {
            return;
        }
        self.is_set.store(true, Ordering::Relaxed);
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        if first.as_ref().is_none_or(|(before, _)| index < *before) {
            *first = Some((index, error));
        }
    }

    pub(super) fn into_result(self) -> Result<(), PipelineError> {
        let first = self.first.into_inner().unwrap_or_else(PoisonError::into_inner);
        first.map_or(Ok(()), |(_, error)| Err(error))
    }
}

/// Whether a failure is one of a piece, not of all of them.
pub(super) fn is_of_piece(error: &EngineError) -> bool {
    !matches!(error, EngineError::Arguments { .. })
}

/// Has a piece of work done once in `directory`, which is made anew, stays where it fails and is removed where it is done.
/// Returns also the wall time, seconds.
///
/// # Errors
/// [`PipelineError::Engine`], [`PipelineError::File`].
pub(super) fn once<T>(
    directory: &Path,
    work: impl FnOnce() -> Result<T, EngineError>,
) -> Result<(T, f64), PipelineError> {
    // What a first attempt left must not be taken for the second's.
    let _ = std::fs::remove_dir_all(directory);
    std::fs::create_dir(directory).map_err(PipelineError::file("create", directory))?;
    let started = Instant::now();
    let value = work()?;
    let _ = std::fs::remove_dir_all(directory);
    Ok((value, seconds(started.elapsed())))
}

/// Has `attempt` do a piece of work in `directory`, as [`once`] does, and once more where it fails.
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
        match once(directory, &attempt) {
            Ok((value, seconds)) => return Ok(Attempted { value, seconds, attempts }),
            Err(_) if stop() => return Err(PipelineError::Interrupted),
            Err(PipelineError::Engine(source)) if is_of_piece(&source) => {
                if attempts == ATTEMPTS {
                    let (region, source) = (piece.to_owned(), Box::new(source));
                    return Err(PipelineError::Region { doing, region, attempts, source });
                }
                let message = format!("{doing} {piece} failed and is tried again: {source}");
                observer.event(&Event::Warning { message: message.replace('\n', " | ") });
            }
            Err(error) => return Err(error),
        }
    }
}
