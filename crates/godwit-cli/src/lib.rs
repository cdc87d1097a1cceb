//! The command line of `godwit`: its verbs and options, configuration files, failures with their exit codes, and the lines
//! on stderr.

#[allow(missing_docs, reason = "clap prints doc comments as help, so types and options without help have none")]
pub mod cli;
mod common_options;
pub mod completions;
pub mod config;
mod exit_codes;
pub mod failure;
mod key_files;
pub mod log;
pub mod man;

/// Traits of the option types, which callers need for the names of values.
pub use clap::{CommandFactory, ValueEnum};
pub use common_options::command_line;
