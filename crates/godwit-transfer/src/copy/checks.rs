//! What does not go together is told before anything is done.

use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;

use super::{Compression, CopyOptions};
use crate::error::TransferError;
use crate::manifest::EntryFailure;
use crate::place::Place;
use crate::plan::Item;
use crate::service::blocking;
use crate::sums::Sum;

/// Fails where a copy to a server is told what only one to this machine can do.
pub(super) fn check_is_plain(options: &CopyOptions) -> Result<(), TransferError> {
    if options.also_from.is_empty() {
        return Ok(());
    }
    Err(TransferError::refused("--also-from is for copies from servers to this machine"))
}

/// Fails where a server is to fetch through a third one.
pub(super) fn check_has_no_relay(options: &CopyOptions) -> Result<(), TransferError> {
    if options.relay.is_none() {
        return Ok(());
    }
    let problem = "--relay is for copies from or to this machine: a server that fetches from another is let in by that one, and not by a relay; \
                   leave it out, or copy to the machine in between first";
    Err(TransferError::refused(problem))
}

/// Fails where a pool is named for what only a single server does.
pub(super) fn check_pools(sources: &[Place], destination: &Place, options: &CopyOptions) -> Result<(), TransferError> {
    let is_pool = |place: &Place| matches!(place, Place::There(remote) if remote.pool);
    let others = options.also_from.iter().chain(&options.relay);
    if others.clone().any(is_pool) {
        return Err(TransferError::refused("--also-from and --relay name single servers, not a pool"));
    }
    if !sources.iter().chain([destination]).any(is_pool) {
        return Ok(());
    }
    if others.count() > 0 || matches!(options.compress, Compression::Delta(_)) {
        let problem = "a pool finds its servers by itself and sends files as they are; leave --also-from, --relay and --compress delta out";
        return Err(TransferError::refused(problem));
    }
    if matches!(destination, Place::There(_)) && sources.iter().any(|source| matches!(source, Place::There(_))) {
        let problem = "one server fetches from another, not from or for a pool; name one of its nodes, or copy by way of this machine";
        return Err(TransferError::refused(problem));
    }
    Ok(())
}

/// Fails where a server is to fetch by a list of checksums, which it does not see.
pub(super) fn check_has_no_list(options: &CopyOptions) -> Result<(), TransferError> {
    if options.check.is_empty() {
        return Ok(());
    }
    Err(TransferError::refused(
        "--check is for copies from or to this machine: a server does not see the list; leave it out, every block is verified",
    ))
}

/// Fails where nothing goes to or from a server, or what is asked for does not go together.
pub(super) fn check_is_possible(
    sources: &[Place],
    downloads: bool,
    options: &CopyOptions,
) -> Result<(), TransferError> {
    if downloads && sources.iter().any(|source| matches!(source, Place::Here(_))) {
        let problem = "a copy goes between this machine and a server; within a machine, cp does it";
        return Err(TransferError::refused(problem));
    }
    if matches!(options.compress, Compression::Delta(_)) && options.relay.is_some() {
        let problem =
            "what differs from a reference does not go through a relay; leave --relay or --compress delta out";
        return Err(TransferError::refused(problem));
    }
    Ok(())
}

/// Files of this machine that cannot be read, or have another checksum than they are to have.
pub(super) async fn check_sources(
    items: &[Item],
    sums: &HashMap<String, Sum>,
) -> Result<Vec<EntryFailure>, TransferError> {
    let checked: Vec<(String, PathBuf, Sum)> = items
        .iter()
        .filter_map(|item| Some((item.entry.path.clone(), item.path(), sums.get(&item.entry.path)?.clone())))
        .collect();
    blocking(move || {
        let failures = checked.into_iter().filter_map(|(path, place, sum)| {
            let file = File::open(&place).map_err(TransferError::file("read", &place));
            let why = file.and_then(|file| sum.check(&file, &place)).err()?;
            Some(EntryFailure { path, why })
        });
        Ok(failures.collect())
    })
    .await
}
