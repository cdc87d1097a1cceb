//! Reads options from environment variables: `GODWIT_THREADS` sets `--threads` of all verbs, `GODWIT_ALIGN_THREADS`
//! that of `align`.

use std::ffi::OsString;

use clap::{Arg, Command};
use godwit_engines::aligner::bwa::{self, IndexKind};
use godwit_engines::bcftools;
use godwit_engines::gatk;
use godwit_engines::searcher::blast;
use godwit_engines::sql_program;
use godwit_engines::trimmer::fastp;
use godwit_model::nearest_name;

use super::{Setting, SettingOrigin, check_values, normalize_flag_value, options, takes_value};
use crate::failure::Failure;

/// Variable with the path of a configuration file, as in `--config`.
pub(super) const CONFIG_VARIABLE: &str = "GODWIT_CONFIG";
/// Variables that launchers set for the workers of a job (`godwit_fleet::JobSpec`).
const JOB_VARIABLES: [&str; 5] =
    ["GODWIT_NODE", "GODWIT_NODES", "GODWIT_ATTEMPT", "GODWIT_JOB_DIRECTORY", "GODWIT_VERSION"];
/// Prefix of all environment variables of godwit.
const VARIABLE_PREFIX: &str = "GODWIT_";

/// Returns the variables with this prefix that do not set an option: those for the configuration file, for the paths of
/// other programs, and for the workers of a job.
pub(super) fn non_option_variables() -> Vec<&'static str> {
    let [bwa, bwa_mem3] = [IndexKind::Bwa, IndexKind::BwaMem3].map(bwa::program_variable);
    let programs = [
        bwa,
        bwa_mem3,
        fastp::PROGRAM_VARIABLE,
        bcftools::PROGRAM_VARIABLE,
        gatk::PROGRAM_VARIABLE,
        blast::WORKER_VARIABLE,
        sql_program::PROGRAM_VARIABLE,
    ];
    let own = programs.into_iter().chain([CONFIG_VARIABLE, bwa::INSTRUCTIONS_VARIABLE]);
    own.chain(JOB_VARIABLES).collect()
}

/// Returns the name of the variable that sets an option, for one verb or for all verbs.
pub(super) fn variable_name(verb: Option<&str>, name: &str) -> String {
    let words: Vec<&str> = verb.into_iter().chain([name]).collect();
    format!("{VARIABLE_PREFIX}{}", words.join("_").replace('-', "_").to_ascii_uppercase())
}

/// Returns the name of every variable that sets an option, with the verb (`None` for all verbs) and the option. Some
/// options have no variable for all verbs: `GODWIT_INDEX_MEMORY` sets `--memory` of `index`, so it cannot also set
/// `--index-memory`.
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

/// Returns whether the name of an option consists of the name of a verb and the name of an option of this verb.
fn names_verb_and_option(root: &Command, name: &str) -> bool {
    options::configurable_verbs(root).any(|verb| {
        let rest = name.strip_prefix(verb.get_name()).and_then(|rest| rest.strip_prefix('-'));
        rest.is_some_and(|rest| options::configurable_options(verb).any(|arg| arg.get_long() == Some(rest)))
    })
}

/// Reads the settings from environment variables. Empty variables are ignored.
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

/// Returns the variables of the environment that do not set an option but resemble one that does, each with the similar
/// variable.
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
