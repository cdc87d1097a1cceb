//! `godwit variants`: converts VCF to Parquet or Arrow.

use godwit_call::write_variants;
use godwit_cli::cli::{LogLevel, VariantsArgs};
use godwit_cli::failure::Failure;

use super::{input_path, print};
use crate::interruption;
use crate::plural::pluralize;

/// Converts a VCF file and reports the number of variants.
pub fn run(args: &VariantsArgs) -> Result<(), Failure> {
    let threads = args.common.thread_count();
    let records = write_variants(&input_path(&args.input), &args.out, threads, &interruption::flag())?;
    if args.common.quiet || args.common.json || args.common.log < LogLevel::Info {
        return Ok(());
    }
    print(&format!("wrote {} to {}\n", pluralize(records, "variant"), args.out.display()))
}
