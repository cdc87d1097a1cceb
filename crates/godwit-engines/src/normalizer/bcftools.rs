//! `bcftools norm` as a child process that normalizes variant sites.
//!
//! The input is a sorted VCF of sites with one alternate allele each. The output is a VCF with the same values of `ID`.
//! A site with several changes becomes several records (`--atomize`). If there is a reference, each record is also
//! left-aligned and trimmed, and bcftools fails at a `REF` that does not match the reference.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{ChildStdin, Command};
use std::sync::Arc;

use crate::child::{self, ChildState};
use crate::program_lookup::query_required_version;
use crate::{ChildHandle, EngineError, bcftools};

/// The oldest supported version, as major and minor version: the first one with `norm --atomize`.
const MIN_VERSION: [u32; 2] = [1, 12];
/// Text before the position in bcftools' message about a `REF` that does not match the reference (1.16, `vcfnorm.c`).
const REFERENCE_MISMATCH_PREFIX: &str = "Reference allele mismatch at ";

/// A running `bcftools norm`. Write to `input` and read from `output` in two threads, because bcftools writes before
/// its input ends.
pub struct Normalizer {
    /// Pipe to which the input VCF is written. Drop it to end the input.
    pub input: ChildStdin,
    /// Pipe from which the output VCF is read.
    pub output: File,
    /// The process of bcftools.
    pub child: NormalizerChild,
}

/// The process of a running `bcftools norm`.
pub struct NormalizerChild {
    /// Handle that can wait for the process or kill it.
    pub handle: ChildHandle,
    /// Version of bcftools.
    pub version: String,
    state: Arc<ChildState>,
}

impl NormalizerChild {
    /// Returns the error for output of bcftools that is invalid although its exit status is 0.
    pub fn output_error(&self, problem: String) -> EngineError {
        self.state.output_error(problem, false)
    }
}

impl Normalizer {
    /// Starts `bcftools norm`. `reference`: path of a FASTA file with its `.fai` index beside it.
    ///
    /// # Errors
    /// [`EngineError::NotFound`], [`EngineError::Io`], and [`EngineError::VersionMismatch`] if the program is too old
    /// or prints no version.
    pub fn start(reference: Option<&Path>) -> Result<Self, EngineError> {
        let program = bcftools::find_program()?;
        let version = query_required_version(&program, bcftools::PROGRAM, MIN_VERSION)?;
        let mut command = Command::new(&program);
        command.args(["norm", "--no-version", "--output-type", "v", "--atomize"]);
        if let Some(reference) = reference {
            command.args(["--check-ref", "e", "--fasta-ref"]).arg(reference);
        }
        command.arg("-");
        let started = child::start_piped(program, command)?;
        started.state.set_version(&version);
        let output = File::from(OwnedFd::from(started.stdout));
        let (handle, state) = (ChildHandle::new(started.state.clone()), started.state);
        Ok(Self { input: started.stdin, output, child: NormalizerChild { handle, version, state } })
    }
}

/// If bcftools failed because a `REF` does not match the reference, returns its message: the position and both alleles.
pub fn reference_mismatch(error: &EngineError) -> Option<&str> {
    let EngineError::Exited { stderr_tail, .. } = error else { return None };
    stderr_tail.iter().find_map(|line| line.trim().strip_prefix(REFERENCE_MISMATCH_PREFIX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_take_changes_apart_are_taken() {
        let versions = [("1.16", true), ("1.21+htslib-1.21", true), ("2.0", true), ("1.10.2-3", false), ("x", false)];
        for (version, recent) in versions {
            assert_eq!(crate::is_version_at_least(version, MIN_VERSION), recent, "{version}");
        }
    }
}
