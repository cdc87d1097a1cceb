//! The aligners that are installed on this machine.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::aligner::{bwa, sam_program};

/// An aligner that godwit knows, whether installed or not.
#[derive(Clone, Debug)]
pub struct AlignerInstallation {
    /// The value of `--aligner`, or the name of the program if it can only be used as a template.
    pub name: &'static str,
    /// Path of the program; `None` if it is not installed.
    pub program: Option<PathBuf>,
    /// First line that the program prints as its version; `None` if it is not installed or prints none.
    pub version: Option<String>,
    /// Instructions for installing the program.
    pub remedy: &'static str,
}

const OWN_ALIGNER_REMEDY: &str = "it is part of godwit's installation: install it beside godwit or on PATH";

/// Looks for every aligner that godwit knows and starts each installed one once, to read its version.
pub fn find_aligners() -> Vec<AlignerInstallation> {
    let own = [("bwa", bwa::IndexKind::Bwa), ("bwa-mem3", bwa::IndexKind::BwaMem3)];
    let own = own.map(|(name, kind)| (name, bwa::find_program(kind).ok(), OWN_ALIGNER_REMEDY));
    let foreign = sam_program::EXTERNAL_ALIGNERS
        .map(|(name, remedy)| (name, sam_program::find_program(name, remedy).ok(), remedy));
    let all = own.into_iter().chain(foreign);
    all.map(|(name, program, remedy)| {
        let version = program.as_ref().and_then(query_version_line);
        AlignerInstallation { name, program, version, remedy }
    })
    .collect()
}

fn query_version_line(program: &PathBuf) -> Option<String> {
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).output().ok()?;
    let line = String::from_utf8_lossy(&output.stdout).lines().next()?.trim().to_owned();
    (!line.is_empty()).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_engine_is_found_with_a_version_or_comes_with_a_remedy() {
        let found = find_aligners();
        assert_eq!(found.iter().map(|engine| engine.name).collect::<Vec<_>>()[..3], ["bwa", "bwa-mem3", "minimap2"]);
        for engine in found {
            assert!(engine.remedy.contains("install"), "{engine:?}");
            assert!(engine.version.is_none() || engine.program.is_some(), "{engine:?}");
        }
    }
}
