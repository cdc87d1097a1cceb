//! Divides the threads of a job between variant callers and the writers of the BAM.

/// The threads of a job, and the callers and writers that use them.
///
/// Up to half of the maximum number of callers have priority over writers, so that both make progress. When no
/// partition is left to write, callers may use all threads.
#[derive(Clone, Copy, Debug)]
pub(super) struct ThreadBudget {
    threads: usize,
    threads_per_caller: usize,
    max_callers: usize,
    /// Number of partitions whose writing has not started.
    unwritten_partitions: usize,
    active_writers: usize,
    active_callers: usize,
}

impl ThreadBudget {
    /// Returns a budget of which no thread is in use. `callers` is the maximum number of concurrent callers. All three
    /// numbers are raised to at least 1.
    pub(super) fn new(threads: usize, threads_per_caller: usize, callers: usize) -> Self {
        let (threads, threads_per_caller) = (threads.max(1), threads_per_caller.max(1));
        Self {
            threads,
            threads_per_caller,
            max_callers: callers.max(1),
            unwritten_partitions: 0,
            active_writers: 0,
            active_callers: 0,
        }
    }

    /// Sets the number of partitions to write.
    pub(super) fn set_unwritten_partitions(&mut self, partitions: usize) {
        self.unwritten_partitions = partitions;
    }

    fn caller_has_priority(&self) -> bool {
        self.active_callers < (self.max_callers / 2).max(1)
    }

    /// Reserves a thread for writing a partition. Returns false if no thread is available, or if the thread is needed
    /// for a caller: `is_ready` is true if a region waits to be called.
    pub(super) fn begin_partition(&mut self, is_ready: bool) -> bool {
        let used = self.active_writers + self.active_callers * self.threads_per_caller;
        let may = used < self.threads && !(is_ready && self.caller_has_priority());
        if may {
            self.active_writers += 1;
            self.unwritten_partitions = self.unwritten_partitions.saturating_sub(1);
        }
        may
    }

    /// Releases the thread that wrote a partition.
    pub(super) fn end_partition(&mut self) {
        self.active_writers -= 1;
    }

    /// Reserves the threads for calling a region. Returns false if they are not available.
    pub(super) fn begin_call(&mut self) -> bool {
        let used = self.active_writers + (self.active_callers + 1) * self.threads_per_caller;
        // If a caller needs more threads than the job has, no other caller runs at the same time.
        let is_free = used <= self.threads || self.active_writers + self.active_callers == 0;
        let may = is_free
            && self.active_callers < self.max_callers
            && (self.unwritten_partitions == 0 || self.caller_has_priority());
        self.active_callers += usize::from(may);
        may
    }

    /// Releases the threads that called a region.
    pub(super) fn end_call(&mut self) {
        self.active_callers -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_calls_before_it_writes_on() {
        let mut turns = ThreadBudget::new(1, 1, 1);
        turns.set_unwritten_partitions(2);
        assert!(turns.begin_partition(false) && !turns.begin_call());
        turns.end_partition();
        assert!(!turns.begin_partition(true) && turns.begin_call() && !turns.begin_partition(false));
        turns.end_call();
        assert!(turns.begin_partition(false));
    }

    #[test]
    fn writers_and_callers_go_on_beside_each_other_and_callers_take_over() {
        let mut turns = ThreadBudget::new(4, 1, 4);
        turns.set_unwritten_partitions(6);
        assert!((0..4).all(|_| turns.begin_partition(false)) && !turns.begin_call());
        turns.end_partition();
        turns.end_partition();
        assert!(turns.begin_call() && turns.begin_call() && !turns.begin_call() && !turns.begin_partition(true));
        turns.end_partition();
        assert!(!turns.begin_call() && turns.begin_partition(true));
        turns.end_partition();
        assert!(turns.begin_partition(true));
        turns.end_partition();
        turns.end_partition();
        assert!(turns.begin_call() && turns.begin_call() && !turns.begin_call());
    }

    #[test]
    fn callers_with_more_threads_than_there_are_run_alone() {
        let mut turns = ThreadBudget::new(2, 8, 1);
        turns.set_unwritten_partitions(3);
        assert!(turns.begin_partition(false) && !turns.begin_call() && !turns.begin_partition(true));
        turns.end_partition();
        assert!(turns.begin_call() && !turns.begin_partition(false) && !turns.begin_call());
        turns.end_call();
        assert!(turns.begin_partition(false));
    }
}
