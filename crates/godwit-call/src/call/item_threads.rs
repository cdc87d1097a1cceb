//! Threads that process items of work concurrently, until no item is left, an item fails, or the job is cancelled.

use std::sync::atomic::{AtomicBool, Ordering};

use godwit_pipeline::PipelineError;
use parking_lot::Mutex;

/// The threads that process the items of a job, and their first failure.
pub(super) struct ItemThreads<'c> {
    cancelled: &'c AtomicBool,
    has_failed: AtomicBool,
    /// The error of the item with the lowest index, out of the errors of all threads.
    first_failure: Mutex<Option<(usize, PipelineError)>>,
}

impl<'c> ItemThreads<'c> {
    /// Creates threads that stop when the flag is set.
    pub(super) fn new(cancelled: &'c AtomicBool) -> Self {
        Self { cancelled, has_failed: AtomicBool::new(false), first_failure: Mutex::new(None) }
    }

    /// Returns whether all threads have to stop, because an item has failed or the job is cancelled.
    pub(super) fn should_stop(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed) || self.cancelled.load(Ordering::Relaxed)
    }

    /// Calls `process_next` on several threads, with the 0-based number of the thread, until it returns false because
    /// no item is left. An error contains the index of its item.
    ///
    /// # Errors
    /// The error of the failed item with the lowest index. The result is `Ok` if the job was cancelled.
    pub(super) fn run(
        &self,
        threads: usize,
        process_next: impl Fn(usize) -> Result<bool, (usize, PipelineError)> + Sync,
    ) -> Result<(), PipelineError> {
        let work = |thread: usize| {
            while !self.should_stop() {
                match process_next(thread) {
                    Ok(true) => {}
                    Ok(false) => return,
                    Err((index, error)) => self.record_failure(index, error),
                }
            }
        };
        let work = &work;
        std::thread::scope(|scope| {
            let started: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
            for thread in started {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            }
        });
        let first = self.first_failure.lock().take();
        first.map_or(Ok(()), |(_, error)| Err(error))
    }

    /// Records the error of an item. Ignores interruptions, which another failure or the user caused.
    fn record_failure(&self, index: usize, error: PipelineError) {
        if matches!(error, PipelineError::Interrupted) {
            return;
        }
        self.has_failed.store(true, Ordering::Relaxed);
        let mut first = self.first_failure.lock();
        if first.as_ref().is_none_or(|(before, _)| index < *before) {
            *first = Some((index, error));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn all_items_are_processed_and_the_failure_of_the_first_one_is_reported() {
        let (cancelled, next) = (AtomicBool::new(false), AtomicUsize::new(0));
        let problem = |index: usize| PipelineError::Options { problem: index.to_string() };
        let process = |last: usize, broken: &'static [usize]| {
            next.store(0, Ordering::Relaxed);
            ItemThreads::new(&cancelled).run(3, |_| match next.fetch_add(1, Ordering::Relaxed) {
                index if index > last => Ok(false),
                index if broken.contains(&index) => Err((index, problem(index))),
                _ => Ok(true),
            })
        };
        process(20, &[]).unwrap();
        assert_eq!(next.load(Ordering::Relaxed), 24, "each thread has found that no item is left");
        let error = process(20, &[0, 1, 2]).unwrap_err();
        assert_eq!(error.to_string(), "0");
        cancelled.store(true, Ordering::Relaxed);
        process(20, &[0]).unwrap();
    }
}
