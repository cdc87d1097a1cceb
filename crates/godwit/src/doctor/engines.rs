//! Programs that godwit runs or is compared with.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use godwit_engines::aligner::bwa::{self, IndexKind};
use godwit_engines::aligner::minimap2::{self, Minimap2};
use godwit_engines::caller::{CallerChoice, bcftools, freebayes};
use godwit_engines::gatk;
use godwit_engines::searcher::{blast, diamond, mmseqs};
use godwit_engines::trimmer::fastp;
use godwit_engines::{EngineError, survey};

use super::{Area, Finding, State};
use crate::demo::picard_jar;
use godwit_formats::with_causes;

/// Programs that nothing but the demonstration needs.
const COMPARED: &str = "not installed; godwit demo would compare with it";

/// The aligners, the trimmer, and what `godwit demo` compares with.
pub fn engines() -> Vec<Finding> {
    let mut findings = vec![Finding::new(Area::Engines, "godwit", State::Fine, env!("CARGO_PKG_VERSION"))];
    findings.extend([
        own_aligner(IndexKind::Bwa, State::Missing),
        own_aligner(IndexKind::BwaMem3, State::Note),
        selected(),
    ]);
    findings.extend(survey().into_iter().filter_map(|engine| match engine.name {
        "bwa" | "bwa-mem3" => None,
        minimap2::PROGRAM => {
            let found = Minimap2::find(&[]).map(|minimap2| minimap2.version().to_owned());
            Some(by_version(minimap2::PROGRAM, found, "an aligner", engine.remedy))
        }
        name => Some(match engine.program {
            None => absent(name, "an aligner by its command line", engine.remedy),
            Some(path) => {
                let version = version(&path, "--version").unwrap_or_else(|| "version unknown".into());
                Finding::new(Area::Engines, name, State::Fine, format!("{version}, {}", path.display()))
            }
        }),
    }));
    let remedy = "install fastp 0.23 or later (Debian and Ubuntu: apt-get install fastp; bioconda: fastp)";
    findings.push(by_version(fastp::PROGRAM, fastp::version(None), "--trim", remedy));
    findings.extend(callers());
    findings.extend(searchers());
    findings.extend([other_bwa(), samtools(), picard()]);
    findings
}

/// The callers that have names.
fn callers() -> impl Iterator<Item = Finding> {
    let named = [
        (bcftools::PROGRAM, CallerChoice::Bcftools, bcftools::REMEDY),
        (freebayes::PROGRAM, CallerChoice::Freebayes, freebayes::REMEDY),
        (gatk::PROGRAM, CallerChoice::Gatk, gatk::REMEDY),
    ];
    named.into_iter().map(|(name, choice, remedy)| {
        let version = choice.find("").map(|caller| caller.version().to_owned());
        by_version(name, version, "godwit call", remedy)
    })
}

/// The BLAST engine of `godwit search`, and the programs that it runs on parts of the queries.
fn searchers() -> [Finding; 3] {
    let found = blast::find_worker().and_then(|worker| {
        let version = blast::worker_version(&worker)?;
        Ok(format!("BLAST {version}, {}", worker.display()))
    });
    let bulk = |found: Result<(PathBuf, String), EngineError>| {
        found.map(|(path, version)| format!("{version}, {}", path.display()))
    };
    [
        by_version(blast::WORKER, found, "godwit search", blast::WORKER_REMEDY),
        by_version(diamond::PROGRAM, bulk(diamond::find()), "godwit search -- diamond", diamond::REMEDY),
        by_version(mmseqs::PROGRAM, bulk(mmseqs::find()), "godwit search -- mmseqs", mmseqs::REMEDY),
    ]
}

/// Reports the program that `--aligner auto` selects for a reference that has the indexes of both.
fn selected() -> Finding {
    let kind = IndexKind::BwaMem3;
    let problem = match (bwa::processor_problem(kind), bwa::installed(kind)) {
        (Some(problem), _) => Some(problem.to_owned()),
        (None, Err(error)) => Some(with_causes(&error)),
        (None, Ok((_, version))) if version.engine != bwa::library_version(kind) => {
            Some(format!("{} is of {} {}", bwa::program_name(kind), bwa::library_name(kind), version.engine))
        }
        _ => None,
    };
    let (kind, reason) = match problem {
        None => (kind, "where its index is there and fits into memory".to_owned()),
        Some(problem) => (IndexKind::Bwa, problem),
    };
    Finding::new(Area::Engines, "--aligner auto", State::Fine, format!("{}: {reason}", bwa::library_name(kind)))
}

/// One of godwit's own programs; `missing` is how bad it is that there is none.
fn own_aligner(kind: IndexKind, missing: State) -> Finding {
    let what = bwa::program_name(kind);
    let (godwit, expected) = (env!("CARGO_PKG_VERSION"), bwa::library_version(kind));
    let library = bwa::library_name(kind);
    let wrong = |state, found: String, remedy| Finding::new(Area::Engines, what, state, found).remedy(remedy);
    match bwa::installed(kind) {
        Ok((path, version)) => {
            let found = format!("{} ({library} {}), {}", version.godwit, version.engine, path.display());
            if version.godwit == godwit && version.engine == expected {
                Finding::new(Area::Engines, what, State::Fine, found)
            } else {
                let remedy = format!("install {what} {godwit} ({library} {expected})");
                wrong(missing.max(State::Warning), found, remedy)
            }
        }
        Err(EngineError::NotFound { .. }) => {
            let variable = bwa::program_variable(kind);
            let remedy = format!("put {what} beside godwit or on PATH, or name it in {variable}");
            wrong(missing, format!("not found; --aligner {library} needs it"), remedy)
        }
        Err(error) => {
            wrong(missing.max(State::Warning), with_causes(&error), format!("install the {what} of this godwit"))
        }
    }
}

/// A program that godwit itself asks for its version, since it does not take any.
fn by_version(what: &'static str, version: Result<String, EngineError>, purpose: &str, remedy: &str) -> Finding {
    match version {
        Ok(version) => Finding::new(Area::Engines, what, State::Fine, version),
        Err(EngineError::NotInstalled { .. } | EngineError::NotFound { .. }) => absent(what, purpose, remedy),
        Err(error) => Finding::new(Area::Engines, what, State::Warning, with_causes(&error)).remedy(remedy),
    }
}

fn absent(what: &'static str, purpose: &str, remedy: &str) -> Finding {
    Finding::new(Area::Engines, what, State::Note, format!("not installed; not needed ({purpose})")).remedy(remedy)
}

fn other_bwa() -> Finding {
    let expected = bwa::library_version(IndexKind::Bwa);
    let Some(path) = find("bwa") else { return Finding::new(Area::Engines, "bwa", State::Note, COMPARED) };
    // It prints its version where it prints its usage.
    let version = version(&path, "").unwrap_or_else(|| "version unknown".into());
    let found = Finding::new(Area::Engines, "bwa", State::Fine, format!("{version}, {}", path.display()));
    if version.contains(expected) {
        return found;
    }
    let remedy = format!("godwit gives the records of bwa {expected}; compare with that version");
    Finding { state: State::Note, ..found }.remedy(remedy)
}

fn samtools() -> Finding {
    let Some(path) = find("samtools") else { return Finding::new(Area::Engines, "samtools", State::Note, COMPARED) };
    let version = version(&path, "--version").unwrap_or_else(|| "version unknown".into());
    Finding::new(Area::Engines, "samtools", State::Fine, format!("{version}, {}", path.display()))
}

fn picard() -> Finding {
    match picard_jar() {
        Some(jar) if find("java").is_some() => {
            Finding::new(Area::Engines, "Picard", State::Fine, format!("3.4.0, {}", jar.display()))
        }
        Some(_) => Finding::new(
            Area::Engines,
            "Picard",
            State::Note,
            "not usable without java; godwit demo would compare with it",
        ),
        None => Finding::new(Area::Engines, "Picard", State::Note, COMPARED),
    }
}

/// The first executable file of that name on PATH.
pub(super) fn find(name: &str) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let runs =
        |path: &PathBuf| path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0);
    std::env::split_paths(&std::env::var_os("PATH")?).map(|directory| directory.join(name)).find(runs)
}

/// The version in what a program says of itself: the first word that starts with a number and has a dot.
fn version(program: &Path, argument: &str) -> Option<String> {
    let mut command = Command::new(program);
    command.args(Some(argument).filter(|argument| !argument.is_empty())).stdin(Stdio::null());
    let output = command.output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    version_in(&String::from_utf8_lossy(&text))
}

fn version_in(text: &str) -> Option<String> {
    let word = text.split_whitespace().map(|word| word.trim_matches(|c: char| "\"(),v".contains(c)));
    let numbered = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.');
    word.into_iter().find(numbered).map(|version| version.chars().take(40).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_programs_say() {
        for (text, version) in [
            ("\nProgram: bwa (alignment via Burrows-Wheeler)\nVersion: 0.7.17-r1188\n", Some("0.7.17-r1188")),
            ("samtools 1.16.1\nUsing htslib 1.16\n", Some("1.16.1")),
            ("/usr/bin/bowtie2-align-s version 2.5.0\n64-bit\n", Some("2.5.0")),
            ("slurm-wlm 22.05.8", Some("22.05.8")),
            ("nothing here", None),
        ] {
            assert_eq!(version_in(text).as_deref(), version, "{text}");
        }
    }
}
