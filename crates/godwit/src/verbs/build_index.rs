//! `godwit index`: builds the index files of an aligner.

use godwit_align::{IndexOptions, build_index};
use godwit_cli::cli::IndexArgs;
use godwit_cli::failure::Failure;

use crate::progress::Progress;

/// Builds the index files of the selected aligner that are missing or do not match the reference.
pub fn run(args: &IndexArgs) -> Result<(), Failure> {
    let progress = Progress::new(&args.common);
    let arguments: Vec<String> = args.aligner_args.split_whitespace().map(str::to_owned).collect();
    let options = IndexOptions {
        reference: &args.reference,
        aligner: &args.aligner,
        arguments: &arguments,
        memory_bytes: args.index_memory,
        threads: args.common.thread_count(),
    };
    let built = build_index(&options, &progress)?;
    let shown = args.reference.display();
    progress.report(&if built { format!("indexed {shown}") } else { format!("the index of {shown} is current") });
    Ok(())
}
