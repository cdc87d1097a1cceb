//! `bcftools norm`, as a child that takes sites and gives them back in their one form.
//!
//! Flows in: VCF of sites with one alternate allele each, sorted. Flows out: VCF with the same `ID`s: what is made of
//! several changes comes back as several records (`--atomize`), and with a reference each is moved to the left as far as it
//! goes and made as short as it gets. A `REF` that the reference does not have ends the program.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::Arc;

use crate::child::{self, ChildState};
use crate::locate::locate;
use crate::{ChildHandle, EngineError};

/// Name of the program.
const PROGRAM: &str = "bcftools";
/// Environment variable that names the program's path.
pub const PROGRAM_VARIABLE: &str = "GODWIT_BCFTOOLS";
/// The oldest version with `norm --atomize`, as major and minor.
const OLDEST: [u32; 2] = [1, 12];
/// What it says of a `REF` that the reference does not have (1.16, `vcfnorm.c`), before the place.
const MISMATCH: &str = "Reference allele mismatch at ";

/// A bcftools at work. Write to `input` and read from `output` at the same time: neither waits for the other to end.
pub struct Normalizer {
    /// Where VCF goes; drop it to end the input.
    pub input: ChildStdin,
    /// Where VCF comes from.
    pub output: File,
    /// The program.
    pub child: NormalizerChild,
}

/// The life of a bcftools.
pub struct NormalizerChild {
    /// Waits for it, or ends it.
    pub handle: ChildHandle,
    /// Its version.
    pub version: String,
    state: Arc<ChildState>,
}

impl NormalizerChild {
    /// The error of a bcftools that ended well, but whose output is not what it should be.
    pub fn wrong_output(&self, problem: String) -> EngineError {
        self.state.explain_output(problem, false)
    }
}

impl Normalizer {
    /// Starts the program; `reference` is FASTA with its `.fai` beside it.
    ///
    /// # Errors
    /// [`EngineError::NotFound`], [`EngineError::Io`], and [`EngineError::VersionMismatch`] for one that is too old or says no
    /// version.
    pub fn start(reference: Option<&Path>) -> Result<Self, EngineError> {
        let program = locate(PROGRAM, PROGRAM_VARIABLE)?;
        let version = version(&program)?;
        let mut command = Command::new(&program);
        command.args(["norm", "--no-version", "--output-type", "v", "--atomize"]);
        if let Some(reference) = reference {
            command.args(["--check-ref", "e", "--fasta-ref"]).arg(reference);
        }
        command.arg("-");
        let started = child::start(program, command)?;
        started.state.set_version(&version);
        let output = File::from(OwnedFd::from(started.stdout));
        let (handle, state) = (ChildHandle::new(started.state.clone()), started.state);
        Ok(Self { input: started.stdin, output, child: NormalizerChild { handle, version, state } })
    }
}

/// What the program said of a `REF` that the reference does not have, if that ended it: the place and both.
pub fn reference_mismatch(error: &EngineError) -> Option<&str> {
    let EngineError::Died { stderr_tail, .. } = error else { return None };
    stderr_tail.iter().find_map(|line| line.trim().strip_prefix(MISMATCH))
}

fn version(program: &Path) -> Result<String, EngineError> {
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).output();
    let io = |source| EngineError::Io { program: program.to_owned(), action: "start", source };
    let said = String::from_utf8_lossy(&output.map_err(io)?.stdout).into_owned();
    let found = said.lines().next().and_then(|line| line.strip_prefix("bcftools ")).unwrap_or("an unknown version");
    if is_recent(found) {
        return Ok(found.to_owned());
    }
    let (program, expected) = (PathBuf::from(program), format!("{}.{} or later", OLDEST[0], OLDEST[1]));
    Err(EngineError::VersionMismatch { program, component: PROGRAM, expected, found: found.to_owned() })
}

fn is_recent(version: &str) -> bool {
    let mut numbers = version.split(|letter: char| !letter.is_ascii_digit()).map(|number| number.parse::<u32>().ok());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(major), Some(minor)) => [major, minor] >= OLDEST,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_take_changes_apart_are_taken() {
        let versions = [("1.16", true), ("1.21+htslib-1.21", true), ("2.0", true), ("1.10.2-3", false), ("x", false)];
        for (version, recent) in versions {
            assert_eq!(is_recent(version), recent, "{version}");
        }
    }
}
