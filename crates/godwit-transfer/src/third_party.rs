//! Copies between two servers: one is granted reading by the other, and fetches by itself.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use godwit_flight::Token;
use serde::{Deserialize, Serialize};

use crate::control::{Control, Credentials};
use crate::copy::{CopyEvent, CopyObserver, CopyOptions, CopySummary, copy};
use crate::error::TransferError;
use crate::place::{Place, Remote};
use crate::tune::CopyMode;

/// Has a server fetch files from another.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FetchRequest {
    /// Where files are, and the token that lets the fetching server read them.
    sources: Vec<(String, String)>,
    /// Where they go, as the user wrote it: below the fetching server's root.
    destination: String,
    mode: CopyMode,
    bits_per_s: Option<u64>,
    streams: Option<u32>,
    compress: bool,
    include: Vec<String>,
    exclude: Vec<String>,
    sync: bool,
    patience_s: u64,
}

/// Nobody watches a server fetch.
struct Unwatched;

impl CopyObserver for Unwatched {
    fn event(&self, _event: &CopyEvent) {}
}

/// Has the destination's server fetch what the sources' server grants it.
pub(crate) async fn delegate(
    sources: &[Place],
    destination: &Remote,
    credentials: &Credentials,
    options: &CopyOptions,
) -> Result<CopySummary, TransferError> {
    if options.dry_run {
        return Err(TransferError::refused("what a server would fetch cannot be told; leave --dry-run out"));
    }
    let mut granted = Vec::new();
    for source in sources {
        let Place::There(remote) = source else {
            return Err(TransferError::refused("sources are either all here or all on servers"));
        };
        let control = Control::connect(remote, credentials, options.patience).await?;
        // What a pattern fits is below the directory before it.
        let path = remote.path.split(['*', '?', '[']).next().unwrap_or_default();
        let path =
            if path.len() < remote.path.len() { path.rsplit_once('/').map_or("", |(path, _)| path) } else { path };
        granted.push((source.to_string(), control.grant(path).await?));
    }
    let request = FetchRequest {
        sources: granted,
        destination: destination.path.clone(),
        mode: options.mode,
        bits_per_s: options.bits_per_s,
        streams: options.streams,
        compress: options.compress,
        include: options.include.clone(),
        exclude: options.exclude.clone(),
        sync: options.sync,
        patience_s: options.patience.as_secs(),
    };
    Control::connect(destination, credentials, options.patience).await?.fetch(&request).await
}

/// Fetches, on the server that was asked to. `place` is where a path of a client is on this machine.
pub(crate) async fn fetch(
    request: FetchRequest,
    place: impl Fn(&str) -> Result<PathBuf, TransferError>,
    authority: Option<PathBuf>,
) -> Result<CopySummary, TransferError> {
    let mut path = place(&request.destination)?.into_os_string();
    if request.destination.ends_with('/') || request.destination.is_empty() {
        path.push("/");
    }
    let options = CopyOptions {
        mode: request.mode,
        bits_per_s: request.bits_per_s,
        streams: request.streams,
        compress: request.compress,
        include: request.include,
        exclude: request.exclude,
        sync: request.sync,
        dry_run: false,
        patience: Duration::from_secs(request.patience_s),
        strict: true,
    };
    let mut summary = CopySummary::default();
    let (first_token, places) = match &request.sources[..] {
        [] => return Err(TransferError::refused("nothing is to be fetched")),
        sources => {
            let places: Result<Vec<_>, _> = sources.iter().map(|(url, _)| Place::parse(url)).collect();
            (sources.len() == 1, places?)
        }
    };
    if places.iter().any(|place| matches!(place, Place::Here(_))) {
        return Err(TransferError::refused("a server fetches from servers alone"));
    }
    if !first_token && !path.as_encoded_bytes().ends_with(b"/") {
        path.push("/");
    }
    let destination = Place::Here(path.into());
    let never = Arc::new(AtomicBool::new(false));
    for ((_, token), place) in request.sources.iter().zip(places) {
        let credentials = Credentials { token: Token::new(token), authority: authority.clone(), identity: None };
        let done = copy(&[place], &destination, &credentials, &options, &Unwatched, &never).await?;
        summary.files += done.files;
        summary.same += done.same;
        summary.removed += done.removed;
        summary.bytes += done.bytes;
        summary.kept_bytes += done.kept_bytes;
        summary.damaged += done.damaged;
        summary.seconds += done.seconds;
    }
    Ok(summary)
}
