//! Threads for calls that may take the time of an upload, so that they do not occupy the threads of the session.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use parking_lot::Mutex;

/// Largest number of these threads, which wait most of the time. Further calls run on the threads of the session.
const MAX_THREADS: usize = 256;

/// The threads of slow calls.
#[derive(Clone, Default)]
pub(crate) struct SlowCalls {
    running: Arc<AtomicUsize>,
}

/// A running call, which is counted until it ends, also by a panic.
struct RunningCall(Arc<AtomicUsize>);

impl Drop for RunningCall {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl SlowCalls {
    /// Runs a call on a thread of its own; in the calling thread if there are too many.
    pub(crate) fn run(&self, call: impl FnOnce() + Send + 'static) {
        let earlier = self.running.fetch_add(1, Ordering::Relaxed);
        let running = RunningCall(self.running.clone());
        let waiting = Arc::new(Mutex::new(Some(move || {
            let _running = running;
            call();
        })));
        let take = |waiting: &Mutex<Option<_>>| waiting.lock().take();
        let thread_waiting = waiting.clone();
        let start = move || take(&thread_waiting).map_or((), |call| call());
        let is_started =
            earlier < MAX_THREADS && thread::Builder::new().name("slow-call".to_owned()).spawn(start).is_ok();
        if !is_started && let Some(call) = take(&waiting) {
            call();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn slow_calls_run_at_the_same_time_and_the_calling_thread_runs_those_beyond_the_limit() {
        let calls = SlowCalls::default();
        let (sender, receiver) = mpsc::channel();
        let (end_senders, end_receivers): (Vec<_>, Vec<_>) = (0..MAX_THREADS).map(|_| mpsc::channel::<()>()).unzip();
        for ended in end_receivers {
            let sender = sender.clone();
            calls.run(move || {
                sender.send(thread::current().id()).unwrap();
                let _ = ended.recv();
            });
        }
        for _ in 0..MAX_THREADS {
            assert_ne!(receiver.recv_timeout(Duration::from_secs(60)).unwrap(), thread::current().id());
        }
        calls.run(move || sender.send(thread::current().id()).unwrap());
        assert_eq!(receiver.try_recv().unwrap(), thread::current().id());
        drop(end_senders);
    }
}
