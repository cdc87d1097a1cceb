//! Keys of Crypt4GH: what opens files, and who may read what is written.

use std::path::PathBuf;

use clap::Args;

/// What opens encrypted files.
#[derive(Args, Clone)]
pub struct KeyArgs {
    /// Secret key of Crypt4GH, which opens files that were encrypted for it (NAME.bam.c4gh); may be given again
    #[arg(long, value_name = "FILE")]
    pub c4gh_key: Vec<PathBuf>,
    /// File with the passphrase of keys that are locked [default: the variable C4GH_PASSPHRASE]
    #[arg(long, value_name = "FILE", requires = "c4gh_key")]
    pub c4gh_passphrase: Option<PathBuf>,
}

/// Who may read what is written.
#[derive(Args)]
pub struct RecipientArgs {
    /// Encrypt BAM, CRAM or the VCF for this public key of Crypt4GH, as NAME.bam.c4gh; may be given again
    #[arg(long, value_name = "FILE")]
    pub c4gh_recipient: Vec<PathBuf>,
}
