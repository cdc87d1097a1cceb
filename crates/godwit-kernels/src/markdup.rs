//! Duplicate marking exactly as Picard 3.4.0 `MarkDuplicates` does it, on coordinate-sorted or on query-grouped input.
//!
//! Records are read once, block by block, while mates are still together: [`SignatureBuilder`] turns them into pair and end
//! signatures. [`DuplicateMarker`] sorts the signatures of all blocks (externally), joins mates that were apart, decides
//! every duplicate set and returns a [`RecordSet`], one bit per record, and the [`DuplicationMetrics`] that Picard prints.
//! This module never holds the records themselves.

mod barcodes;
mod duplicate_decider;
mod duplicate_sets;
mod duplication_metrics;
mod marker;
mod mate_join;
mod optical;
mod read_location;
mod record_set;
mod signature;
mod sort_items;
mod template_lists;
mod templates;

#[cfg(test)]
mod tests;

pub use barcodes::{BarcodeError, BarcodeProblem, BarcodeTags, Barcodes, MoleculeStrand, molecule_strand};
pub use duplicate_sets::{DuplicateSet, DuplicateSets, SetMember};
pub(crate) use duplication_metrics::format_double;
pub use duplication_metrics::{DuplicationMetrics, LibraryMetrics, UNKNOWN_LIBRARY};
pub use marker::{BlockDetails, DuplicateMarker, DuplicateMarkerOptions, DuplicateMarks, MarkDuplicatesError};
pub use mate_join::RepeatedNameError;
pub use read_location::read_location;
pub use record_set::RecordSet;
pub use signature::{BlockSignatures, SignatureBuilder};
pub use templates::BlockTemplates;

/// Maximum distance in pixels of optical duplicates on a tile (Picard's default).
pub const DEFAULT_OPTICAL_DISTANCE: i32 = 100;

/// The mode of Picard's marking; the result depends on the order of its input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DuplicateMode {
    /// Coordinate-sorted input: reads are marked, that is mapped primary records; that order breaks ties.
    #[default]
    Coordinate,
    /// Input grouped by name, in the order of the blocks: every record of a duplicate's name is marked.
    Query,
}
