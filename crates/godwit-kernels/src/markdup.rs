//! Duplicate marking exactly as Picard 3.4.0 `MarkDuplicates` does it on coordinate-sorted input.
//!
//! Records flow in once, block by block, while mates are still together: [`SignatureBuilder`] turns them into pair and
//! end signatures. [`Marker`] sorts the signatures of all blocks (externally), joins mates that were apart, decides
//! every duplicate set and hands out [`Verdicts`], one bit per record, and the [`Metrics`] Picard prints. Records
//! themselves are never held here.

mod decide;
mod join;
mod location;
mod marker;
mod metrics;
mod optical;
mod signature;
mod verdicts;

#[cfg(test)]
mod tests;

pub use join::JoinError;
pub use location::read_location;
pub use marker::{MarkError, Marker, MarkerOptions};
pub use metrics::{LibraryMetrics, Metrics, UNKNOWN_LIBRARY};
pub use signature::{BlockSignatures, SignatureBuilder};
pub use verdicts::Verdicts;

/// Pixels that two reads of one tile may be apart and still be optical duplicates (Picard's default).
pub const DEFAULT_OPTICAL_DISTANCE: i32 = 100;
