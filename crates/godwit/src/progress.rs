//! Progress as users see it: a bar on a terminal, plain lines elsewhere, JSON lines for programs.

mod copying;

use std::io::IsTerminal;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use godwit_pipeline::{Event, Observer, SampleState};
use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use serde_json::json;

use crate::cli::{Common, LogLevel, ProgressMode};
use crate::failure::{Failure, log_event, log_message, log_warning};

/// Time between plain lines.
const PLAIN_INTERVAL: Duration = Duration::from_secs(30);
/// Steps of a bar whose input size is known.
const BAR_STEPS: u64 = 10_000;

/// Shows the events of a job on stderr.
pub struct Progress {
    display: Display,
    log: LogLevel,
    started: Instant,
    beside: Mutex<Beside>,
}

/// What goes on at the same time.
#[derive(Default)]
struct Beside {
    /// How far writing is, until it is done.
    written: Option<(f64, String)>,
    /// How far calling is.
    called: Option<String>,
}

enum Display {
    Bar(ProgressBar),
    /// When the last line was printed, or the job started.
    Plain(Mutex<Instant>),
    Json {
        /// Whether how far the job is belongs to it.
        steps: bool,
    },
    None,
}

impl Progress {
    /// Progress as the common options ask for it.
    pub fn new(options: &Common) -> Self {
        let started = Instant::now();
        let shows_steps = !options.quiet && options.progress != ProgressMode::None;
        let display = if options.json {
            Display::Json { steps: shows_steps }
        } else if !shows_steps {
            Display::None
        } else {
            match options.progress {
                ProgressMode::Auto if std::io::stderr().is_terminal() => {
                    // A job that fails leaves no bar behind.
                    Display::Bar(ProgressBar::new(BAR_STEPS).with_finish(ProgressFinish::AndClear))
                }
                _ => Display::Plain(Mutex::new(started)),
            }
        };
        let log = if options.quiet { LogLevel::Error } else { options.log };
        Self { display, log, started, beside: Mutex::default() }
    }

    /// Takes the bar off the terminal.
    pub fn clear(&self) {
        if let Display::Bar(bar) = &self.display {
            bar.finish_and_clear();
        }
    }

    /// Prints a line about the outcome.
    pub fn say(&self, line: &str) {
        self.clear();
        match self.display {
            _ if self.log < LogLevel::Info => {}
            Display::Json { .. } => log_event(&json!({"event": "message", "message": line}).to_string()),
            _ => log_message(line),
        }
    }

    fn stage(&self, name: &'static str) {
        match &self.display {
            Display::Bar(bar) => {
                bar.set_style(style());
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

    fn step(&self, fraction: Option<f64>, text: String) {
        match &self.display {
            Display::Bar(bar) => {
                if let Some(fraction) = fraction {
                    bar.set_position((fraction.clamp(0.0, 1.0) * BAR_STEPS as f64) as u64);
                }
                bar.set_message(text);
            }
            Display::Plain(last) => {
                // A poisoned lock means that another thread is ending the process with its panic.
                let Ok(mut last) = last.lock() else { return };
                let now = Instant::now();
                if is_line_due(*last, now, fraction) {
                    *last = now;
                    let percent = fraction.map(|f| format!("{:.0}% ", f * 100.0)).unwrap_or_default();
                    log_message(&format!("{percent}{text}, {} s", self.started.elapsed().as_secs()));
                }
            }
            Display::Json { .. } | Display::None => {}
        }
    }

    fn beside(&self) -> MutexGuard<'_, Beside> {
        self.beside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rate(&self, count: u64) -> u64 {
        (count as f64 / self.started.elapsed().as_secs_f64().max(0.001)) as u64
    }
}

/// Whether a plain line is printed: the first one an interval after the start, and none when the work is done, because the
/// line about the outcome follows.
fn is_line_due(last: Instant, now: Instant, fraction: Option<f64>) -> bool {
    now.duration_since(last) >= PLAIN_INTERVAL && fraction.is_none_or(|fraction| fraction < 1.0)
}

impl Observer for Progress {
    fn event(&self, event: &Event) {
        if let Display::Json { steps } = self.display {
            let told = match event {
                Event::Warning { .. } => self.log >= LogLevel::Warn,
                _ => steps,
            };
            if told {
                log_event(&serde_json::to_string(event).unwrap_or_else(|error| warning(&error)));
            }
            return;
        }
        match event {
            Event::Stage { name } => self.stage(name),
            Event::Reading { reads, bytes, total_bytes } => {
                let fraction = total_bytes.map(|total| *bytes as f64 / total.max(1) as f64);
                self.step(fraction, format!("{reads} reads read, {} a second", self.rate(*reads)));
            }
            Event::Aligned { reads, fraction, .. } => {
                self.step(*fraction, format!("{reads} reads aligned, {} a second", self.rate(*reads)));
            }
            Event::Resumed { blocks, partitions } => {
                self.say(&format!("going on after {blocks} aligned blocks and {partitions} written partitions"));
            }
            Event::Written { partitions, of } => {
                let fraction = *partitions as f64 / (*of).max(1) as f64;
                let text = format!("{partitions} of {of} partitions written");
                let called = {
                    let mut beside = self.beside();
                    beside.written = (partitions < of).then(|| (fraction, text.clone()));
                    beside.called.clone()
                };
                self.step(Some(fraction), called.map_or(text.clone(), |called| format!("{text}, {called}")));
            }
            Event::CallResumed { regions } => self.say(&format!("going on after {regions} finished regions or slices")),
            Event::Called { regions, of, records } => {
                let fraction = *regions as f64 / (*of).max(1) as f64;
                let text = format!("{regions} of {of} regions called, {records} records");
                let written = {
                    let mut beside = self.beside();
                    beside.called = Some(text.clone());
                    beside.written.clone()
                };
                match written {
                    Some((fraction, written)) => self.step(Some(fraction), format!("{written}, {text}")),
                    None => self.step(Some(fraction), text),
                }
            }
            Event::Step { sample, step } => {
                *self.beside() = Beside::default();
                self.say(&format!("{sample}: {}", step.name()));
            }
            Event::Sample { sample, state: state @ (SampleState::Started | SampleState::Done), node: Some(node) } => {
                self.say(&format!("{sample}: {} on {node}", state.name()));
            }
            // A warning gives the reason of one that failed.
            Event::Sample { .. } | Event::StepDone { .. } => {}
            Event::Recalibrated { step, records, .. } => {
                let done = if *step == 1 { "counted" } else { "changed" };
                self.step(None, format!("qualities of {records} records {done}"));
            }
            Event::Warning { message } if self.log >= LogLevel::Warn => match &self.display {
                Display::Bar(bar) => bar.println(format!("godwit: warning: {message}")),
                _ => log_warning(message),
            },
            Event::Warning { .. } => {}
        }
    }
}

/// An event that could not be written as one.
fn warning(error: &serde_json::Error) -> String {
    json!({"event": "warning", "message": error.to_string()}).to_string()
}

/// The last event of every run with `--json`.
pub fn tell_end(outcome: &Result<(), Failure>, elapsed: Duration) {
    let seconds = (elapsed.as_secs_f64() * 1000.0).round() / 1000.0;
    let event = match outcome {
        Ok(()) => json!({"event": "done", "exit": 0, "seconds": seconds}),
        Err(failure) => {
            json!({"event": "error", "exit": failure.exit as u8, "message": failure.line(), "seconds": seconds})
        }
    };
    log_event(&event.to_string());
}

fn style() -> ProgressStyle {
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
