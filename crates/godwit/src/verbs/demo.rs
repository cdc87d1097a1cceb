//! `godwit demo`.

use crate::cli::DemoArgs;
use crate::failure::Failure;

/// Runs the demonstration.
pub fn run(args: &DemoArgs) -> Result<(), Failure> {
    let _ = args;
    Ok(())
}
