//! Configuration: values of options from configuration files and the environment, which the command line overrides.
//!
//! Input: clap's definition of the command line, configuration files, and environment variables. Output: values with
//! their origins. They are passed to clap together with the command line, so that one parser checks all values. This
//! module does not list options: every long option that is not under the heading [`THIS_RUN_HEADING`] can be
//! configured.
//!
//! Precedence: command line, environment, project file, user file, default. Within a file or the environment, a value
//! for one verb takes precedence over a value for all verbs.

mod config_files;
mod environment;
mod options;
mod show;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};

use crate::failure::Failure;
use godwit_model::ErrorKind;

pub(crate) use options::{THIS_RUN_HEADING, is_configurable};
pub use show::{as_json, as_toml};

/// Origin of the value of an option; the variants are in ascending precedence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingOrigin {
    /// The value is in a configuration file.
    File {
        /// Kind of the file.
        kind: ConfigFileKind,
        /// Path of the file.
        path: PathBuf,
        /// Line in the file, 1-based.
        line: usize,
    },
    /// The value is in an environment variable.
    Environment {
        /// Name of the variable.
        variable: String,
    },
}

/// Kind of a configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigFileKind {
    /// The file of the user, `$XDG_CONFIG_HOME/godwit/config.toml`.
    User,
    /// The file of the project, `godwit.toml` in the working directory.
    Project,
    /// A file that `--config` or `GODWIT_CONFIG` names; the files of the user and the project are then not read.
    Explicit,
}

/// The value of an option in a configuration file or in the environment.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The verb that the value is for; `None` for every verb that has the option.
    verb: Option<String>,
    /// Long name of the option, without hyphens.
    name: String,
    /// Values of the option, as separate arguments for clap.
    values: Vec<OsString>,
    origin: SettingOrigin,
}

impl std::fmt::Display for SettingOrigin {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File { path, line, .. } => write!(formatter, "{}, line {line}", path.display()),
            Self::Environment { variable } => write!(formatter, "the environment variable {variable}"),
        }
    }
}

/// The validated settings from configuration files and the environment.
#[derive(Debug, Default)]
pub struct Config {
    /// Settings of each file and of the environment, in ascending precedence.
    layers: Vec<Vec<Setting>>,
    /// Kind and path of each configuration file that was looked for, and true if the file exists.
    files: Vec<(ConfigFileKind, PathBuf, bool)>,
}

impl Config {
    /// Reads and validates the settings of all verbs. If `given` is set, reads this file instead of those of the user
    /// and the project; with `no_files`, reads only the environment.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if a setting is invalid; the message contains the file and the line, or the variable.
    /// [`ErrorKind::Machine`] if a file cannot be read.
    pub fn load(root: &Command, given: Option<&Path>, no_files: bool) -> Result<Self, Failure> {
        let mut config = Self::default();
        let places = if no_files { Vec::new() } else { config_files::config_paths(given) };
        for (kind, path) in places {
            let settings = config_files::read_settings(root, kind, &path)?;
            config.files.push((kind, path, settings.is_some()));
            config.layers.extend(settings);
        }
        config.layers.push(environment::read_settings(root)?);
        Ok(config)
    }

    /// Returns the setting with the highest precedence for an option of a verb, and the index of its layer; `None` if
    /// the option is not set.
    fn find_setting(&self, verb: &str, name: &str) -> Option<(usize, &Setting)> {
        let strongest_first = self.layers.iter().enumerate().rev();
        strongest_first.into_iter().find_map(|(strength, layer)| {
            let of = |verb: Option<&str>| layer.iter().find(|s| s.name == name && s.verb.as_deref() == verb);
            of(Some(verb)).or_else(|| of(None)).map(|setting| (strength, setting))
        })
    }

    /// Returns the effective settings of a verb by option name, without options that the command line sets
    /// (`explicit`). If two options conflict, the one with the higher precedence is effective.
    fn effective_settings(&self, command: &Command, explicit: &[&str]) -> Result<BTreeMap<String, &Setting>, Failure> {
        let mut found = BTreeMap::new();
        for name in options::configurable_options(command).filter_map(Arg::get_long) {
            if !explicit.contains(&name) {
                found.extend(self.find_setting(command.get_name(), name).map(|found| (name.to_owned(), found)));
            }
        }
        let on = |setting: &Setting| setting.values != ["false"];
        let mut effective = BTreeMap::new();
        for (name, (strength, setting)) in &found {
            let mut gives_way = false;
            for rival in options::conflicting_options(command, name) {
                gives_way |= on(setting) && explicit.contains(&rival);
                let Some((other_strength, other)) = found.get(rival).filter(|(_, other)| on(other)) else { continue };
                if !on(setting) || other_strength < strength {
                    continue;
                }
                if other_strength == strength {
                    let (here, there) = (&setting.origin, &other.origin);
                    return Err(config_error(
                        here,
                        &format!("{name} cannot be combined with {rival}, which {there} sets; remove one of them"),
                    ));
                }
                gives_way = true;
            }
            if !gives_way {
                effective.insert(name.clone(), *setting);
            }
        }
        Ok(effective)
    }

    /// Returns the effective settings of a verb as command-line arguments, without options that the command line itself
    /// sets.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if the same file or the environment sets two options that exclude each other.
    pub fn arguments(&self, root: &Command, verb: &str, matches: &ArgMatches) -> Result<Vec<OsString>, Failure> {
        let mut built = root.clone();
        built.build();
        let Some(command) = built.find_subcommand(verb) else { return Ok(Vec::new()) };
        let explicit: Vec<&str> = options::configurable_options(command)
            .filter(|arg| matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine))
            .filter_map(Arg::get_long)
            .collect();
        let effective = self.effective_settings(command, &explicit)?;
        let given =
            options::configurable_options(command).filter_map(|arg| Some((arg, *effective.get(arg.get_long()?)?)));
        Ok(given.flat_map(|(arg, setting)| option_arguments(arg, setting)).collect())
    }
}

/// Formats a setting as command-line arguments, `--option=value`; a flag that is off becomes no argument. The equals
/// sign is needed for values that start with a hyphen.
fn option_arguments(arg: &Arg, setting: &Setting) -> Vec<OsString> {
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

/// Returns true if an option has a value, false if it is a flag.
fn takes_value(arg: &Arg) -> bool {
    arg.get_action().takes_values()
}

/// Returns the error for an invalid setting, with its origin and the problem.
fn config_error(origin: &SettingOrigin, problem: &str) -> Failure {
    Failure::new(ErrorKind::Usage, format!("{origin}: {problem}"))
}

/// Validates values with the parsers of clap, for every verb that has the option.
fn check_values(
    root: &Command,
    verb: Option<&str>,
    arg: &Arg,
    values: &[OsString],
    origin: &SettingOrigin,
) -> Result<(), Failure> {
    let name = arg.get_long().unwrap_or_default();
    let shown = values.iter().map(|value| value.to_string_lossy()).collect::<Vec<_>>().join(", ");
    let judged: Vec<_> =
        options::options_named(root, verb, name).into_iter().map(|arg| options::validate_values(arg, values)).collect();
    let Some(reason) = judged.iter().find_map(|judged| judged.as_ref().err()) else { return Ok(()) };
    // Two verbs may have an option of the same name that accepts different values.
    let remedy = match judged.iter().any(Result::is_ok) {
        true => "; only some verbs accept this value: set it in the section of such a verb",
        false => "",
    };
    Err(config_error(origin, &format!("{name} cannot be {shown:?}: {reason}{remedy}")))
}

/// Converts the value of a flag to `true` or `false`.
fn normalize_flag_value(text: &OsStr) -> OsString {
    match text.to_string_lossy().to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => "true".into(),
        "0" | "false" | "no" | "off" => "false".into(),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
