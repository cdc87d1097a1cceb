//! `godwit config show`: prints the effective configuration.

use std::path::Path;

use clap::CommandFactory;

use crate::cli::{Cli, ConfigAction, ConfigArgs};
use crate::config::{Config, as_json, as_toml};
use crate::failure::{Failure, print};

/// Prints the effective value of every option with its origin.
pub fn run(args: &ConfigArgs, given: Option<&Path>, no_files: bool) -> Result<(), Failure> {
    let root = Cli::command();
    let config = Config::load(&root, given, no_files)?;
    let ConfigAction::Show { json } = args.action;
    print(&if json { format!("{:#}\n", as_json(&config, &root)?) } else { as_toml(&config, &root)? })
}
