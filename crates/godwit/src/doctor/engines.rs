//! Checks of the programs that godwit starts, and of those that `godwit demo` compares it with.

use std::path::PathBuf;

use godwit_engines::aligner::bwa::{self, IndexKind};
use godwit_engines::aligner::minimap2::{self, Minimap2};
use godwit_engines::caller::{CallerChoice, freebayes};
use godwit_engines::searcher::{blast, diamond, mmseqs};
use godwit_engines::trimmer::fastp;
use godwit_engines::{EngineError, bcftools, find_aligners, find_on_path, gatk, query_program_version, sql_program};
use godwit_model::message_with_causes;

use super::{Area, Finding, FindingState};
use crate::demo::picard_jar;

/// Details in the finding for a missing program that only `godwit demo` uses.
const NOT_INSTALLED_FOR_DEMO: &str = "not installed; optional: godwit demo compares its results with this tool";

/// Checks the aligners, the trimmer, and the programs with which `godwit demo` compares the output.
pub fn engines() -> Vec<Finding> {
    let mut findings = vec![Finding::new(Area::Engines, "godwit", FindingState::Fine, env!("CARGO_PKG_VERSION"))];
    findings.extend([
        godwit_aligner(IndexKind::Bwa, FindingState::Missing),
        godwit_aligner(IndexKind::BwaMem3, FindingState::Note),
        automatic_aligner(),
    ]);
    findings.extend(find_aligners().into_iter().filter_map(|engine| match engine.name {
        "bwa" | "bwa-mem3" => None,
        minimap2::PROGRAM => {
            let found = Minimap2::find_installed(&[]).map(|minimap2| minimap2.version().to_owned());
            Some(program_finding(minimap2::PROGRAM, found, "an aligner", engine.remedy))
        }
        name => Some(match engine.program {
            None => missing_program(name, "an aligner that --aligner defines by its command line", engine.remedy),
            Some(path) => {
                let version = engine.version.unwrap_or_else(|| "version unknown".into());
                Finding::new(Area::Engines, name, FindingState::Fine, format!("{version}, {}", path.display()))
            }
        }),
    }));
    findings.push(program_finding(fastp::PROGRAM, fastp::query_version(None), "--trim", fastp::REMEDY));
    findings.extend(callers());
    findings.extend(searchers());
    findings.push(sql_engine());
    findings.extend([reference_bwa(), samtools(), picard()]);
    findings
}

/// Checks the variant callers that `--caller` accepts by name.
fn callers() -> impl Iterator<Item = Finding> {
    let named = [
        (bcftools::PROGRAM, CallerChoice::Bcftools, bcftools::REMEDY),
        (freebayes::PROGRAM, CallerChoice::Freebayes, freebayes::REMEDY),
        (gatk::PROGRAM, CallerChoice::Gatk, gatk::REMEDY),
    ];
    named.into_iter().map(|(name, choice, remedy)| {
        let version = choice.find_caller("").map(|caller| caller.version().to_owned());
        program_finding(name, version, "godwit call", remedy)
    })
}

/// Checks the BLAST engine of `godwit search`, and the installed search tools DIAMOND and MMseqs2.
fn searchers() -> [Finding; 3] {
    let found = blast::find_worker().and_then(|worker| {
        let version = blast::query_worker_version(&worker)?;
        Ok(format!("BLAST {version}, {}", worker.display()))
    });
    let bulk = |found: Result<(PathBuf, String), EngineError>| {
        found.map(|(path, version)| format!("{version}, {}", path.display()))
    };
    [
        program_finding(blast::WORKER_PROGRAM, found, "godwit search", blast::WORKER_REMEDY),
        program_finding(
            diamond::PROGRAM,
            bulk(diamond::find_program_version()),
            "godwit search -- diamond",
            diamond::REMEDY,
        ),
        program_finding(
            mmseqs::PROGRAM,
            bulk(mmseqs::find_program_version()),
            "godwit search -- mmseqs",
            mmseqs::REMEDY,
        ),
    ]
}

/// Checks the program that runs SQL statements.
fn sql_engine() -> Finding {
    let found = sql_program::find_program()
        .and_then(|program| Ok((sql_program::query_version(&program)?, program)))
        .map(|(version, program)| (version == env!("CARGO_PKG_VERSION"), format!("{version}, {}", program.display())));
    match found {
        Ok((false, found)) => Finding::new(Area::Engines, sql_program::PROGRAM, FindingState::Warning, found)
            .with_remedy(sql_program::REMEDY),
        found => {
            let version = found.map(|(_, found)| found);
            program_finding(sql_program::PROGRAM, version, "godwit query, SQL of godwit serve", sql_program::REMEDY)
        }
    }
}

/// Returns a finding with the aligner that `--aligner auto` selects if a reference has the indexes of bwa and bwa-mem3.
fn automatic_aligner() -> Finding {
    let kind = IndexKind::BwaMem3;
    let problem = match (bwa::processor_problem(kind), bwa::find_program_version(kind)) {
        (Some(problem), _) => Some(problem.to_owned()),
        (None, Err(error)) => Some(message_with_causes(&error)),
        (None, Ok((_, version))) if version.engine_version != bwa::library_version(kind) => {
            Some(format!("{} is of {} {}", bwa::program_name(kind), bwa::library_name(kind), version.engine_version))
        }
        _ => None,
    };
    let (kind, reason) = match problem {
        None => (kind, "if its index exists and fits into memory".to_owned()),
        Some(problem) => (IndexKind::Bwa, problem),
    };
    Finding::new(Area::Engines, "--aligner auto", FindingState::Fine, format!("{}: {reason}", bwa::library_name(kind)))
}

/// Checks one of godwit's own aligner programs; `missing` is the state if the program is not found.
fn godwit_aligner(kind: IndexKind, missing: FindingState) -> Finding {
    let what = bwa::program_name(kind);
    let (godwit, expected) = (env!("CARGO_PKG_VERSION"), bwa::library_version(kind));
    let library = bwa::library_name(kind);
    let wrong = |state, found: String, remedy| Finding::new(Area::Engines, what, state, found).with_remedy(remedy);
    match bwa::find_program_version(kind) {
        Ok((path, version)) => {
            let found =
                format!("{} ({library} {}), {}", version.godwit_version, version.engine_version, path.display());
            if version.godwit_version == godwit && version.engine_version == expected {
                Finding::new(Area::Engines, what, FindingState::Fine, found)
            } else {
                let remedy = format!("install {what} {godwit} ({library} {expected})");
                wrong(missing.max(FindingState::Warning), found, remedy)
            }
        }
        Err(EngineError::NotFound { .. }) => {
            let variable = bwa::program_variable(kind);
            let remedy = format!("put {what} beside godwit or on PATH, or set {variable} to its path");
            wrong(missing, format!("not found; --aligner {library} requires it"), remedy)
        }
        Err(error) => wrong(
            missing.max(FindingState::Warning),
            message_with_causes(&error),
            format!("install the {what} of the same version as godwit"),
        ),
    }
}

/// Returns the finding for a program. `version` is the result of a query for its version.
fn program_finding(what: &'static str, version: Result<String, EngineError>, purpose: &str, remedy: &str) -> Finding {
    match version {
        Ok(version) => Finding::new(Area::Engines, what, FindingState::Fine, version),
        Err(EngineError::NotInstalled { .. } | EngineError::NotFound { .. }) => missing_program(what, purpose, remedy),
        Err(error) => {
            Finding::new(Area::Engines, what, FindingState::Warning, message_with_causes(&error)).with_remedy(remedy)
        }
    }
}

fn missing_program(what: &'static str, purpose: &str, remedy: &str) -> Finding {
    Finding::new(Area::Engines, what, FindingState::Note, format!("not installed; not needed ({purpose})"))
        .with_remedy(remedy)
}

fn reference_bwa() -> Finding {
    let expected = bwa::library_version(IndexKind::Bwa);
    let Some(path) = find_on_path("bwa") else {
        return Finding::new(Area::Engines, "bwa", FindingState::Note, NOT_INSTALLED_FOR_DEMO);
    };
    // bwa without arguments prints its usage, which contains the version.
    let version = query_program_version(&path, &[]).unwrap_or_else(|| "version unknown".into());
    let found = Finding::new(Area::Engines, "bwa", FindingState::Fine, format!("{version}, {}", path.display()));
    if version.contains(expected) {
        return found;
    }
    let remedy = format!("godwit's records equal those of bwa {expected}; use this version to compare");
    Finding { state: FindingState::Note, ..found }.with_remedy(remedy)
}

fn samtools() -> Finding {
    let Some(path) = find_on_path("samtools") else {
        return Finding::new(Area::Engines, "samtools", FindingState::Note, NOT_INSTALLED_FOR_DEMO);
    };
    let version = query_program_version(&path, &["--version"]).unwrap_or_else(|| "version unknown".into());
    Finding::new(Area::Engines, "samtools", FindingState::Fine, format!("{version}, {}", path.display()))
}

fn picard() -> Finding {
    match picard_jar() {
        Some(jar) if find_on_path("java").is_some() => {
            Finding::new(Area::Engines, "Picard", FindingState::Fine, format!("3.4.0, {}", jar.display()))
        }
        Some(_) => Finding::new(
            Area::Engines,
            "Picard",
            FindingState::Note,
            "not usable without java; optional: godwit demo compares its results with this tool",
        ),
        None => Finding::new(Area::Engines, "Picard", FindingState::Note, NOT_INSTALLED_FOR_DEMO),
    }
}
