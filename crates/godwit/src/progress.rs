//! Display of progress on stderr: a bar on a terminal, otherwise plain lines, or JSON lines for other programs.

mod copy_progress;

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use godwit_cli::cli::{CommonArgs, LogLevel, ProgressMode};
use godwit_cli::failure::Failure;
use godwit_cli::log::{log_event, log_message, log_warning};
use godwit_pipeline::observer::{Event, Observer, SampleState};
use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use parking_lot::Mutex;
use serde_json::json;

use crate::plural::pluralize;

/// Minimum time between two plain lines of progress.
const PLAIN_INTERVAL: Duration = Duration::from_secs(30);
/// Number of steps of a full progress bar.
const BAR_STEPS: u64 = 10_000;

/// The display of the events of a job on stderr.
pub struct Progress {
    display: ProgressDisplay,
    log: LogLevel,
    started: Instant,
    concurrent: Mutex<ConcurrentProgress>,
}

/// Progress of stages that run concurrently.
#[derive(Default)]
struct ConcurrentProgress {
    /// Fraction and text for the writing of outputs; `None` before it starts and after it has finished.
    writing_progress: Option<(f64, String)>,
    /// Text for variant calling, if it runs.
    calling_progress: Option<String>,
}

enum ProgressDisplay {
    Bar(ProgressBar),
    /// Plain lines; contains the time of the last line, or of the start of the job.
    Plain(Mutex<Instant>),
    Json {
        /// True if all events are printed; false to print only warnings.
        shows_progress: bool,
    },
    None,
}

impl Progress {
    /// Creates the display that the common options select.
    pub fn new(options: &CommonArgs) -> Self {
        let started = Instant::now();
        let shows_steps = !options.quiet && options.progress != ProgressMode::None;
        let display = if options.json {
            ProgressDisplay::Json { shows_progress: shows_steps }
        } else if !shows_steps {
            ProgressDisplay::None
        } else {
            match options.progress {
                ProgressMode::Auto if std::io::stderr().is_terminal() => {
                    // Remove the bar from the terminal when it is dropped, also if the job fails.
                    ProgressDisplay::Bar(ProgressBar::new(BAR_STEPS).with_finish(ProgressFinish::AndClear))
                }
                _ => ProgressDisplay::Plain(Mutex::new(started)),
            }
        };
        let log = if options.quiet { LogLevel::Error } else { options.log };
        Self { display, log, started, concurrent: Mutex::default() }
    }

    /// Removes the progress bar from the terminal.
    pub fn clear(&self) {
        if let ProgressDisplay::Bar(bar) = &self.display {
            bar.finish_and_clear();
        }
    }

    /// Prints a line for the user, such as the outcome of the job.
    pub fn report(&self, line: &str) {
        self.clear();
        match self.display {
            _ if self.log < LogLevel::Info => {}
            ProgressDisplay::Json { .. } => log_event(&json!({"event": "message", "message": line}).to_string()),
            _ => log_message(line),
        }
    }

    fn show_stage(&self, name: &'static str) {
        match &self.display {
            ProgressDisplay::Bar(bar) => {
                bar.set_style(bar_style());
                bar.set_position(0);
                bar.set_message(name);
                if self.log >= LogLevel::Debug {
                    bar.println(format!("godwit: {name}"));
                }
                bar.reset_eta();
                bar.enable_steady_tick(Duration::from_millis(200));
            }
            _ if self.log >= LogLevel::Debug => log_message(name),
            _ => {}
        }
    }

    fn show_progress(&self, fraction: Option<f64>, text: String) {
        match &self.display {
            ProgressDisplay::Bar(bar) => {
                if let Some(fraction) = fraction {
                    bar.set_position((fraction.clamp(0.0, 1.0) * BAR_STEPS as f64) as u64);
                }
                bar.set_message(text);
            }
            ProgressDisplay::Plain(last) => {
                let mut last = last.lock();
                let now = Instant::now();
                if is_line_due(*last, now, fraction) {
                    *last = now;
                    let percent = fraction.map(|f| format!("{:.0}% ", f * 100.0)).unwrap_or_default();
                    log_message(&format!("{percent}{text}, {} s", self.started.elapsed().as_secs()));
                }
            }
            ProgressDisplay::Json { .. } | ProgressDisplay::None => {}
        }
    }

    fn per_second(&self, count: u64) -> u64 {
        (count as f64 / self.started.elapsed().as_secs_f64().max(0.001)) as u64
    }
}

/// Returns whether a plain line of progress must be printed now. The first line follows an interval after the start.
/// When the work is done, no line is printed, because the line about the outcome follows.
fn is_line_due(last: Instant, now: Instant, fraction: Option<f64>) -> bool {
    now.duration_since(last) >= PLAIN_INTERVAL && fraction.is_none_or(|fraction| fraction < 1.0)
}

impl Observer for Progress {
    fn event(&self, event: &Event) {
        if let ProgressDisplay::Json { shows_progress } = self.display {
            let is_shown = match event {
                Event::Warning { .. } => self.log >= LogLevel::Warn,
                _ => shows_progress,
            };
            if is_shown {
                log_event(&serde_json::to_string(event).unwrap_or_else(|error| warning_event(&error)));
            }
            return;
        }
        match event {
            Event::Stage { name } => self.show_stage(name),
            Event::Reading { reads, bytes, total_bytes } => {
                let fraction = total_bytes.map(|total| *bytes as f64 / total.max(1) as f64);
                self.show_progress(fraction, format!("{reads} reads read, {} per second", self.per_second(*reads)));
            }
            Event::Aligned { reads, fraction, .. } => {
                self.show_progress(*fraction, format!("{reads} reads aligned, {} per second", self.per_second(*reads)));
            }
            Event::Resumed { blocks, partitions } => {
                self.report(&format!("resuming after {blocks} aligned blocks and {partitions} written partitions"));
            }
            Event::Written { partitions, total } => {
                let fraction = *partitions as f64 / (*total).max(1) as f64;
                let text = format!("{partitions} of {total} partitions written");
                let called = {
                    let mut beside = self.concurrent.lock();
                    beside.writing_progress = (partitions < total).then(|| (fraction, text.clone()));
                    beside.calling_progress.clone()
                };
                self.show_progress(Some(fraction), called.map_or(text.clone(), |called| format!("{text}, {called}")));
            }
            Event::CallResumed { regions } => {
                self.report(&format!("resuming after {} or slices", pluralize(*regions as u64, "finished region")))
            }
            Event::Called { regions, total: of, records } => {
                let fraction = *regions as f64 / (*of).max(1) as f64;
                let text = format!("{regions} of {of} regions called, {}", pluralize(*records, "record"));
                let written = {
                    let mut beside = self.concurrent.lock();
                    beside.calling_progress = Some(text.clone());
                    beside.writing_progress.clone()
                };
                match written {
                    Some((fraction, written)) => self.show_progress(Some(fraction), format!("{written}, {text}")),
                    None => self.show_progress(Some(fraction), text),
                }
            }
            Event::Step { sample, step } => {
                *self.concurrent.lock() = ConcurrentProgress::default();
                self.report(&format!("{sample}: {}", step.name()));
            }
            Event::Sample { sample, state: state @ (SampleState::Started | SampleState::Done), host: Some(node) } => {
                self.report(&format!("{sample}: {} on {node}", state.name()));
            }
            // Show nothing for this event, because a warning reports the failed sample.
            Event::Sample { .. } | Event::StepDone { .. } => {}
            Event::Recalibrated { pass, records, .. } => {
                let done = if *pass == 1 { "counted" } else { "changed" };
                self.show_progress(None, format!("qualities of {records} records {done}"));
            }
            Event::Warning { message } if self.log >= LogLevel::Warn => match &self.display {
                ProgressDisplay::Bar(bar) => bar.println(format!("godwit: warning: {message}")),
                _ => log_warning(message),
            },
            Event::Warning { .. } => {}
        }
    }
}

/// Returns a warning event with the error, for an event that cannot be serialized.
fn warning_event(error: &serde_json::Error) -> String {
    json!({"event": "warning", "message": error.to_string()}).to_string()
}

/// Prints the event that is the last one of every run with `--json`: the outcome and the duration.
pub fn report_end_event(outcome: &Result<(), Failure>, elapsed: Duration) {
    let seconds = (elapsed.as_secs_f64() * 1000.0).round() / 1000.0;
    let event = match outcome {
        Ok(()) => json!({"event": "done", "exit": 0, "seconds": seconds}),
        Err(failure) => {
            json!({"event": "error", "exit": failure.kind.exit_code() as u8, "message": failure.single_line(), "seconds": seconds})
        }
    };
    log_event(&event.to_string());
}

fn bar_style() -> ProgressStyle {
    ProgressStyle::with_template("{bar:30} {percent:>3}% {msg} [{elapsed}, ETA {eta}]")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_line_comes_an_interval_after_the_last_one_and_never_when_the_work_is_done() {
        let start = Instant::now();
        let due = |seconds, fraction| is_line_due(start, start + Duration::from_secs(seconds), fraction);
        assert!(!due(0, None) && !due(29, Some(0.8)), "a run shorter than the interval prints none");
        assert!(due(30, None) && due(31, Some(0.8)));
        assert!(!due(31, Some(1.0)));
    }
}
