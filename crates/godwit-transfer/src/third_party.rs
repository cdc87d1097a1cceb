//! Copies between two servers: one is granted reading by the other, and fetches by itself. Who has it fetch asks now and then how far it is.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use godwit_flight::Token;
use serde::{Deserialize, Serialize};

use crate::control::{Control, Credentials};
use crate::copy::{Compression, CopyEvent, CopyObserver, CopyOptions, CopyOutcome, CopySummary, copy_each};
use crate::error::TransferError;
use crate::genomes::references::References;
use crate::manifest::{EntryFailure, Links};
use crate::place::{Place, Remote};
use crate::service::random_name;
use crate::tune::CopyMode;

/// Has a server fetch files from another.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FetchRequest {
    /// A name by which it is asked how far it is.
    pub(crate) name: String,
    /// Where files are, and the token that lets the fetching server read them.
    sources: Vec<(String, String)>,
    /// Where they go, as the user wrote it: below the fetching server's root.
    destination: String,
    mode: CopyMode,
    bits_per_s: Option<u64>,
    streams: Option<u32>,
    compress: Asked,
    include: Vec<String>,
    exclude: Vec<String>,
    sync: bool,
    patience_s: u64,
    #[serde(default)]
    links: Links,
    /// True if a second message is to list the entries that cannot be copied. Without it, the first of them fails the request.
    #[serde(default)]
    each: bool,
}

/// What becomes of data on the way. References are those of the servers.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Asked {
    None,
    Zstd,
    Delta,
}

impl Asked {
    fn of(compression: &Compression) -> Self {
        match compression {
            Compression::None => Self::None,
            Compression::Zstd => Self::Zstd,
            Compression::Delta(_) => Self::Delta,
        }
    }

    fn by(self, references: &Arc<References>) -> Compression {
        match self {
            Self::None => Compression::None,
            Self::Zstd => Compression::Zstd,
            Self::Delta => Compression::Delta(references.clone()),
        }
    }
}

/// How often it is asked how far a server is.
const ASK_INTERVAL: Duration = Duration::from_millis(500);
/// Events that are kept for who asks for them; the oldest go first.
const EVENTS_KEPT: usize = 1000;

/// What happened since it was last asked for.
#[derive(Debug, Default)]
pub(crate) struct Happened(Mutex<VecDeque<CopyEvent>>);

impl Happened {
    fn events(&self) -> std::sync::MutexGuard<'_, VecDeque<CopyEvent>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of it; nothing is left.
    pub(crate) fn take(&self) -> Vec<CopyEvent> {
        self.events().drain(..).collect()
    }
}

impl CopyObserver for Happened {
    fn event(&self, event: &CopyEvent) {
        let mut events = self.events();
        // How far it was before is of no interest.
        if let (CopyEvent::Copying { .. }, Some(CopyEvent::Copying { .. })) = (event, events.back()) {
            events.pop_back();
        }
        if events.len() >= EVENTS_KEPT {
            events.pop_front();
        }
        events.push_back(event.clone());
    }
}

/// Has the destination's server fetch what the sources' server grants it.
pub(crate) async fn delegate(
    sources: &[Place],
    destination: &Remote,
    credentials: &Credentials,
    options: &CopyOptions,
    observer: &dyn CopyObserver,
) -> Result<(CopySummary, Vec<EntryFailure>), TransferError> {
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
        name: random_name()?,
        sources: granted,
        destination: destination.path.clone(),
        mode: options.mode,
        bits_per_s: options.bits_per_s,
        streams: options.streams,
        compress: Asked::of(&options.compress),
        include: options.include.clone(),
        exclude: options.exclude.clone(),
        sync: options.sync,
        patience_s: options.patience.as_secs(),
        links: options.links,
        each: true,
    };
    let control = Control::connect(destination, credentials, options.patience).await?;
    let asking = async {
        loop {
            tokio::time::sleep(ASK_INTERVAL).await;
            // Whether the fetching goes well is said by itself.
            for event in control.happened(&request.name).await.unwrap_or_default() {
                observer.event(&event);
            }
        }
    };
    tokio::select! {
        fetched = control.fetch(&request) => fetched,
        () = asking => Err(TransferError::Bug { problem: "asking ended".to_owned() }),
    }
}

/// Fetches, on the server that was asked to. `place` is where a path of a client is on this machine.
pub(crate) async fn fetch(
    request: FetchRequest,
    place: impl Fn(&str) -> Result<PathBuf, TransferError>,
    authority: Option<PathBuf>,
    references: &Arc<References>,
    happened: &Happened,
) -> Result<(CopySummary, Vec<EntryFailure>), TransferError> {
    let mut path = place(&request.destination)?.into_os_string();
    if request.destination.ends_with('/') || request.destination.is_empty() {
        path.push("/");
    }
    let options = CopyOptions {
        mode: request.mode,
        bits_per_s: request.bits_per_s,
        streams: request.streams,
        compress: request.compress.by(references),
        include: request.include,
        exclude: request.exclude,
        sync: request.sync,
        dry_run: false,
        patience: Duration::from_secs(request.patience_s),
        strict: true,
        also_from: Vec::new(),
        relay: None,
        check: Vec::new(),
        links: request.links,
    };
    let (mut summary, mut failures) = (CopySummary::default(), Vec::new());
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
    let never = AtomicBool::new(false);
    for ((_, token), place) in request.sources.iter().zip(places) {
        let credentials =
            Credentials { token: Token::new(token), authority: authority.clone(), ..Credentials::default() };
        let CopyOutcome { summary: done, failures: others } =
            copy_each(&[place], &destination, &credentials, &options, happened, &never).await?;
        failures.extend(others);
        summary.files += done.files;
        summary.same += done.same;
        summary.removed += done.removed;
        summary.bytes += done.bytes;
        summary.kept_bytes += done.kept_bytes;
        summary.packed_files += done.packed_files;
        summary.packed_bytes += done.packed_bytes;
        summary.packed_sent_bytes += done.packed_sent_bytes;
        summary.damaged += done.damaged;
        summary.seconds += done.seconds;
        summary.skipped_links += done.skipped_links;
    }
    match failures.pop_if(|_| !request.each) {
        Some(first) => Err(first.why),
        None => Ok((summary, failures)),
    }
}
