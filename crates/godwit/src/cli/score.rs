//! What is scored, by which model, and where scores go.

use std::path::PathBuf;

use clap::Args;

use super::query::RowFormatName;
use super::{AccessArgs, Common};
use crate::config::THIS_RUN;

#[derive(Args)]
pub struct ScoreArgs {
    /// The model: NAME, or NAME/VERSION where it is not the last
    #[arg(long, value_name = "MODEL", help_heading = THIS_RUN)]
    pub model: String,
    /// The service: grpc+tls://HOST:PORT (grpc+tcp:// without encryption)
    #[arg(long, value_name = "URL", help_heading = THIS_RUN)]
    pub at: String,
    /// Rows to score: Parquet, Arrow, CSV, VCF, BAM or any file that `godwit query` reads; - is stdin, Parquet, Arrow or VCF
    #[arg(value_name = "IN", required_unless_present = "sql", help_heading = THIS_RUN)]
    pub input: Option<PathBuf>,
    /// Score the rows of a statement: what a model was trained on is often computed
    #[arg(long, value_name = "SELECT", conflicts_with = "input", help_heading = THIS_RUN)]
    pub sql: Option<String>,
    /// The statement asks the datasets below this directory, or below s3://BUCKET/PREFIX [default: the working directory]
    #[arg(long, value_name = "DIR", conflicts_with = "input", help_heading = THIS_RUN)]
    pub data: Option<PathBuf>,
    /// Columns to write beside the scores [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = THIS_RUN)]
    pub columns: Option<Vec<String>>,
    /// Write nothing but the scores
    #[arg(long, conflicts_with = "columns", help_heading = THIS_RUN)]
    pub scores_only: bool,
    /// How to write the rows [default: what the ending of --out says, or table]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub format: Option<RowFormatName>,
    /// Write to this file, which is there when it is whole: .parquet, .arrow, .csv, .tsv or .json [default: stdout]
    #[arg(long, value_name = "FILE", help_heading = THIS_RUN)]
    pub out: Option<PathBuf>,
    /// The reference that CRAM files were made with, FASTA
    #[arg(long, value_name = "REF.fa")]
    pub reference: Option<PathBuf>,
    #[command(flatten)]
    pub access: AccessArgs,
    #[command(flatten)]
    pub common: Common,
}
