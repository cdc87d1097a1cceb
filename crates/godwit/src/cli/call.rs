//! Options of `godwit call`.

use std::path::PathBuf;

use clap::Args;
use godwit_pipeline::CallerChoice;

use super::values::{parse_bases, parse_caller, parse_size, parse_vcf};
use super::{Common, PlaceArgs};
use crate::config::THIS_RUN;

#[derive(Args)]
pub struct CallArgs {
    /// The reference that the reads were aligned to, FASTA
    #[arg(long, value_name = "REF.fa")]
    pub reference: PathBuf,
    /// BAM or CRAM with its index, or the output directory of `godwit align`; several samples are called together
    #[arg(long, value_name = "FILE|DIR", num_args = 1.., required_unless_present = "gvcfs", help_heading = THIS_RUN)]
    pub reads: Vec<PathBuf>,
    /// GVCFs with their indexes, one of each sample, to genotype together by GATK; in place of --reads
    #[arg(long, value_name = "NAME.g.vcf.gz", num_args = 1.., conflicts_with = "reads", help_heading = THIS_RUN)]
    pub gvcfs: Vec<PathBuf>,
    /// Reads of the normal beside a tumour, which --reads then are of: for mutect2 or a command line with {normal}
    #[arg(long, value_name = "FILE|DIR", conflicts_with = "gvcfs", help_heading = THIS_RUN)]
    pub normal: Option<PathBuf>,
    /// The VCF to write, ending in .vcf.gz; its index, manifest and report go beside it
    #[arg(long, value_name = "NAME.vcf.gz", value_parser = parse_vcf, help_heading = THIS_RUN)]
    pub out: PathBuf,
    /// bcftools, freebayes, gatk, mutect2, or a command line: 'octopus -R {reference} -I {bam} -T {region} -o {out}'
    #[arg(long, value_name = "NAME|COMMAND", default_value = "bcftools", value_parser = parse_caller)]
    pub caller: CallerChoice,
    /// Options of the caller that change records, in one string; for bcftools those of mpileup, | and those of call
    #[arg(long, value_name = "ARGS", default_value = "", hide_default_value = true, allow_hyphen_values = true)]
    pub caller_args: String,
    /// Call only what starts within the stretches of this BED file
    #[arg(long, value_name = "BED")]
    pub regions: Option<PathBuf>,
    /// Copies of each contig: 1, 2, X, Y, GRCh37, GRCh38, or a file as for `bcftools call --ploidy-file` [default: the caller's]
    #[arg(long, value_name = "NAME|FILE")]
    pub ploidy: Option<String>,
    /// Sex of the sample, as that table has it: M or F [default: the most copies of any]
    #[arg(long, value_name = "SEX", requires = "ploidy", help_heading = THIS_RUN)]
    pub sex: Option<String>,
    /// Bases of a region that is called by itself (1M, 500K); stretches of N do not count
    #[arg(long, value_name = "BASES", default_value = "1M", value_parser = parse_bases)]
    pub grid_size: u32,
    /// Bases that the caller sees on either side of a region [default: what it needs]
    #[arg(long, value_name = "BASES", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub padding: Option<u32>,
    /// Threads of each caller; --threads are those of all together, on each node
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub caller_threads: u32,
    /// Memory of each caller; --memory is that of all together, on each node [default: bcftools 512M, freebayes 1G, others 4G]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub caller_memory: Option<u64>,
    /// Go on with a run of the same command that was stopped; no finished region is called twice
    #[arg(long, help_heading = THIS_RUN)]
    pub resume: bool,
    /// Print the job that --on slurm would submit, and write nothing
    #[arg(long, requires = "on", help_heading = THIS_RUN)]
    pub dry_run: bool,
    #[command(flatten)]
    pub place: PlaceArgs,
    #[command(flatten)]
    pub common: Common,
}
