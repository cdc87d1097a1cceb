//! `godwit index`.

use godwit_pipeline::build_index;

use crate::cli::IndexArgs;
use crate::failure::Failure;
use crate::progress::Progress;

/// Makes what is missing or does not belong to the reference.
pub fn run(args: &IndexArgs) -> Result<(), Failure> {
    let progress = Progress::new(&args.common);
    let arguments: Vec<String> = args.aligner_args.split_whitespace().map(str::to_owned).collect();
    let built = build_index(&args.reference, &args.aligner, &arguments, args.common.thread_count(), &progress)?;
    let shown = args.reference.display();
    progress.say(&if built { format!("indexed {shown}") } else { format!("the index of {shown} is current") });
    Ok(())
}
