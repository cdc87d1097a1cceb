//! Options of `godwit call`.

use std::path::PathBuf;

use clap::Args;
use godwit_engines::caller::CallerChoice;

use super::value_parsers::{parse_caller, parse_vcf};
use super::{CallingArgs, ClusterArgs, CommonArgs, KeyArgs, RecipientArgs};
use crate::config::THIS_RUN_HEADING;

#[derive(Args)]
pub struct CallArgs {
    /// The reference that the reads were aligned to, FASTA
    #[arg(long, value_name = "REF.fa")]
    pub reference: PathBuf,
    /// BAM or CRAM with its index, or the output directory of `godwit align`; several samples are called together
    #[arg(long, value_name = "FILE|DIR", num_args = 1.., required_unless_present = "gvcfs", help_heading = THIS_RUN_HEADING)]
    pub reads: Vec<PathBuf>,
    /// gVCFs with their indexes, one per sample, for joint genotyping with GATK; instead of --reads
    #[arg(long, value_name = "NAME.g.vcf.gz", num_args = 1.., conflicts_with = "reads", help_heading = THIS_RUN_HEADING)]
    pub gvcfs: Vec<PathBuf>,
    /// Reads of the normal sample; --reads are those of the tumour: for mutect2 or a command line with {normal}
    #[arg(long, value_name = "FILE|DIR", conflicts_with = "gvcfs", help_heading = THIS_RUN_HEADING)]
    pub normal: Option<PathBuf>,
    /// Output VCF, ending in .vcf.gz; its index, manifest and report are written beside it
    #[arg(long, value_name = "NAME.vcf.gz", value_parser = parse_vcf, help_heading = THIS_RUN_HEADING)]
    pub out: PathBuf,
    /// bcftools, freebayes, gatk, mutect2, or a command line: 'octopus -R {reference} -I {bam} -T {region} -o {out}' [default: bcftools; gatk-joint with --gvcfs]
    #[arg(long, value_name = "NAME|COMMAND", value_parser = parse_caller)]
    pub caller: Option<CallerChoice>,
    #[command(flatten)]
    pub calling: CallingArgs,
    /// Resume a stopped run of the same command; finished regions are not called again
    #[arg(long, help_heading = THIS_RUN_HEADING)]
    pub resume: bool,
    /// Print the job that --on slurm would submit, and write nothing
    #[arg(long, requires = "on", help_heading = THIS_RUN_HEADING)]
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
