//! Formats the output of `godwit config show`: the effective value of every option with its origin.

use clap::{Arg, Command};
use serde_json::{Value, json};

use super::{Config, ConfigFileKind, Setting, SettingOrigin, environment, options, takes_value};
use crate::failure::Failure;

/// Maximum width of a setting, in characters, that still shifts the column of origins; longer settings are not aligned.
const SETTING_WIDTH: usize = 48;

/// An option of a verb with its effective setting.
struct OptionRow<'r> {
    verb: &'r str,
    arg: &'r Arg,
    setting: Option<&'r Setting>,
}

impl OptionRow<'_> {
    fn name(&self) -> &str {
        self.arg.get_long().unwrap_or_default()
    }

    /// Returns the effective values of the option; `None` if neither a setting nor a fixed default exists.
    fn value_texts(&self) -> Option<Vec<String>> {
        if let Some(setting) = self.setting {
            return Some(setting.values.iter().map(|value| value.to_string_lossy().into_owned()).collect());
        }
        let defaults = self.arg.get_default_values();
        match takes_value(self.arg) {
            false => Some(vec!["false".into()]),
            true if defaults.is_empty() => None,
            true => Some(defaults.iter().map(|value| value.to_string_lossy().into_owned()).collect()),
        }
    }

    fn json_value(&self) -> Value {
        let typed = |word: &String| match word.parse::<u64>() {
            _ if !takes_value(self.arg) => Value::Bool(word == "true"),
            Ok(number) => number.into(),
            Err(_) => word.as_str().into(),
        };
        match self.value_texts() {
            None => Value::Null,
            Some(words) if options::takes_several(self.arg) => words.iter().map(typed).collect(),
            Some(words) => words.first().map_or(Value::Null, typed),
        }
    }

    /// Returns the description of the default in the help of an option without a fixed default.
    fn default_note(&self) -> String {
        let help = self.arg.get_help().map(ToString::to_string).unwrap_or_default();
        help.split_once("[default: ").map(|(_, note)| note.trim_end_matches(']').to_owned()).unwrap_or_default()
    }

    fn origin(&self) -> Option<&SettingOrigin> {
        self.setting.map(|setting| &setting.origin)
    }
}

impl Config {
    fn rows<'r>(&'r self, root: &'r Command) -> Result<Vec<OptionRow<'r>>, Failure> {
        let mut rows = Vec::new();
        for verb in options::configurable_verbs(root) {
            let effective = self.effective_settings(verb, &[])?;
            rows.extend(options::configurable_options(verb).map(|arg| {
                let setting = arg.get_long().and_then(|name| effective.get(name).copied());
                OptionRow { verb: verb.get_name(), arg, setting }
            }));
        }
        Ok(rows)
    }
}

/// Formats the effective settings as a configuration file, with their origins as comments.
///
/// # Errors
/// [`ErrorKind::Usage`](godwit_model::ErrorKind::Usage) if the same file or the environment sets two options that
/// exclude each other.
pub fn as_toml(config: &Config, root: &Command) -> Result<String, Failure> {
    let rows = config.rows(root)?;
    let mut text =
        String::from("# Effective values; precedence: command line, environment, project file, user file.\n");
    for (kind, path, there) in config.files.iter().rev() {
        let state = if *there { "read" } else { "not found" };
        text += &format!("# {}: {} ({state})\n", kind_name(*kind), path.display());
    }
    for (variable, near) in environment::misspelled_variables(root) {
        text += &format!("# {variable} is not an option and is ignored; did you mean {near}?\n");
    }
    // Write an option that has the same value for several verbs once, before the tables of the verbs.
    let shared = |row: &OptionRow<'_>| {
        let of_name = || rows.iter().filter(|other| other.name() == row.name());
        let same = |other: &OptionRow<'_>| {
            (other.value_texts(), other.origin(), other.default_note())
                == (row.value_texts(), row.origin(), row.default_note())
        };
        of_name().count() > 1 && of_name().all(same)
    };
    let once = |at: usize, row: &OptionRow<'_>| rows[..at].iter().all(|earlier| earlier.name() != row.name());
    let above = rows.iter().enumerate().filter(|(at, row)| shared(row) && once(*at, row)).map(|(_, row)| row);
    text += &format!("\n{}", setting_lines(&above.collect::<Vec<_>>()));
    for verb in options::configurable_verbs(root) {
        let own: Vec<&OptionRow<'_>> = rows.iter().filter(|row| row.verb == verb.get_name() && !shared(row)).collect();
        if !own.is_empty() {
            text += &format!("\n[{}]\n{}", verb.get_name(), setting_lines(&own));
        }
    }
    Ok(text)
}

/// Formats each option with its value as a line of TOML, with the origin as a comment in an aligned column.
fn setting_lines(rows: &[&OptionRow<'_>]) -> String {
    let settings: Vec<String> = rows.iter().map(|row| setting_line(row)).collect();
    let width = settings.iter().map(String::len).filter(|length| *length <= SETTING_WIDTH).max().unwrap_or(0);
    let line = |(row, setting): (&&OptionRow<'_>, &String)| match (row.json_value(), row.origin()) {
        (Value::Null, _) => format!("{setting}\n"),
        (_, None) => format!("{setting:width$} # default\n"),
        (_, Some(origin)) => format!("{setting:width$} # {origin}\n"),
    };
    rows.iter().zip(&settings).map(line).collect()
}

fn setting_line(row: &OptionRow<'_>) -> String {
    match (row.json_value(), row.default_note()) {
        (Value::Null, note) if note.is_empty() => format!("# {} is not set", row.name()),
        (Value::Null, note) => format!("# {} is not set: {note}", row.name()),
        (value, _) => format!("{} = {value}", row.name()),
    }
}

/// Returns the effective settings as JSON.
///
/// # Errors
/// The same errors as [`as_toml`].
pub fn as_json(config: &Config, root: &Command) -> Result<Value, Failure> {
    let options: Vec<Value> = config
        .rows(root)?
        .iter()
        .map(|row| {
            json!({
                "verb": row.verb,
                "option": row.name(),
                "value": row.json_value(),
                "default_note": row.default_note(),
                "source": origin_json(row.origin()),
                "variables": [environment::variable_name(Some(row.verb), row.name()), environment::variable_name(None, row.name())],
            })
        })
        .collect();
    let files: Vec<Value> = config
        .files
        .iter()
        .rev()
        .map(|(kind, path, read)| json!({"kind": kind_name(*kind), "path": path, "read": read}))
        .collect();
    let unknown: Vec<Value> = environment::misspelled_variables(root)
        .into_iter()
        .map(|(variable, near)| json!({"variable": variable, "nearest": near}))
        .collect();
    Ok(json!({"files": files, "options": options, "unknown_variables": unknown}))
}

fn origin_json(origin: Option<&SettingOrigin>) -> Value {
    match origin {
        None => json!({"kind": "default"}),
        Some(SettingOrigin::Environment { variable }) => json!({"kind": "environment", "variable": variable}),
        Some(SettingOrigin::File { kind, path, line }) => json!({"kind": kind_name(*kind), "path": path, "line": line}),
    }
}

fn kind_name(kind: ConfigFileKind) -> &'static str {
    match kind {
        ConfigFileKind::User => "user file",
        ConfigFileKind::Project => "project file",
        ConfigFileKind::Explicit => "given file",
    }
}
