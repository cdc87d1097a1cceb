//! Options of `godwit filter`.

use std::path::PathBuf;

use clap::Args;
use godwit_pipeline::Resource;

use super::Common;
use super::values::{parse_resource, parse_size, parse_vcf};
use crate::config::THIS_RUN;

#[derive(Args)]
pub struct FilterArgs {
    /// The reference, FASTA
    #[arg(long, value_name = "REF.fa")]
    pub reference: PathBuf,
    /// Variants of HaplotypeCaller or of joint genotyping, with their index
    #[arg(long, value_name = "VCF.gz", help_heading = THIS_RUN)]
    pub variants: PathBuf,
    /// The VCF to write, ending in .vcf.gz; its index, manifest and report go beside it
    #[arg(long, value_name = "NAME.vcf.gz", value_parser = parse_vcf, help_heading = THIS_RUN)]
    pub out: PathBuf,
    #[command(flatten)]
    pub resources: ResourceArgs,
    /// Memory of GATK [default: 4G]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub gatk_memory: Option<u64>,
    /// Do nothing where the output is there and is of the same input
    #[arg(long, help_heading = THIS_RUN)]
    pub resume: bool,
    #[command(flatten)]
    pub common: Common,
}

/// What variant recalibration learns from.
#[derive(Args)]
pub struct ResourceArgs {
    /// Known SNPs to learn from, again for each file: 'hapmap,known=false,training=true,truth=true,prior=15.0:hapmap.vcf.gz'
    #[arg(long, value_name = "TAGS:VCF", value_parser = parse_resource)]
    pub snp_resource: Vec<Resource>,
    /// Known indels to learn from, likewise
    #[arg(long, value_name = "TAGS:VCF", value_parser = parse_resource)]
    pub indel_resource: Vec<Resource>,
}
