//! Options from files and the environment, below those of the command line.
//!
//! Flows in: clap's own definition of the command line, configuration files, environment variables. Flows out: values and
//! where each is from, handed to clap beside the command line, so that one parser judges all of them. No option is listed here:
//! what the command line has under a long name and not below the heading [`THIS_RUN`] can be configured.
//!
//! The first that says something wins: command line, environment, project file, user file, default. Of one source, what
//! it says for a verb wins over what it says for all verbs.

mod environment;
mod files;
mod options;
mod show;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};

use crate::failure::{Exit, Failure};

pub use options::{THIS_RUN, is_configurable};
pub use show::{as_json, as_toml};

/// Where a value is from, the weakest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A file, and the 1-based line in it.
    File {
        /// What the file is.
        kind: FileKind,
        /// The file.
        path: PathBuf,
        /// The line.
        line: usize,
    },
    /// An environment variable.
    Environment {
        /// Its name.
        variable: String,
    },
}

/// What a configuration file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// `$XDG_CONFIG_HOME/godwit/config.toml`.
    User,
    /// `godwit.toml` in the working directory.
    Project,
    /// Named by `--config` or `GODWIT_CONFIG`, in place of both.
    Given,
}

/// A value that a source gives to an option.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The verb, `None`: every verb that has the option.
    verb: Option<String>,
    /// The option's long name.
    name: String,
    /// Its values as clap would take them, one by one.
    values: Vec<OsString>,
    origin: Origin,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File { path, line, .. } => write!(formatter, "{}, line {line}", path.display()),
            Self::Environment { variable } => write!(formatter, "the environment variable {variable}"),
        }
    }
}

/// What files and environment say, checked.
#[derive(Debug, Default)]
pub struct Config {
    /// Layers, the weakest first.
    layers: Vec<Vec<Setting>>,
    /// Files looked for, and whether they are there.
    files: Vec<(FileKind, PathBuf, bool)>,
}

impl Config {
    /// Reads what there is and checks all of it, whatever verb is run: the file `given` in place of those in their
    /// usual places, or no file.
    ///
    /// # Errors
    /// A message that names file and line, or the variable, of what is wrong.
    pub fn load(root: &Command, given: Option<&Path>, no_files: bool) -> Result<Self, Failure> {
        let mut config = Self::default();
        let places = if no_files { Vec::new() } else { files::places(given) };
        for (kind, path) in places {
            let settings = files::read(root, kind, &path)?;
            config.files.push((kind, path, settings.is_some()));
            config.layers.extend(settings);
        }
        config.layers.push(environment::read(root)?);
        Ok(config)
    }

    /// The value of an option of a verb and the strength of its layer; `None` where only the default is left.
    fn find(&self, verb: &str, name: &str) -> Option<(usize, &Setting)> {
        let strongest_first = self.layers.iter().enumerate().rev();
        strongest_first.into_iter().find_map(|(strength, layer)| {
            let of = |verb: Option<&str>| layer.iter().find(|s| s.name == name && s.verb.as_deref() == verb);
            of(Some(verb)).or_else(|| of(None)).map(|setting| (strength, setting))
        })
    }

    /// What counts for a verb, by name of the option. An option that excludes another gives way to a stronger source.
    fn effective(&self, command: &Command, explicit: &[&str]) -> Result<BTreeMap<String, &Setting>, Failure> {
        let mut found = BTreeMap::new();
        for name in options::of(command).filter_map(Arg::get_long) {
            if !explicit.contains(&name) {
                found.extend(self.find(command.get_name(), name).map(|found| (name.to_owned(), found)));
            }
        }
        let on = |setting: &Setting| setting.values != ["false"];
        let mut effective = BTreeMap::new();
        for (name, (strength, setting)) in &found {
            let mut gives_way = false;
            for rival in options::rivals(command, name) {
                gives_way |= on(setting) && explicit.contains(&rival);
                let Some((other_strength, other)) = found.get(rival).filter(|(_, other)| on(other)) else { continue };
                if !on(setting) || other_strength < strength {
                    continue;
                }
                if other_strength == strength {
                    let (here, there) = (&setting.origin, &other.origin);
                    return Err(wrong(here, &format!("{name} excludes {rival}, which {there} sets; keep one of them")));
                }
                gives_way = true;
            }
            if !gives_way {
                effective.insert(name.clone(), *setting);
            }
        }
        Ok(effective)
    }

    /// What counts for a verb beside what the command line says, as words that could stand there.
    ///
    /// # Errors
    /// Options of one source that exclude each other.
    pub fn words(&self, root: &Command, verb: &str, matches: &ArgMatches) -> Result<Vec<OsString>, Failure> {
        let mut built = root.clone();
        built.build();
        let Some(command) = built.find_subcommand(verb) else { return Ok(Vec::new()) };
        let explicit: Vec<&str> = options::of(command)
            .filter(|arg| matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine))
            .filter_map(Arg::get_long)
            .collect();
        let effective = self.effective(command, &explicit)?;
        let given = options::of(command).filter_map(|arg| Some((arg, *effective.get(arg.get_long()?)?)));
        Ok(given.flat_map(|(arg, setting)| words(arg, setting)).collect())
    }
}

/// An option as it would stand on the command line; nothing for one that is off. A value that starts with a hyphen is none
/// but behind an equals sign.
fn words(arg: &Arg, setting: &Setting) -> Vec<OsString> {
    let option = format!("--{}", setting.name);
    let with = |value: &OsStr| {
        let mut word = OsString::from(format!("{option}="));
        word.push(value);
        word
    };
    match arg.get_value_delimiter() {
        _ if !takes_value(arg) => (setting.values == ["true"]).then(|| option.clone().into()).into_iter().collect(),
        Some(delimiter) => vec![with(&setting.values.join(OsStr::new(delimiter.encode_utf8(&mut [0; 4]))))],
        None => setting.values.iter().map(|value| with(value)).collect(),
    }
}

/// Whether an option has a value of its own, rather than being there or not.
fn takes_value(arg: &Arg) -> bool {
    arg.get_action().takes_values()
}

/// Something a source says that cannot be.
fn wrong(origin: &Origin, problem: &str) -> Failure {
    Failure::new(Exit::Usage, format!("{origin}: {problem}"))
}

/// Checks values as clap will, for every verb that takes them.
fn check(root: &Command, verb: Option<&str>, arg: &Arg, values: &[OsString], origin: &Origin) -> Result<(), Failure> {
    let name = arg.get_long().unwrap_or_default();
    let shown = values.iter().map(|value| value.to_string_lossy()).collect::<Vec<_>>().join(", ");
    let judged: Vec<_> = options::all(root, verb, name).into_iter().map(|arg| options::judge(arg, values)).collect();
    let Some(reason) = judged.iter().find_map(|judged| judged.as_ref().err()) else { return Ok(()) };
    // Two verbs may have an option of one name that takes different values.
    let remedy = match judged.iter().any(Result::is_ok) {
        true => "; not every verb takes it, so set it for one that does",
        false => "",
    };
    Err(wrong(origin, &format!("{name} cannot be {shown:?}: {reason}{remedy}")))
}

/// A value that turns a flag on or off, as clap has it.
fn switch(text: &OsStr) -> OsString {
    match text.to_string_lossy().to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => "true".into(),
        "0" | "false" | "no" | "off" => "false".into(),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
