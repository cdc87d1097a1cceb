//! Stops by SIGINT, SIGTERM and a lost terminal: every verb ends within two seconds, with exit code 130.
//!
//! The first signal sets a flag. A verb that reads the flag ends by itself, with its own message and its destructors. A
//! verb that does not read it, or whose threads are blocked (a FIFO without a writer, a DNS server that does not respond, a
//! full pipe, a lock), is ended by the thread of this module: it ends all descendants, removes the temporary files and
//! directories of the process, reports the interruption and exits. A second signal does that at once. Outputs are renamed
//! when they are complete, and job directories and journals are written for a process that may be killed at any moment, so
//! both stay usable.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::{Duration, Instant};

use godwit_process::{
    remove_and_block_temporary_paths, remove_temporary_paths, resume_instruction, terminate_descendants,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

use crate::failure::{self, Exit, Failure};
use crate::progress;

/// Time for a verb that reads the flag to end by itself.
const GRACE_PERIOD: Duration = Duration::from_millis(1000);
/// Time for descendants to end after SIGTERM.
const DESCENDANTS_TIMEOUT: Duration = Duration::from_millis(250);
/// Time for the verb to notice that its children have ended, or to report its own outcome.
const OUTCOME_TIMEOUT: Duration = Duration::from_millis(250);
/// Longest wait for the report, because stderr may not be read.
const REPORT_TIMEOUT: Duration = Duration::from_millis(100);
/// Stack of the threads of this module: statements run in processes whose memory is limited.
const STACK_BYTES: usize = 128 << 10;

static INTERRUPTION: OnceLock<Interruption> = OnceLock::new();

struct Interruption {
    started: Instant,
    /// Set by the first signal, within the signal handler.
    is_requested: Arc<AtomicBool>,
    /// Time for the verb to end by itself, in milliseconds; 0 until it reads the flag.
    grace_ms: AtomicU64,
    /// True once the outcome is being reported, by the main thread or by the thread that ends the process.
    is_reported: AtomicBool,
    /// True once a thread ends the process.
    is_ending: AtomicBool,
    /// True if the outcome is also reported as an event.
    reports_event: AtomicBool,
    handle: Handle,
}

/// Handles SIGINT and SIGTERM from here on.
///
/// # Errors
/// [`Exit::Machine`] if the handlers or the thread cannot be set up.
pub fn install() -> Result<(), Failure> {
    let failed = |error| Failure::new(Exit::Machine, format!("cannot handle signals: {error}"));
    let is_requested = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, is_requested.clone()).map_err(failed)?;
    }
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
    let interruption = Interruption {
        started: Instant::now(),
        is_requested,
        grace_ms: AtomicU64::new(0),
        is_reported: AtomicBool::new(false),
        is_ending: AtomicBool::new(false),
        reports_event: AtomicBool::new(false),
        handle: signals.handle(),
    };
    let interruption = INTERRUPTION.get_or_init(|| interruption);
    let watch = move || signals.forever().for_each(|_| interruption.end_after_grace());
    thread().spawn(watch).map(drop).map_err(failed)
}

/// Handles SIGHUP, which a lost terminal sends, as the other signals. A process that was started to ignore it (nohup(1)) does so.
///
/// # Errors
/// [`Exit::Machine`] if the handler cannot be set up.
pub fn end_on_hang_up() -> Result<(), Failure> {
    let Some(interruption) = INTERRUPTION.get().filter(|_| !ignores_hang_up()) else { return Ok(()) };
    let registered = signal_hook::flag::register(SIGHUP, interruption.is_requested.clone());
    let registered = registered.and_then(|_| interruption.handle.add_signal(SIGHUP));
    registered.map_err(|error| Failure::new(Exit::Machine, format!("cannot handle signals: {error}")))
}

fn ignores_hang_up() -> bool {
    // SAFETY: zeros are a valid value of this plain C struct, and sigaction writes to nothing else.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(SIGHUP, std::ptr::null(), &mut action) == 0 && action.sa_sigaction == libc::SIG_IGN
    }
}

/// Returns the flag that the first signal sets. The caller reads it often and ends the verb once it is set.
pub fn flag() -> Arc<AtomicBool> {
    flag_with_grace(Duration::ZERO)
}

/// Returns the flag for a verb that may take `longer` to end by itself.
pub fn flag_with_grace(longer: Duration) -> Arc<AtomicBool> {
    let Some(interruption) = INTERRUPTION.get() else { return Arc::default() };
    let grace_ms = u64::try_from((GRACE_PERIOD + longer).as_millis()).unwrap_or(u64::MAX);
    interruption.grace_ms.store(grace_ms, Ordering::Relaxed);
    interruption.is_requested.clone()
}

/// Sets whether the outcome is also reported as an event.
pub fn report_as_event(events: bool) {
    if let Some(interruption) = INTERRUPTION.get() {
        interruption.reports_event.store(events, Ordering::Relaxed);
    }
}

/// Returns the outcome for the main thread to report. A failure after a signal becomes the interruption: for example, the
/// same Ctrl-C ended a child. If another thread is ending the process, this function does not return.
pub fn final_outcome(outcome: Result<(), Failure>) -> Result<(), Failure> {
    let Some(interruption) = INTERRUPTION.get() else { return outcome };
    if interruption.is_reported.swap(true, Ordering::SeqCst) {
        loop {
            std::thread::park();
        }
    }
    // Temporary paths of threads that are still running.
    remove_temporary_paths();
    match outcome {
        Err(failure)
            if interruption.is_requested.load(Ordering::Relaxed)
                && !matches!(failure.exit, Exit::Interrupted | Exit::Bug) =>
        {
            Err(interruption_failure())
        }
        outcome => outcome,
    }
}

/// Returns the failure of a verb that did not end by itself.
fn interruption_failure() -> Failure {
    let how = resume_instruction().unwrap_or("nothing was left behind");
    Failure::new(Exit::Interrupted, format!("interrupted; {how}"))
}

fn thread() -> std::thread::Builder {
    std::thread::Builder::new().name("godwit-signals".to_owned()).stack_size(STACK_BYTES)
}

impl Interruption {
    /// Ends the process after the grace period of the verb; at once on a second signal.
    fn end_after_grace(&'static self) {
        let grace_ms = self.grace_ms.swap(0, Ordering::Relaxed);
        let end = move || {
            std::thread::sleep(Duration::from_millis(grace_ms));
            self.end();
        };
        if grace_ms == 0 || thread().spawn(end).is_err() {
            self.end();
        }
    }

    /// Ends the process; returns if another thread is ending it.
    fn end(&'static self) {
        if self.is_ending.swap(true, Ordering::SeqCst) {
            return;
        }
        if terminate_descendants(DESCENDANTS_TIMEOUT) {
            std::thread::sleep(OUTCOME_TIMEOUT);
        }
        if self.is_reported.swap(true, Ordering::SeqCst) {
            std::thread::sleep(OUTCOME_TIMEOUT);
            remove_and_block_temporary_paths();
        } else {
            remove_and_block_temporary_paths();
            self.report();
        }
        signal_hook::low_level::exit(Exit::Interrupted as i32);
    }

    /// Reports the interruption from a separate thread: another one may be blocked while it holds stderr. No thread writes
    /// to stderr afterwards, so that the report is the last line.
    fn report(&'static self) {
        let (done, reported) = mpsc::channel();
        let report = move || {
            let stderr = std::io::stderr().lock();
            let failure = interruption_failure();
            let line = failure.single_line();
            if self.reports_event.load(Ordering::Relaxed) {
                progress::report_end_event(&Err(failure), self.started.elapsed());
            }
            failure::log_error(&line);
            std::mem::forget(stderr);
            // The receiver waits for a bounded time.
            let _ = done.send(());
        };
        if thread().spawn(report).is_ok() {
            let _ = reported.recv_timeout(REPORT_TIMEOUT);
        }
    }
}
