//! Compares every record of godwit's exact aligners with the records of `bwa mem -K`, over scenarios drawn from a seed.
//!
//! In: a genome size, a number of templates and a seed. Out: a results file with one line for each comparison, a page made of it, and a
//! directory with the smallest set of reads for each difference.
//!
//! [`genome`] makes a reference with repeats. [`Scenario`] draws read lengths, options and block sizes. [`ReadSimulator`] makes the reads.
//! [`programs`] runs `bwa` and `godwit`. [`compare`] compares their records in the order of the sorted files. [`reduce`] finds the
//! smallest set of reads that still shows a difference. [`Observatory`] runs all of that and resumes where it was interrupted.
//!
//! The crate uses no crate of godwit: an oracle that shares code with the program under test repeats its mistakes.

mod comparison;
mod error;
pub mod genome;
mod observatory;
pub mod programs;
mod qualities;
mod random;
mod reduction;
mod results;
mod scenario;
mod simulator;

pub use comparison::{Comparison, DifferingTemplate, LineSource, compare};
pub use error::{Error, Result};
pub use observatory::{Observatory, Settings, Summary};
pub use qualities::{QualityProfile, QualitySource};
pub use reduction::{Placeholders, Reduction, Start, Subset, reduce};
pub use results::{Outcome, ResultRow, Results};
pub use scenario::{ReadLengths, Scenario};
pub use simulator::{Read, ReadSimulator, Template};
