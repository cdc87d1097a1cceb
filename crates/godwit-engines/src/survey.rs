//! Which engines this machine has.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::aligner::{bwa, foreign};

/// An engine, there or not.
#[derive(Clone, Debug)]
pub struct Surveyed {
    /// The word for `--aligner`, or the program's name where it takes a template.
    pub name: &'static str,
    /// Path of the program.
    pub program: Option<PathBuf>,
    /// First line of what it says of its version.
    pub version: Option<String>,
    /// How to install it.
    pub remedy: &'static str,
}

/// Aligners by program of somebody else's, and how to get them.
const FOREIGN: [(&str, &str); 3] = [
    ("minimap2", "install minimap2 2.24 or later (Debian and Ubuntu: apt-get install minimap2; bioconda: minimap2)"),
    ("bowtie2", "install bowtie2 (Debian and Ubuntu: apt-get install bowtie2; bioconda: bowtie2)"),
    ("strobealign", "install strobealign (bioconda: strobealign)"),
];
const OWN: &str = "it comes with godwit: install it beside godwit or on PATH";

/// How to install a program.
pub(crate) fn remedy(program: &str) -> &'static str {
    let known = FOREIGN.iter().find(|(name, _)| *name == program);
    known.map_or("install it, or give its path", |(_, remedy)| remedy)
}

/// Looks for every aligner godwit knows. Starts each once, for its version.
pub fn survey() -> Vec<Surveyed> {
    let own = [("bwa", bwa::IndexKind::Bwa), ("bwa-mem3", bwa::IndexKind::BwaMem3)];
    let own = own.map(|(name, kind)| (name, bwa::find(kind).ok(), OWN));
    let foreign = FOREIGN.map(|(name, remedy)| (name, foreign::find_program(name, remedy).ok(), remedy));
    let all = own.into_iter().chain(foreign);
    all.map(|(name, program, remedy)| {
        let version = program.as_ref().and_then(first_line);
        Surveyed { name, program, version, remedy }
    })
    .collect()
}

fn first_line(program: &PathBuf) -> Option<String> {
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).output().ok()?;
    let line = String::from_utf8_lossy(&output.stdout).lines().next()?.trim().to_owned();
    (!line.is_empty()).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_engine_is_found_with_a_version_or_comes_with_a_remedy() {
        let found = survey();
        assert_eq!(found.iter().map(|engine| engine.name).collect::<Vec<_>>()[..3], ["bwa", "bwa-mem3", "minimap2"]);
        for engine in found {
            assert!(engine.remedy.contains("install"), "{engine:?}");
            assert!(engine.version.is_none() || engine.program.is_some(), "{engine:?}");
        }
    }
}
