//! `godwit config show`: every value that counts, and where it is from.

use clap::{Arg, Command};
use serde_json::{Value, json};

use super::{Config, FileKind, Origin, Setting, environment, options, takes_value};
use crate::failure::Failure;

/// Width up to which settings move the column behind them.
const SETTING_WIDTH: usize = 48;

/// An option of a verb with what counts for it.
struct Row<'r> {
    verb: &'r str,
    arg: &'r Arg,
    setting: Option<&'r Setting>,
}

impl Row<'_> {
    fn name(&self) -> &str {
        self.arg.get_long().unwrap_or_default()
    }

    /// `None` where the program decides when it runs.
    fn words(&self) -> Option<Vec<String>> {
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

    fn value(&self) -> Value {
        let typed = |word: &String| match word.parse::<u64>() {
            _ if !takes_value(self.arg) => Value::Bool(word == "true"),
            Ok(number) => number.into(),
            Err(_) => word.as_str().into(),
        };
        match self.words() {
            None => Value::Null,
            Some(words) if options::takes_several(self.arg) => words.iter().map(typed).collect(),
            Some(words) => words.first().map_or(Value::Null, typed),
        }
    }

    /// What the help says about a default that is not fixed.
    fn default_note(&self) -> String {
        let help = self.arg.get_help().map(ToString::to_string).unwrap_or_default();
        help.split_once("[default: ").map(|(_, note)| note.trim_end_matches(']').to_owned()).unwrap_or_default()
    }

    fn origin(&self) -> Option<&Origin> {
        self.setting.map(|setting| &setting.origin)
    }
}

impl Config {
    fn rows<'r>(&'r self, root: &'r Command) -> Result<Vec<Row<'r>>, Failure> {
        let mut rows = Vec::new();
        for verb in options::verbs(root) {
            let effective = self.effective(verb, &[])?;
            rows.extend(options::of(verb).map(|arg| {
                let setting = arg.get_long().and_then(|name| effective.get(name).copied());
                Row { verb: verb.get_name(), arg, setting }
            }));
        }
        Ok(rows)
    }
}

/// A configuration file that says what counts now, with comments that say why.
///
/// # Errors
/// Options of one source that exclude each other.
pub fn as_toml(config: &Config, root: &Command) -> Result<String, Failure> {
    let rows = config.rows(root)?;
    let mut text =
        String::from("# What counts now, strongest first: command line, environment, project file, user file.\n");
    for (kind, path, there) in config.files.iter().rev() {
        let state = if *there { "read" } else { "not there" };
        text += &format!("# {}: {} ({state})\n", named(*kind), path.display());
    }
    for (variable, near) in environment::near_misses(root) {
        text += &format!("# {variable} is no option and does nothing; did you mean {near}?\n");
    }
    // An option that is the same in all its verbs, and has several, stands once above them.
    let shared = |row: &Row<'_>| {
        let of_name = || rows.iter().filter(|other| other.name() == row.name());
        let same = |other: &Row<'_>| {
            (other.words(), other.origin(), other.default_note()) == (row.words(), row.origin(), row.default_note())
        };
        of_name().count() > 1 && of_name().all(same)
    };
    let once = |at: usize, row: &Row<'_>| rows[..at].iter().all(|earlier| earlier.name() != row.name());
    let above = rows.iter().enumerate().filter(|(at, row)| shared(row) && once(*at, row)).map(|(_, row)| row);
    text += &format!("\n{}", lines(&above.collect::<Vec<_>>()));
    for verb in options::verbs(root) {
        let own: Vec<&Row<'_>> = rows.iter().filter(|row| row.verb == verb.get_name() && !shared(row)).collect();
        if !own.is_empty() {
            text += &format!("\n[{}]\n{}", verb.get_name(), lines(&own));
        }
    }
    Ok(text)
}

/// Options with their values, where these are from in a column of its own.
fn lines(rows: &[&Row<'_>]) -> String {
    let settings: Vec<String> = rows.iter().map(|row| setting(row)).collect();
    let width = settings.iter().map(String::len).filter(|length| *length <= SETTING_WIDTH).max().unwrap_or(0);
    let line = |(row, setting): (&&Row<'_>, &String)| match (row.value(), row.origin()) {
        (Value::Null, _) => format!("{setting}\n"),
        (_, None) => format!("{setting:width$} # default\n"),
        (_, Some(origin)) => format!("{setting:width$} # {origin}\n"),
    };
    rows.iter().zip(&settings).map(line).collect()
}

fn setting(row: &Row<'_>) -> String {
    match (row.value(), row.default_note()) {
        (Value::Null, note) if note.is_empty() => format!("# {} is not set", row.name()),
        (Value::Null, note) => format!("# {} is not set: {note}", row.name()),
        (value, _) => format!("{} = {value}", row.name()),
    }
}

/// The same for programs.
///
/// # Errors
/// Options of one source that exclude each other.
pub fn as_json(config: &Config, root: &Command) -> Result<Value, Failure> {
    let options: Vec<Value> = config
        .rows(root)?
        .iter()
        .map(|row| {
            json!({
                "verb": row.verb,
                "option": row.name(),
                "value": row.value(),
                "default_note": row.default_note(),
                "source": source(row.origin()),
                "variables": [environment::variable(Some(row.verb), row.name()), environment::variable(None, row.name())],
            })
        })
        .collect();
    let files: Vec<Value> = config
        .files
        .iter()
        .rev()
        .map(|(kind, path, read)| json!({"kind": named(*kind), "path": path, "read": read}))
        .collect();
    let unknown: Vec<Value> = environment::near_misses(root)
        .into_iter()
        .map(|(variable, near)| json!({"variable": variable, "nearest": near}))
        .collect();
    Ok(json!({"files": files, "options": options, "unknown_variables": unknown}))
}

fn source(origin: Option<&Origin>) -> Value {
    match origin {
        None => json!({"kind": "default"}),
        Some(Origin::Environment { variable }) => json!({"kind": "environment", "variable": variable}),
        Some(Origin::File { kind, path, line }) => json!({"kind": named(*kind), "path": path, "line": line}),
    }
}

fn named(kind: FileKind) -> &'static str {
    match kind {
        FileKind::User => "user file",
        FileKind::Project => "project file",
        FileKind::Given => "given file",
    }
}
