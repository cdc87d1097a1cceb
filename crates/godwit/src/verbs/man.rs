//! `godwit man`: manual pages and the reference of all verbs, generated from the definition of the command line.

use std::path::Path;

use clap::{Arg, Command, CommandFactory};
use godwit_pipeline::PipelineError;

use crate::cli::{Cli, ManArgs};
use crate::failure::{Exit, Failure, print};

/// Prints or writes the requested pages.
pub fn run(args: &ManArgs) -> Result<(), Failure> {
    let mut root = Cli::command();
    root.build();
    match &args.out {
        _ if args.markdown => print(&reference_markdown(&root)),
        Some(directory) => write_pages(&root, directory),
        None => print(&manual_page(&root)?),
    }
}

fn manual_page(command: &Command) -> Result<String, Failure> {
    let mut text = Vec::new();
    let manual =
        clap_mangen::Man::new(command.clone()).manual("godwit").source(concat!("godwit ", env!("CARGO_PKG_VERSION")));
    let written = manual.render(&mut text);
    written.map_err(|error| Failure::new(Exit::Bug, format!("the manual page cannot be made: {error}")))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Returns the program and every visible verb, each followed by its own verbs.
fn visible_commands(command: &Command) -> Vec<&Command> {
    let below = command.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help");
    [command].into_iter().chain(below.flat_map(visible_commands)).collect()
}

fn write_pages(root: &Command, directory: &Path) -> Result<(), Failure> {
    let failed = |action: &'static str, path: &Path, source| -> Failure {
        PipelineError::File { action, path: path.to_owned(), source }.into()
    };
    std::fs::create_dir_all(directory).map_err(|source| failed("create", directory, source))?;
    for command in visible_commands(root) {
        let path = directory.join(format!("{}.1", command.get_display_name().unwrap_or(command.get_name())));
        std::fs::write(&path, manual_page(command)?).map_err(|source| failed("write", &path, source))?;
    }
    Ok(())
}

fn reference_markdown(root: &Command) -> String {
    let mut text = String::from(
        "# The command line\n\nMade by `cargo xtask docs` from the program itself; [configuration](../guide/configuration.md) \
         tells how options are set in files and by the environment.\n",
    );
    for command in visible_commands(root).into_iter().skip(1) {
        text += &verb_markdown(command);
    }
    text
}

fn verb_markdown(command: &Command) -> String {
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim().to_owned();
    let mut text = format!("\n## {name}\n\n{about}.\n\n```text\n{usage}\n```\n");
    let rows: String = command.get_arguments().filter(|arg| is_documented(arg)).map(option_row).collect();
    if !rows.is_empty() {
        text += &format!("\n| | | default |\n|---|---|---|\n{rows}");
    }
    if let Some(help) = command.get_after_help() {
        let help = help.to_string();
        text += &format!("\n```text\n{}\n```\n", help.trim_start_matches("Example:").trim());
    }
    text
}

/// Reports whether an argument is documented; help and version are the same in every verb.
fn is_documented(arg: &Arg) -> bool {
    !arg.is_hide_set() && !matches!(arg.get_id().as_str(), "help" | "version")
}

fn option_row(arg: &Arg) -> String {
    let values: Vec<&str> = arg.get_value_names().unwrap_or_default().iter().map(|name| name.as_str()).collect();
    let takes = arg.get_action().takes_values();
    let shown = match arg.get_long() {
        Some(long) if takes => format!("`--{long} {}`", values.join(" ")),
        Some(long) => format!("`--{long}`"),
        None => format!("`{}`", values.join(" ")),
    };
    let shown = shown.replace('|', "\\|");
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let (help, noted) = match help.split_once(" [default: ") {
        Some((help, noted)) => (help.to_owned(), noted.trim_end_matches(']').to_owned()),
        None => (help, String::new()),
    };
    let possible: Vec<String> = match takes {
        true => {
            arg.get_possible_values().iter().filter(|value| !value.is_hide_set()).map(possible_value_text).collect()
        }
        false => Vec::new(),
    };
    let choices = if possible.is_empty() { String::new() } else { format!(": {}", possible.join(", ")) };
    let fixed: Vec<String> = arg
        .get_default_values()
        .iter()
        .filter(|_| takes)
        .map(|value| format!("`{}`", value.to_string_lossy()))
        .collect();
    let default = if fixed.is_empty() { noted } else { fixed.join(", ") };
    let default = if default == "``" { String::new() } else { default };
    format!("| {shown} | {}{} | {default} |\n", help.replace('|', "\\|"), choices.replace('|', "\\|"))
}

fn possible_value_text(value: &clap::builder::PossibleValue) -> String {
    let help = value.get_help().map(|help| format!(" ({})", lowercase_first(&help.to_string()))).unwrap_or_default();
    format!("`{}`{help}", value.get_name())
}

/// Converts the first letter to lower case, unless it begins an abbreviation.
fn lowercase_first(text: &str) -> String {
    let mut letters = text.chars();
    match (letters.next(), letters.next()) {
        (Some(first), Some(second)) if second.is_lowercase() || second == ' ' => {
            first.to_lowercase().chain([second]).chain(letters).collect()
        }
        _ => text.to_owned(),
    }
}
