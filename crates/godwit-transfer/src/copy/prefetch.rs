//! Requests for blocks before the list of entries is known; they save a round trip.
//!
//! Each new connection requests its share of the first blocks of the source, while the server lists the files. If the
//! list shows the same files and versions, these requests count as the first requests of their connections. Otherwise
//! they are cancelled, which wastes only the blocks that are already in transit.

use godwit_flight::{Batches, Client, FlightError};
use godwit_transfer_session::partial_paths::{JOURNAL_SUFFIX, partial_path};

use super::CopyOptions;
use crate::abort_on_drop::AbortOnDropTask;
use crate::copy_plan::{DestinationNaming, base_name};
use crate::copy_protocol::{
    FileVersion, PREFETCH_TICKET, PrefetchRange, PrefetchRequest, ReadRange, encode_message, from_json,
};
use crate::file_listing::LinkPolicy;
use crate::location::Location;
use crate::selection::split_glob;
use crate::tcp_tuning::{self, SendOptions};
use godwit_transfer_session::StreamId;

/// The source of which blocks are requested before its list of entries is known.
#[derive(Clone, Debug)]
pub(super) struct Prefetch {
    path: String,
    streams: u32,
    send_options: SendOptions,
}

impl Prefetch {
    /// Returns the prefetch for a copy. Returns `None` if the copy has several sources or options such as filters, or
    /// if the target already exists.
    pub(super) fn for_copy(
        sources: &[Location],
        destination: &Location,
        naming: DestinationNaming,
        options: &CopyOptions,
    ) -> Option<Self> {
        let ([Location::Remote(remote)], Location::Local(target)) = (sources, destination) else { return None };
        let path = remote.path.trim_matches('/');
        let is_plain = !options.dry_run && options.bits_per_s.is_none() && !options.compression.is_delta();
        let is_plain = is_plain && options.include.is_empty() && options.exclude.is_empty();
        let is_plain = is_plain && options.link_policy == LinkPolicy::Follow;
        if !is_plain || path.is_empty() || !matches!(split_glob(path), Ok(None)) {
            return None;
        }
        let target = match naming {
            DestinationNaming::AsDestination => target.clone(),
            DestinationNaming::IntoDirectory | DestinationNaming::IntoDirectoryIfFile => {
                target.join(base_name(path).ok()?)
            }
        };
        let streams = tcp_tuning::stream_count(options.mode, options.streams, tcp_tuning::MAX_RTT);
        let send_options =
            SendOptions { mode: options.mode, bytes_per_s: None, compress: options.compression.is_zstd() };
        let exists = target.exists() || partial_path(&target, JOURNAL_SUFFIX).exists();
        (!exists).then(|| Self { path: path.to_owned(), streams, send_options })
    }

    /// Returns the number of connections among which the prefetched blocks are divided.
    pub(super) fn streams(&self) -> u32 {
        self.streams
    }

    /// Requests the share of the first blocks that belongs to connection `stream`.
    pub(super) fn request_blocks(&self, client: &Client, stream: StreamId) -> Option<PrefetchDownload> {
        let (path, streams, send_options) = (self.path.clone(), self.streams, self.send_options);
        let ticket = encode_message(PREFETCH_TICKET, &PrefetchRequest { path, stream, streams, send_options }).ok()?;
        let client = client.clone();
        Some(PrefetchDownload(AbortOnDropTask::spawn(async move { client.download(ticket).await })))
    }
}

/// The response to a request for prefetched blocks. Dropping it cancels the request.
pub(crate) struct PrefetchDownload(AbortOnDropTask<Result<Batches, FlightError>>);

impl PrefetchDownload {
    /// Returns the blocks if the response has exactly these ranges and versions; `None` if the blocks must be requested
    /// again.
    pub(crate) async fn into_matching_batches(self, spans: &[ReadRange]) -> Option<Batches> {
        let mut batches = self.0.await.ok()?.ok()?;
        let first_chunk = batches.next_chunk().await.ok()??;
        let received: Vec<PrefetchRange> = from_json(&first_chunk.app_metadata).ok()?;
        let wanted = spans.iter().map(|span| {
            let FileVersion::ServerVersion(version) = span.version else { return None };
            Some(PrefetchRange { file: span.file, version, start: span.start, end: span.end })
        });
        (wanted.collect::<Option<Vec<_>>>()? == received).then_some(batches)
    }
}
