//! What is asked, of what, and how rows are printed.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use godwit_query::RowFormat;

use super::{AccessArgs, Common, KeyArgs};
use crate::config::THIS_RUN;

#[derive(Args)]
pub struct QueryArgs {
    /// The statement: SELECT, in the dialect of DataFusion
    #[arg(value_name = "SQL")]
    pub statement: String,
    /// Ask the datasets below this directory, or below s3://BUCKET/PREFIX [default: the working directory]
    #[arg(long, value_name = "DIR", help_heading = THIS_RUN)]
    pub data: Option<PathBuf>,
    /// Ask those of a server: grpc+tls://HOST:PORT (grpc+tcp:// without encryption)
    #[arg(long, value_name = "URL", help_heading = THIS_RUN, conflicts_with_all = ["data", "reference"])]
    pub at: Option<String>,
    #[command(flatten)]
    pub access: AccessArgs,
    /// How to write the rows
    #[arg(long, value_enum, default_value_t = RowFormatName::Table, value_name = "FORMAT")]
    pub format: RowFormatName,
    /// Write to this file, which is there when it is whole [default: stdout]
    #[arg(long, value_name = "FILE", help_heading = THIS_RUN)]
    pub out: Option<PathBuf>,
    /// See what this file of rules lets somebody see, and nothing else
    #[arg(long, value_name = "FILE", conflicts_with = "at")]
    pub policy: Option<PathBuf>,
    /// Whom, as `godwit token` named them [default: whoever is let in without a name]
    #[arg(long = "as", value_name = "NAME", requires = "policy")]
    pub who: Option<String>,
    /// The reference that CRAM files were made with, FASTA
    #[arg(long, value_name = "REF.fa")]
    pub reference: Option<PathBuf>,
    #[command(flatten)]
    pub keys: KeyArgs,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RowFormatName {
    /// Aligned, for people
    Table,
    /// Comma-separated, with a header
    Csv,
    /// Tab-separated, with a header
    Tsv,
    /// An object in each line
    Json,
    /// An Arrow IPC stream
    Arrow,
    /// A Parquet file
    Parquet,
}

impl From<RowFormatName> for RowFormat {
    fn from(name: RowFormatName) -> Self {
        match name {
            RowFormatName::Table => Self::Table,
            RowFormatName::Csv => Self::Csv,
            RowFormatName::Tsv => Self::Tsv,
            RowFormatName::Json => Self::Json,
            RowFormatName::Arrow => Self::Arrow,
            RowFormatName::Parquet => Self::Parquet,
        }
    }
}
