//! `godwit copy`: copies files from or to a server.

use std::sync::Arc;

use godwit_cli::cli::{CompressionName, CopyArgs};
use godwit_cli::failure::Failure;
use godwit_delta::ReferenceStore;
use godwit_model::ErrorKind;
use godwit_transfer::location::Location;
use godwit_transfer::{Compression, CopyOptions, CopySummary, TransferError, copy};

use super::credentials::credentials_for;
use crate::interruption;
use crate::plural::pluralize;
use crate::progress::Progress;

/// Copies files and reports the outcome.
pub fn run(args: &CopyArgs) -> Result<(), Failure> {
    let cancelled = interruption::flag();
    godwit_process::set_resume_instruction("received data are kept: run the same command again to resume");
    let places = args.locations.iter().map(|text| Location::parse(text)).collect::<Result<Vec<_>, _>>()?;
    let Some((destination, sources)) = places.split_last() else {
        return Err(Failure::new(
            ErrorKind::Usage,
            "name the files to copy and the destination; see godwit copy --help".into(),
        ));
    };
    let threads = args.common.thread_count();
    let options = CopyOptions {
        mode: args.mode.into(),
        bits_per_s: args.rate,
        streams: args.streams.0,
        compression: match args.compress {
            CompressionName::None => Compression::None,
            CompressionName::Zstd => Compression::Zstd,
            CompressionName::Delta => {
                Compression::Delta(Arc::new(ReferenceStore::new(args.reference.clone(), threads)))
            }
        },
        include: args.include.clone(),
        exclude: args.exclude.clone(),
        sync: args.sync,
        dry_run: args.dry_run,
        idle_timeout: if includes_pool(&places) { args.patience.min(args.access.wait) } else { args.patience },
        reject_hidden: false,
        checksum_lists: args.check.clone(),
        link_policy: args.links.into(),
        relay: args.relay.as_deref().map(Location::parse).transpose()?,
        mirrors: args.also_from.iter().map(|text| Location::parse(text)).collect::<Result<_, _>>()?,
    };
    let credentials = credentials_for(&places, &args.access, args.common.json)?;
    let progress = Progress::new(&args.common);
    let outcome = block_on_threads(threads, copy(sources, destination, &credentials, &options, &progress, &cancelled))?;
    progress.clear();
    let copied = match &outcome {
        Ok(summary) => Some(summary),
        // Some files failed; report those that were copied, too.
        Err(TransferError::PartialFailure { summary, .. }) => Some(&**summary),
        Err(_) => None,
    };
    if let Some(summary) = copied.filter(|_| !args.dry_run) {
        progress.report(&summary_line(summary));
    }
    outcome?;
    Ok(())
}

/// Runs a copy on a new tokio runtime with this number of threads.
pub(super) fn block_on_threads(
    threads: usize,
    copying: impl Future<Output = Result<CopySummary, TransferError>>,
) -> Result<Result<CopySummary, TransferError>, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    let runtime =
        runtime.map_err(|error| Failure::new(ErrorKind::Machine, format!("cannot start threads: {error}")))?;
    let outcome = runtime.block_on(copying);
    // Do not wait for blocking reads whose results are no longer needed.
    runtime.shutdown_background();
    Ok(outcome)
}

/// Returns whether one of the locations is a pool. For pools, `--wait` also limits how long a copy waits without
/// receiving data.
fn includes_pool(places: &[Location]) -> bool {
    places.iter().any(|place| matches!(place, Location::Remote(remote) if remote.is_pool))
}

fn summary_line(summary: &CopySummary) -> String {
    let packed = summary.delta_bytes;
    let sent = summary.bytes.saturating_sub(summary.resumed_bytes).saturating_sub(packed) + summary.delta_sent_bytes;
    let rate = sent as f64 * 8.0 / 1e6 / summary.seconds.max(1e-3);
    let mut text = format!(
        "{} copied, {:.1} MB in {:.1} s, {rate:.0} Mbit/s",
        pluralize(summary.files as u64, "file"),
        sent as f64 / 1e6,
        summary.seconds
    );
    if summary.delta_files > 0 {
        text += &format!(
            ", {} delta-compressed, {:.3} MB instead of {:.1} MB: {:.1} MB saved",
            pluralize(summary.delta_files as u64, "file"),
            summary.delta_sent_bytes as f64 / 1e6,
            packed as f64 / 1e6,
            packed.saturating_sub(summary.delta_sent_bytes) as f64 / 1e6
        );
    }
    if summary.resumed_bytes > 0 {
        text += &format!(", {:.1} MB resumed", summary.resumed_bytes as f64 / 1e6);
    }
    if summary.up_to_date_files > 0 {
        text += &format!(", {} up to date", pluralize(summary.up_to_date_files as u64, "file"));
    }
    if summary.removed_files > 0 {
        text += &format!(", {} removed", summary.removed_files);
    }
    if summary.skipped_links > 0 {
        text += &format!(", {} skipped", pluralize(summary.skipped_links as u64, "link"));
    }
    if summary.damaged_blocks > 0 {
        text += &format!(", {} damaged and sent again", pluralize(summary.damaged_blocks, "block"));
    }
    text
}
