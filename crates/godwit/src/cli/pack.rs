//! Genomes as what differs from a reference: one, or many in a collection.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Common;
use crate::config::THIS_RUN;

#[derive(Args)]
pub struct PackArgs {
    /// The genome, FASTA, plain, gzip or BGZF, or any file; - is stdin
    #[arg(value_name = "IN")]
    pub input: PathBuf,
    /// The packed file to write
    #[arg(value_name = "OUT.gwp")]
    pub out: PathBuf,
    /// The reference, FASTA; who unpacks needs the same sequences
    #[arg(long, value_name = "REF.fa")]
    pub reference: PathBuf,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Args)]
pub struct UnpackArgs {
    /// The packed file; - is stdin
    #[arg(value_name = "IN.gwp")]
    pub input: PathBuf,
    /// What to write; - is stdout
    #[arg(value_name = "OUT")]
    pub out: PathBuf,
    /// The reference it was packed with, under any name
    #[arg(long, value_name = "REF.fa")]
    pub reference: Option<PathBuf>,
    /// Write only this region, as FASTA: chr20, or chr20:10,000,001-10,010,000, 1-based
    #[arg(long, value_name = "REGION", help_heading = THIS_RUN)]
    pub region: Option<String>,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Subcommand)]
pub enum CollectionVerb {
    /// Pack genomes and add them, each under the name of its file
    #[command(after_help = "Example:\n  godwit collection add genomes sample.fa --reference ref.fa")]
    Add(CollectionAddArgs),
    /// Print names and sizes of the genomes
    #[command(after_help = "Example:\n  godwit collection list genomes")]
    List(CollectionListArgs),
    /// Unpack a genome
    #[command(after_help = "Example:\n  godwit collection extract genomes sample sample.fa --reference ref.fa")]
    Extract(CollectionExtractArgs),
    /// Write a region of every genome that has it, as FASTA
    #[command(after_help = "Example:\n  godwit collection region genomes chr20:1-1000 all.fa --reference ref.fa")]
    Region(CollectionRegionArgs),
}

#[derive(Args)]
pub struct CollectionAddArgs {
    /// The collection; it is made where it is missing
    #[arg(value_name = "DIR")]
    pub collection: PathBuf,
    /// Genomes, FASTA, plain, gzip or BGZF
    #[arg(value_name = "IN", required = true)]
    pub inputs: Vec<PathBuf>,
    /// The reference of the collection, FASTA
    #[arg(long, value_name = "REF.fa")]
    pub reference: PathBuf,
    /// The name of the genome, where there is one [default: that of its file]
    #[arg(long, value_name = "NAME", help_heading = THIS_RUN)]
    pub name: Option<String>,
    #[command(flatten)]
    pub common: Common,
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
    /// What to write; - is stdout
    #[arg(value_name = "OUT")]
    pub out: PathBuf,
    /// The reference of the collection, FASTA
    #[arg(long, value_name = "REF.fa")]
    pub reference: PathBuf,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Args)]
pub struct CollectionRegionArgs {
    /// The collection
    #[arg(value_name = "DIR")]
    pub collection: PathBuf,
    /// The region: chr20, or chr20:10,000,001-10,010,000, 1-based
    #[arg(value_name = "REGION")]
    pub region: String,
    /// What to write; - is stdout
    #[arg(value_name = "OUT")]
    pub out: PathBuf,
    /// The reference of the collection, FASTA
    #[arg(long, value_name = "REF.fa")]
    pub reference: PathBuf,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Args)]
pub struct MutateArgs {
    /// A genome, FASTA
    #[arg(value_name = "IN.fa")]
    pub input: PathBuf,
    /// Another individual of it
    #[arg(value_name = "OUT.fa")]
    pub out: PathBuf,
    /// Where chance starts
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// All rates of change, in multiples of those between two human haplotypes
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    pub rate: f64,
}
