//! Parallel processing of partitions with the same function, on several threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::runs::SplitPartition;

/// Calls `work` for each partition. Each thread has its own state and takes the next partition when it is free. Returns
/// the results in the order of the partitions. After an error, no further partitions are started.
pub(super) fn for_each_partition<S, T: Send, E: Send>(
    partitions: &[SplitPartition],
    threads: usize,
    state: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, usize, &SplitPartition) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(partitions.len()));
    let worker = || -> Result<(), E> {
        let mut state = state();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(split) = partitions.get(at) else { return Ok(()) };
            let outcome = work(&mut state, at, split);
            let outcome = outcome.inspect_err(|_| next.store(usize::MAX / 2, Ordering::Relaxed))?;
            done.lock().unwrap_or_else(PoisonError::into_inner).push((at, outcome));
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_unstable_by_key(|(at, _)| *at);
    Ok(done.into_iter().map(|(_, outcome)| outcome).collect())
}
