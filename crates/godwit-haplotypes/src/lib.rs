//! Comparison of a call set with a truth set by haplotypes, with the verdicts of RTG vcfeval.
//!
//! Flows in: two VCF files and the FASTA file of their reference. Flows out: the verdict for every record, as VCF files
//! and tables named as those of vcfeval, and a [`HaplotypeComparison`]. Two sets of variants are equal if the
//! haplotypes that they describe are equal, however the variants are written. The rules, their order and their limits
//! are those of RTG Tools 3.12.1; the golden cases show where they matter. This crate does not normalise variants, and
//! does not compare files without a reference.

mod alleles;
mod comparison;
mod comparison_options;
mod contig_records;
mod error;
mod evaluation;
mod genotype;
mod number_format;
mod orientations;
mod outcome;
mod output;
mod output_files;
mod phasing;
mod record;
mod reference_file;
mod regions;
mod report;
mod roc;
mod roc_curve;
mod scores;
mod search;
mod segments;
mod stratification;
mod stratum_counts;
mod subsets;
mod summary;
mod trimming;
mod variants;
mod vcf_source;

pub use comparison::compare_haplotypes;
pub use comparison_options::{
    HaplotypeOptions, LOCAL_MATCH_BASES, MAX_ALLELE_BASES, MAX_ITERATIONS, MAX_PATHS, OutputMode, PhaseRule,
    Preference, SampleChoice, ScoreField, SearchRules, Subset,
};
pub use error::HaplotypeError;
pub use phasing::PhasingCounts;
pub use report::{ACCURACY_HEADINGS, ComparedRecords, HaplotypeComparison, TooComplexInterval};
pub use roc::TypeCounts;
pub use roc_curve::{RocCurve, RocPoint};
pub use stratum_counts::{StratumCounts, StratumReport};
pub use summary::SummaryRow;
