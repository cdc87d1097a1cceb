//! Options of `godwit decode-cram`, the process that decodes CRAM files for other verbs.

use std::path::PathBuf;

use clap::Args;

#[derive(Args)]
pub struct DecodeCramArgs {
    /// The file
    #[arg(long, value_name = "CRAM")]
    pub input: PathBuf,
    /// The reference of the file
    #[arg(long, value_name = "FASTA", requires = "temp")]
    pub reference: Option<PathBuf>,
    /// Directory for scratch files
    #[arg(long, value_name = "DIR")]
    pub temp: Option<PathBuf>,
    /// Threads
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: u32,
}
