//! Runs a program on an item of work, and retries once.

use std::path::Path;
use std::time::Instant;

use godwit_engines::EngineError;
use godwit_pipeline::PipelineError;
use godwit_pipeline::observer::{Event, Observer, rounded_seconds};

/// Maximum number of starts of a program for one item. If all of them fail, the job fails.
pub(super) const MAX_ATTEMPTS: u32 = 2;

/// The name of an item of work in messages.
#[derive(Clone, Copy)]
pub(super) struct WorkLabel<'n> {
    /// The action, such as `calling`.
    pub(super) action: &'static str,
    /// The item, such as `chr1:1-1000`.
    pub(super) item: &'n str,
}

/// The result of a successful attempt.
pub(super) struct AttemptResult<T> {
    pub(super) value: T,
    /// Wall time of the successful attempt, seconds.
    pub(super) seconds: f64,
    pub(super) attempts: u32,
}

/// Returns whether a failure concerns only one item. Invalid arguments of the program would fail for every item.
pub(super) fn is_item_failure(error: &EngineError) -> bool {
    !matches!(error, EngineError::Arguments { .. })
}

/// Runs work once in `directory`, which is created empty, kept after a failure and removed after success. Also returns
/// the wall time, seconds.
///
/// # Errors
/// [`PipelineError::Engine`] if the work fails, [`PipelineError::File`] if the directory cannot be created.
pub(super) fn run_once<T>(
    directory: &Path,
    work: impl FnOnce() -> Result<T, EngineError>,
) -> Result<(T, f64), PipelineError> {
    // Remove the files of the first attempt before the second one.
    let _ = std::fs::remove_dir_all(directory);
    std::fs::create_dir(directory).map_err(PipelineError::file("create", directory))?;
    let started = Instant::now();
    let value = work()?;
    let _ = std::fs::remove_dir_all(directory);
    Ok((value, rounded_seconds(started.elapsed())))
}

/// Runs `attempt` in `directory` as [`run_once`] does, and retries once after a failure.
///
/// # Errors
/// [`PipelineError::RegionFailed`] after the second failure, [`PipelineError::Interrupted`] if `stop` returns true.
pub(super) fn run_with_retry<T>(
    named: WorkLabel,
    directory: &Path,
    observer: &dyn Observer,
    stop: &impl Fn() -> bool,
    attempt: impl Fn() -> Result<T, EngineError>,
) -> Result<AttemptResult<T>, PipelineError> {
    let WorkLabel { action, item } = named;
    let mut attempts = 0;
    loop {
        attempts += 1;
        match run_once(directory, &attempt) {
            Ok((value, seconds)) => return Ok(AttemptResult { value, seconds, attempts }),
            Err(_) if stop() => return Err(PipelineError::Interrupted),
            Err(PipelineError::Engine(source)) if is_item_failure(&source) => {
                if attempts == MAX_ATTEMPTS {
                    let (region, source) = (item.to_owned(), Box::new(source));
                    return Err(PipelineError::RegionFailed { action, region, attempts, source });
                }
                let message = format!("{action} {item} failed and is retried: {source}");
                observer.event(&Event::Warning { message: message.replace('\n', " | ") });
            }
            Err(error) => return Err(error),
        }
    }
}
