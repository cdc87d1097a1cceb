//! `godwit completions`: generates completion scripts for shells.

use crate::cli::{Cli, CompletionsArgs};
use crate::failure::{Failure, print};
use clap::CommandFactory;

/// Prints the completion script of a shell on stdout.
pub fn run(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "godwit", &mut script);
    print(&String::from_utf8_lossy(&script))
}
