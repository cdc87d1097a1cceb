//! The `godwit` program. Each verb, such as `godwit align`, has a file of its own in `verbs`.

mod dashboard;
mod demo;
mod doctor;
mod interruption;
mod plural;
mod pool_file;
mod progress;
mod text_table;
mod text_wrap;
mod verbs;

use std::cell::Cell;
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::time::Instant;

use godwit_cli::cli::{Cli, StartupError};
use godwit_cli::failure::Failure;
use godwit_cli::log;
use godwit_model::ErrorKind;

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|panic| {
        // Do not print panics of decoders that are caught: their callers report them as errors.
        if !godwit_model::panics::is_catching_panics() {
            log::log_plain(&panic.to_string());
        }
    }));
    let started = Instant::now();
    // Errors before the options are parsed are reported as events if any argument is `--json`.
    let events = Cell::new(std::env::args_os().any(|word| word == "--json"));
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| {
        interruption::install()?;
        match Cli::from_environment() {
            Ok(cli) => {
                events.set(cli.emits_events);
                interruption::report_as_event(events.get());
                verbs::run(cli)
            }
            Err(StartupError::NoArguments) => Err(log::report_missing_verb()),
            Err(StartupError::CommandLine(error)) => {
                let outcome = log::command_line_outcome(&error, events.get());
                events.set(events.get() && outcome.is_err());
                outcome
            }
            Err(StartupError::Config(failure)) => Err(failure),
        }
    }));
    let outcome = outcome.unwrap_or_else(|_| {
        Err(Failure::new(ErrorKind::Bug, "a bug in godwit, see above; please report it with the command line".into()))
    });
    let outcome = interruption::final_outcome(outcome);
    if events.get() {
        progress::report_end_event(&outcome, started.elapsed());
    }
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // The error message is always the last line on stderr, so it must be a single line.
            log::log_error(&failure.single_line());
            ExitCode::from(failure.kind.exit_code() as u8)
        }
    }
}
