//! Reads options from configuration files in TOML. Top-level keys set options of all verbs, and a table sets those of
//! one verb.

use std::ffi::OsString;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::{Arg, Command};
use godwit_model::{ErrorKind, did_you_mean};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::environment::CONFIG_VARIABLE;
use super::{ConfigFileKind, Setting, SettingOrigin, check_values, config_error, options, takes_value};
use crate::failure::Failure;

/// Name of the configuration file of a project, in the working directory.
const PROJECT_FILE: &str = "godwit.toml";

/// Returns the paths of the configuration files to look for, in ascending precedence.
pub(super) fn config_paths(given: Option<&Path>) -> Vec<(ConfigFileKind, PathBuf)> {
    let variable = || std::env::var_os(CONFIG_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
    if let Some(given) = given.map(Path::to_owned).or_else(variable) {
        return vec![(ConfigFileKind::Explicit, given)];
    }
    let user = user_directory().map(|directory| (ConfigFileKind::User, directory.join("godwit/config.toml")));
    user.into_iter().chain([(ConfigFileKind::Project, PathBuf::from(PROJECT_FILE))]).collect()
}

/// Returns the user's configuration directory (XDG base directory specification 0.8). A relative `XDG_CONFIG_HOME` is
/// ignored.
fn user_directory() -> Option<PathBuf> {
    let absolute = |variable| std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")))
}

/// Reads the settings of a file; returns `None` if the file does not exist and is optional.
pub(super) fn read_settings(
    root: &Command,
    kind: ConfigFileKind,
    path: &Path,
) -> Result<Option<Vec<Setting>>, Failure> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if kind != ConfigFileKind::Explicit && is_absent(&error) => return Ok(None),
        Err(error) => {
            let error_kind =
                if error.kind() == io::ErrorKind::InvalidData { ErrorKind::Usage } else { ErrorKind::Machine };
            return Err(Failure::new(
                error_kind,
                format!("cannot read the configuration file {}: {error}", path.display()),
            ));
        }
    };
    if kind == ConfigFileKind::Project {
        check_owner(path)?;
    }
    let file = ConfigFile { root, kind, path, text: &text };
    let table = DeTable::parse(&text).map_err(|error| {
        let at = error.span().unwrap_or_default();
        config_error(&file.origin(&at), &format!("not TOML: {}", error.message().replace('\n', ", ")))
    })?;
    file.settings(table.get_ref()).map(Some)
}

fn is_absent(error: &std::io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Rejects a file that belongs to another user. Otherwise another user could put a configuration file into a shared
/// directory, and it would configure this user's runs.
fn check_owner(path: &Path) -> Result<(), Failure> {
    let Ok(found) = std::fs::metadata(path) else { return Ok(()) };
    // SAFETY: geteuid has no arguments, cannot fail and does not access memory.
    let user = unsafe { libc::geteuid() };
    if [0, user].contains(&found.uid()) {
        return Ok(());
    }
    let problem = format!(
        "{} belongs to another user (id {}); pass --config {0} to use it, or --no-config",
        path.display(),
        found.uid()
    );
    Err(Failure::new(ErrorKind::Machine, problem))
}

struct ConfigFile<'f> {
    root: &'f Command,
    kind: ConfigFileKind,
    path: &'f Path,
    text: &'f str,
}

impl ConfigFile<'_> {
    fn origin(&self, span: &Range<usize>) -> SettingOrigin {
        let before = &self.text.as_bytes()[..span.start.min(self.text.len())];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        SettingOrigin::File { kind: self.kind, path: self.path.to_owned(), line }
    }

    fn settings(&self, table: &DeTable<'_>) -> Result<Vec<Setting>, Failure> {
        let mut settings = Vec::new();
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            match value.get_ref() {
                DeValue::Table(verb) => {
                    if !options::configurable_verbs(self.root).any(|command| command.get_name() == name) {
                        let verbs = options::configurable_verbs(self.root).map(Command::get_name);
                        let problem = format!("there is no verb {name} with options{}", did_you_mean(name, verbs));
                        return Err(config_error(&self.origin(&key.span()), &problem));
                    }
                    for (key, value) in verb {
                        settings.push(self.setting(Some(name), key, value)?);
                    }
                }
                _ => settings.push(self.setting(None, key, value)?),
            }
        }
        Ok(settings)
    }

    fn setting(
        &self,
        verb: Option<&str>,
        key: &Spanned<std::borrow::Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<Setting, Failure> {
        let (name, origin) = (key.get_ref().as_ref(), self.origin(&key.span()));
        let Some(&arg) = options::options_named(self.root, verb, name).first() else {
            return Err(config_error(&origin, &self.unknown_option_message(verb, name)));
        };
        let values = self.option_values(arg, value.get_ref()).map_err(|problem| config_error(&origin, &problem))?;
        check_values(self.root, verb, arg, &values, &origin)?;
        Ok(Setting { verb: verb.map(str::to_owned), name: name.to_owned(), values, origin })
    }

    fn unknown_option_message(&self, verb: Option<&str>, name: &str) -> String {
        let verbs =
            options::configurable_verbs(self.root).filter(|command| verb.is_none_or(|verb| command.get_name() == verb));
        let known = verbs.flat_map(options::configurable_options).filter_map(Arg::get_long);
        let of_run = self.root.get_subcommands().flat_map(Command::get_arguments);
        if of_run
            .into_iter()
            .any(|arg| arg.get_long() == Some(name) && arg.get_help_heading() == Some(super::THIS_RUN_HEADING))
        {
            return format!("{name} cannot be set in a configuration file; pass it on the command line");
        }
        let of = verb.map(|verb| format!(" of godwit {verb}")).unwrap_or_default();
        format!("there is no option {name}{of}{}", did_you_mean(name, known))
    }

    /// Converts a TOML value to the values of command-line arguments. Numbers and booleans are passed as they are
    /// written in TOML.
    fn option_values(&self, arg: &Arg, value: &DeValue<'_>) -> Result<Vec<OsString>, String> {
        let name = arg.get_long().unwrap_or_default();
        match value {
            DeValue::Array(values) if values.is_empty() => {
                Err(format!("{name} is an empty list; remove it, or list a value"))
            }
            DeValue::Array(values) if options::takes_several(arg) => {
                let words = values.iter().map(|value| self.value_text(arg, value.get_ref()));
                words
                    .collect::<Option<Vec<OsString>>>()
                    .ok_or_else(|| format!("the list {name} may contain only numbers, text, true and false"))
            }
            DeValue::Array(_) => Err(format!("{name} must have a single value, not a list")),
            DeValue::Boolean(_) if takes_value(arg) && !options::is_switch(arg) => {
                Err(format!("{name} must have a value other than true or false"))
            }
            DeValue::Boolean(_) => Ok(self.value_text(arg, value).into_iter().collect()),
            _ if !takes_value(arg) => Err(format!("{name} must be true or false, without quotes")),
            _ => match (self.value_text(arg, value), arg.get_value_delimiter()) {
                (None, _) => Err(format!("{name} cannot be of type {}", value.type_str())),
                (Some(word), Some(delimiter)) => {
                    Ok(word.to_string_lossy().split(delimiter).map(OsString::from).collect())
                }
                (Some(word), None) => Ok(vec![word]),
            },
        }
    }

    fn value_text(&self, arg: &Arg, value: &DeValue<'_>) -> Option<OsString> {
        match value {
            DeValue::String(text) if options::is_program(arg) && !text.contains('/') => Some(text.as_ref().into()),
            DeValue::String(text) if options::is_path(arg) => Some(self.resolve_path(text).into_os_string()),
            DeValue::String(text) => Some(text.as_ref().into()),
            DeValue::Integer(number) => {
                let decimal = i128::from_str_radix(number.as_str(), number.radix()).ok()?;
                Some(decimal.to_string().into())
            }
            DeValue::Float(number) => Some(number.as_str().into()),
            DeValue::Boolean(truth) => Some(truth.to_string().into()),
            _ => None,
        }
    }

    /// Resolves a path relative to the directory of the configuration file, or to the home directory if it starts with
    /// `~/`.
    fn resolve_path(&self, path: &str) -> PathBuf {
        match (path.strip_prefix("~/"), std::env::home_dir()) {
            (Some(below), Some(home)) => home.join(below),
            _ => self.path.parent().map_or_else(|| PathBuf::from(path), |directory| directory.join(path)),
        }
    }
}
