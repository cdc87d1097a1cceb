//! Who of writers and callers may work: together they never use more threads than there are.

/// Threads, and who has them.
///
/// Up to half of the callers that can run go before writers, so that both go on; when there is nothing left to write,
/// callers have all of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turns {
    threads: usize,
    threads_per_caller: usize,
    callers: usize,
    /// Partitions that nobody has begun to write.
    unwritten: usize,
    writing: usize,
    calling: usize,
}

impl Turns {
    /// `callers`: most callers at a time. Counts are at least 1.
    pub(super) fn new(threads: usize, threads_per_caller: usize, callers: usize) -> Self {
        let (threads, threads_per_caller) = (threads.max(1), threads_per_caller.max(1));
        Self { threads, threads_per_caller, callers: callers.max(1), unwritten: 0, writing: 0, calling: 0 }
    }

    /// So many are to be written.
    pub(super) fn expect_partitions(&mut self, partitions: usize) {
        self.unwritten = partitions;
    }

    fn goes_first(&self) -> bool {
        self.calling < (self.callers / 2).max(1)
    }

    /// Begins to write a partition, if a thread is free for that. `is_ready`: whether a region waits to be called.
    pub(super) fn begin_partition(&mut self, is_ready: bool) -> bool {
        let used = self.writing + self.calling * self.threads_per_caller;
        let may = used < self.threads && !(is_ready && self.goes_first());
        if may {
            self.writing += 1;
            self.unwritten = self.unwritten.saturating_sub(1);
        }
        may
    }

    /// A partition is written.
    pub(super) fn end_partition(&mut self) {
        self.writing -= 1;
    }

    /// Begins to call a region, if threads are free for that.
    pub(super) fn begin_call(&mut self) -> bool {
        let used = self.writing + (self.calling + 1) * self.threads_per_caller;
        // A caller that is to have more threads than there are runs alone.
        let is_free = used <= self.threads || self.writing + self.calling == 0;
        let may = is_free && self.calling < self.callers && (self.unwritten == 0 || self.goes_first());
        self.calling += usize::from(may);
        may
    }

    /// A region is called.
    pub(super) fn end_call(&mut self) {
        self.calling -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_calls_before_it_writes_on() {
        let mut turns = Turns::new(1, 1, 1);
        turns.expect_partitions(2);
        assert!(turns.begin_partition(false) && !turns.begin_call());
        turns.end_partition();
        assert!(!turns.begin_partition(true) && turns.begin_call() && !turns.begin_partition(false));
        turns.end_call();
        assert!(turns.begin_partition(false));
    }

    #[test]
    fn writers_and_callers_go_on_beside_each_other_and_callers_take_over() {
        let mut turns = Turns::new(4, 1, 4);
        turns.expect_partitions(6);
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
        let mut turns = Turns::new(2, 8, 1);
        turns.expect_partitions(3);
        assert!(turns.begin_partition(false) && !turns.begin_call() && !turns.begin_partition(true));
        turns.end_partition();
        assert!(turns.begin_call() && !turns.begin_partition(false) && !turns.begin_call());
        turns.end_call();
        assert!(turns.begin_partition(false));
    }
}
