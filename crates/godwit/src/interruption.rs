//! Stops by SIGINT, SIGTERM and a lost terminal: every verb ends within two seconds, with exit code 130.
//!
//! The first signal sets a flag. A verb that reads the flag ends by itself, with its own message and its destructors. A verb that does
//! not read it, or whose threads are blocked (a FIFO without a writer, a name server that does not answer, a full pipe, a lock), is
//! ended by the thread of this module: it ends all descendants, removes the temporary files and directories of the process, reports
//! the interruption and exits. A second signal does that at once. Outputs are renamed when they are whole, and run directories and
//! journals are written for a process that may be killed at any moment, so both stay usable.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::{Duration, Instant};

use godwit_process::{close_temporary_paths, end_descendants, remove_temporary_paths, resumable_work};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

use crate::failure::{self, Exit, Failure};
use crate::progress;

/// Time that a verb that reads the flag has to end by itself.
const GRACE: Duration = Duration::from_millis(1000);
/// Time that descendants have to end after SIGTERM.
const DESCENDANTS_TIMEOUT: Duration = Duration::from_millis(250);
/// Time that the verb has to notice that its children have ended, or to report its own outcome.
const OUTCOME_TIMEOUT: Duration = Duration::from_millis(250);
/// Limit of the time for the report, because stderr may not be read.
const REPORT_TIMEOUT: Duration = Duration::from_millis(100);
/// Stack of the threads of this module: statements run in processes whose memory is limited.
const STACK_BYTES: usize = 128 << 10;

static INTERRUPTION: OnceLock<Interruption> = OnceLock::new();

struct Interruption {
    started: Instant,
    /// Set by the first signal, within the signal handler.
    requested: Arc<AtomicBool>,
    /// Time that the verb has to end by itself, in milliseconds. 0 until it reads the flag.
    grace_ms: AtomicU64,
    /// Whether the outcome is being reported, by the main thread or by the thread that ends the process.
    reported: AtomicBool,
    /// Whether a thread ends the process.
    ending: AtomicBool,
    /// Whether the outcome is also reported as an event.
    events: AtomicBool,
    handle: Handle,
}

/// Handles SIGINT and SIGTERM from here on.
///
/// # Errors
/// [`Exit::Machine`] where the handlers or the thread cannot be set up.
pub fn install() -> Result<(), Failure> {
    let failed = |error| Failure::new(Exit::Machine, format!("cannot handle signals: {error}"));
    let requested = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, requested.clone()).map_err(failed)?;
    }
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
    let interruption = Interruption {
        started: Instant::now(),
        requested,
        grace_ms: AtomicU64::new(0),
        reported: AtomicBool::new(false),
        ending: AtomicBool::new(false),
        events: AtomicBool::new(false),
        handle: signals.handle(),
    };
    let interruption = INTERRUPTION.get_or_init(|| interruption);
    let watch = move || signals.forever().for_each(|_| interruption.end_after_grace());
    thread().spawn(watch).map(drop).map_err(failed)
}

/// Handles SIGHUP, which a lost terminal sends, as the other signals. A process that was started to ignore it (nohup(1)) does so.
///
/// # Errors
/// [`Exit::Machine`] where the handler cannot be set up.
pub fn end_with_the_terminal() -> Result<(), Failure> {
    let Some(interruption) = INTERRUPTION.get().filter(|_| !ignores_hang_up()) else { return Ok(()) };
    let registered = signal_hook::flag::register(SIGHUP, interruption.requested.clone());
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

/// The flag that the first signal sets. The caller reads it often and ends the verb once it is set.
pub fn flag() -> Arc<AtomicBool> {
    flag_with_grace(Duration::ZERO)
}

/// The same for a verb that may take `longer` to end by itself.
pub fn flag_with_grace(longer: Duration) -> Arc<AtomicBool> {
    let Some(interruption) = INTERRUPTION.get() else { return Arc::default() };
    let grace_ms = u64::try_from((GRACE + longer).as_millis()).unwrap_or(u64::MAX);
    interruption.grace_ms.store(grace_ms, Ordering::Relaxed);
    interruption.requested.clone()
}

/// Whether the outcome is also reported as an event.
pub fn report_as_event(events: bool) {
    if let Some(interruption) = INTERRUPTION.get() {
        interruption.events.store(events, Ordering::Relaxed);
    }
}

/// The outcome that the main thread is to report. A failure after a signal is the interruption: a child that the same Ctrl-C ended, for
/// example. Where another thread reports and ends the process already, this function does not return.
pub fn settled(outcome: Result<(), Failure>) -> Result<(), Failure> {
    let Some(interruption) = INTERRUPTION.get() else { return outcome };
    if interruption.reported.swap(true, Ordering::SeqCst) {
        loop {
            std::thread::park();
        }
    }
    // Those of threads that were left behind.
    remove_temporary_paths();
    match outcome {
        Err(failure)
            if interruption.requested.load(Ordering::Relaxed)
                && !matches!(failure.exit, Exit::Interrupted | Exit::Bug) =>
        {
            Err(interrupted())
        }
        outcome => outcome,
    }
}

/// The failure of a verb that did not end by itself.
fn interrupted() -> Failure {
    let how = resumable_work().unwrap_or("nothing was left behind");
    Failure::new(Exit::Interrupted, format!("interrupted; {how}"))
}

fn thread() -> std::thread::Builder {
    std::thread::Builder::new().name("godwit-signals".to_owned()).stack_size(STACK_BYTES)
}

impl Interruption {
    /// Ends the process after the time that the verb may take; at once on a second signal.
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

    /// Ends the process; returns where another thread does so already.
    fn end(&'static self) {
        if self.ending.swap(true, Ordering::SeqCst) {
            return;
        }
        if end_descendants(DESCENDANTS_TIMEOUT) {
            std::thread::sleep(OUTCOME_TIMEOUT);
        }
        if self.reported.swap(true, Ordering::SeqCst) {
            std::thread::sleep(OUTCOME_TIMEOUT);
            close_temporary_paths();
        } else {
            close_temporary_paths();
            self.report();
        }
        signal_hook::low_level::exit(Exit::Interrupted as i32);
    }

    /// Reports the interruption from a thread of its own: another one may be blocked while it holds stderr. No thread writes to
    /// stderr afterwards, so that the report is the last line.
    fn report(&'static self) {
        let (done, reported) = mpsc::channel();
        let report = move || {
            let stderr = std::io::stderr().lock();
            let failure = interrupted();
            let line = failure.line();
            if self.events.load(Ordering::Relaxed) {
                progress::tell_end(&Err(failure), self.started.elapsed());
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
