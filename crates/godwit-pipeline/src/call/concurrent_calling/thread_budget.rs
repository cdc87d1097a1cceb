//! The threads of writers and callers: together they never use more than the job has.

/// The number of threads, and their users.
///
/// Up to half of the callers that can run have priority over writers, so that both make progress; when nothing is left to
/// write, callers use all threads.
#[derive(Clone, Copy, Debug)]
pub(super) struct ThreadBudget {
    threads: usize,
    threads_per_caller: usize,
    max_callers: usize,
    /// Partitions whose writing has not started.
    unwritten_partitions: usize,
    active_writers: usize,
    active_callers: usize,
}

impl ThreadBudget {
    /// Returns an unused budget. `callers`: maximum number of concurrent callers. Counts are at least 1.
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

    /// Starts to write a partition and returns true, if a thread is free. `is_ready`: whether a region waits to be called.
    pub(super) fn begin_partition(&mut self, is_ready: bool) -> bool {
        let used = self.active_writers + self.active_callers * self.threads_per_caller;
        let may = used < self.threads && !(is_ready && self.caller_has_priority());
        if may {
            self.active_writers += 1;
            self.unwritten_partitions = self.unwritten_partitions.saturating_sub(1);
        }
        may
    }

    /// Ends writing a partition.
    pub(super) fn end_partition(&mut self) {
        self.active_writers -= 1;
    }

    /// Starts to call a region and returns true, if threads are free.
    pub(super) fn begin_call(&mut self) -> bool {
        let used = self.active_writers + (self.active_callers + 1) * self.threads_per_caller;
        // A caller that needs more threads than the job has runs alone.
        let is_free = used <= self.threads || self.active_writers + self.active_callers == 0;
        let may = is_free
            && self.active_callers < self.max_callers
            && (self.unwritten_partitions == 0 || self.caller_has_priority());
        self.active_callers += usize::from(may);
        may
    }

    /// Ends calling a region.
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
