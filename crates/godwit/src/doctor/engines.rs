//! Programs that godwit runs or is compared with, and the index of a reference.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use godwit_engines::EngineError;
use godwit_engines::aligner::bwa::{self, BWA_VERSION, PROGRAM_VARIABLE};
use godwit_pipeline::{Blame, PipelineError, current_index};

use super::{Finding, State};
use crate::failure::with_causes;

/// Programs that are not needed, how they tell their version, and what they are good for. An empty argument asks
/// programs that print their version where they print their usage.
const OTHERS: [(&str, &str, &str); 9] = [
    ("bwa", "", "godwit demo compares with it"),
    ("samtools", "--version", "godwit demo compares with it"),
    ("java", "-version", "godwit demo compares with Picard, which needs it"),
    ("bwa-mem2", "version", "an aligner"),
    ("minimap2", "--version", "an aligner"),
    ("bcftools", "--version", "a variant caller"),
    ("freebayes", "--version", "a variant caller"),
    ("gatk", "", "a variant caller"),
    ("fastp", "--version", "trims reads"),
];

/// The aligner and the optional programs.
pub fn engines() -> Vec<Finding> {
    let mut findings = vec![Finding::new("engines", "godwit", State::Fine, env!("CARGO_PKG_VERSION"))];
    findings.push(aligner());
    for (name, argument, purpose) in OTHERS {
        findings.push(match find(name) {
            None => Finding::new("engines", name, State::Note, format!("not on PATH; not needed ({purpose})")),
            Some(path) => {
                let version = version(&path, argument).unwrap_or_else(|| "version unknown".into());
                let found = Finding::new("engines", name, State::Fine, format!("{version} at {}", path.display()));
                if name == "bwa" && !version.contains(BWA_VERSION) { other_bwa(found) } else { found }
            }
        });
    }
    findings
}

fn other_bwa(mut found: Finding) -> Finding {
    found.state = State::Warning;
    found.remedy(format!("godwit gives the records of bwa {BWA_VERSION}; compare with that version"))
}

fn aligner() -> Finding {
    let what = "godwit-bwa";
    let missing = |found: String, remedy: String| Finding::new("engines", what, State::Missing, found).remedy(remedy);
    match bwa::installed() {
        Ok((path, version)) => {
            let found = format!("{} (bwa {}) at {}", version.godwit, version.engine, path.display());
            if version.godwit == env!("CARGO_PKG_VERSION") && version.engine == BWA_VERSION {
                Finding::new("engines", what, State::Fine, found)
            } else {
                missing(found, format!("install godwit-bwa {} (bwa {BWA_VERSION})", env!("CARGO_PKG_VERSION")))
            }
        }
        Err(EngineError::NotFound { .. }) => missing(
            "not found".into(),
            format!("put godwit-bwa beside godwit or on PATH, or name it in {PROGRAM_VARIABLE}"),
        ),
        Err(error) => missing(with_causes(&error), "install the godwit-bwa of this godwit".into()),
    }
}

/// Whether the index of a reference is there and belongs to it.
pub fn index(reference: &Path) -> Finding {
    let what = reference.display().to_string();
    match current_index(reference) {
        Ok(genome) => Finding::new("index", what, State::Fine, format!("current, {} contigs", genome.contigs().len())),
        Err(error) => {
            let remedy = match &error {
                PipelineError::StaleIndex { .. } => format!("run `godwit index {}`", reference.display()),
                PipelineError::Missing { remedy, .. } => remedy.clone(),
                other if other.blame() == Blame::Input => "mend the reference".into(),
                _ => "check the path and its permissions".into(),
            };
            Finding::new("index", what, State::Missing, with_causes(&error)).remedy(remedy)
        }
    }
}

/// The first executable file of that name on PATH.
pub(super) fn find(name: &str) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let runs =
        |path: &PathBuf| path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0);
    std::env::split_paths(&std::env::var_os("PATH")?).map(|directory| directory.join(name)).find(runs)
}

/// The first line a program says that holds a version.
pub(super) fn version(program: &Path, argument: &str) -> Option<String> {
    let mut command = Command::new(program);
    command.args(Some(argument).filter(|argument| !argument.is_empty())).stdin(Stdio::null());
    let output = command.output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let numbered = |line: &&str| {
        line.split_whitespace().any(|word| word.contains('.') && word.contains(|c: char| c.is_ascii_digit()))
    };
    text.lines().find(numbered).map(|line| line.trim().chars().take(80).collect())
}
