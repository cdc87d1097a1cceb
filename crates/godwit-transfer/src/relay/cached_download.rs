//! Downloads through the cache of a relay. Cached blocks are read from disk. Blocks that another request already
//! fetches are awaited. All other blocks are fetched from the upstream server, stored and forwarded.
//!
//! Every request goes to the upstream server with the client's delegation token. It names every requested file, either
//! with the blocks to fetch or with an empty range. The relay sends cached blocks of a file only after the upstream
//! server has permitted this client to read that version of the file.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use bytes::Bytes;
use futures_util::stream;
use godwit_flight::{Batches, Client, Download, Status};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::cache::{MAX_BLOCKS_PER_FILE, Origin, RelayCache};
use super::pending_fetches::{BlockKey, FetchClaims, PendingFetches};
use super::upstream_error;
use crate::abort_on_drop::AbortOnDropTask;
use crate::block_reader::{MAX_BATCH_BYTES, block_schema};
use crate::blocking::run_blocking;
use crate::copy_protocol::{
    BlockBatch, BlockReport, OutgoingBlock, READ_TICKET, ReadRange, ReadRequest, compress_block, encode_blocks,
    encode_message, from_json,
};
use crate::error::TransferError;

/// Largest number of blocks in a request that uses the cache. Larger requests are forwarded without the cache.
const MAX_BLOCKS_PER_REQUEST: u64 = 1 << 16;
/// Number of batches that may wait to be sent to the client.
const BATCH_QUEUE_LENGTH: usize = 2;
/// Longest wait for a block that another request fetches, while that request makes no progress.
const PENDING_FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// Number of rounds in which a request tries the cache and waits for other requests. After that, it fetches the missing
/// blocks itself.
const MAX_ROUNDS: usize = 4;

/// Reports whether the cache can be used for a request.
pub(super) fn is_cacheable(read: &ReadRequest) -> bool {
    let blocks: u64 = read.ranges.iter().map(|span| span.end.saturating_sub(span.start)).fold(0, u64::saturating_add);
    blocks <= MAX_BLOCKS_PER_REQUEST && read.ranges.iter().all(|span| span.end <= MAX_BLOCKS_PER_FILE)
}

/// A download request, and the cache that it uses.
struct CacheRequest {
    cache: Arc<RelayCache>,
    pending_fetches: Arc<PendingFetches>,
    read_request: ReadRequest,
    /// For each range of the request, the identifier of the file version at the server.
    origins: Vec<Origin>,
}

/// A block of one of the requested ranges.
#[derive(Clone, Copy)]
struct RequestedBlock {
    range_index: usize,
    block: u64,
    /// True if the block must be fetched from the upstream server, whatever the cache contains.
    from_upstream: bool,
}

/// From where each block of a request comes.
struct BlockPlan {
    claims: FetchClaims,
    upstream: Vec<RequestedBlock>,
    cached: Vec<RequestedBlock>,
    pending: Vec<RequestedBlock>,
}

/// The download has ended: the client has disconnected, or the error was sent to the client.
struct DownloadEnd;

type BatchItem = (RecordBatch, Bytes);

/// A download whose blocks are being sent to the client.
pub(super) struct CachedDownload {
    request: Arc<CacheRequest>,
    client: Client,
    server: String,
    /// Files that the upstream server does not permit the client to read.
    rejected_files: HashSet<u32>,
    sender: mpsc::Sender<Result<BatchItem, Status>>,
}

impl CacheRequest {
    fn block_key(&self, piece: RequestedBlock) -> BlockKey {
        (self.origins[piece.range_index], piece.block)
    }

    fn file_id(&self, piece: RequestedBlock) -> u32 {
        self.read_request.ranges[piece.range_index].file
    }

    fn is_cached(&self, piece: RequestedBlock) -> bool {
        let hash = self.cache.block_hash(&self.origins[piece.range_index], piece.block);
        hash.is_some_and(|hash| self.cache.contains_block(&hash))
    }

    /// Decides for each block whether it is fetched, read from the cache, or awaited.
    fn plan_blocks(&self, pieces: Vec<RequestedBlock>) -> BlockPlan {
        let claims = FetchClaims::new(self.pending_fetches.clone());
        let mut sorted = BlockPlan { claims, upstream: Vec::new(), cached: Vec::new(), pending: Vec::new() };
        for piece in pieces {
            let key = self.block_key(piece);
            if !piece.from_upstream && self.is_cached(piece) {
                sorted.cached.push(piece);
            } else if !sorted.claims.claim(key, piece.from_upstream) {
                sorted.pending.push(piece);
            } else if !piece.from_upstream && self.is_cached(piece) {
                // Another request has stored the block since the first check.
                sorted.claims.complete_block(&key);
                sorted.cached.push(piece);
            } else {
                sorted.upstream.push(piece);
            }
        }
        sorted
    }

    /// Returns a ticket for the upstream server that requests these blocks. If `check_access` is true, the ticket also
    /// names each other requested file, with an empty range.
    fn upstream_ticket(&self, pieces: &[RequestedBlock], check_access: bool) -> Result<Vec<u8>, TransferError> {
        let mut ranges: Vec<ReadRange> = Vec::new();
        let mut last: Option<RequestedBlock> = None;
        for piece in pieces {
            let follows =
                last.is_some_and(|last| (last.range_index, last.block + 1) == (piece.range_index, piece.block));
            match ranges.last_mut() {
                Some(span) if follows => span.end += 1,
                _ => ranges.push(ReadRange {
                    start: piece.block,
                    end: piece.block + 1,
                    ..self.read_request.ranges[piece.range_index].clone()
                }),
            }
            last = Some(*piece);
        }
        let mut named: HashSet<u32> = ranges.iter().map(|span| span.file).collect();
        for span in self.read_request.ranges.iter().filter(|_| check_access) {
            if named.insert(span.file) {
                ranges.push(ReadRange { end: span.start, bypass_cache: false, ..span.clone() });
            }
        }
        encode_message(READ_TICKET, &ReadRequest { ranges, send_options: self.read_request.send_options })
    }

    /// Stores the requested blocks of a batch. Returns these blocks, and for each whether it was stored; damaged blocks
    /// are not.
    fn store_batch(
        &self,
        batch: &RecordBatch,
        wanted: &HashMap<(u32, u64), RequestedBlock>,
    ) -> Vec<(RequestedBlock, bool)> {
        let Ok(came) = BlockBatch::from_batch(batch) else { return Vec::new() };
        let wanted = came.iter().filter_map(|block| Some((*wanted.get(&(block.file, block.block_index))?, block)));
        let kept = wanted.map(|(piece, block)| {
            let verified = block.verify_without_file_size();
            let origin = &self.origins[piece.range_index];
            (
                piece,
                verified.is_some_and(|(data, hash)| self.cache.store_block(origin, block.block_index, &data, &hash)),
            )
        });
        kept.collect()
    }

    /// Returns a batch of the first cached blocks. Blocks that are no longer in the cache are added to `missing`.
    fn read_cached_batch(
        &self,
        pieces: &mut VecDeque<RequestedBlock>,
        missing: &mut Vec<RequestedBlock>,
    ) -> Result<RecordBatch, TransferError> {
        let (mut blocks, mut data) = (Vec::new(), Vec::new());
        while let Some(piece) = pieces.pop_front() {
            let found = self.cache.block_hash(&self.origins[piece.range_index], piece.block);
            let found = found.and_then(|hash| Some((hash, self.cache.read_block(piece.block, &hash)?)));
            let Some((hash, bytes)) = found else {
                missing.push(piece);
                continue;
            };
            if !data.is_empty() && (data.len() + bytes.len()) as u64 > MAX_BATCH_BYTES {
                pieces.push_front(piece);
                break;
            }
            let frame = self.read_request.send_options.compress.then(|| compress_block(&bytes)).flatten();
            data.extend_from_slice(frame.as_deref().unwrap_or(&bytes));
            let (file, block_index, block_bytes) = (self.file_id(piece), piece.block, bytes.len() as u32);
            blocks.push(OutgoingBlock { file, block_index, hash, block_bytes, data_end: data.len() });
        }
        encode_blocks(&blocks, data)
    }
}

impl CachedDownload {
    /// Sends the request to the upstream server and starts the response to the client.
    ///
    /// # Errors
    /// [`TransferError::Flight`] if the upstream server is unreachable or rejects the request.
    pub(super) async fn start(
        (cache, pending_fetches): (Arc<RelayCache>, Arc<PendingFetches>),
        (client, server): (Client, &str),
        read_request: ReadRequest,
    ) -> Result<Download, TransferError> {
        let origins = read_request.ranges.iter().map(|span| Origin::new(server, &span.path, &span.version)).collect();
        let request = Arc::new(CacheRequest { cache, pending_fetches, read_request, origins });
        let pieces = request.read_request.ranges.iter().enumerate().flat_map(|(range_index, asked)| {
            let blocks = asked.start..asked.end;
            blocks.map(move |block| RequestedBlock { range_index, block, from_upstream: asked.bypass_cache })
        });
        let pieces: Vec<RequestedBlock> = pieces.collect();
        let sorter = request.clone();
        let sorted = run_blocking(move || Ok(sorter.plan_blocks(pieces))).await?;
        let batches = client.download(request.upstream_ticket(&sorted.upstream, true)?).await?;
        let (sender, receiver) = mpsc::channel(BATCH_QUEUE_LENGTH);
        let serving = Self { request, client, server: server.to_owned(), rejected_files: HashSet::new(), sender };
        let work = AbortOnDropTask::spawn(serving.send_response(sorted, batches));
        let batches = stream::unfold((receiver, work), |(mut receiver, work)| async move {
            receiver.recv().await.map(|item| (item, (receiver, work)))
        });
        Ok(Download { schema: block_schema(), batches: Box::pin(batches) })
    }

    async fn send_response(mut self, mut sorted: BlockPlan, mut batches: Batches) -> Result<(), DownloadEnd> {
        let mut round = 0;
        loop {
            let BlockPlan { claims, upstream, mut cached, pending } = sorted;
            cached.extend(self.forward_upstream(batches, claims, upstream, round >= MAX_ROUNDS).await?);
            let mut missing = self.send_cached(cached).await?;
            missing.extend(self.send_awaited(pending).await?);
            if missing.is_empty() {
                return Ok(());
            }
            round += 1;
            missing.iter_mut().for_each(|piece| piece.from_upstream |= round >= MAX_ROUNDS);
            let sorter = self.request.clone();
            sorted = self.report_failure(run_blocking(move || Ok(sorter.plan_blocks(missing))).await).await?;
            let ticket = self.report_failure(self.request.upstream_ticket(&sorted.upstream, false)).await?;
            batches = self.report_failure(self.client.download(ticket).await.map_err(TransferError::from)).await?;
        }
    }

    /// Returns the value of a successful outcome; sends the error of a failed one to the client and ends the download.
    async fn report_failure<T>(&self, outcome: Result<T, TransferError>) -> Result<T, DownloadEnd> {
        match outcome {
            Ok(done) => Ok(done),
            Err(error) => {
                let error = match error {
                    TransferError::Flight(error) => upstream_error(error, &self.server),
                    error => error,
                };
                let _ = self.sender.send(Err(error.into())).await;
                Err(DownloadEnd)
            }
        }
    }

    async fn send_item(&self, item: BatchItem) -> Result<(), DownloadEnd> {
        self.sender.send(Ok(item)).await.map_err(|_| DownloadEnd)
    }

    /// Stores the batches of the upstream server and forwards them to the client. If the client is slower, stored
    /// batches are not forwarded; their blocks are returned, to be sent from the cache later.
    async fn forward_upstream(
        &mut self,
        mut batches: Batches,
        mut claims: FetchClaims,
        pieces: Vec<RequestedBlock>,
        from_upstream: bool,
    ) -> Result<Vec<RequestedBlock>, DownloadEnd> {
        let wanted = pieces.into_iter().map(|piece| ((self.request.file_id(piece), piece.block), piece));
        let wanted: Arc<HashMap<(u32, u64), RequestedBlock>> = Arc::new(wanted.collect());
        let mut later = Vec::new();
        loop {
            let next = self.report_failure(batches.next().await.map_err(TransferError::from)).await?;
            let Some((batch, app_metadata)) = next else { return Ok(later) };
            if !app_metadata.is_empty() {
                let refused = self.report_failure(from_json::<BlockReport>(&app_metadata)).await?.rejected_files;
                self.rejected_files.extend(refused.iter().map(|(file, _)| *file));
            }
            let (keeper, keys, kept_batch) = (self.request.clone(), wanted.clone(), batch.clone());
            let kept =
                self.report_failure(run_blocking(move || Ok(keeper.store_batch(&kept_batch, &keys))).await).await?;
            for (piece, _) in &kept {
                claims.complete_block(&self.request.block_key(*piece));
            }
            let is_kept = kept.len() == batch.num_rows() && kept.iter().all(|(_, is_kept)| *is_kept);
            if from_upstream || !is_kept || !app_metadata.is_empty() {
                self.send_item((batch, app_metadata)).await?;
                continue;
            }
            match self.sender.try_send(Ok((batch, app_metadata))) {
                Ok(()) => {}
                Err(TrySendError::Full(_)) => later.extend(kept.iter().map(|(piece, _)| *piece)),
                Err(TrySendError::Closed(_)) => return Err(DownloadEnd),
            }
        }
    }

    /// Sends cached blocks to the client; returns those that are no longer in the cache.
    async fn send_cached(&self, pieces: Vec<RequestedBlock>) -> Result<Vec<RequestedBlock>, DownloadEnd> {
        let let_have = pieces.into_iter().filter(|piece| !self.rejected_files.contains(&self.request.file_id(*piece)));
        let (mut left, mut missing): (VecDeque<RequestedBlock>, _) = (let_have.collect(), Vec::new());
        while !left.is_empty() {
            let reader = self.request.clone();
            let read = run_blocking(move || {
                let batch = reader.read_cached_batch(&mut left, &mut missing)?;
                Ok((batch, left, missing))
            });
            let batch;
            (batch, left, missing) = self.report_failure(read.await).await?;
            if batch.num_rows() > 0 {
                self.send_item((batch, Bytes::new())).await?;
            }
        }
        Ok(missing)
    }

    /// Waits for blocks that other requests fetch, and sends them as they are stored. Returns the blocks that were not
    /// stored.
    async fn send_awaited(&self, pieces: Vec<RequestedBlock>) -> Result<Vec<RequestedBlock>, DownloadEnd> {
        let (mut left, mut missing) = (pieces, Vec::new());
        while let Some(first) = left.first() {
            let (flights, first) = (&self.request.pending_fetches, self.request.block_key(*first));
            if !flights.wait_for_progress(&first, PENDING_FETCH_TIMEOUT).await {
                // The other request makes no progress, so this request fetches all blocks for which it waits.
                let stuck = left
                    .iter_mut()
                    .filter(|piece| flights.are_of_one_request(&first, &self.request.block_key(**piece)));
                stuck.for_each(|piece| piece.from_upstream = true);
            }
            let is_here =
                |piece: &RequestedBlock| piece.from_upstream || !flights.is_pending(&self.request.block_key(*piece));
            let (here, still): (Vec<RequestedBlock>, Vec<RequestedBlock>) = left.into_iter().partition(is_here);
            left = still;
            let (stuck, here): (Vec<RequestedBlock>, Vec<RequestedBlock>) =
                here.into_iter().partition(|piece| piece.from_upstream);
            missing.extend(stuck);
            missing.extend(self.send_cached(here).await?);
        }
        Ok(missing)
    }
}
