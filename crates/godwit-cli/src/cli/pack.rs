//! Options of `godwit pack`, `unpack`, `collection` and `mutate`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::value_parsers::parse_mutation_factor;
use super::{CommonArgs, resource_help};
use crate::config::THIS_RUN_HEADING;

#[derive(Args)]
pub struct PackArgs {
    /// The genome as FASTA (plain, gzip or BGZF), or any other file; - is stdin
    #[arg(value_name = "IN")]
    pub input: PathBuf,
    /// The packed file to write
    #[arg(value_name = "OUT.gwp")]
    pub out: PathBuf,
    /// The reference, FASTA; unpacking requires the same sequences
    #[arg(long, value_name = "REF.fa")]
    pub reference: PathBuf,
    #[command(flatten)]
    pub common: CommonArgs,
}

#[derive(Args)]
pub struct UnpackArgs {
    /// The packed file; - is stdin
    #[arg(value_name = "IN.gwp")]
    pub input: PathBuf,
    /// Output file; - is stdout
    #[arg(value_name = "OUT")]
    pub out: PathBuf,
    /// The reference of the packed file; its file name does not matter
    #[arg(long, value_name = "REF.fa")]
    pub reference: Option<PathBuf>,
    /// Write only this region, as FASTA: chr20, or chr20:10,000,001-10,010,000, 1-based
    #[arg(long, value_name = "REGION", help_heading = THIS_RUN_HEADING)]
    pub region: Option<String>,
    #[command(flatten)]
    pub common: CommonArgs,
}

#[derive(Subcommand)]
pub enum CollectionVerb {
    /// Pack genomes and add them, each under the name of its file
    #[command(
        mut_args(resource_help::threads_only),
        after_help = "Example:\n  godwit collection add genomes sample.fa --reference ref.fa"
    )]
    Add(CollectionAddArgs),
    /// Print names and sizes of the genomes
    #[command(after_help = "Example:\n  godwit collection list genomes")]
    List(CollectionListArgs),
    /// Unpack a genome
    #[command(
        mut_args(resource_help::threads_only),
        after_help = "Example:\n  godwit collection extract genomes sample sample.fa --reference ref.fa"
    )]
    Extract(CollectionExtractArgs),
    /// Write a region of every genome that has it, as FASTA
    #[command(
        mut_args(resource_help::threads_only),
        after_help = "Example:\n  godwit collection region genomes chr20:1-1000 all.fa --reference ref.fa"
    )]
    Region(CollectionRegionArgs),
}

impl CollectionVerb {
    /// Returns the common options of the verb, if it has them.
    pub(super) fn common_mut(&mut self) -> Option<&mut CommonArgs> {
        match self {
            Self::Add(args) => Some(&mut args.common),
            Self::List(_) => None,
            Self::Extract(args) => Some(&mut args.common),
            Self::Region(args) => Some(&mut args.common),
        }
    }
}

#[derive(Args)]
pub struct CollectionAddArgs {
    /// The collection; it is created if it does not exist
    #[arg(value_name = "DIR")]
    pub collection: PathBuf,
    /// Genomes, FASTA, plain, gzip or BGZF
    #[arg(value_name = "IN", required = true)]
    pub inputs: Vec<PathBuf>,
    /// The reference of the collection, FASTA
    #[arg(long, value_name = "REF.fa")]
    pub reference: PathBuf,
    /// Name of the genome, if only one is added [default: that of its file]
    #[arg(long, value_name = "NAME", help_heading = THIS_RUN_HEADING)]
    pub name: Option<String>,
    #[command(flatten)]
    pub common: CommonArgs,
}

#[derive(Args)]
pub struct CollectionListArgs {
    /// The collection
    #[arg(value_name = "DIR")]
    pub collection: PathBuf,
}

#[derive(Args)]
pub struct CollectionExtractArgs {
    /// The collection
    #[arg(value_name = "DIR")]
    pub collection: PathBuf,
    /// The genome
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Output file; - is stdout
    #[arg(value_name = "OUT")]
    pub out: PathBuf,
    /// The reference of the collection, FASTA
    #[arg(long, value_name = "REF.fa")]
    pub reference: PathBuf,
    #[command(flatten)]
    pub common: CommonArgs,
}

#[derive(Args)]
pub struct CollectionRegionArgs {
    /// The collection
    #[arg(value_name = "DIR")]
    pub collection: PathBuf,
    /// The region: chr20, or chr20:10,000,001-10,010,000, 1-based
    #[arg(value_name = "REGION")]
    pub region: String,
    /// Output file; - is stdout
    #[arg(value_name = "OUT")]
    pub out: PathBuf,
    /// The reference of the collection, FASTA
    #[arg(long, value_name = "REF.fa")]
    pub reference: PathBuf,
    #[command(flatten)]
    pub common: CommonArgs,
}

#[derive(Args)]
pub struct MutateArgs {
    /// A genome, FASTA
    #[arg(value_name = "IN.fa")]
    pub input: PathBuf,
    /// Output file of the mutated individual
    #[arg(value_name = "OUT.fa")]
    pub out: PathBuf,
    /// Seed of the random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Factor on all mutation rates, from 0 to 100; 1 is the difference between two human haplotypes
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = parse_mutation_factor)]
    pub rate: f64,
}
