//! Options from environment variables: `GODWIT_THREADS` for all verbs, `GODWIT_ALIGN_THREADS` for one.

use std::ffi::OsString;

use clap::{Arg, Command};
use godwit_engines::aligner::bwa::{self, IndexKind};
use godwit_engines::gatk;
use godwit_engines::normalizer::bcftools;
use godwit_engines::searcher::blast;
use godwit_engines::trimmer::fastp;
use godwit_model::nearest;

use super::{Origin, Setting, check, options, switch, takes_value};
use crate::failure::Failure;

/// Names a configuration file, as `--config` does.
pub(super) const CONFIG_VARIABLE: &str = "GODWIT_CONFIG";
/// What launchers tell the workers of a job (`godwit_fleet::JobSpec`).
const JOB_VARIABLES: [&str; 5] =
    ["GODWIT_NODE", "GODWIT_NODES", "GODWIT_ATTEMPT", "GODWIT_JOB_DIRECTORY", "GODWIT_VERSION"];
/// What all variables start with.
const PREFIX: &str = "GODWIT_";

/// Variables that are no options: the file, and what programs of others read, or are found by.
pub(super) fn other_variables() -> Vec<&'static str> {
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

/// The variable of an option, for one verb or for all.
pub(super) fn variable(verb: Option<&str>, name: &str) -> String {
    let words: Vec<&str> = verb.into_iter().chain([name]).collect();
    format!("{PREFIX}{}", words.join("_").replace('-', "_").to_ascii_uppercase())
}

/// Returns every variable that sets an option, with its verb and the option. `GODWIT_INDEX_MEMORY` is `--memory` of `index`, so
/// `--index-memory` has the variable of its verb alone.
pub(super) fn variables(root: &Command) -> impl Iterator<Item = (String, Option<&str>, &Arg)> {
    options::verbs(root).flat_map(move |verb| {
        options::of(verb).flat_map(move |arg| {
            let name = arg.get_long().unwrap_or_default();
            let general = (!names_verb_and_option(root, name)).then_some(None);
            let scopes = general.into_iter().chain([Some(verb.get_name())]);
            scopes.map(move |verb| (variable(verb, name), verb, arg))
        })
    })
}

/// Returns whether an option has the name of a verb followed by the name of one of the verb's options.
fn names_verb_and_option(root: &Command, name: &str) -> bool {
    options::verbs(root).any(|verb| {
        let rest = name.strip_prefix(verb.get_name()).and_then(|rest| rest.strip_prefix('-'));
        rest.is_some_and(|rest| options::of(verb).any(|arg| arg.get_long() == Some(rest)))
    })
}

/// What the environment says. An empty variable says nothing.
pub(super) fn read(root: &Command) -> Result<Vec<Setting>, Failure> {
    let mut settings: Vec<Setting> = Vec::new();
    for (variable, verb, arg) in variables(root) {
        let Some(text) = std::env::var_os(&variable).filter(|text| !text.is_empty()) else { continue };
        let origin = Origin::Environment { variable };
        if settings.iter().any(|setting| setting.origin == origin) {
            continue;
        }
        let values = split(arg, text);
        check(root, verb, arg, &values, &origin)?;
        let name = arg.get_long().unwrap_or_default().to_owned();
        settings.push(Setting { verb: verb.map(str::to_owned), name, values, origin });
    }
    Ok(settings)
}

fn split(arg: &Arg, text: OsString) -> Vec<OsString> {
    if !takes_value(arg) {
        return vec![switch(&text)];
    }
    match (arg.get_value_delimiter(), text.to_str()) {
        (Some(delimiter), Some(text)) => text.split(delimiter).map(OsString::from).collect(),
        _ => vec![text],
    }
}

/// Variables that are no option but come near one, with that one.
pub(super) fn near_misses(root: &Command) -> Vec<(String, String)> {
    let known: Vec<String> = variables(root).map(|(variable, ..)| variable).collect();
    let set = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let unknown = set.filter(|name| {
        name.starts_with(PREFIX) && !other_variables().contains(&name.as_str()) && !known.contains(name)
    });
    let mut misses: Vec<(String, String)> = unknown
        .filter_map(|name| {
            let word = &name[PREFIX.len()..];
            let candidates = known.iter().map(|known| &known[PREFIX.len()..]);
            let near = nearest(word, candidates)?;
            Some((name.clone(), format!("{PREFIX}{near}")))
        })
        .collect();
    misses.sort();
    misses
}
