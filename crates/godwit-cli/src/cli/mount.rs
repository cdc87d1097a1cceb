//! Options of `godwit mount`, and of the guard process, which removes a mount after its process was killed.

use std::path::PathBuf;

use clap::Args;

use super::value_parsers::parse_size;
use super::{AccessArgs, CommonArgs};
use crate::config::THIS_RUN_HEADING;

#[derive(Args)]
pub struct MountArgs {
    /// The files: godwit+pool://NAME/DIR, grpc+tls://HOST:PORT/DIR (grpc+tcp:// without encryption), or a local directory
    #[arg(value_name = "URL")]
    pub url: String,
    /// An existing directory, at which the files appear
    #[arg(value_name = "MOUNTPOINT")]
    pub mount_point: PathBuf,
    /// Permit no changes
    #[arg(long, help_heading = THIS_RUN_HEADING)]
    pub read_only: bool,
    /// Run until the files are unmounted, instead of in the background
    #[arg(long, help_heading = THIS_RUN_HEADING)]
    pub foreground: bool,
    /// Permit other users of this host to use the mount, with the rights of its token
    #[arg(long)]
    pub allow_other: bool,
    /// Memory for blocks of files, which are read in advance and kept for the next reads; at least 4M
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = parse_size)]
    pub cache: u64,
    #[command(flatten)]
    pub access: AccessArgs,
    #[command(flatten)]
    pub common: CommonArgs,
}

#[derive(Args)]
pub struct MountGuardArgs {
    /// The mount point
    #[arg(value_name = "MOUNTPOINT")]
    pub mount_point: PathBuf,
    /// Guard the mount; without it, start the guard and exit
    #[arg(long)]
    pub detached: bool,
}
