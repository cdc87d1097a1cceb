//! Options of `godwit filter`.

use std::path::PathBuf;

use clap::Args;
use godwit_engines::variant_filter::TrainingResource;

use super::CommonArgs;
use super::value_parsers::{parse_resource, parse_size, parse_vcf};
use crate::config::THIS_RUN_HEADING;

#[derive(Args)]
pub struct FilterArgs {
    /// The reference, FASTA
    #[arg(long, value_name = "REF.fa")]
    pub reference: PathBuf,
    /// Variants of HaplotypeCaller or of joint genotyping, with their index
    #[arg(long, value_name = "VCF.gz", help_heading = THIS_RUN_HEADING)]
    pub variants: PathBuf,
    /// Output VCF, ending in .vcf.gz; its index, manifest and report are written beside it
    #[arg(long, value_name = "NAME.vcf.gz", value_parser = parse_vcf, help_heading = THIS_RUN_HEADING)]
    pub out: PathBuf,
    #[command(flatten)]
    pub resources: ResourceArgs,
    /// Memory of GATK [default: 4G]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub gatk_memory: Option<u64>,
    /// Do nothing if the output exists and was made from the same input
    #[arg(long, help_heading = THIS_RUN_HEADING)]
    pub resume: bool,
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Training resources of variant recalibration.
#[derive(Args)]
pub struct ResourceArgs {
    /// Known SNPs to train with; repeat for each file: 'hapmap,known=false,training=true,truth=true,prior=15.0:hapmap.vcf.gz'
    #[arg(long, value_name = "TAGS:VCF", value_parser = parse_resource)]
    pub snp_resource: Vec<TrainingResource>,
    /// Known indels to train with, likewise
    #[arg(long, value_name = "TAGS:VCF", value_parser = parse_resource)]
    pub indel_resource: Vec<TrainingResource>,
}
