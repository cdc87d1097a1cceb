//! Parses the command line of the process, together with the options from configuration files and the environment.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches};

use super::{Cli, Verb};
use crate::config::{Config, is_configurable};
use crate::failure::Failure;

/// An error that occurs before the verb can run.
pub enum StartupError {
    /// The command line has no arguments.
    NoArguments,
    /// The command line is invalid, or requests help or the version.
    CommandLine(clap::Error),
    /// A configuration file or an environment variable is invalid.
    Config(Failure),
}

impl From<clap::Error> for StartupError {
    fn from(error: clap::Error) -> Self {
        Self::CommandLine(error)
    }
}

impl From<Failure> for StartupError {
    fn from(failure: Failure) -> Self {
        Self::Config(failure)
    }
}

impl Cli {
    /// Parses the command line of the process, together with the options from configuration files and the environment.
    ///
    /// # Errors
    /// [`StartupError::NoArguments`] for a command line of the program name alone; [`StartupError::CommandLine`] for
    /// invalid arguments, or a request for help; [`StartupError::Config`] for an invalid configuration.
    pub fn from_environment() -> Result<Self, StartupError> {
        if std::env::args_os().len() <= 1 {
            return Err(StartupError::NoArguments);
        }
        // The command line decides which files are read, and required options may be in these files. So first parse it
        // with all options optional. For help, and for errors that do not depend on files, parse it with the actual
        // definition.
        let relaxed = Self::command().mut_subcommands(|verb| verb.mut_args(|arg| arg.required(false)));
        let matches = relaxed.clone().try_get_matches().or_else(|error| match error.kind() {
            // Do not enforce that an option requires another one yet, because the other option may be in a
            // configuration file.
            ErrorKind::MissingRequiredArgument => relaxed.ignore_errors(true).try_get_matches(),
            _ => Self::command().try_get_matches(),
        })?;
        let (verb, verb_matches) = matches.subcommand().expect("clap asks for a verb where none is given");
        let (matches, configured) = if is_configurable(&Self::command(), verb) {
            let given = verb_matches.get_one::<PathBuf>("config").map(PathBuf::as_path);
            let config = Config::load(&Self::command(), given, verb_matches.get_flag("no_config"))?;
            let configured = config.arguments(&Self::command(), verb, verb_matches)?;
            (
                Self::command().try_get_matches_from(with_arguments(std::env::args_os().collect(), &configured))?,
                configured,
            )
        } else {
            (Self::command().try_get_matches()?, Vec::new())
        };
        let mut cli = Self::from_arg_matches(&matches)?;
        if let (Verb::Align(args), Some((_, align))) = (&mut cli.verb, matches.subcommand()) {
            let lanes = align.get_occurrences::<PathBuf>("reads").into_iter().flatten();
            args.lanes = lanes.map(|files| files.cloned().collect()).collect();
        }
        if let Verb::Bench(verb) = &cli.verb {
            cli.emits_events = verb.emits_events();
        } else if let Some(common) = cli.common_mut() {
            let emits_events = common.json;
            common.configured_flags = configured.iter().map(|word| word.to_string_lossy().into_owned()).collect();
            cli.emits_events = emits_events;
        }
        Ok(cli)
    }
}

/// Inserts options into a command line, after its own options and before `--`.
pub fn with_arguments(mut line: Vec<OsString>, words: &[OsString]) -> Vec<OsString> {
    let end = line.iter().position(|word| word == "--").unwrap_or(line.len());
    line.splice(end..end, words.iter().cloned());
    line
}
