//! Options of `godwit align`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use godwit_engines::aligner::AlignerChoice;
use godwit_engines::caller::CallerChoice;

use super::bam_metrics::parse_job_metrics;
use super::value_parsers::{parse_aligner, parse_caller, parse_kept_tag, parse_sample, parse_step};
use super::{
    CallingArgs, ClusterArgs, CommonArgs, FormatName, KeyArgs, MarkingArgs, MetricsValue, QualityArgs, RecipientArgs,
    TargetListArgs,
};
use crate::config::THIS_RUN_HEADING;

#[derive(Args)]
pub struct AlignArgs {
    /// The reference, FASTA, indexed by `godwit index`
    #[arg(long, value_name = "REF.fa")]
    pub reference: PathBuf,
    /// Reads of one lane: FASTQ, one file or read 1 and read 2, or unaligned SAM, BAM or CRAM; - is stdin; repeat for each lane
    #[arg(long, value_name = "FQ", num_args = 1..=2, required = true, help_heading = THIS_RUN_HEADING)]
    pub reads: Vec<PathBuf>,
    /// The files of `reads`, grouped by occurrence of `--reads`;
    /// [`Cli::from_environment`](super::Cli::from_environment) sets this field.
    #[arg(skip)]
    pub lanes: Vec<Vec<PathBuf>>,
    #[command(flatten)]
    pub input: InputArgs,
    /// Sample name: names the output and fills SM
    #[arg(long, value_name = "NAME", value_parser = parse_sample, help_heading = THIS_RUN_HEADING)]
    pub sample: String,
    /// Output directory
    #[arg(long, value_name = "DIR", help_heading = THIS_RUN_HEADING)]
    pub out: PathBuf,
    /// @RG line, \t for tabs; once for all lanes or once for each [default: from sample and read names]
    #[arg(long, value_name = "@RG..", help_heading = THIS_RUN_HEADING)]
    pub read_group: Vec<String>,
    /// auto (bwa-mem3 or bwa, with the same records), bwa, bwa-mem3, minimap2, or a command line: 'bowtie2 -x {index} --interleaved {reads} -p {threads} --reorder'
    #[arg(long, value_name = "NAME|COMMAND", default_value = "auto", value_parser = parse_aligner)]
    pub aligner: AlignerChoice,
    /// Options of the aligner that change records, in one string
    #[arg(long, value_name = "ARGS", default_value = "", hide_default_value = true, allow_hyphen_values = true)]
    pub aligner_args: String,
    /// Output formats, any of bam, cram, parquet and arrow, all written in one pass
    #[arg(long, value_enum, value_delimiter = ',', default_value = "bam", value_name = "FORMATS")]
    pub format: Vec<FormatName>,
    #[command(flatten)]
    pub marking: MarkingArgs,
    /// VCFs of known variants: recalibrate base qualities as GATK does; bases at these variants do not count as errors
    #[arg(long, value_name = "VCF", num_args = 1..)]
    pub recalibrate: Vec<PathBuf>,
    #[command(flatten, next_help_heading = "Qualities, with --recalibrate")]
    pub quality: QualityArgs,
    /// Bases per block: `bwa mem -K`
    #[arg(long, value_name = "N", default_value_t = 100_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub block_bases: u64,
    /// Apply a Python function to the table of each partition, between marking and writing
    #[arg(long, value_name = "MODULE:FUNCTION", value_parser = parse_step)]
    pub step: Option<String>,
    /// Python that runs --step, with pyarrow: a path, or a name on the PATH of each worker
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    pub python: PathBuf,
    /// Metrics of the BAM and report.html: on, off, or with metrics of Picard as for `godwit metrics`: all, or names such as
    /// GcBias,WgsMetrics
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "on",
        value_name = "on|off|all|NAMES",
        value_parser = parse_job_metrics
    )]
    pub metrics: Vec<MetricsValue>,
    #[command(flatten, next_help_heading = "Interval lists, with --metrics")]
    pub lists: TargetListArgs,
    /// Also call variants, into OUT/NAME.vcf.gz: bcftools if no caller is named, freebayes, gatk, or a command line as for `godwit call`
    #[arg(long, value_name = "NAME|COMMAND", num_args = 0..=1, default_missing_value = "bcftools", value_parser = parse_caller)]
    pub call: Option<CallerChoice>,
    #[command(flatten, next_help_heading = "Calling, with --call")]
    pub calling: CallingArgs,
    /// Reject any FASTQ with errors (the default)
    #[arg(long, conflicts_with = "lenient")]
    pub strict: bool,
    /// Accept a BGZF file without its end-of-file block, and `+` lines with another title
    #[arg(long)]
    pub lenient: bool,
    /// Resume a stopped run of the same command; finished work is not repeated
    #[arg(long, help_heading = THIS_RUN_HEADING)]
    pub resume: bool,
    /// Check the inputs, print the resources that a run would need, and write nothing
    #[arg(long, help_heading = THIS_RUN_HEADING)]
    pub dry_run: bool,
    #[command(flatten)]
    pub cluster: ClusterArgs,
    #[command(flatten)]
    pub keys: KeyArgs,
    #[command(flatten)]
    pub recipients: RecipientArgs,
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Options of the input reads.
#[derive(Args)]
pub struct InputArgs {
    /// FASTQ files hold both mates, alternating
    #[arg(long, help_heading = THIS_RUN_HEADING)]
    pub interleaved: bool,
    /// Tags of unaligned SAM, BAM or CRAM that are kept in the output, such as BC,RX
    #[arg(long, value_name = "TAGS", value_delimiter = ',', value_parser = parse_kept_tag)]
    pub keep_tags: Vec<[u8; 2]>,
    /// Trim FASTQ before alignment
    #[arg(long, value_enum, value_name = "TRIMMER")]
    pub trim: Option<TrimmerName>,
    /// Options of the trimmer that change reads, in one string
    #[arg(
        long,
        value_name = "ARGS",
        requires = "trim",
        default_value = "",
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    pub trim_args: String,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TrimmerName {
    /// fastp 0.23 or later
    Fastp,
}
