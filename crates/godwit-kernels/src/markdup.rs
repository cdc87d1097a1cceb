//! Duplicate marking with the same results as Picard 3.4.0 `MarkDuplicates`, for coordinate-sorted or query-grouped
//! input.
//!
//! Records are read once, block by block, while mates are still neighbours. [`SignatureBuilder`] converts records to
//! signatures of pairs and single ends. [`DuplicateMarker`] sorts the signatures of all blocks (externally if
//! necessary), joins mates that were not neighbours, and decides every duplicate set. The results are a [`RecordSet`]
//! with one bit per record and the [`DuplicationMetrics`] that Picard prints. This module does not store the records
//! themselves.

mod barcodes;
mod duplicate_decider;
mod duplicate_sets;
mod duplication_metrics;
mod marker;
mod mate_join;
mod optical;
mod paired_ends;
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
pub use duplication_metrics::{
    DuplicationMetrics, LibraryMetrics, UNKNOWN_LIBRARY, estimate_library_size, expected_unique_ratio,
};
pub use marker::{BlockDetails, DuplicateMarker, DuplicateMarkerOptions, DuplicateMarks, MarkDuplicatesError};
pub use mate_join::RepeatedNameError;
pub use read_location::read_location;
pub use record_set::RecordSet;
pub use signature::{BlockSignatures, SignatureBuilder};
pub use templates::BlockTemplates;

/// The mode of duplicate marking. Picard uses one of these modes depending on the sort order of its input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DuplicateMode {
    /// The mode for coordinate-sorted input. Only mapped primary records are marked. Ties between equally good reads
    /// are broken by coordinate order.
    #[default]
    Coordinate,
    /// The mode for query-grouped input. All records with the name of a duplicate are marked. Ties are broken by input
    /// order.
    Query,
}
