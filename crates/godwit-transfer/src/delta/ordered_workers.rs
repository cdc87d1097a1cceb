//! A thread pool whose results are returned in the order of submission.

use std::collections::VecDeque;
use std::thread::Scope;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};

use super::error::DeltaError;

/// Threads, and the submitted items whose results are not collected. At most two items more than threads are held.
pub(super) struct OrderedThreadPool<I, O> {
    jobs: Sender<(I, Sender<O>)>,
    pending_results: VecDeque<Receiver<O>>,
    threads: usize,
}

impl<I: Send, O: Send> OrderedThreadPool<I, O> {
    /// Starts threads, which end when the pool is dropped.
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
                    // After a failure nothing waits for the result.
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

    /// Reports whether so many results are pending that one should be collected first.
    pub(super) fn is_full(&self) -> bool {
        self.pending_results.len() > self.threads
    }

    /// Submits an item.
    pub(super) fn submit(&mut self, item: I) {
        let (done, result) = bounded(1);
        self.jobs.send((item, done)).expect("threads take jobs while there may be any");
        self.pending_results.push_back(result);
    }

    /// Returns the oldest result; `None` if there are no pending items.
    pub(super) fn next_result(&mut self) -> Option<O> {
        let result = self.pending_results.pop_front()?;
        Some(result.recv().expect("work ends with a result"))
    }
}
