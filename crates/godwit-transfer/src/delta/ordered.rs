//! Work on several threads whose results come in the order in which it was given.

use std::collections::VecDeque;
use std::thread::Scope;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};

use super::error::DeltaError;

/// Threads that work, and what they were given and is not collected. At most two items more than threads are held.
pub(super) struct InOrder<I, O> {
    jobs: Sender<(I, Sender<O>)>,
    waiting: VecDeque<Receiver<O>>,
    threads: usize,
}

impl<I: Send, O: Send> InOrder<I, O> {
    /// Starts threads, which end when this is dropped.
    ///
    /// # Errors
    /// [`DeltaError::Thread`].
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
                    // Nobody waits once something failed.
                    let _ = done.send(work(item));
                }
            };
            std::thread::Builder::new()
                .name("segments".to_owned())
                .spawn_scoped(scope, run)
                .map_err(DeltaError::Thread)?;
        }
        Ok(Self { jobs, waiting: VecDeque::new(), threads })
    }

    /// Whether so much is waiting that something should be collected first.
    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() > self.threads
    }

    /// Gives an item.
    pub(super) fn push(&mut self, item: I) {
        let (done, result) = bounded(1);
        self.jobs.send((item, done)).expect("threads take jobs while there may be any");
        self.waiting.push_back(result);
    }

    /// The oldest result; `None` where nothing was given.
    pub(super) fn pop(&mut self) -> Option<O> {
        let result = self.waiting.pop_front()?;
        Some(result.recv().expect("work ends with a result"))
    }
}
