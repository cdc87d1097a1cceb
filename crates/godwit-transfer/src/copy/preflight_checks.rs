//! Checks of the options before a copy starts.

use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;

use super::{Compression, CopyOptions};
use crate::checksum_lists::ExpectedChecksum;
use crate::copy_plan::CopyItem;
use crate::error::TransferError;
use crate::file_listing::EntryFailure;
use crate::file_service::run_blocking;
use crate::location::Location;

/// Rejects mirrors for a copy to a server.
pub(super) fn check_no_mirrors(options: &CopyOptions) -> Result<(), TransferError> {
    if options.mirrors.is_empty() {
        return Ok(());
    }
    Err(TransferError::rejected("--also-from is for copies from servers to this machine"))
}

/// Rejects a relay for a copy between two servers.
pub(super) fn check_no_relay(options: &CopyOptions) -> Result<(), TransferError> {
    if options.relay.is_none() {
        return Ok(());
    }
    let problem = "--relay is for copies from or to this machine: a server that fetches from another is let in by that one, and not by a relay; \
                   leave it out, or copy to the machine in between first";
    Err(TransferError::rejected(problem))
}

/// Rejects a pool where only single servers are supported.
pub(super) fn check_pools(
    sources: &[Location],
    destination: &Location,
    options: &CopyOptions,
) -> Result<(), TransferError> {
    let is_pool = |place: &Location| matches!(place, Location::Remote(remote) if remote.is_pool);
    let others = options.mirrors.iter().chain(&options.relay);
    if others.clone().any(is_pool) {
        return Err(TransferError::rejected("--also-from and --relay name single servers, not a pool"));
    }
    if !sources.iter().chain([destination]).any(is_pool) {
        return Ok(());
    }
    if others.count() > 0 || matches!(options.compression, Compression::Delta(_)) {
        let problem = "a pool finds its servers by itself and sends files as they are; leave --also-from, --relay and --compress delta out";
        return Err(TransferError::rejected(problem));
    }
    if matches!(destination, Location::Remote(_)) && sources.iter().any(|source| matches!(source, Location::Remote(_)))
    {
        let problem = "one server fetches from another, not from or for a pool; name one of its nodes, or copy by way of this machine";
        return Err(TransferError::rejected(problem));
    }
    Ok(())
}

/// Rejects checksum lists for a copy between two servers: the fetching server does not see them.
pub(super) fn check_no_checksum_lists(options: &CopyOptions) -> Result<(), TransferError> {
    if options.checksum_lists.is_empty() {
        return Ok(());
    }
    Err(TransferError::rejected(
        "--check is for copies from or to this machine: a server does not see the list; leave it out, every block is verified",
    ))
}

/// Rejects copies within this host, and incompatible options.
pub(super) fn check_endpoints(
    sources: &[Location],
    downloads: bool,
    options: &CopyOptions,
) -> Result<(), TransferError> {
    if downloads && sources.iter().any(|source| matches!(source, Location::Local(_))) {
        let problem = "a copy goes between this machine and a server; within a machine, cp does it";
        return Err(TransferError::rejected(problem));
    }
    if matches!(options.compression, Compression::Delta(_)) && options.relay.is_some() {
        let problem =
            "what differs from a reference does not go through a relay; leave --relay or --compress delta out";
        return Err(TransferError::rejected(problem));
    }
    Ok(())
}

/// Returns the local files that cannot be read or differ from their expected checksum.
pub(super) async fn verify_local_sources(
    items: &[CopyItem],
    sums: &HashMap<String, ExpectedChecksum>,
) -> Result<Vec<EntryFailure>, TransferError> {
    let checked: Vec<(String, PathBuf, ExpectedChecksum)> = items
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
