//! Stops the process after SIGINT, SIGTERM or the loss of the terminal (SIGHUP), within two seconds and with exit code
//! 130.
//!
//! The first signal sets a flag. A verb that checks the flag returns by itself, runs its destructors and reports the
//! interruption. Some verbs do not check the flag, or their threads are blocked, for example by a full pipe or a DNS
//! server that does not respond. After a grace period, a thread of this module stops such a process: it terminates all
//! descendants, removes the temporary files, reports the interruption and exits. A second signal ends the grace period.
//!
//! Existing outputs remain usable, because outputs are renamed when they are complete. Job directories and journals are
//! written such that the process may be killed at any moment.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::{Duration, Instant};

use godwit_cli::failure::Failure;
use godwit_model::ErrorKind;
use godwit_process::{
    remove_and_block_temporary_paths, remove_temporary_paths, resume_instruction, terminate_descendants,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

use crate::progress;

/// Time after the first signal for a verb that checks the flag to return by itself.
const GRACE_PERIOD: Duration = Duration::from_millis(1000);
/// Time for descendants to exit after SIGTERM, before they are killed.
const DESCENDANTS_TIMEOUT: Duration = Duration::from_millis(250);
/// Time for the main thread to report its own outcome after its child processes have exited.
const OUTCOME_TIMEOUT: Duration = Duration::from_millis(250);
/// Maximum time for printing the report on stderr, which blocks if stderr is a full pipe.
const REPORT_TIMEOUT: Duration = Duration::from_millis(100);
/// Stack size of the threads of this module, in bytes; small, because processes that run SQL statements have little
/// memory.
const STACK_BYTES: usize = 128 << 10;

static INTERRUPTION: OnceLock<Interruption> = OnceLock::new();

struct Interruption {
    started: Instant,
    /// Flag that the handler of the first signal sets.
    is_requested: Arc<AtomicBool>,
    /// Grace period after the next signal, in milliseconds; 0 if the verb does not check the flag, and after the first
    /// signal.
    grace_ms: AtomicU64,
    /// True once the main thread or a thread of this module has started to report the outcome.
    is_reported: AtomicBool,
    /// True once a thread of this module has started to stop the process.
    is_ending: AtomicBool,
    /// True if the interruption is also reported as a JSON event.
    reports_event: AtomicBool,
    handle: Handle,
}

/// Installs the handlers of SIGINT and SIGTERM.
///
/// # Errors
/// [`ErrorKind::Machine`] if the handlers or the thread cannot be set up.
pub fn install() -> Result<(), Failure> {
    let failed = |error| Failure::new(ErrorKind::Machine, format!("cannot handle signals: {error}"));
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

/// Handles SIGHUP, which the kernel sends when the terminal is lost, like SIGINT and SIGTERM. A process that was
/// started with SIGHUP ignored, as by nohup(1), continues to ignore it.
///
/// # Errors
/// [`ErrorKind::Machine`] if the handler cannot be set up.
pub fn end_on_hang_up() -> Result<(), Failure> {
    let Some(interruption) = INTERRUPTION.get().filter(|_| !ignores_hang_up()) else { return Ok(()) };
    let registered = signal_hook::flag::register(SIGHUP, interruption.is_requested.clone());
    let registered = registered.and_then(|_| interruption.handle.add_signal(SIGHUP));
    registered.map_err(|error| Failure::new(ErrorKind::Machine, format!("cannot handle signals: {error}")))
}

fn ignores_hang_up() -> bool {
    // SAFETY: all-zero is a valid value of this plain C struct, and sigaction only writes to this struct.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(SIGHUP, std::ptr::null(), &mut action) == 0 && action.sa_sigaction == libc::SIG_IGN
    }
}

/// Returns the flag that the first signal sets. The verb must check the flag often, and return when it is set.
pub fn flag() -> Arc<AtomicBool> {
    flag_with_grace(Duration::ZERO)
}

/// Returns the flag that the first signal sets, for a verb that needs a grace period which is longer by `longer`.
pub fn flag_with_grace(longer: Duration) -> Arc<AtomicBool> {
    let Some(interruption) = INTERRUPTION.get() else { return Arc::default() };
    let grace_ms = u64::try_from((GRACE_PERIOD + longer).as_millis()).unwrap_or(u64::MAX);
    interruption.grace_ms.store(grace_ms, Ordering::Relaxed);
    interruption.is_requested.clone()
}

/// Ignores the signals that this module handles.
pub fn ignore_signals() {
    if let Some(interruption) = INTERRUPTION.get() {
        interruption.handle.close();
    }
}

/// Sets whether an interruption is also reported as a JSON event on stderr.
pub fn report_as_event(events: bool) {
    if let Some(interruption) = INTERRUPTION.get() {
        interruption.reports_event.store(events, Ordering::Relaxed);
    }
}

/// Returns the outcome that the main thread must report. A failure after a signal is replaced by the interruption,
/// because the signal is its likely cause: for example, Ctrl-C also stops child processes. If a thread of this module
/// is already reporting the interruption, this function does not return.
pub fn final_outcome(outcome: Result<(), Failure>) -> Result<(), Failure> {
    let Some(interruption) = INTERRUPTION.get() else { return outcome };
    if interruption.is_reported.swap(true, Ordering::SeqCst) {
        loop {
            std::thread::park();
        }
    }
    // Threads that still run have not removed their temporary files.
    remove_temporary_paths();
    match outcome {
        Err(failure)
            if interruption.is_requested.load(Ordering::Relaxed)
                && !matches!(failure.kind, ErrorKind::Interrupted | ErrorKind::Bug) =>
        {
            Err(interruption_failure())
        }
        outcome => outcome,
    }
}

/// Returns the failure that reports an interruption, with the instruction how to resume.
fn interruption_failure() -> Failure {
    let how = resume_instruction().unwrap_or("no temporary files remain");
    Failure::new(ErrorKind::Interrupted, format!("interrupted; {how}"))
}

fn thread() -> std::thread::Builder {
    std::thread::Builder::new().name("godwit-signals".to_owned()).stack_size(STACK_BYTES)
}

impl Interruption {
    /// Stops the process after the grace period of the verb; after a second signal, stops it immediately.
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

    /// Stops the process. Returns only if another thread is already stopping it.
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
        signal_hook::low_level::exit(ErrorKind::Interrupted.exit_code());
    }

    /// Reports the interruption on stderr. A separate thread does this, because a blocked thread may hold the lock of
    /// stderr forever. The lock is not released afterwards, so that the report is the last line.
    fn report(&'static self) {
        let (done, reported) = mpsc::channel();
        let report = move || {
            let stderr = std::io::stderr().lock();
            let failure = interruption_failure();
            let line = failure.single_line();
            if self.reports_event.load(Ordering::Relaxed) {
                progress::report_end_event(&Err(failure), self.started.elapsed());
            }
            godwit_cli::log::log_error(&line);
            std::mem::forget(stderr);
            // Ignore the error: the receiver may have stopped waiting after the timeout.
            let _ = done.send(());
        };
        if thread().spawn(report).is_ok() {
            let _ = reported.recv_timeout(REPORT_TIMEOUT);
        }
    }
}
