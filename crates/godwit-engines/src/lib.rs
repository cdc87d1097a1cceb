//! Outside programs as well-behaved children.
//!
//! An engine is a program of its own: it may crash, exit or hang without taking godwit along. This crate finds it, checks
//! its version, feeds it Arrow batches, takes Arrow batches back, and turns its death into an error that names the
//! program, its command line and its last words. No biology is decided here.

pub mod aligner;
pub mod caller;
mod child;
mod dialogue;
mod error;
pub mod gatk;
mod locate;
pub mod normalizer;
pub mod recalibrator;
pub mod searcher;
pub mod stream;
mod survey;
pub mod trimmer;
pub mod variant_filter;
mod words;

pub use child::{Chain, ChildHandle, Link};
pub use dialogue::Dialogue;
pub use error::{EngineError, ExitCause};
pub use survey::{Surveyed, survey};

/// Takes version numbers apart and compares the first two.
fn is_at_least(version: &str, oldest: [u32; 2]) -> bool {
    let mut numbers = version.split(['.', '-', '+']).map_while(|number| number.parse::<u32>().ok());
    [numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)] >= oldest
}
