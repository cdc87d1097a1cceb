//! Options from environment variables: `GODWIT_THREADS` for all verbs, `GODWIT_ALIGN_THREADS` for one.

use std::ffi::OsString;

use clap::{Arg, Command};
use godwit_engines::aligner::bwa::{self, IndexKind};
use godwit_engines::gatk;
use godwit_engines::normalizer::bcftools;
use godwit_engines::searcher::blast;
use godwit_engines::trimmer::fastp;
use godwit_model::nearest_name;

use super::{Setting, SettingOrigin, check_values, normalize_flag_value, options, takes_value};
use crate::failure::Failure;

/// Names a configuration file, as `--config` does.
pub(super) const CONFIG_VARIABLE: &str = "GODWIT_CONFIG";
/// Variables that launchers set for the workers of a job (`godwit_fleet::JobSpec`).
const JOB_VARIABLES: [&str; 5] =
    ["GODWIT_NODE", "GODWIT_NODES", "GODWIT_ATTEMPT", "GODWIT_JOB_DIRECTORY", "GODWIT_VERSION"];
/// Prefix of all variables.
const VARIABLE_PREFIX: &str = "GODWIT_";

/// Returns the variables that are not options: the configuration file, and variables of other programs or their paths.
pub(super) fn non_option_variables() -> Vec<&'static str> {
    let [bwa, bwa_mem3] = [IndexKind::Bwa, IndexKind::BwaMem3].map(bwa::program_variable);
    let programs = [
        bwa,
        bwa_mem3,
        fastp::PROGRAM_VARIABLE,
        bcftools::PROGRAM_VARIABLE,
        gatk::PROGRAM_VARIABLE,
        blast::WORKER_VARIABLE,
    ];
    let own = programs.into_iter().chain([CONFIG_VARIABLE, bwa::INSTRUCTIONS_VARIABLE]);
    own.chain(JOB_VARIABLES).collect()
}

/// Returns the variable of an option, for one verb or for all.
pub(super) fn variable_name(verb: Option<&str>, name: &str) -> String {
    let words: Vec<&str> = verb.into_iter().chain([name]).collect();
    format!("{VARIABLE_PREFIX}{}", words.join("_").replace('-', "_").to_ascii_uppercase())
}

/// Returns every variable that sets an option, with its verb and the option. `GODWIT_INDEX_MEMORY` is `--memory` of `index`, so
/// `--index-memory` has the variable of its verb alone.
pub(super) fn option_variables(root: &Command) -> impl Iterator<Item = (String, Option<&str>, &Arg)> {
    options::configurable_verbs(root).flat_map(move |verb| {
        options::configurable_options(verb).flat_map(move |arg| {
            let name = arg.get_long().unwrap_or_default();
            let general = (!names_verb_and_option(root, name)).then_some(None);
            let scopes = general.into_iter().chain([Some(verb.get_name())]);
            scopes.map(move |verb| (variable_name(verb, name), verb, arg))
        })
    })
}

/// Reports whether an option has the name of a verb followed by the name of one of the verb's options.
fn names_verb_and_option(root: &Command, name: &str) -> bool {
    options::configurable_verbs(root).any(|verb| {
        let rest = name.strip_prefix(verb.get_name()).and_then(|rest| rest.strip_prefix('-'));
        rest.is_some_and(|rest| options::configurable_options(verb).any(|arg| arg.get_long() == Some(rest)))
    })
}

/// Reads the settings of the environment. Empty variables are ignored.
pub(super) fn read_settings(root: &Command) -> Result<Vec<Setting>, Failure> {
    let mut settings: Vec<Setting> = Vec::new();
    for (variable, verb, arg) in option_variables(root) {
        let Some(text) = std::env::var_os(&variable).filter(|text| !text.is_empty()) else { continue };
        let origin = SettingOrigin::Environment { variable };
        if settings.iter().any(|setting| setting.origin == origin) {
            continue;
        }
        let values = split_values(arg, text);
        check_values(root, verb, arg, &values, &origin)?;
        let name = arg.get_long().unwrap_or_default().to_owned();
        settings.push(Setting { verb: verb.map(str::to_owned), name, values, origin });
    }
    Ok(settings)
}

fn split_values(arg: &Arg, text: OsString) -> Vec<OsString> {
    if !takes_value(arg) {
        return vec![normalize_flag_value(&text)];
    }
    match (arg.get_value_delimiter(), text.to_str()) {
        (Some(delimiter), Some(text)) => text.split(delimiter).map(OsString::from).collect(),
        _ => vec![text],
    }
}

/// Returns variables that are not options but resemble one, with that one.
pub(super) fn misspelled_variables(root: &Command) -> Vec<(String, String)> {
    let known: Vec<String> = option_variables(root).map(|(variable, ..)| variable).collect();
    let set = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let unknown = set.filter(|name| {
        name.starts_with(VARIABLE_PREFIX) && !non_option_variables().contains(&name.as_str()) && !known.contains(name)
    });
    let mut misses: Vec<(String, String)> = unknown
        .filter_map(|name| {
            let word = &name[VARIABLE_PREFIX.len()..];
            let candidates = known.iter().map(|known| &known[VARIABLE_PREFIX.len()..]);
            let near = nearest_name(word, candidates)?;
            Some((name.clone(), format!("{VARIABLE_PREFIX}{near}")))
        })
        .collect();
    misses.sort();
    misses
}
