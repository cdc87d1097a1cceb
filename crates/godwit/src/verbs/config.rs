//! `godwit config show`: prints the effective configuration.

use std::path::Path;

use godwit_cli::CommandFactory as _;
use godwit_cli::cli::{Cli, ConfigAction, ConfigArgs};
use godwit_cli::config::{Config, as_json, as_toml};
use godwit_cli::failure::{Failure, print};

/// Prints the effective value of every option with its origin.
pub fn run(args: &ConfigArgs, given: Option<&Path>, no_files: bool) -> Result<(), Failure> {
    let root = Cli::command();
    let config = Config::load(&root, given, no_files)?;
    let ConfigAction::Show { json } = args.action;
    print(&if json { format!("{:#}\n", as_json(&config, &root)?) } else { as_toml(&config, &root)? })
}
