//! Which options can be configured, and what clap thinks of a value.

use std::any::TypeId;
use std::error::Error;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgAction, Command};

use super::takes_value;

/// Heading of the options that say what one run works on. They are never configured.
pub const THIS_RUN: &str = "This run";

/// Options of a verb that can be configured.
pub(super) fn of(verb: &Command) -> impl Iterator<Item = &Arg> {
    let own = |arg: &&Arg| !matches!(arg.get_long(), None | Some("help" | "version"));
    verb.get_arguments().filter(own).filter(|arg| arg.get_help_heading() != Some(THIS_RUN) && !arg.is_hide_set())
}

/// Whether a verb has options that can be configured.
pub fn is_configurable(root: &Command, verb: &str) -> bool {
    verbs(root).any(|command| command.get_name() == verb)
}

/// Verbs with options that can be configured.
pub(super) fn verbs(root: &Command) -> impl Iterator<Item = &Command> {
    root.get_subcommands().filter(|verb| !verb.is_hide_set() && of(verb).next().is_some())
}

/// The options of that name: of one verb, or of all that have it.
pub(super) fn all<'c>(root: &'c Command, verb: Option<&str>, name: &str) -> Vec<&'c Arg> {
    let verbs = verbs(root).filter(|command| verb.is_none_or(|verb| command.get_name() == verb));
    verbs.flat_map(of).filter(|arg| arg.get_long() == Some(name)).collect()
}

/// Names of the options that cannot stand beside one of a built command, whichever of the two says so.
pub(super) fn rivals<'c>(verb: &'c Command, name: &str) -> Vec<&'c str> {
    let Some(arg) = of(verb).find(|arg| arg.get_long() == Some(name)) else { return Vec::new() };
    let conflicts = |arg| verb.get_arg_conflicts_with(arg).into_iter().filter_map(Arg::get_long);
    let named = conflicts(arg);
    let naming = of(verb).filter(|other| conflicts(other).any(|rival| rival == name)).filter_map(Arg::get_long);
    named.chain(naming).collect()
}

/// Whether values are paths.
pub(super) fn is_path(arg: &Arg) -> bool {
    takes_value(arg) && arg.get_value_parser().type_id() == TypeId::of::<PathBuf>()
}

/// Whether values are programs, which are looked for on PATH where they are a name alone.
pub(super) fn is_program(arg: &Arg) -> bool {
    is_path(arg) && arg.get_value_names().is_some_and(|names| names.iter().any(|name| name == "PROGRAM"))
}

/// Whether an option takes several values.
pub(super) fn takes_several(arg: &Arg) -> bool {
    let many = arg.get_num_args().is_some_and(|count| count.max_values() > 1);
    matches!(arg.get_action(), ArgAction::Append) || arg.get_value_delimiter().is_some() || many
}

/// Lets clap parse the values of one option alone; what it says against them.
pub(super) fn judge(arg: &Arg, values: &[OsString]) -> Result<(), String> {
    let mut alone = Arg::new("value").long("value").allow_hyphen_values(true);
    alone = match takes_value(arg) {
        true => alone.action(ArgAction::Append).value_parser(arg.get_value_parser().clone()),
        false => alone.action(ArgAction::Set).value_parser(clap::value_parser!(bool)),
    };
    let words = values.iter().flat_map(|value| [OsString::from("--value"), value.clone()]);
    let parsed = Command::new("value").no_binary_name(true).arg(alone).try_get_matches_from(words);
    parsed.map(drop).map_err(|error| reason(&error))
}

/// Why a value is wrong, without the name of the option.
fn reason(error: &clap::Error) -> String {
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
        _ => "it needs a value".into(),
    }
}
