//! External programs such as aligners and variant callers, run as supervised child processes.
//!
//! An engine is a separate program that may crash, exit or hang without ending godwit. This crate finds the program,
//! checks its version, and exchanges Arrow batches or text with it. If the program fails, the error contains its path,
//! its command line and the last lines of its stderr. This crate does not interpret alignments or variants.

pub mod aligner;
mod aligner_installations;
pub mod bcftools;
pub mod caller;
mod child;
mod command_template;
mod error;
pub mod gatk;
mod line_protocol_child;
pub mod normalizer;
mod program_lookup;
pub mod recalibrator;
mod refused_options;
pub mod searcher;
pub mod sql_program;
pub mod stream;
pub mod trimmer;
pub mod usage_error;
pub mod variant_filter;

pub use aligner_installations::{AlignerInstallation, find_aligners};
pub use child::{ChildHandle, PipelineCommand, ProcessPipeline};
pub use error::{EngineError, ExitCause, UnreadableInput};
pub use line_protocol_child::LineProtocolChild;
pub use program_lookup::{find_on_path, query_program_version};

/// Checks that the version `found` of a program is at least `oldest`, compared by major and minor version.
///
/// # Errors
/// [`EngineError::VersionMismatch`] if it is older, or not a version.
fn check_version(
    program: &std::path::Path,
    component: &'static str,
    found: &str,
    oldest: [u32; 2],
) -> Result<(), EngineError> {
    if is_version_at_least(found, oldest) {
        return Ok(());
    }
    let expected = format!("{}.{} or later", oldest[0], oldest[1]);
    Err(EngineError::VersionMismatch { program: program.to_owned(), component, expected, found: found.to_owned() })
}

/// Returns whether a version is at least `oldest`, compared by major and minor version.
fn is_version_at_least(version: &str, oldest: [u32; 2]) -> bool {
    let mut numbers = version.split(['.', '-', '+']).map_while(|number| number.parse::<u32>().ok());
    [numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)] >= oldest
}
