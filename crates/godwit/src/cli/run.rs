//! Options of `godwit run`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use godwit_engines::aligner::AlignerChoice;
use godwit_pipeline::{CallerChoice, Workflow};

use super::values::{parse_aligner, parse_bases, parse_caller, parse_size};
use super::{AccessArgs, Common, KeyArgs, PlaceArgs, ResourceArgs, Switch};
use crate::config::THIS_RUN;

#[derive(Args)]
pub struct RunArgs {
    /// The reference, FASTA, indexed by `godwit index`
    #[arg(long, value_name = "REF.fa")]
    pub reference: PathBuf,
    /// Sheet of samples, CSV with columns sample, fastq_1, fastq_2, and if wanted lane, library, platform, sex, reference; a line for each lane
    #[arg(long, value_name = "SHEET.csv", help_heading = THIS_RUN)]
    pub samples: PathBuf,
    /// Output directory: one directory for each sample, run.json and report.html
    #[arg(long, value_name = "DIR", help_heading = THIS_RUN)]
    pub out: PathBuf,
    /// What is done
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
    /// Options of that caller that change records, in one string
    #[arg(long, value_name = "ARGS", default_value = "", hide_default_value = true, allow_hyphen_values = true)]
    pub caller_args: String,
    /// Copies of each contig, as for `godwit call`; the column sex of the sheet chooses from the table for each sample
    #[arg(long, value_name = "NAME|FILE")]
    pub ploidy: Option<String>,
    /// VCFs of known variants with their indexes, for recalibration in the workflow gatk
    #[arg(long, value_name = "VCF", num_args = 1..)]
    pub known_sites: Vec<PathBuf>,
    #[command(flatten)]
    pub resources: ResourceArgs,
    /// Bases of a region that is called by itself (1M, 500K); stretches of N do not count
    #[arg(long, value_name = "BASES", default_value = "1M", value_parser = parse_bases)]
    pub grid_size: u32,
    /// Memory of each caller and of each GATK [default: bcftools 512M, freebayes 1G, others 4G]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub caller_memory: Option<u64>,
    /// Take metrics of each BAM and make its report.html
    #[arg(long, value_enum, default_value_t = Switch::On, value_name = "on|off", hide_possible_values = true)]
    pub metrics: Switch,
    /// Go on with a run of the same command that was stopped, or in which samples failed; nothing is done twice
    #[arg(long, help_heading = THIS_RUN)]
    pub resume: bool,
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Samples that each node works on at a time; --threads are those of each
    #[arg(long, value_name = "N", requires = "on", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub per_node: u32,
    /// Copy what is written of each sample, when it is done, into this directory on a server: godwit+pool://NAME/DIR or grpc+tls://HOST:PORT/DIR
    #[arg(long, value_name = "URL", help_heading = THIS_RUN)]
    pub store: Option<String>,
    /// Show the run as a page at this port of this machine; 0 takes any
    #[arg(long, value_name = "PORT", help_heading = THIS_RUN)]
    pub dashboard: Option<u16>,
    /// Work on this sample only, for a process that leads the run
    #[arg(long, value_name = "NAME", hide = true, help_heading = THIS_RUN)]
    pub one_sample: Option<String>,
    #[command(flatten)]
    pub access: AccessArgs,
    #[command(flatten)]
    pub keys: KeyArgs,
    #[command(flatten)]
    pub common: Common,
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
