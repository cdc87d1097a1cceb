//! Copies between two servers. The source server issues a delegation token to the client, the destination server
//! fetches the files with it, and the client polls the destination for progress.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use godwit_flight::Token;
use serde::{Deserialize, Serialize};

use crate::control_client::ControlClient;
use crate::copy::{
    Compression, CopyEvent, CopyObserver, CopyOptions, CopyOutcome, CopySummary, copy_collecting_failures,
};
use crate::credentials::Credentials;
use crate::delta_transfer::reference_store::ReferenceStore;
use crate::error::TransferError;
use crate::file_listing::{EntryFailure, LinkPolicy};
use crate::file_service::random_id;
use crate::location::{Location, RemoteLocation};
use crate::tcp_tuning::CopyMode;

/// A request to the destination server to fetch files from source servers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FetchRequest {
    /// Name of the fetch, with which the client requests its events.
    #[serde(rename = "name")]
    pub(crate) copy_id: String,
    /// URL of each source, and the delegation token for reading it.
    sources: Vec<(String, String)>,
    /// Destination as the user wrote it, below the root of the destination server.
    destination: String,
    mode: CopyMode,
    bits_per_s: Option<u64>,
    streams: Option<u32>,
    #[serde(rename = "compress")]
    compression: CompressionKind,
    include: Vec<String>,
    exclude: Vec<String>,
    sync: bool,
    #[serde(rename = "patience_s")]
    idle_timeout_s: u64,
    #[serde(default)]
    #[serde(rename = "links")]
    link_policy: LinkPolicy,
    /// True if the response has a second message that lists the entries that could not be copied. If false, the first
    /// such entry fails the request.
    #[serde(default)]
    #[serde(rename = "each")]
    per_entry_errors: bool,
}

/// Compression of blocks in transit. For delta compression, the references of the two servers are used.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum CompressionKind {
    None,
    Zstd,
    Delta,
}

impl CompressionKind {
    fn from_compression(compression: &Compression) -> Self {
        match compression {
            Compression::None => Self::None,
            Compression::Zstd => Self::Zstd,
            Compression::Delta(_) => Self::Delta,
        }
    }

    fn with_references(self, references: &Arc<ReferenceStore>) -> Compression {
        match self {
            Self::None => Compression::None,
            Self::Zstd => Compression::Zstd,
            Self::Delta => Compression::Delta(references.clone()),
        }
    }
}

/// Time between two requests for progress.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Largest number of events in a buffer; further events replace the oldest ones.
const MAX_BUFFERED_EVENTS: usize = 1000;

/// The events of a fetch since the client last requested them.
#[derive(Debug, Default)]
pub(crate) struct EventBuffer(Mutex<VecDeque<CopyEvent>>);

impl EventBuffer {
    fn lock_events(&self) -> std::sync::MutexGuard<'_, VecDeque<CopyEvent>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes and returns all events.
    pub(crate) fn drain(&self) -> Vec<CopyEvent> {
        self.lock_events().drain(..).collect()
    }
}

impl CopyObserver for EventBuffer {
    fn on_event(&self, event: &CopyEvent) {
        let mut events = self.lock_events();
        // A new progress event makes the preceding one obsolete.
        if let (CopyEvent::Progress { .. }, Some(CopyEvent::Progress { .. })) = (event, events.back()) {
            events.pop_back();
        }
        if events.len() >= MAX_BUFFERED_EVENTS {
            events.pop_front();
        }
        events.push_back(event.clone());
    }
}

/// Requests a read token from each source server, and makes the destination server fetch the files.
pub(crate) async fn request_third_party_copy(
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
            return Err(TransferError::rejected("sources must be either all on this host or all on servers"));
        };
        let control = ControlClient::connect(remote, credentials, options.idle_timeout).await?;
        // All matches of a glob are below the directory before the first wildcard, so the token covers that directory.
        let path = remote.path.split(['*', '?', '[']).next().unwrap_or_default();
        let path =
            if path.len() < remote.path.len() { path.rsplit_once('/').map_or("", |(path, _)| path) } else { path };
        granted.push((source.to_string(), control.request_read_token(path).await?));
    }
    let request = FetchRequest {
        copy_id: random_id()?,
        sources: granted,
        destination: destination.path.clone(),
        mode: options.mode,
        bits_per_s: options.bits_per_s,
        streams: options.streams,
        compression: CompressionKind::from_compression(&options.compression),
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
            // Ignore errors of these calls: the response to the fetch itself reports the outcome.
            for event in control.fetch_events(&request.copy_id).await.unwrap_or_default() {
                observer.on_event(&event);
            }
        }
    };
    tokio::select! {
        fetched = control.request_fetch(&request) => fetched,
        () = asking => Err(TransferError::Internal { problem: "the requests for progress ended".to_owned() }),
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
        compression: request.compression.with_references(references),
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
        [] => return Err(TransferError::rejected("nothing to fetch")),
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
