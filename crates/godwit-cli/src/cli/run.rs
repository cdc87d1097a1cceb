//! Options of `godwit run`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use godwit_engines::aligner::AlignerChoice;
use godwit_engines::caller::CallerChoice;
use godwit_workflow::Workflow;

use super::bam_metrics::parse_job_metrics;
use super::value_parsers::{parse_aligner, parse_bases, parse_caller, parse_size};
use super::{AccessArgs, ClusterArgs, CommonArgs, KeyArgs, MetricsValue, ResourceArgs, TargetListArgs};
use crate::config::THIS_RUN_HEADING;

#[derive(Args)]
pub struct RunArgs {
    /// The reference, FASTA, indexed by `godwit index`
    #[arg(long, value_name = "REF.fa")]
    pub reference: PathBuf,
    /// Sample sheet, CSV with columns sample, fastq_1, fastq_2, and optionally lane, library, platform, sex, reference; one line per lane
    #[arg(long, value_name = "SHEET.csv", help_heading = THIS_RUN_HEADING)]
    pub samples: PathBuf,
    /// Output directory: one directory for each sample, run.json and report.html
    #[arg(long, value_name = "DIR", help_heading = THIS_RUN_HEADING)]
    pub out: PathBuf,
    /// Workflow
    #[arg(long, value_enum, default_value_t = WorkflowName::Default, value_name = "NAME")]
    pub workflow: WorkflowName,
    /// auto, bwa, bwa-mem3, minimap2, or a command line, as for `godwit align`
    #[arg(long, value_name = "NAME|COMMAND", default_value = "auto", value_parser = parse_aligner)]
    pub aligner: AlignerChoice,
    /// Bases per block: `bwa mem -K`
    #[arg(long, value_name = "N", default_value_t = 100_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub block_bases: u64,
    /// Caller of the default workflow: bcftools, freebayes, gatk, or a command line, as for `godwit call`
    #[arg(long, value_name = "NAME|COMMAND", default_value = "bcftools", value_parser = parse_caller)]
    pub caller: CallerChoice,
    /// Options of the caller that change records, in one string
    #[arg(long, value_name = "ARGS", default_value = "", hide_default_value = true, allow_hyphen_values = true)]
    pub caller_args: String,
    /// Ploidy of each contig, as for `godwit call`; the column sex of the sheet selects from the table for each sample
    #[arg(long, value_name = "NAME|FILE")]
    pub ploidy: Option<String>,
    /// VCFs of known variants with their indexes, for recalibration in the workflow gatk
    #[arg(long, value_name = "VCF", num_args = 1..)]
    pub known_sites: Vec<PathBuf>,
    #[command(flatten)]
    pub resources: ResourceArgs,
    /// Bases of a calling region (1M, 500K); runs of N do not count
    #[arg(long, value_name = "BASES", default_value = "1M", value_parser = parse_bases)]
    pub grid_size: u32,
    /// Memory of each caller and of each GATK [default: bcftools 512M, freebayes 1G, others 4G]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub caller_memory: Option<u64>,
    /// Metrics of each BAM and its report.html: on, off, or with metrics of Picard as for `godwit metrics`: all, or names such as
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
    /// Resume a stopped run of the same command, or one in which samples failed; finished work is not repeated
    #[arg(long, help_heading = THIS_RUN_HEADING)]
    pub resume: bool,
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Samples that each host processes concurrently; --threads applies to each
    #[arg(long, value_name = "N", requires = "on", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub per_node: u32,
    /// Copy the outputs of each finished sample into this directory on a server: godwit+pool://NAME/DIR or grpc+tls://HOST:PORT/DIR
    #[arg(long, value_name = "URL", help_heading = THIS_RUN_HEADING)]
    pub store: Option<String>,
    /// Show the run on a local web page at this port; 0 selects any
    #[arg(long, value_name = "PORT", help_heading = THIS_RUN_HEADING)]
    pub dashboard: Option<u16>,
    /// Process only this sample, for the process that leads the run
    #[arg(long, value_name = "NAME", hide = true, help_heading = THIS_RUN_HEADING)]
    pub one_sample: Option<String>,
    #[command(flatten)]
    pub access: AccessArgs,
    #[command(flatten)]
    pub keys: KeyArgs,
    #[command(flatten)]
    pub common: CommonArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WorkflowName {
    /// Align, call
    Default,
    /// Align, recalibrate, HaplotypeCaller, joint genotyping, filters
    Gatk,
}

impl From<WorkflowName> for Workflow {
    fn from(name: WorkflowName) -> Self {
        match name {
            WorkflowName::Default => Self::Default,
            WorkflowName::Gatk => Self::Gatk,
        }
    }
}
