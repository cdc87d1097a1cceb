//! A thread pool whose results are returned in the order of submission.

use std::collections::VecDeque;
use std::thread::Scope;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};

use super::error::DeltaError;

/// Threads, and the submitted items whose results were not collected yet. If callers check `is_full`, at most two items
/// more than threads are in memory.
pub(super) struct OrderedThreadPool<I, O> {
    jobs: Sender<(I, Sender<O>)>,
    pending_results: VecDeque<Receiver<O>>,
    threads: usize,
}

impl<I: Send, O: Send> OrderedThreadPool<I, O> {
    /// Starts the threads. They end when the pool is dropped.
    ///
    /// # Errors
    /// [`DeltaError::Thread`] if a thread cannot be started.
    pub(super) fn start<'s, 'e, W>(scope: &'s Scope<'s, 'e>, threads: usize, work: W) -> Result<Self, DeltaError>
    where
        W: Fn(I) -> O + Send + Clone + 's,
        I: 's,
        O: 's,
    {
        let threads = threads.max(1);
        let (jobs, given) = unbounded::<(I, Sender<O>)>();
        for _ in 0..threads {
            let (given, work) = (given.clone(), work.clone());
            let run = move || {
                for (item, done) in given {
                    // Sending fails if the caller has dropped the pool after an error; the result is then not needed.
                    let _ = done.send(work(item));
                }
            };
            std::thread::Builder::new()
                .name("segments".to_owned())
                .spawn_scoped(scope, run)
                .map_err(DeltaError::Thread)?;
        }
        Ok(Self { jobs, pending_results: VecDeque::new(), threads })
    }

    /// Reports whether the pool is full: the caller should then collect a result before it submits another item.
    pub(super) fn is_full(&self) -> bool {
        self.pending_results.len() > self.threads
    }

    /// Submits an item to the threads.
    pub(super) fn submit(&mut self, item: I) {
        let (done, result) = bounded(1);
        self.jobs.send((item, done)).expect("threads take jobs while there may be any");
        self.pending_results.push_back(result);
    }

    /// Waits for the result of the item that was submitted first, and returns it; `None` if no items are pending.
    pub(super) fn next_result(&mut self) -> Option<O> {
        let result = self.pending_results.pop_front()?;
        Some(result.recv().expect("work ends with a result"))
    }
}
