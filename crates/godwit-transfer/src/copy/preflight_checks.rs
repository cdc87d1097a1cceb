//! Checks of the options of a copy before it starts.

use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;

use super::{Compression, CopyOptions};
use crate::blocking::run_blocking;
use crate::checksum_lists::ExpectedChecksums;
use crate::copy_plan::CopyItem;
use crate::error::TransferError;
use crate::file_listing::EntryFailure;
use crate::location::Location;

/// Rejects mirrors (`--also-from`) for a copy to a server.
pub(super) fn check_no_mirrors(options: &CopyOptions) -> Result<(), TransferError> {
    if options.mirrors.is_empty() {
        return Ok(());
    }
    Err(TransferError::rejected("--also-from is supported only for copies from servers to this host; omit it"))
}

/// Rejects a relay (`--relay`) for a copy between two servers.
pub(super) fn check_no_relay(options: &CopyOptions) -> Result<(), TransferError> {
    if options.relay.is_none() {
        return Ok(());
    }
    let problem = "--relay is for copies from or to this host: a relay cannot authorize a server to fetch from \
                   another; omit it, or copy to the host in between first";
    Err(TransferError::rejected(problem))
}

/// Rejects pools in copies and options that support only single servers.
pub(super) fn check_pools(
    sources: &[Location],
    destination: &Location,
    options: &CopyOptions,
) -> Result<(), TransferError> {
    let is_pool = |place: &Location| matches!(place, Location::Remote(remote) if remote.is_pool);
    let others = options.mirrors.iter().chain(&options.relay);
    if others.clone().any(is_pool) {
        return Err(TransferError::rejected("--also-from and --relay do not support a pool; name a server"));
    }
    if !sources.iter().chain([destination]).any(is_pool) {
        return Ok(());
    }
    if others.count() > 0 || matches!(options.compression, Compression::Delta(_)) {
        let problem = "a pool selects its servers itself and sends files unchanged; omit --also-from, --relay and \
                       --compress delta";
        return Err(TransferError::rejected(problem));
    }
    if matches!(destination, Location::Remote(_)) && sources.iter().any(|source| matches!(source, Location::Remote(_)))
    {
        let problem =
            "a server cannot fetch from or for a pool; name one member of the pool, or copy by way of this host";
        return Err(TransferError::rejected(problem));
    }
    Ok(())
}

/// Rejects checksum lists (`--check`) for a copy between two servers: the server that fetches the files does not have
/// the lists.
pub(super) fn check_no_checksum_lists(options: &CopyOptions) -> Result<(), TransferError> {
    if options.checksum_lists.is_empty() {
        return Ok(());
    }
    Err(TransferError::rejected(
        "--check is for copies from or to this host: a server does not see the list; omit it, every block is verified \
         anyway",
    ))
}

/// Rejects copies from this host to this host, and delta compression through a relay.
pub(super) fn check_endpoints(
    sources: &[Location],
    downloads: bool,
    options: &CopyOptions,
) -> Result<(), TransferError> {
    if downloads && sources.iter().any(|source| matches!(source, Location::Local(_))) {
        let problem = "source and destination are both on this host; name a server as one of them, or use cp";
        return Err(TransferError::rejected(problem));
    }
    if matches!(options.compression, Compression::Delta(_)) && options.relay.is_some() {
        let problem = "delta compression does not work through a relay; omit --relay or --compress delta";
        return Err(TransferError::rejected(problem));
    }
    Ok(())
}

/// Returns the local files that cannot be read or whose checksum differs from the list. Files without a listed checksum
/// are not read.
pub(super) async fn verify_local_sources(
    items: &[CopyItem],
    sums: &HashMap<String, ExpectedChecksums>,
) -> Result<Vec<EntryFailure>, TransferError> {
    let checked: Vec<(String, PathBuf, ExpectedChecksums)> = items
        .iter()
        .filter_map(|item| Some((item.entry.path.clone(), item.local_path(), sums.get(&item.entry.path)?.clone())))
        .collect();
    run_blocking(move || {
        let failures = checked.into_iter().filter_map(|(path, place, sum)| {
            let file = File::open(&place).map_err(TransferError::io_error("read", &place));
            let error = file.and_then(|file| sum.verify_file(&file, &place)).err()?;
            Some(EntryFailure { path, error })
        });
        Ok(failures.collect())
    })
    .await
}
