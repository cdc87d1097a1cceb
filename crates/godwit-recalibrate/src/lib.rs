//! Base quality score recalibration (BQSR) with the tables and qualities of GATK 4.6.2.0.
//!
//! Flows in: packed records, the bases of the reference, and the positions of known variants. Flows out: the report of
//! BaseRecalibrator, and records with the qualities of ApplyBQSR. A [`ReadCounter`] counts the bases of each read by
//! read group, reported quality, cycle and context. [`RecalibrationCounts`] of parts of a file can be added in any
//! order, because all counts are whole numbers. A [`Recalibrator`] estimates the quality of each combination from the
//! counts and changes the qualities of records.
//!
//! The options of GATK have their defaults: no BAQ, no tables of insertions and deletions, contexts of two bases, at
//! most 500 cycles. This crate does not read or write files.

mod clipped_read;
mod counts;
mod covariates;
mod empirical_quality;
mod error;
mod known_sites;
mod quantizer;
mod read_counter;
mod read_filter;
mod read_groups;
mod recalibration_report;
mod recalibrator;
mod report_table;

pub use counts::RecalibrationCounts;
pub use error::{ReadError, ReportError};
pub use known_sites::{KnownSites, KnownSitesBuilder};
pub use read_counter::ReadCounter;
pub use read_groups::RecalibrationGroups;
pub use recalibrator::{QualityOptions, Recalibrator, RecordBuffers};

/// The highest reported quality (Phred). A FASTQ file cannot express a higher one.
const MAX_QUALITY: u8 = 93;
/// Number of different reported qualities.
const QUALITIES: usize = MAX_QUALITY as usize + 1;
/// Qualities below this value (Phred) mark unusable bases: they are neither counted nor changed.
const MIN_USABLE_QUALITY: u8 = 6;
