//! External programs as supervised child processes.
//!
//! An engine is a separate program: it may crash, exit or hang without ending godwit. This crate finds it, checks its
//! version, sends and receives Arrow batches, and turns its exit into an error with the program, its command line and the
//! last lines of its stderr. It does not interpret alignments or variants.

pub mod aligner;
mod aligner_installations;
pub mod caller;
mod child;
mod command_template;
mod error;
pub mod gatk;
mod line_protocol_child;
pub mod normalizer;
mod program_lookup;
pub mod recalibrator;
pub mod searcher;
pub mod stream;
pub mod trimmer;
pub mod variant_filter;

pub use aligner_installations::{AlignerInstallation, find_aligners};
pub use child::{ChildHandle, PipelineCommand, ProcessPipeline};
pub use error::{EngineError, ExitCause};
pub use line_protocol_child::LineProtocolChild;

/// Reports whether a version is at least `oldest`, by its first two numbers.
fn is_version_at_least(version: &str, oldest: [u32; 2]) -> bool {
    let mut numbers = version.split(['.', '-', '+']).map_while(|number| number.parse::<u32>().ok());
    [numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)] >= oldest
}
