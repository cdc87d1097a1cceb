//! Options for Crypt4GH encryption: the secret keys for reading inputs, and the recipients of outputs.

use std::path::PathBuf;

use clap::Args;

/// Secret keys of encrypted inputs.
#[derive(Args, Clone, Default)]
pub struct KeyArgs {
    /// Secret key of Crypt4GH, for files that were encrypted for it (NAME.bam.c4gh); repeat for more
    #[arg(long, value_name = "FILE")]
    pub c4gh_key: Vec<PathBuf>,
    /// File with the passphrase of encrypted keys [default: the variable C4GH_PASSPHRASE]
    #[arg(long, value_name = "FILE", requires = "c4gh_key")]
    pub c4gh_passphrase: Option<PathBuf>,
}

/// Recipients of encrypted outputs.
#[derive(Args)]
pub struct RecipientArgs {
    /// Encrypt BAM, CRAM or the VCF for this public key of Crypt4GH, as NAME.bam.c4gh; repeat for more
    #[arg(long, value_name = "FILE")]
    pub c4gh_recipient: Vec<PathBuf>,
}
