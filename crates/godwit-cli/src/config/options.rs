//! Finds the options that can be configured in clap's definition of the command line, and validates values with clap.

use std::any::TypeId;
use std::error::Error;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgAction, Command};

use super::takes_value;

/// Heading, in the help, of the options that are specific to one run. Files and the environment cannot set these
/// options.
pub(crate) const THIS_RUN_HEADING: &str = "This run";

/// Returns those options of a verb that files and the environment can set.
pub(super) fn configurable_options(verb: &Command) -> impl Iterator<Item = &Arg> {
    let own = |arg: &&Arg| !matches!(arg.get_long(), None | Some("help" | "version"));
    verb.get_arguments()
        .filter(own)
        .filter(|arg| arg.get_help_heading() != Some(THIS_RUN_HEADING) && !arg.is_hide_set())
}

/// Returns whether a verb has options that files and the environment can set.
pub(crate) fn is_configurable(root: &Command, verb: &str) -> bool {
    configurable_verbs(root).any(|command| command.get_name() == verb)
}

/// Returns the verbs that have options which files and the environment can set.
pub(super) fn configurable_verbs(root: &Command) -> impl Iterator<Item = &Command> {
    root.get_subcommands().filter(|verb| !verb.is_hide_set() && configurable_options(verb).next().is_some())
}

/// Returns the configurable options with this long name: that of `verb`, or those of all verbs if `verb` is `None`.
pub(super) fn options_named<'c>(root: &'c Command, verb: Option<&str>, name: &str) -> Vec<&'c Arg> {
    let verbs = configurable_verbs(root).filter(|command| verb.is_none_or(|verb| command.get_name() == verb));
    verbs.flat_map(configurable_options).filter(|arg| arg.get_long() == Some(name)).collect()
}

/// Returns the options that conflict with the option `name` of a built command. Either of the two options may declare
/// the conflict.
pub(super) fn conflicting_options<'c>(verb: &'c Command, name: &str) -> Vec<&'c str> {
    let Some(arg) = configurable_options(verb).find(|arg| arg.get_long() == Some(name)) else { return Vec::new() };
    let conflicts = |arg| verb.get_arg_conflicts_with(arg).into_iter().filter_map(Arg::get_long);
    let named = conflicts(arg);
    let naming = configurable_options(verb)
        .filter(|other| conflicts(other).any(|rival| rival == name))
        .filter_map(Arg::get_long);
    named.chain(naming).collect()
}

/// Returns whether the values of an option are paths.
pub(super) fn is_path(arg: &Arg) -> bool {
    takes_value(arg) && arg.get_value_parser().type_id() == TypeId::of::<PathBuf>()
}

/// Returns whether the values of an option are programs; a program without a directory is looked for on PATH.
pub(super) fn is_program(arg: &Arg) -> bool {
    is_path(arg) && arg.get_value_names().is_some_and(|names| names.iter().any(|name| name == "PROGRAM"))
}

/// Returns whether an option is a switch that accepts further values after `=`.
pub(super) fn is_switch(arg: &Arg) -> bool {
    arg.is_require_equals_set() && arg.get_num_args().is_some_and(|count| count.min_values() == 0)
}

/// Returns whether an option accepts several values.
pub(super) fn takes_several(arg: &Arg) -> bool {
    let many = arg.get_num_args().is_some_and(|count| count.max_values() > 1);
    matches!(arg.get_action(), ArgAction::Append) || arg.get_value_delimiter().is_some() || many
}

/// Parses the values of one option with clap. Returns the reason, in clap's words, if a value is invalid.
pub(super) fn validate_values(arg: &Arg, values: &[OsString]) -> Result<(), String> {
    let mut alone = Arg::new("value").long("value").allow_hyphen_values(true);
    alone = match takes_value(arg) {
        true => alone.action(ArgAction::Append).value_parser(arg.get_value_parser().clone()),
        false => alone.action(ArgAction::Set).value_parser(clap::value_parser!(bool)),
    };
    let words = values.iter().flat_map(|value| [OsString::from("--value"), value.clone()]);
    let parsed = Command::new("value").no_binary_name(true).arg(alone).try_get_matches_from(words);
    parsed.map(drop).map_err(|error| error_reason(&error))
}

/// Returns the reason in a clap error why a value is invalid, without the name of the option.
fn error_reason(error: &clap::Error) -> String {
    if let Some(source) = error.source() {
        return source.to_string();
    }
    match error.get(ContextKind::ValidValue) {
        Some(ContextValue::Strings(valid)) => {
            let near = match error.get(ContextKind::SuggestedValue) {
                Some(ContextValue::String(near)) => format!("; did you mean {near}?"),
                _ => String::new(),
            };
            format!("it is one of {}{near}", valid.join(", "))
        }
        _ => "the value is missing".into(),
    }
}
