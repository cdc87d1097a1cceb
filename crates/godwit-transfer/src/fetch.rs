//! The destination server of a copy between two servers: it fetches the files, and buffers the events for the client.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use godwit_auth::Token;
use godwit_delta::ReferenceStore;
use parking_lot::Mutex;

use crate::copy::{Compression, CopyOptions, CopyOutcome, copy_collecting_failures};
use crate::credentials::Credentials;
use crate::error::TransferError;
use crate::fetch_request::{CompressionKind, FetchRequest};
use crate::file_listing::EntryFailure;
use crate::location::Location;
use godwit_transfer_session::copy_events::{CopyEvent, CopyObserver, CopySummary};

/// Largest number of events in a buffer; further events replace the oldest ones.
const MAX_BUFFERED_EVENTS: usize = 1000;

/// The events of a fetch since the client last requested them.
#[derive(Debug, Default)]
pub(crate) struct EventBuffer(Mutex<VecDeque<CopyEvent>>);

impl EventBuffer {
    /// Removes and returns all events.
    pub(crate) fn drain(&self) -> Vec<CopyEvent> {
        self.0.lock().drain(..).collect()
    }
}

impl CopyObserver for EventBuffer {
    fn on_event(&self, event: &CopyEvent) {
        let mut events = self.0.lock();
        // Replace the previous event if both are progress events, because only the latest progress matters.
        if let (CopyEvent::Progress { .. }, Some(CopyEvent::Progress { .. })) = (event, events.back()) {
            events.pop_back();
        }
        if events.len() >= MAX_BUFFERED_EVENTS {
            events.pop_front();
        }
        events.push_back(event.clone());
    }
}

/// Runs a fetch on the destination server. `place` resolves the requested path below the root of this server.
pub(crate) async fn run_fetch(
    request: FetchRequest,
    place: impl Fn(&str) -> Result<PathBuf, TransferError>,
    authority: Option<PathBuf>,
    references: &Arc<ReferenceStore>,
    happened: &EventBuffer,
) -> Result<(CopySummary, Vec<EntryFailure>), TransferError> {
    let mut path = place(&request.destination)?.into_os_string();
    if request.destination.ends_with('/') || request.destination.is_empty() {
        path.push("/");
    }
    let options = CopyOptions {
        mode: request.mode,
        bits_per_s: request.bits_per_s,
        streams: request.streams,
        compression: with_references(request.compression, references),
        include: request.include,
        exclude: request.exclude,
        sync: request.sync,
        dry_run: false,
        idle_timeout: Duration::from_secs(request.idle_timeout_s),
        reject_hidden: true,
        mirrors: Vec::new(),
        relay: None,
        checksum_lists: Vec::new(),
        link_policy: request.link_policy,
    };
    let (mut summary, mut failures) = (CopySummary::default(), Vec::new());
    let (first_token, places) = match &request.sources[..] {
        [] => return Err(TransferError::rejected("no source to fetch is given")),
        sources => {
            let places: Result<Vec<_>, _> = sources.iter().map(|(url, _)| Location::parse(url)).collect();
            (sources.len() == 1, places?)
        }
    };
    if places.iter().any(|place| matches!(place, Location::Local(_))) {
        return Err(TransferError::rejected(
            "a server fetches only from other servers, so every source must be the URL of a server",
        ));
    }
    if !first_token && !path.as_encoded_bytes().ends_with(b"/") {
        path.push("/");
    }
    let destination = Location::Local(path.into());
    let never = AtomicBool::new(false);
    for ((_, token), place) in request.sources.iter().zip(places) {
        let credentials =
            Credentials { token: Token::new(token), ca_certificates: authority.clone(), ..Credentials::default() };
        let CopyOutcome { summary: done, failures: others } =
            copy_collecting_failures(&[place], &destination, &credentials, &options, happened, &never).await?;
        failures.extend(others);
        summary.files += done.files;
        summary.up_to_date_files += done.up_to_date_files;
        summary.removed_files += done.removed_files;
        summary.bytes += done.bytes;
        summary.resumed_bytes += done.resumed_bytes;
        summary.delta_files += done.delta_files;
        summary.delta_bytes += done.delta_bytes;
        summary.delta_sent_bytes += done.delta_sent_bytes;
        summary.damaged_blocks += done.damaged_blocks;
        summary.seconds += done.seconds;
        summary.skipped_links += done.skipped_links;
    }
    match failures.pop_if(|_| !request.per_entry_errors) {
        Some(first) => Err(first.error),
        None => Ok((summary, failures)),
    }
}

fn with_references(compression: CompressionKind, references: &Arc<ReferenceStore>) -> Compression {
    match compression {
        CompressionKind::None => Compression::None,
        CompressionKind::Zstd => Compression::Zstd,
        CompressionKind::Delta => Compression::Delta(references.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_listing::LinkPolicy;
    use crate::tcp_tuning::CopyMode;

    #[tokio::test]
    async fn a_source_on_the_destination_server_itself_is_rejected() {
        let request = FetchRequest {
            copy_id: "copy".to_owned(),
            sources: vec![("/etc/hostname".to_owned(), "token".to_owned())],
            destination: String::new(),
            mode: CopyMode::Fair,
            bits_per_s: None,
            streams: None,
            compression: CompressionKind::None,
            include: Vec::new(),
            exclude: Vec::new(),
            sync: false,
            idle_timeout_s: 60,
            link_policy: LinkPolicy::Follow,
            per_entry_errors: true,
        };
        let root = tempfile::tempdir().unwrap();
        let resolve = |path: &str| Ok(root.path().join(path));
        let references = Arc::new(ReferenceStore::new(Vec::new(), 1));
        let outcome = run_fetch(request, resolve, None, &references, &EventBuffer::default()).await;
        let Err(TransferError::Rejected { .. }) = &outcome else { panic!("{outcome:?}") };
        let message = outcome.unwrap_err().to_string();
        assert!(message.contains("every source must be the URL of a server"), "{message}");
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
    }
}
