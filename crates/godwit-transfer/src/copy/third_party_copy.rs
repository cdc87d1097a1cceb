//! The client of a copy between two servers. The source server issues a delegation token to the client, the destination
//! server fetches the files with it, and the client polls the destination for progress.

use std::time::Duration;

use super::{Compression, CopyOptions};
use crate::control_client::ControlClient;
use crate::credentials::Credentials;
use crate::error::TransferError;
use crate::fetch_request::{CompressionKind, FetchRequest};
use crate::file_listing::EntryFailure;
use crate::location::{Location, RemoteLocation};
use godwit_transfer_session::copy_events::{CopyObserver, CopySummary};

/// Time between two requests for progress.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Requests a read token from each source server, and makes the destination server fetch the files.
pub(super) async fn request_third_party_copy(
    sources: &[Location],
    destination: &RemoteLocation,
    credentials: &Credentials,
    options: &CopyOptions,
    observer: &dyn CopyObserver,
) -> Result<(CopySummary, Vec<EntryFailure>), TransferError> {
    if options.dry_run {
        return Err(TransferError::rejected("--dry-run is not supported for copies between two servers; omit it"));
    }
    let mut granted = Vec::new();
    for source in sources {
        let Location::Remote(remote) = source else {
            return Err(TransferError::rejected(
                "some sources are on this host and others on servers; copy them with separate commands",
            ));
        };
        let control = ControlClient::connect(remote, credentials, options.idle_timeout).await?;
        // All matches of a glob are below the directory before the first wildcard, so the token covers that directory.
        let path = remote.path.split(['*', '?', '[']).next().unwrap_or_default();
        let path =
            if path.len() < remote.path.len() { path.rsplit_once('/').map_or("", |(path, _)| path) } else { path };
        granted.push((source.to_string(), control.request_read_token(path).await?));
    }
    let request = FetchRequest {
        copy_id: godwit_auth::random_id(),
        sources: granted,
        destination: destination.path.clone(),
        mode: options.mode,
        bits_per_s: options.bits_per_s,
        streams: options.streams,
        compression: compression_kind(&options.compression),
        include: options.include.clone(),
        exclude: options.exclude.clone(),
        sync: options.sync,
        idle_timeout_s: options.idle_timeout.as_secs(),
        link_policy: options.link_policy,
        per_entry_errors: true,
    };
    let control = ControlClient::connect(destination, credentials, options.idle_timeout).await?;
    let asking = async {
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            // Ignore errors of the calls that request progress, because the response to the fetch reports the outcome.
            for event in control.fetch_events(&request.copy_id).await.unwrap_or_default() {
                observer.on_event(&event);
            }
        }
    };
    tokio::select! {
        fetched = control.request_fetch(&request) => fetched,
        () = asking => Err(TransferError::Internal { problem: "the server that fetches the files closed the stream of \
                                                               its progress".to_owned() }),
    }
}

fn compression_kind(compression: &Compression) -> CompressionKind {
    match compression {
        Compression::None => CompressionKind::None,
        Compression::Zstd => CompressionKind::Zstd,
        Compression::Delta(_) => CompressionKind::Delta,
    }
}
