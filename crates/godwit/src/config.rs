//! Configuration: options from files and the environment, overridden by the command line.
//!
//! Flows in: clap's definition of the command line, configuration files, environment variables. Flows out: values with
//! their origins, passed to clap with the command line, so that one parser checks all of them. No option is listed here:
//! every long option that is not under the heading [`THIS_RUN_HEADING`] can be configured.
//!
//! Precedence: command line, environment, project file, user file, default. Within a source, a value for a verb precedes
//! one for all verbs.

mod config_files;
mod environment;
mod options;
mod show;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};

use crate::failure::{Exit, Failure};

pub use options::{THIS_RUN_HEADING, is_configurable};
pub use show::{as_json, as_toml};

/// Origin of a value, in ascending precedence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingOrigin {
    /// A file, and the 1-based line in it.
    File {
        /// Kind of the file.
        kind: ConfigFileKind,
        /// Path of the file.
        path: PathBuf,
        /// The line, 1-based.
        line: usize,
    },
    /// An environment variable.
    Environment {
        /// Name of the variable.
        variable: String,
    },
}

/// Kind of a configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigFileKind {
    /// `$XDG_CONFIG_HOME/godwit/config.toml`.
    User,
    /// `godwit.toml` in the working directory.
    Project,
    /// Named by `--config` or `GODWIT_CONFIG`; replaces the other two.
    Explicit,
}

/// A value of an option from one source.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The verb; `None`: every verb that has the option.
    verb: Option<String>,
    /// Long name of the option.
    name: String,
    /// Values, one by one, as clap takes them.
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

/// Checked settings of files and environment.
#[derive(Debug, Default)]
pub struct Config {
    /// Layers in ascending precedence.
    layers: Vec<Vec<Setting>>,
    /// Files that were searched, and whether they exist.
    files: Vec<(ConfigFileKind, PathBuf, bool)>,
}

impl Config {
    /// Reads and checks all settings, whatever verb runs: from the file `given` instead of the usual ones, or from no file.
    ///
    /// # Errors
    /// [`Exit::Usage`] for an invalid setting, with its file and line or variable; [`Exit::Machine`] for an unreadable
    /// file.
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

    /// Returns the value of an option of a verb and the index of its layer; `None` if only the default is left.
    fn find_setting(&self, verb: &str, name: &str) -> Option<(usize, &Setting)> {
        let strongest_first = self.layers.iter().enumerate().rev();
        strongest_first.into_iter().find_map(|(strength, layer)| {
            let of = |verb: Option<&str>| layer.iter().find(|s| s.name == name && s.verb.as_deref() == verb);
            of(Some(verb)).or_else(|| of(None)).map(|setting| (strength, setting))
        })
    }

    /// Returns the effective settings of a verb by option name. An option yields to a conflicting one of a stronger source.
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
                        &format!("{name} excludes {rival}, which {there} sets; keep one of them"),
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

    /// Returns the effective settings of a verb, besides those of the command line, as arguments.
    ///
    /// # Errors
    /// [`Exit::Usage`] if one source sets options that exclude each other.
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

/// Formats a setting as command line arguments; a flag that is off has none. A value that starts with a hyphen needs an
/// equals sign.
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

/// Reports whether an option takes a value, rather than being a flag.
fn takes_value(arg: &Arg) -> bool {
    arg.get_action().takes_values()
}

/// Builds the error of an invalid setting.
fn config_error(origin: &SettingOrigin, problem: &str) -> Failure {
    Failure::new(Exit::Usage, format!("{origin}: {problem}"))
}

/// Checks values with clap, for every verb that takes them.
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
    // Two verbs may have an option of the same name with different values.
    let remedy = match judged.iter().any(Result::is_ok) {
        true => "; not every verb takes it, so set it for one that does",
        false => "",
    };
    Err(config_error(origin, &format!("{name} cannot be {shown:?}: {reason}{remedy}")))
}

/// Normalizes the value of a flag to `true` or `false`, as clap takes it.
fn normalize_flag_value(text: &OsStr) -> OsString {
    match text.to_string_lossy().to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => "true".into(),
        "0" | "false" | "no" | "off" => "false".into(),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
