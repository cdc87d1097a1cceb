//! Options of `godwit run`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use godwit_engines::aligner::AlignerChoice;
use godwit_engines::caller::CallerChoice;
use godwit_workflow::Workflow;

use super::value_parsers::{parse_aligner, parse_bases, parse_caller, parse_size};
use super::{AccessArgs, ClusterArgs, CommonArgs, JobMetricsArgs, KeyArgs, ResourceArgs};
use crate::config::THIS_RUN_HEADING;

#[derive(Args)]
pub struct RunArgs {
    /// The reference, FASTA, indexed by `godwit index`: a path, or an address on a server (godwit+pool://NAME/PATH)
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
    /// Caller of the default workflow: bcftools, freebayes, gatk, or a command line, as for `godwit call` [default: bcftools]
    #[arg(long, value_name = "NAME|COMMAND", value_parser = parse_caller)]
    pub caller: Option<CallerChoice>,
    /// Options of the caller that change records, in one string
    #[arg(long, value_name = "ARGS", default_value = "", hide_default_value = true, allow_hyphen_values = true)]
    pub caller_args: String,
    /// Ploidy of each contig, as for `godwit call`; the column sex of the sheet selects from the table for each sample
    #[arg(long, value_name = "NAME|FILE")]
    pub ploidy: Option<String>,
    /// VCFs of known variants with their indexes, for recalibration in the workflow gatk: paths or addresses
    #[arg(long, value_name = "VCF", num_args = 1..)]
    pub known_sites: Vec<PathBuf>,
    #[command(flatten)]
    pub resources: ResourceArgs,
    /// Bases of a calling region (1M, 500K); runs of N do not count
    #[arg(long = "grid-size", value_name = "BASES", default_value = "1M", value_parser = parse_bases)]
    pub max_region_bases: u32,
    /// Memory of each caller and of each GATK [default: bcftools 512M, freebayes 1G, others 4G]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub caller_memory: Option<u64>,
    #[command(flatten)]
    pub metrics: JobMetricsArgs,
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
