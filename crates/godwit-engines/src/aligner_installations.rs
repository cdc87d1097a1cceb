//! The aligners that are installed on this machine.

use std::path::PathBuf;

use crate::aligner::{bwa, sam_program};
use crate::program_lookup::{find_program, query_program_version};

/// An aligner that godwit knows, whether installed or not.
#[derive(Clone, Debug)]
pub struct AlignerInstallation {
    /// The value of `--aligner`, or the name of the program if it can only be used as a template.
    pub name: &'static str,
    /// Path of the program; `None` if it is not installed.
    pub program: Option<PathBuf>,
    /// Version that the program prints; `None` if it is not installed or prints none.
    pub version: Option<String>,
    /// Instructions for installing the program.
    pub remedy: &'static str,
}

const OWN_ALIGNER_REMEDY: &str = "it is part of godwit's installation: install it beside godwit or on PATH";

/// Looks for every aligner that godwit knows and starts each installed one once, to read its version.
pub fn find_aligners() -> Vec<AlignerInstallation> {
    let own = [("bwa", bwa::IndexKind::Bwa), ("bwa-mem3", bwa::IndexKind::BwaMem3)];
    let own = own.map(|(name, kind)| (name, bwa::find_program(kind).ok(), OWN_ALIGNER_REMEDY));
    let foreign = sam_program::EXTERNAL_ALIGNERS.map(|(name, remedy)| (name, find_program(name, remedy).ok(), remedy));
    let all = own.into_iter().chain(foreign);
    all.map(|(name, program, remedy)| {
        let version = program.as_ref().and_then(|program| query_program_version(program, &["--version"]));
        AlignerInstallation { name, program, version, remedy }
    })
    .collect()
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
