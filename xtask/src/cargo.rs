//! The cargo command that chores start.

use std::env;
use std::process::Command;

/// Returns the command of the cargo that started this program.
///
/// cargo describes xtask in variables such as `CARGO_MANIFEST_DIR`. Build scripts, for example ring's, read the same
/// names and run again when a value changes, and so does everything that depends on them. So the command does not inherit
/// those variables.
pub fn command() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in env::vars_os() {
        if ["CARGO_MANIFEST_", "CARGO_PKG_"].iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command
}
