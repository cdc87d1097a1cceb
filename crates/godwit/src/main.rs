//! The `godwit` program: one binary, one file per verb.

mod cli;
mod config;
mod dashboard;
mod demo;
mod doctor;
mod failure;
mod interruption;
mod pool_file;
mod progress;
mod table;
mod verbs;
mod wrap;

use std::cell::Cell;
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::time::Instant;

use crate::cli::{Cli, Stop};
use crate::failure::{Exit, Failure};

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|panic| {
        // What a decoder of foreign bytes gives up on is told as an error, by whoever runs it.
        if !godwit_model::panics::is_caught() {
            failure::log_plain(&panic.to_string());
        }
    }));
    let started = Instant::now();
    // Until options are known, the bare word must do.
    let events = Cell::new(std::env::args_os().any(|word| word == "--json"));
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| {
        interruption::install()?;
        match Cli::from_environment() {
            Ok(cli) => {
                events.set(cli.tells_events());
                interruption::report_as_event(events.get());
                verbs::run(cli)
            }
            Err(Stop::CommandLine(error)) => {
                let outcome = failure::of_command_line(&error, events.get());
                events.set(events.get() && outcome.is_err());
                outcome
            }
            Err(Stop::Config(failure)) => Err(failure),
        }
    }));
    let outcome = outcome.unwrap_or_else(|_| {
        Err(Failure::new(Exit::Bug, "a bug in godwit, see above; please report it with the command line".into()))
    });
    let outcome = interruption::settled(outcome);
    if events.get() {
        progress::tell_end(&outcome, started.elapsed());
    }
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // The last line of a failure is always this one, so line breaks within the message are folded.
            failure::log_error(&failure.line());
            ExitCode::from(failure.exit as u8)
        }
    }
}
