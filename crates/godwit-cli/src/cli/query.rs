//! Options of `godwit query`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use godwit_query::RowFormat;

use super::{AccessArgs, CommonArgs, KeyArgs};
use crate::config::THIS_RUN_HEADING;

#[derive(Args)]
pub struct QueryArgs {
    /// The statement: SELECT, in the dialect of DataFusion, or COPY (SELECT ..) TO 'FILE'
    #[arg(value_name = "SQL")]
    pub statement: String,
    /// Value of the parameter $NAME of the statement, or of $1 for NAME 1; can be repeated
    #[arg(
        long = "parameter",
        value_name = "NAME=VALUE",
        value_parser = parse_parameter,
        help_heading = THIS_RUN_HEADING
    )]
    pub parameters: Vec<(String, String)>,
    /// Take the values of all parameters, with their types, from an Arrow IPC stream of one row with columns $NAME
    #[arg(long, value_name = "FILE", help_heading = THIS_RUN_HEADING, conflicts_with = "parameters")]
    pub parameters_from: Option<PathBuf>,
    /// Query the datasets below this directory, or below s3://BUCKET/PREFIX [default: the working directory]
    #[arg(long, value_name = "DIR", help_heading = THIS_RUN_HEADING)]
    pub data: Option<PathBuf>,
    /// Query the datasets of a server: grpc+tls://HOST:PORT (grpc+tcp:// without encryption)
    #[arg(long, value_name = "URL", help_heading = THIS_RUN_HEADING, conflicts_with_all = ["data", "reference"])]
    pub at: Option<String>,
    #[command(flatten)]
    pub access: AccessArgs,
    /// Format of the rows
    #[arg(long, value_enum, default_value_t = RowFormatName::Table, value_name = "FORMAT")]
    pub format: RowFormatName,
    /// Write to this file, which is created when complete [default: stdout]
    #[arg(long, value_name = "FILE", help_heading = THIS_RUN_HEADING)]
    pub out: Option<PathBuf>,
    /// Dataset whose header a BAM, VCF or BCF file of COPY gets [default: the dataset of the statement]
    #[arg(long, value_name = "DATASET", help_heading = THIS_RUN_HEADING)]
    pub header_from: Option<String>,
    /// Apply this policy file
    #[arg(long, value_name = "FILE", conflicts_with = "at")]
    pub policy: Option<PathBuf>,
    /// Principal to apply the policy to, as named by `godwit token` [default: a principal without a name]
    #[arg(long = "as", value_name = "NAME", requires = "policy")]
    pub principal: Option<String>,
    /// The reference of CRAM files, FASTA
    #[arg(long, value_name = "REF.fa")]
    pub reference: Option<PathBuf>,
    #[command(flatten)]
    pub keys: KeyArgs,
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Parses `NAME=VALUE`.
fn parse_parameter(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => {
            Ok((name.strip_prefix('$').unwrap_or(name).to_owned(), value.to_owned()))
        }
        _ => Err("write NAME=VALUE, such as contig=chr20 for $contig".to_owned()),
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RowFormatName {
    /// Aligned columns
    Table,
    /// Comma-separated, with a header
    Csv,
    /// Tab-separated, with a header
    Tsv,
    /// JSON Lines
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
