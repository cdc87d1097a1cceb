//! Options of `godwit recalibrate`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use godwit_call::RecalibrationEngine;
use godwit_recalibrate::QualityOptions;

use super::CommonArgs;
use super::value_parsers::{parse_bam, parse_size};
use crate::config::THIS_RUN_HEADING;

#[derive(Args)]
pub struct RecalibrateArgs {
    /// The reference that the reads were aligned to, FASTA
    #[arg(long, value_name = "REF.fa")]
    pub reference: PathBuf,
    /// BAM with its index, or the output directory of `godwit align`
    #[arg(long, value_name = "BAM|DIR", help_heading = THIS_RUN_HEADING)]
    pub reads: PathBuf,
    /// VCFs of known variants: bases there do not count as errors; --engine gatk needs their indexes
    #[arg(long, value_name = "VCF", num_args = 1.., required = true)]
    pub known_sites: Vec<PathBuf>,
    /// Output BAM; its index, table, manifest and report are written beside it
    #[arg(long, value_name = "NAME.bam", value_parser = parse_bam, help_heading = THIS_RUN_HEADING)]
    pub out: PathBuf,
    /// The program that counts and changes qualities; both give the same table and qualities
    #[arg(long, value_enum, value_name = "own|gatk", default_value_t = EngineName::Own, hide_possible_values = true)]
    pub engine: EngineName,
    #[command(flatten)]
    pub quality: QualityArgs,
    /// Number of records that are processed at once [default: 100000; 500000 with --engine gatk]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub slice_records: Option<u64>,
    /// Memory of each GATK, with --engine gatk; --memory is the total [default: 4G]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub gatk_memory: Option<u64>,
    /// Resume a stopped run of the same command; finished slices are not repeated
    #[arg(long, help_heading = THIS_RUN_HEADING)]
    pub resume: bool,
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Options of recalibrated qualities, with the names of GATK's options.
#[derive(Args, Default)]
pub struct QualityArgs {
    /// Round recalibrated qualities to the nearest of these, such as 10,20,30
    #[arg(long, value_name = "Q,..", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(1..=93))]
    pub static_quantized_quals: Vec<u8>,
    /// Reduce recalibrated qualities to this number of different ones
    #[arg(long, value_name = "N", conflicts_with = "static_quantized_quals", value_parser = clap::value_parser!(u8).range(1..=94))]
    pub quantize_quals: Option<u8>,
    /// Store the previous qualities in the tag OQ
    #[arg(long)]
    pub emit_original_quals: bool,
    /// Count and change the qualities in the tag OQ, where a read has it
    #[arg(long)]
    pub use_original_qualities: bool,
}

impl QualityArgs {
    /// Returns the options of the pipeline.
    pub fn options(&self) -> QualityOptions {
        QualityOptions {
            static_levels: self.static_quantized_quals.clone(),
            quantizing_levels: self.quantize_quals.map(usize::from),
            emit_original: self.emit_original_quals,
            use_original: self.use_original_qualities,
        }
    }
}

/// The program that counts and changes base qualities.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EngineName {
    /// godwit itself
    Own,
    /// BaseRecalibrator and ApplyBQSR of GATK
    Gatk,
}

impl From<EngineName> for RecalibrationEngine {
    fn from(name: EngineName) -> Self {
        match name {
            EngineName::Own => Self::Own,
            EngineName::Gatk => Self::Gatk,
        }
    }
}
