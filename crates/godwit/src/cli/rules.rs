//! Who may see what, and who saw what.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::config::THIS_RUN;

/// Rules about who may see what.
#[derive(Subcommand)]
pub enum PolicyVerb {
    /// Say what somebody sees of a dataset, and by which rule; exit code 4 where it is not seen
    #[command(
        after_help = "Example:\n  godwit policy test --policy policy.toml --as alice --dataset cohort/S.bam --data out"
    )]
    Test(PolicyTestArgs),
}

#[derive(Args)]
pub struct PolicyTestArgs {
    /// The file of rules
    #[arg(long, value_name = "FILE", help_heading = THIS_RUN)]
    pub policy: PathBuf,
    /// Who asks, as `godwit token` named them [default: whoever is let in without a name]
    #[arg(long = "as", value_name = "NAME", help_heading = THIS_RUN)]
    pub who: Option<String>,
    /// A visa that they show, as the policy names it in [visas]; may be given again
    #[arg(long, value_name = "NAME", help_heading = THIS_RUN)]
    pub visa: Vec<String>,
    /// The dataset, as a listing has it
    #[arg(long, value_name = "NAME", help_heading = THIS_RUN)]
    pub dataset: String,
    /// A column that has to be seen, if masked; may be given again
    #[arg(long, value_name = "NAME", help_heading = THIS_RUN)]
    pub column: Vec<String>,
    /// A region that has to be seen (chr20:1-1000); may be given again
    #[arg(long, value_name = "REGION", help_heading = THIS_RUN)]
    pub region: Vec<String>,
    /// The directory that is served [default: the working directory]
    #[arg(long, value_name = "DIR", help_heading = THIS_RUN)]
    pub data: Option<PathBuf>,
}

/// The record of who saw what.
#[derive(Subcommand)]
pub enum AuditVerb {
    /// Check that no line of a record was changed, moved or removed; exit code 3 names the first that was
    #[command(after_help = "Example:\n  godwit audit verify audit.jsonl")]
    Verify(AuditVerifyArgs),
}

#[derive(Args)]
pub struct AuditVerifyArgs {
    /// The record, as `godwit serve --audit` keeps it
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// A chain that was noted before, and that one of its lines has to have
    #[arg(long, value_name = "HASH", help_heading = THIS_RUN)]
    pub expect: Option<String>,
}
