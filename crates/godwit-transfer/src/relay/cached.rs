//! Blocks of another server for one of several who want them: what is kept here comes from here, what somebody fetches already is waited
//! for, and the rest is fetched, kept and sent on.
//!
//! Every request goes to the other server, with what the caller was granted there, and names every file that is asked for: with the blocks
//! that are fetched, or with none. What is kept of a file leaves only once that server has let this caller have that state of it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use bytes::Bytes;
use futures_util::stream;
use godwit_flight::{Batches, Client, Download, Status};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::cache::{BLOCKS_OF_A_FILE, Origin, RelayCache};
use super::flights::{Claims, Flights, Key};
use super::on_other_half;
use crate::error::TransferError;
use crate::protocol::{CameBlocks, READ, ReadRequest, ReadSpan, SentBlock, Taken, batch_of, marked, packed, parse};
use crate::service::blocking;
use crate::source::{BATCH_BYTES, schema};
use crate::task::Task;

/// Blocks of a request, at most: larger ones go through as they are.
const BLOCKS_OF_A_REQUEST: u64 = 1 << 16;
/// Batches between the other server, or the disk, and the caller.
const BATCHES_AHEAD: usize = 2;
/// Who fetches what another waits for, and brings nothing of it for so long, is not waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// Times that a request looks for what is missing here and with others. What is missing then, it fetches itself.
const ROUNDS: usize = 4;

/// Whether a request may be answered from what is kept.
pub(super) fn is_for_cache(read: &ReadRequest) -> bool {
    let blocks: u64 = read.spans.iter().map(|span| span.end.saturating_sub(span.start)).fold(0, u64::saturating_add);
    blocks <= BLOCKS_OF_A_REQUEST && read.spans.iter().all(|span| span.end <= BLOCKS_OF_A_FILE)
}

/// What is asked for, and where it is kept.
struct Asked {
    cache: Arc<RelayCache>,
    flights: Arc<Flights>,
    read: ReadRequest,
    /// Of each span.
    origins: Vec<Origin>,
}

/// A block of a span.
#[derive(Clone, Copy)]
struct Piece {
    span: usize,
    block: u64,
    /// Whether it comes from the other server in any case.
    alone: bool,
}

/// Where blocks come from.
struct Sorted {
    claims: Claims,
    fetched: Vec<Piece>,
    kept: Vec<Piece>,
    awaited: Vec<Piece>,
}

/// The caller has gone away, or was told why there is no more.
struct Ended;

type Item = (RecordBatch, Bytes);

/// A request that is being answered.
pub(super) struct Serving {
    asked: Arc<Asked>,
    client: Client,
    server: String,
    /// Files that the other server does not let the caller have.
    refused: HashSet<u32>,
    sender: mpsc::Sender<Result<Item, Status>>,
}

impl Asked {
    fn key(&self, piece: Piece) -> Key {
        (self.origins[piece.span], piece.block)
    }

    fn file(&self, piece: Piece) -> u32 {
        self.read.spans[piece.span].file
    }

    fn is_kept(&self, piece: Piece) -> bool {
        let hash = self.cache.hash_of(&self.origins[piece.span], piece.block);
        hash.is_some_and(|hash| self.cache.has(&hash))
    }

    /// Says where each block is to come from.
    fn sort(&self, pieces: Vec<Piece>) -> Sorted {
        let claims = Claims::new(self.flights.clone());
        let mut sorted = Sorted { claims, fetched: Vec::new(), kept: Vec::new(), awaited: Vec::new() };
        for piece in pieces {
            let key = self.key(piece);
            if !piece.alone && self.is_kept(piece) {
                sorted.kept.push(piece);
            } else if !sorted.claims.claim(key, piece.alone) {
                sorted.awaited.push(piece);
            } else if !piece.alone && self.is_kept(piece) {
                // It landed just now.
                sorted.claims.landed(&key);
                sorted.kept.push(piece);
            } else {
                sorted.fetched.push(piece);
            }
        }
        sorted
    }

    /// Asks for blocks; `vouched`: and whether the caller may have each of the other files.
    fn ticket(&self, pieces: &[Piece], vouched: bool) -> Result<Vec<u8>, TransferError> {
        let mut spans: Vec<ReadSpan> = Vec::new();
        let mut last: Option<Piece> = None;
        for piece in pieces {
            let follows = last.is_some_and(|last| (last.span, last.block + 1) == (piece.span, piece.block));
            match spans.last_mut() {
                Some(span) if follows => span.end += 1,
                _ => spans.push(ReadSpan {
                    start: piece.block,
                    end: piece.block + 1,
                    fresh: false,
                    ..self.read.spans[piece.span].clone()
                }),
            }
            last = Some(*piece);
        }
        let mut named: HashSet<u32> = spans.iter().map(|span| span.file).collect();
        for span in self.read.spans.iter().filter(|_| vouched) {
            if named.insert(span.file) {
                spans.push(ReadSpan { end: span.start, fresh: false, ..span.clone() });
            }
        }
        marked(READ, &ReadRequest { spans, manner: self.read.manner })
    }

    /// Keeps the blocks of a batch that were asked for and are what their hashes say; those, and whether each is kept.
    fn keep(&self, batch: &RecordBatch, wanted: &HashMap<(u32, u64), Piece>) -> Vec<(Piece, bool)> {
        let Ok(came) = CameBlocks::of(batch) else { return Vec::new() };
        let wanted = came.iter().filter_map(|block| Some((*wanted.get(&(block.file, block.block))?, block)));
        let kept = wanted.map(|(piece, block)| {
            let verified = block.verified_alone();
            let origin = &self.origins[piece.span];
            (piece, verified.is_some_and(|(data, hash)| self.cache.keep(origin, block.block, &data, &hash)))
        });
        kept.collect()
    }

    /// A batch of the first of the pieces that are kept; those that are not after all go to `missing`.
    fn read_batch(&self, pieces: &mut VecDeque<Piece>, missing: &mut Vec<Piece>) -> Result<RecordBatch, TransferError> {
        let (mut blocks, mut data) = (Vec::new(), Vec::new());
        while let Some(piece) = pieces.pop_front() {
            let found = self.cache.hash_of(&self.origins[piece.span], piece.block);
            let found = found.and_then(|hash| Some((hash, self.cache.read(piece.block, &hash)?)));
            let Some((hash, bytes)) = found else {
                missing.push(piece);
                continue;
            };
            if !data.is_empty() && (data.len() + bytes.len()) as u64 > BATCH_BYTES {
                pieces.push_front(piece);
                break;
            }
            let frame = self.read.manner.compress.then(|| packed(&bytes)).flatten();
            data.extend_from_slice(frame.as_deref().unwrap_or(&bytes));
            let (file, block, bytes) = (self.file(piece), piece.block, bytes.len() as u32);
            blocks.push(SentBlock { file, block, hash, bytes, data_end: data.len() });
        }
        batch_of(&blocks, data)
    }
}

impl Serving {
    /// Begins to answer a request of blocks of a server. What the other server says at once, it says here.
    ///
    /// # Errors
    /// Where it is not there, or refuses.
    pub(super) async fn begin(
        (cache, flights): (Arc<RelayCache>, Arc<Flights>),
        (client, server): (Client, &str),
        read: ReadRequest,
    ) -> Result<Download, TransferError> {
        let origins = read.spans.iter().map(|span| Origin::of(server, &span.path, &span.state)).collect();
        let asked = Arc::new(Asked { cache, flights, read, origins });
        let pieces = asked.read.spans.iter().enumerate().flat_map(|(span, asked)| {
            let blocks = asked.start..asked.end;
            blocks.map(move |block| Piece { span, block, alone: asked.fresh })
        });
        let pieces: Vec<Piece> = pieces.collect();
        let sorter = asked.clone();
        let sorted = blocking(move || Ok(sorter.sort(pieces))).await?;
        let batches = client.download(asked.ticket(&sorted.fetched, true)?).await?;
        let (sender, receiver) = mpsc::channel(BATCHES_AHEAD);
        let serving = Self { asked, client, server: server.to_owned(), refused: HashSet::new(), sender };
        let work = Task::spawn(serving.run(sorted, batches));
        let batches = stream::unfold((receiver, work), |(mut receiver, work)| async move {
            receiver.recv().await.map(|item| (item, (receiver, work)))
        });
        Ok(Download { schema: schema(), batches: Box::pin(batches) })
    }

    async fn run(mut self, mut sorted: Sorted, mut batches: Batches) -> Result<(), Ended> {
        let mut round = 0;
        loop {
            let Sorted { claims, fetched, mut kept, awaited } = sorted;
            kept.extend(self.fetch(batches, claims, fetched, round >= ROUNDS).await?);
            let mut missing = self.serve(kept).await?;
            missing.extend(self.serve_awaited(awaited).await?);
            if missing.is_empty() {
                return Ok(());
            }
            round += 1;
            missing.iter_mut().for_each(|piece| piece.alone |= round >= ROUNDS);
            let sorter = self.asked.clone();
            sorted = self.told(blocking(move || Ok(sorter.sort(missing))).await).await?;
            let ticket = self.told(self.asked.ticket(&sorted.fetched, false)).await?;
            batches = self.told(self.client.download(ticket).await.map_err(TransferError::from)).await?;
        }
    }

    /// Tells the caller why there is no more.
    async fn told<T>(&self, outcome: Result<T, TransferError>) -> Result<T, Ended> {
        match outcome {
            Ok(done) => Ok(done),
            Err(error) => {
                let error = match error {
                    TransferError::Flight(error) => on_other_half(error, &self.server),
                    error => error,
                };
                let _ = self.sender.send(Err(error.into())).await;
                Err(Ended)
            }
        }
    }

    async fn send(&self, item: Item) -> Result<(), Ended> {
        self.sender.send(Ok(item)).await.map_err(|_| Ended)
    }

    /// Keeps and sends on what the other server sends. Where the caller is slower than that, what is kept already is sent later: those blocks.
    async fn fetch(
        &mut self,
        mut batches: Batches,
        mut claims: Claims,
        pieces: Vec<Piece>,
        alone: bool,
    ) -> Result<Vec<Piece>, Ended> {
        let wanted = pieces.into_iter().map(|piece| ((self.asked.file(piece), piece.block), piece));
        let wanted: Arc<HashMap<(u32, u64), Piece>> = Arc::new(wanted.collect());
        let mut later = Vec::new();
        loop {
            let next = self.told(batches.next().await.map_err(TransferError::from)).await?;
            let Some((batch, said)) = next else { return Ok(later) };
            if !said.is_empty() {
                let refused = self.told(parse::<Taken>(&said)).await?.refused;
                self.refused.extend(refused.iter().map(|(file, _)| *file));
            }
            let (keeper, keys, kept_batch) = (self.asked.clone(), wanted.clone(), batch.clone());
            let kept = self.told(blocking(move || Ok(keeper.keep(&kept_batch, &keys))).await).await?;
            for (piece, _) in &kept {
                claims.landed(&self.asked.key(*piece));
            }
            let is_kept = kept.len() == batch.num_rows() && kept.iter().all(|(_, is_kept)| *is_kept);
            if alone || !is_kept || !said.is_empty() {
                self.send((batch, said)).await?;
                continue;
            }
            match self.sender.try_send(Ok((batch, said))) {
                Ok(()) => {}
                Err(TrySendError::Full(_)) => later.extend(kept.iter().map(|(piece, _)| *piece)),
                Err(TrySendError::Closed(_)) => return Err(Ended),
            }
        }
    }

    /// Sends what is kept; what is not any more.
    async fn serve(&self, pieces: Vec<Piece>) -> Result<Vec<Piece>, Ended> {
        let let_have = pieces.into_iter().filter(|piece| !self.refused.contains(&self.asked.file(*piece)));
        let (mut left, mut missing): (VecDeque<Piece>, _) = (let_have.collect(), Vec::new());
        while !left.is_empty() {
            let reader = self.asked.clone();
            let read = blocking(move || {
                let batch = reader.read_batch(&mut left, &mut missing)?;
                Ok((batch, left, missing))
            });
            let batch;
            (batch, left, missing) = self.told(read.await).await?;
            if batch.num_rows() > 0 {
                self.send((batch, Bytes::new())).await?;
            }
        }
        Ok(missing)
    }

    /// Sends what others fetch, as it lands; what does not.
    async fn serve_awaited(&self, pieces: Vec<Piece>) -> Result<Vec<Piece>, Ended> {
        let (mut left, mut missing) = (pieces, Vec::new());
        while let Some(first) = left.first() {
            let (flights, first) = (&self.asked.flights, self.asked.key(*first));
            if !flights.wait(&first, PATIENCE).await {
                // Whoever fetches it is stuck, or slower than anybody should have to be.
                let stuck = left.iter_mut().filter(|piece| flights.are_together(&first, &self.asked.key(**piece)));
                stuck.for_each(|piece| piece.alone = true);
            }
            let is_here = |piece: &Piece| piece.alone || !flights.has(&self.asked.key(*piece));
            let (here, still): (Vec<Piece>, Vec<Piece>) = left.into_iter().partition(is_here);
            left = still;
            let (stuck, here): (Vec<Piece>, Vec<Piece>) = here.into_iter().partition(|piece| piece.alone);
            missing.extend(stuck);
            missing.extend(self.serve(here).await?);
        }
        Ok(missing)
    }
}
