//! Duplicate marking exactly as Picard 3.4.0 `MarkDuplicates` does it, on coordinate-sorted or on query-grouped input.
//!
//! Records flow in once, block by block, while mates are still together: [`SignatureBuilder`] turns them into pair and
//! end signatures. [`Marker`] sorts the signatures of all blocks (externally), joins mates that were apart, decides
//! every duplicate set and hands out [`Verdicts`], one bit per record, and the [`Metrics`] Picard prints. Records
//! themselves are never held here.

mod barcodes;
mod decide;
mod item;
mod join;
mod location;
mod marker;
mod metrics;
mod optical;
mod query;
mod sets;
mod signature;
mod templates;
mod verdicts;

#[cfg(test)]
mod tests;

pub use barcodes::{BarcodeError, BarcodeProblem, BarcodeTags, Barcodes, Strand, strand};
pub use join::JoinError;
pub use location::read_location;
pub use marker::{BlockDetails, MarkError, Marker, MarkerOptions, Marking};
pub(crate) use metrics::format_double;
pub use metrics::{LibraryMetrics, Metrics, UNKNOWN_LIBRARY};
pub use sets::{DuplicateSet, DuplicateSets, SetMember};
pub use signature::{BlockSignatures, SignatureBuilder};
pub use templates::BlockTemplates;
pub use verdicts::Verdicts;

/// Pixels that two reads of one tile may be apart and still be optical duplicates (Picard's default).
pub const DEFAULT_OPTICAL_DISTANCE: i32 = 100;

/// Which of Picard's two ways of marking is meant: its outcome depends on the order of its input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DuplicateMode {
    /// As on coordinate-sorted input: reads are marked, that is mapped primary records; ties are broken by that order.
    #[default]
    Coordinate,
    /// As on input grouped by name, in the order in which blocks come: every record of a duplicate's name is marked.
    Query,
}
