//! `godwit copy`: files from or to a server.

use std::sync::Arc;

use godwit_transfer::place::Place;
use godwit_transfer::{Compression, CopyOptions, CopySummary, References, TransferError, copy};

use super::access::credentials_for;
use crate::cli::{CompressionName, CopyArgs};
use crate::failure::{Exit, Failure};
use crate::interruption;
use crate::progress::Progress;

/// Copies.
pub fn run(args: &CopyArgs) -> Result<(), Failure> {
    let cancelled = interruption::flag();
    godwit_process::record_resumable_work("what has arrived is kept: run the same command again to continue");
    let places = args.places.iter().map(|text| Place::parse(text)).collect::<Result<Vec<_>, _>>()?;
    let Some((destination, sources)) = places.split_last() else {
        return Err(Failure::new(Exit::Usage, "say what is to be copied, and where to; see godwit copy --help".into()));
    };
    let threads = args.common.thread_count();
    let options = CopyOptions {
        mode: args.mode.into(),
        bits_per_s: args.rate,
        streams: args.streams.0,
        compress: match args.compress {
            CompressionName::None => Compression::None,
            CompressionName::Zstd => Compression::Zstd,
            CompressionName::Delta => Compression::Delta(Arc::new(References::new(args.reference.clone(), threads))),
        },
        include: args.include.clone(),
        exclude: args.exclude.clone(),
        sync: args.sync,
        dry_run: args.dry_run,
        patience: if names_a_pool(&places) { args.patience.min(args.access.wait) } else { args.patience },
        strict: false,
        check: args.check.clone(),
        links: args.links.into(),
        relay: args.relay.as_deref().map(Place::parse).transpose()?,
        also_from: args.also_from.iter().map(|text| Place::parse(text)).collect::<Result<_, _>>()?,
    };
    let credentials = credentials_for(&places, &args.access, args.common.json)?;
    let progress = Progress::new(&args.common);
    let outcome = on_threads(threads, copy(sources, destination, &credentials, &options, &progress, &cancelled))?;
    progress.clear();
    let copied = match &outcome {
        Ok(summary) => Some(summary),
        // What could be copied is.
        Err(TransferError::Some { summary, .. }) => Some(&**summary),
        Err(_) => None,
    };
    if let Some(summary) = copied.filter(|_| !args.dry_run) {
        progress.say(&told(summary));
    }
    outcome?;
    Ok(())
}

/// What comes of a copy that runs on so many threads of its own.
pub(super) fn on_threads(
    threads: usize,
    copying: impl Future<Output = Result<CopySummary, TransferError>>,
) -> Result<Result<CopySummary, TransferError>, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(Exit::Machine, format!("cannot start threads: {error}")))?;
    let outcome = runtime.block_on(copying);
    // Reads that nobody waits for any more.
    runtime.shutdown_background();
    Ok(outcome)
}

/// Whether a pool is copied from or to, whose nodes are waited for as --wait says.
fn names_a_pool(places: &[Place]) -> bool {
    places.iter().any(|place| matches!(place, Place::There(remote) if remote.pool))
}

fn told(summary: &CopySummary) -> String {
    let packed = summary.packed_bytes;
    let sent = summary.bytes.saturating_sub(summary.kept_bytes).saturating_sub(packed) + summary.packed_sent_bytes;
    let rate = sent as f64 * 8.0 / 1e6 / summary.seconds.max(1e-3);
    let mut text = format!(
        "{} copied, {:.1} MB in {:.1} s, {rate:.0} Mbit/s",
        counted(summary.files, "file"),
        sent as f64 / 1e6,
        summary.seconds
    );
    if summary.packed_files > 0 {
        text += &format!(
            ", {} as differences from the reference, {:.3} MB in place of {:.1} MB: {:.1} MB saved",
            counted(summary.packed_files, "file"),
            summary.packed_sent_bytes as f64 / 1e6,
            packed as f64 / 1e6,
            packed.saturating_sub(summary.packed_sent_bytes) as f64 / 1e6
        );
    }
    if summary.kept_bytes > 0 {
        text += &format!(", {:.1} MB were there from before", summary.kept_bytes as f64 / 1e6);
    }
    if summary.same > 0 {
        text += &format!(", {} there already", counted(summary.same, "file"));
    }
    if summary.removed > 0 {
        text += &format!(", {} removed", summary.removed);
    }
    if summary.skipped_links > 0 {
        text += &format!(", {} skipped", counted(summary.skipped_links, "link"));
    }
    if summary.damaged > 0 {
        text += &format!(", {} came damaged and again", counted(summary.damaged as usize, "block"));
    }
    text
}

fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

impl From<TransferError> for Failure {
    fn from(error: TransferError) -> Self {
        let exit = exit_of(&error);
        Self::new(exit, godwit_formats::with_causes(&error))
    }
}

fn exit_of(error: &TransferError) -> Exit {
    match error {
        TransferError::NotFound { .. } | TransferError::Refused { .. } => Exit::Usage,
        TransferError::File { .. } | TransferError::Busy { .. } => Exit::Machine,
        TransferError::Changed { .. }
        | TransferError::Damaged { .. }
        | TransferError::Unlike { .. }
        | TransferError::Unsupported { .. } => Exit::Input,
        TransferError::Packing { source, .. } => super::pack::exit_of(source),
        TransferError::Elsewhere { .. }
        | TransferError::UnknownSession
        | TransferError::Silent { .. }
        | TransferError::Flight(_) => Exit::Remote,
        // It was there when the tree was listed.
        TransferError::Some { first, .. } if matches!(**first, TransferError::NotFound { .. }) => Exit::Input,
        TransferError::Some { first, .. } => exit_of(first),
        TransferError::Interrupted => Exit::Interrupted,
        TransferError::Bug { .. } => Exit::Bug,
    }
}
