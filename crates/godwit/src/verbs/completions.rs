//! `godwit completions`.

use clap::CommandFactory;

use crate::cli::{Cli, CompletionsArgs};
use crate::failure::Failure;

/// Prints the completion script of a shell on stdout.
pub fn run(args: &CompletionsArgs) -> Result<(), Failure> {
    clap_complete::generate(args.shell, &mut Cli::command(), "godwit", &mut std::io::stdout());
    Ok(())
}
