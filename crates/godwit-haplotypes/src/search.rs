//! The search for the best path: the variants of both sides, and their orientations, that give the same haplotypes.
//!
//! Flows in: the variants of both sides on one segment of a contig. Flows out: the included and excluded variants of the best path,
//! its sync points, and the intervals that were too complex. The search follows RTG vcfeval step by step (RTG Tools
//! 3.12.1, `com.rtg.vcf.eval.PathFinder`), because the order of the steps decides ties and where the limits apply.

mod best_path;
mod haplotype_states;
mod history;
mod path;
mod path_set;
mod side;

pub(crate) use best_path::{BestPath, SearchError, SearchInput, TooComplex, find_best_path};
pub(crate) use path::PathProgress;
pub(crate) use side::SearchSide;

/// Index of the call set in arrays of both sides.
pub(crate) const CALLS: usize = 0;
/// Index of the truth set in arrays of both sides.
pub(crate) const TRUTH: usize = 1;

/// A function that calls its argument with each value of one kind that the stored paths contain.
type ForEach<'f, T> = dyn FnMut(&mut dyn FnMut(&mut T)) + 'f;
