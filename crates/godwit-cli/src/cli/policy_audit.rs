//! Options of `godwit policy` and `godwit audit`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::config::THIS_RUN_HEADING;

/// Access policies.
#[derive(Subcommand)]
pub enum PolicyVerb {
    /// Report what a principal sees of a dataset, and by which rule; exit code 4 if the dataset is hidden
    #[command(
        after_help = "Example:\n  godwit policy test --policy policy.toml --as alice --dataset cohort/S.bam --data out"
    )]
    Test(PolicyTestArgs),
}

#[derive(Args)]
pub struct PolicyTestArgs {
    /// The policy file
    #[arg(long, value_name = "FILE", help_heading = THIS_RUN_HEADING)]
    pub policy: PathBuf,
    /// The principal, as named by `godwit token` [default: a principal without a name]
    #[arg(long = "as", value_name = "NAME", help_heading = THIS_RUN_HEADING)]
    pub principal: Option<String>,
    /// A visa of the principal, by its name in `[visas.NAME]` of the policy; repeat for more
    #[arg(long, value_name = "NAME", help_heading = THIS_RUN_HEADING)]
    pub visa: Vec<String>,
    /// The dataset, by its name in listings
    #[arg(long, value_name = "NAME", help_heading = THIS_RUN_HEADING)]
    pub dataset: String,
    /// A column that must be visible, if masked; repeat for more
    #[arg(long, value_name = "NAME", help_heading = THIS_RUN_HEADING)]
    pub column: Vec<String>,
    /// A region that must be visible (chr20:1-1000); repeat for more
    #[arg(long, value_name = "REGION", help_heading = THIS_RUN_HEADING)]
    pub region: Vec<String>,
    /// The directory that is served [default: the working directory]
    #[arg(long, value_name = "DIR", help_heading = THIS_RUN_HEADING)]
    pub data: Option<PathBuf>,
}

/// The audit log of accesses.
#[derive(Subcommand)]
pub enum AuditVerb {
    /// Verify that no line of an audit log was changed, moved or removed; exit code 3 names the first that was
    #[command(after_help = "Example:\n  godwit audit verify audit.jsonl")]
    Verify(AuditVerifyArgs),
}

#[derive(Args)]
pub struct AuditVerifyArgs {
    /// The audit log, as written by `godwit serve --audit`
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// A chain hash that was saved earlier; the verification fails unless a line has it
    #[arg(long, value_name = "HASH", help_heading = THIS_RUN_HEADING)]
    pub expect: Option<String>,
}
