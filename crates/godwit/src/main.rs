//! The `godwit` program: one binary, one file per verb.

mod cli;
mod demo;
mod failure;
mod progress;
mod verbs;

use std::process::ExitCode;

use crate::cli::Cli;
use crate::failure::{Exit, Failure};

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|panic| {
        failure::tell(&panic.to_string());
    }));
    let outcome = std::panic::catch_unwind(|| match Cli::from_environment() {
        Ok(cli) => verbs::run(cli),
        Err(error) => failure::of_command_line(&error),
    });
    let outcome = outcome.unwrap_or_else(|_| {
        Err(Failure::new(Exit::Bug, "a bug in godwit, see above; please report it with the command line".into()))
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // The last line of a failure is always this one, so line breaks within the message are folded.
            failure::tell(&format!("godwit: error: {}", failure.message.trim().replace('\n', " | ")));
            ExitCode::from(failure.exit as u8)
        }
    }
}
