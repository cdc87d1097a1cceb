//! What two ends say to each other: JSON in tickets, commands and actions, blocks of files in Arrow batches.

use std::sync::{Arc, LazyLock};

use arrow_array::builder::FixedSizeBinaryBuilder;
use arrow_array::{Array, BinaryArray, FixedSizeBinaryArray, RecordBatch, UInt32Array, UInt64Array};
use arrow_buffer::{Buffer, OffsetBuffer};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
use godwit_flight::FILES_MARK;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::TransferError;
use crate::manifest::{Entry, EntryFailure, Links};
use crate::names::shown;
use crate::ranges::RangeSet;
use crate::tree::{BLOCK_BYTES, BlockHash, block_count, hash_block};
use crate::tune::Manner;

/// Names of actions, behind [`FILES_MARK`]: what is below a path.
pub(crate) const LIST: &str = "list";
/// Hashes of all blocks of a file.
pub(crate) const TREE: &str = "tree";
/// Begins to take files, or more of them.
pub(crate) const BEGIN: &str = "begin";
/// Proves a file that was taken and gives it its name.
pub(crate) const FINISH: &str = "finish";
/// Gives a token that lets another server read below a path.
pub(crate) const GRANT: &str = "grant";
/// Gives a token that lets another server send blocks of a session.
pub(crate) const GRANT_WRITING: &str = "grant-writing";
/// Fetches files from another server.
pub(crate) const FETCH: &str = "fetch";
/// Tells what happened to what is fetched under a name, since it was last asked.
pub(crate) const HAPPENED: &str = "happened";
/// Ends a session of files that were taken.
pub(crate) const END: &str = "end";
/// Asks for a reference with the sequences of the caller's.
pub(crate) const REFERENCE: &str = "reference";
/// In tickets: a genome to be sent as what differs from a reference.
pub(crate) const PACKED: &str = "packed ";
/// In commands: a genome to be taken so.
pub(crate) const UNPACK: &str = "unpack ";
/// In tickets: blocks to be sent.
pub(crate) const READ: &str = "read ";
/// In tickets: the first blocks of what there is.
pub(crate) const AHEAD: &str = "ahead ";
/// In tickets: blocks of another server that are to be sent on.
pub(crate) const RELAY: &str = "relay ";
/// In commands: where a file is to be had.
pub(crate) const INFO: &str = "info ";
/// In commands: blocks to be taken.
pub(crate) const WRITE: &str = "write ";
/// In commands: blocks that another server is to take.
pub(crate) const RELAY_WRITE: &str = "relay-write ";

/// Files that are listed, or begun, in one message.
pub(crate) const ENTRIES_PER_MESSAGE: usize = 2000;

/// Asks for what is below a path.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ListRequest {
    pub(crate) path: String,
    /// The treatment of links.
    #[serde(default)]
    pub(crate) links: Links,
    /// True if the last message is to be [`ListEnd`]. Without it, one entry that cannot be copied fails the whole request. Earlier servers
    /// ignore both.
    #[serde(default)]
    pub(crate) each: bool,
}

/// Entries below a path that are not copied. The last message of a list, the only one that is a JSON object.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct ListEnd {
    pub(crate) failures: Vec<FailureMessage>,
    pub(crate) skipped_links: Vec<String>,
}

/// An entry that is not copied, by its path, and why.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FailureMessage {
    pub(crate) path: String,
    pub(crate) why: Trouble,
}

impl FailureMessage {
    /// As it is sent.
    pub(crate) fn of(failure: &EntryFailure) -> Self {
        Self { path: failure.path.clone(), why: Trouble::of_entry(&failure.why) }
    }

    /// As it was before it was sent.
    pub(crate) fn into_failure(self) -> EntryFailure {
        let why = self.why.into_error(&shown(&self.path));
        EntryFailure { path: self.path, why }
    }
}

/// Asks for the hashes of a file's blocks; the answer is hashes, one after the other.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TreeRequest {
    pub(crate) path: String,
    pub(crate) version: u64,
}

/// Asks for blocks.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ReadRequest {
    pub(crate) spans: Vec<ReadSpan>,
    pub(crate) manner: Manner,
}

/// Blocks `[start, end)` of a file; rows of batches call it `file`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ReadSpan {
    pub(crate) file: u32,
    pub(crate) path: String,
    pub(crate) state: FileState,
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Not what somebody on the way has kept of it: that was found to be another.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) fresh: bool,
}

/// Asks for a connection's share of the first blocks of a file, or of what is in a directory, in whatever state that is. The answer begins with the
/// spans that come, in words.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct AheadRequest {
    pub(crate) path: String,
    /// Which connection, 0-based.
    pub(crate) stream: u32,
    /// Connections that share them.
    pub(crate) streams: u32,
    pub(crate) manner: Manner,
}

/// Blocks `[start, end)` that come of a file, by its place in the listing, and of which state of it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AheadSpan {
    pub(crate) file: u32,
    /// As in [`Entry::version`].
    pub(crate) version: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// Which state of a file is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FileState {
    /// That of [`Entry::version`], which is of one server.
    Version(u64),
    /// That of this size and time of writing, which other servers may have as well.
    Written { size_bytes: u64, modified_s: i64, modified_ns: u32 },
}

/// Asks for a reference by which one end can unpack what the other packs. The answer is its digest, or null.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ReferenceRequest {
    /// The sequences of the caller's.
    pub(crate) sequences: Vec<String>,
    /// Whether the caller packs, and the server unpacks.
    pub(crate) packs: bool,
}

/// Asks for a genome as what differs from a reference.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PackedRequest {
    pub(crate) path: String,
    pub(crate) version: u64,
    /// Digest of a reference of the server.
    pub(crate) reference: String,
    pub(crate) manner: Manner,
}

/// Says which file comes as what differs from a reference. The answer to the last batch is null.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct UnpackCommand {
    /// As in [`BeginRequest`].
    pub(crate) base: String,
    pub(crate) entry: Entry,
    /// Digest of a reference of the server.
    pub(crate) reference: String,
}

/// Asks where a file is to be had.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct InfoRequest {
    /// Below the root.
    pub(crate) path: String,
    /// Bytes of each piece, about.
    pub(crate) piece_bytes: Option<u64>,
}

/// Asks for blocks of another server.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RelayRequest {
    /// The other server.
    pub(crate) from: String,
    /// What it granted.
    pub(crate) token: String,
    /// A name for the connection there: what one connection here asks for comes over one there.
    pub(crate) lane: String,
    pub(crate) read: ReadRequest,
}

/// Begins to take files below a path, or goes on with more of them.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct BeginRequest {
    pub(crate) session: Option<String>,
    /// The path of the file, where there is one entry whose path is empty; else of the directory that all entries are below.
    pub(crate) base: String,
    pub(crate) first: u32,
    pub(crate) entries: Vec<Entry>,
    /// Only says what is there.
    pub(crate) dry_run: bool,
    /// The client lost the server that it sent them to before, which has the same directory: what that one has open is taken over.
    #[serde(default)]
    pub(crate) take_over: bool,
    /// True if a file that cannot be started is answered with [`Have::Refused`], and does not fail the whole request.
    #[serde(default)]
    pub(crate) each: bool,
}

/// What is there of files that are to be taken.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Begun {
    pub(crate) session: String,
    pub(crate) have: Vec<Have>,
    /// True if the server supports links, names of any bytes, and `each` of requests. Earlier ones do not.
    #[serde(default)]
    pub(crate) each: bool,
}

/// What is there of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Have {
    /// Nothing.
    Nothing,
    /// The whole file, by size and time.
    All,
    /// Blocks of it.
    Part(RangeSet),
    /// Blocks of an earlier state of it; those that are still the same can be kept.
    Stale(RangeSet),
    /// It cannot be taken. Only for clients that ask for it.
    Refused(Trouble),
}

/// Proves a file that was taken.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FinishRequest {
    pub(crate) session: String,
    pub(crate) file: u32,
    /// Hashes of its blocks in hexadecimal digits, one after the other.
    pub(crate) hashes: String,
    /// Only drops blocks of an earlier state that are others now; it is not finished.
    pub(crate) keep_only: bool,
}

/// Blocks that are not what they should be.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Proof {
    pub(crate) wrong: RangeSet,
}

/// Where blocks go.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WriteCommand {
    pub(crate) session: String,
}

/// Where blocks go that are for another server.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RelayWriteCommand {
    /// The other server.
    pub(crate) to: String,
    /// What it granted.
    pub(crate) token: String,
    /// A name for the connection there, as in [`RelayRequest`].
    pub(crate) lane: String,
    pub(crate) write: WriteCommand,
    pub(crate) manner: Manner,
}

/// Ends a session.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct EndRequest {
    pub(crate) session: String,
    /// Paths below the base to be removed, of files that the source does not have.
    pub(crate) remove: Vec<String>,
    /// True if the answer is to be a list of [`FailureMessage`], one for each file that could not be completed. Without it, the first of them fails the request.
    #[serde(default)]
    pub(crate) each: bool,
}

/// What became of blocks that were sent.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Taken {
    /// File and block of those that are written.
    pub(crate) written: Vec<(u32, u64)>,
    /// Of those that were damaged.
    pub(crate) damaged: Vec<(u32, u64)>,
    /// Files that cannot be had or taken, and why.
    pub(crate) refused: Vec<(u32, Trouble)>,
}

/// Why a file cannot be had or taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Trouble {
    /// It is another by now.
    Changed,
    /// It is gone.
    NotFound,
    /// It has another checksum than it should, in words.
    Unlike(String),
    /// It is of a kind that is not copied, in words. Only in answers that name entries one by one.
    Unsupported(String),
    /// It is not to be had, or to be taken, in this way, in words. Only in answers that name entries one by one.
    Refused(String),
    /// Anything else, in words.
    Other(String),
}

impl Trouble {
    pub(crate) fn of(error: &TransferError) -> Self {
        match error {
            TransferError::Changed { .. } => Self::Changed,
            TransferError::NotFound { .. } => Self::NotFound,
            TransferError::Unlike { problem } => Self::Unlike(problem.clone()),
            other => Self::Other(godwit_model::with_causes(other)),
        }
    }

    /// As [`Self::of`], for answers that name entries one by one.
    pub(crate) fn of_entry(error: &TransferError) -> Self {
        match error {
            TransferError::Unsupported { problem } => Self::Unsupported(problem.clone()),
            TransferError::Refused { problem } => Self::Refused(problem.clone()),
            other => Self::of(other),
        }
    }

    pub(crate) fn into_error(self, place: &str) -> TransferError {
        let place = place.to_owned();
        match self {
            Self::Changed => TransferError::Changed { place },
            Self::NotFound => TransferError::NotFound { place },
            Self::Unlike(problem) => TransferError::Unlike { problem },
            Self::Unsupported(problem) => TransferError::Unsupported { problem },
            Self::Refused(problem) => TransferError::Refused { problem },
            Self::Other(text) => TransferError::Elsewhere { problem: format!("{place}: {text}") },
        }
    }
}

/// A name, ticket or command of ours.
pub(crate) fn marked(kind: &str, value: &impl Serialize) -> Result<Vec<u8>, TransferError> {
    Ok([FILES_MARK.as_bytes(), kind.as_bytes(), &json(value)?].concat())
}

pub(crate) fn json(value: &impl Serialize) -> Result<Vec<u8>, TransferError> {
    serde_json::to_vec(value).map_err(|error| TransferError::Bug { problem: error.to_string() })
}

/// What the other end said.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, TransferError> {
    serde_json::from_slice(bytes).map_err(|error| {
        TransferError::refused(format!(
            "the other end says what is not understood here ({error}); is it of another version?"
        ))
    })
}

/// Hashes as hexadecimal digits, and back.
pub(crate) fn hashes_to_text(hashes: &[BlockHash]) -> String {
    hashes.iter().map(|hash| blake3::Hash::from_bytes(*hash).to_hex().to_string()).collect()
}

/// See [`hashes_to_text`].
pub(crate) fn hashes_from_text(text: &str) -> Option<Vec<BlockHash>> {
    let digits = text.as_bytes().chunks(2 * blake3::OUT_LEN);
    digits.map(|digits| blake3::Hash::from_hex(digits).ok().map(|hash| *hash.as_bytes())).collect()
}

/// Columns of batches of blocks.
pub(crate) static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    Arc::new(Schema::new(vec![
        Field::new("file", DataType::UInt32, false),
        Field::new("offset", DataType::UInt64, false),
        Field::new("hash", DataType::FixedSizeBinary(blake3::OUT_LEN as i32), false),
        // Bytes of the block; where there are fewer in `data`, they are a frame of zstd.
        Field::new("bytes", DataType::UInt32, false),
        Field::new("data", DataType::Binary, false),
    ]))
});

/// A block as it is sent.
#[derive(Debug)]
pub(crate) struct SentBlock {
    pub(crate) file: u32,
    pub(crate) block: u64,
    pub(crate) hash: BlockHash,
    /// Bytes of the block.
    pub(crate) bytes: u32,
    /// Where its bytes, or their frame, end in the data of the batch.
    pub(crate) data_end: usize,
}

/// A batch of blocks over data that lie together.
pub(crate) fn batch_of(blocks: &[SentBlock], data: Vec<u8>) -> Result<RecordBatch, TransferError> {
    let bug = |error: arrow_schema::ArrowError| TransferError::Bug { problem: error.to_string() };
    let mut hashes = FixedSizeBinaryBuilder::with_capacity(blocks.len(), blake3::OUT_LEN as i32);
    for block in blocks {
        hashes.append_value(block.hash).map_err(bug)?;
    }
    let ends = std::iter::once(0).chain(blocks.iter().map(|block| block.data_end as i32)).collect::<Vec<i32>>();
    let data = BinaryArray::try_new(OffsetBuffer::new(ends.into()), Buffer::from_vec(data), None).map_err(bug)?;
    let columns: Vec<Arc<dyn Array>> = vec![
        Arc::new(blocks.iter().map(|block| Some(block.file)).collect::<UInt32Array>()),
        Arc::new(blocks.iter().map(|block| Some(block.block * BLOCK_BYTES)).collect::<UInt64Array>()),
        Arc::new(hashes.finish()),
        Arc::new(blocks.iter().map(|block| Some(block.bytes)).collect::<UInt32Array>()),
        Arc::new(data),
    ];
    RecordBatch::try_new(SCHEMA.clone(), columns).map_err(bug)
}

/// Blocks that came.
pub(crate) struct CameBlocks {
    files: UInt32Array,
    offsets: UInt64Array,
    hashes: FixedSizeBinaryArray,
    bytes: UInt32Array,
    data: BinaryArray,
}

/// One block that came.
pub(crate) struct CameBlock<'b> {
    pub(crate) file: u32,
    pub(crate) block: u64,
    hash: &'b [u8],
    bytes: u32,
    data: &'b [u8],
}

impl CameBlocks {
    /// Of a batch that somebody sent.
    pub(crate) fn of(batch: &RecordBatch) -> Result<Self, TransferError> {
        let wrong = || TransferError::refused("the other end sent columns that are no blocks of files");
        if batch.schema().fields() != SCHEMA.fields() {
            return Err(wrong());
        }
        let column = |at: usize| batch.column(at).as_any();
        Ok(Self {
            files: column(0).downcast_ref::<UInt32Array>().ok_or_else(wrong)?.clone(),
            offsets: column(1).downcast_ref::<UInt64Array>().ok_or_else(wrong)?.clone(),
            hashes: column(2).downcast_ref::<FixedSizeBinaryArray>().ok_or_else(wrong)?.clone(),
            bytes: column(3).downcast_ref::<UInt32Array>().ok_or_else(wrong)?.clone(),
            data: column(4).downcast_ref::<BinaryArray>().ok_or_else(wrong)?.clone(),
        })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = CameBlock<'_>> {
        (0..self.files.len()).map(|row| CameBlock {
            file: self.files.value(row),
            block: self.offsets.value(row) / BLOCK_BYTES,
            hash: self.hashes.value(row),
            bytes: self.bytes.value(row),
            data: self.data.value(row),
        })
    }
}

impl<'b> CameBlock<'b> {
    /// Its bytes, where they are what its hash says of them as that block of a file of so many bytes.
    pub(crate) fn verified(&self, size_bytes: u64) -> Option<(std::borrow::Cow<'b, [u8]>, BlockHash)> {
        let data = if self.data.len() == self.bytes as usize {
            std::borrow::Cow::Borrowed(self.data)
        } else {
            std::borrow::Cow::Owned(unpacked(self.data, self.bytes as usize)?)
        };
        // What is no block has no hash either.
        if data.len() as u64 > BLOCK_BYTES || data.is_empty() && block_count(size_bytes) > 1 {
            return None;
        }
        let hash = hash_block(&data, self.block, size_bytes);
        (hash[..] == *self.hash).then_some((data, hash))
    }

    /// The same where it is not known of how many bytes its file is.
    pub(crate) fn verified_alone(&self) -> Option<(std::borrow::Cow<'b, [u8]>, BlockHash)> {
        let bytes = u64::from(self.bytes);
        let of_several = (self.block > 0 || bytes == BLOCK_BYTES).then(|| self.verified(u64::MAX)).flatten();
        of_several.or_else(|| (self.block == 0).then(|| self.verified(bytes)).flatten())
    }
}

/// A block as a frame of zstd, where that is shorter.
pub(crate) fn packed(data: &[u8]) -> Option<Vec<u8>> {
    // Level 1 keeps up with a gigabit on half a core; what is compressed already (BAM, CRAM, gzip) is sent as it is.
    let mut frame: Vec<u8> = Vec::with_capacity(zstd_safe::compress_bound(data.len()));
    zstd_safe::compress(&mut frame, data, 1).ok()?;
    (frame.len() < data.len()).then_some(frame)
}

fn unpacked(frame: &[u8], bytes: usize) -> Option<Vec<u8>> {
    if bytes as u64 > BLOCK_BYTES {
        return None;
    }
    let mut data: Vec<u8> = Vec::with_capacity(bytes);
    zstd_safe::decompress(&mut data, frame).ok()?;
    (data.len() == bytes).then_some(data)
}

/// The action of that kind.
pub(crate) fn action(kind: &str) -> String {
    format!("{FILES_MARK}{kind}")
}

/// What comes behind the mark and a kind.
pub(crate) fn behind<'b>(bytes: &'b Bytes, kind: &str) -> Option<&'b [u8]> {
    bytes.strip_prefix(FILES_MARK.as_bytes())?.strip_prefix(kind.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_block_is_verified_by_no_hash() {
        let most = BLOCK_BYTES as usize;
        for (block, count, is_block) in
            [(0, 0, true), (1, 0, false), (1, most, true), (1, most + 1, false), (0, most + 1, false)]
        {
            let data = vec![7; count];
            let hash = if is_block { hash_block(&data, block, block * BLOCK_BYTES + count as u64) } else { [0; 32] };
            let sent = SentBlock { file: 0, block, hash, bytes: count as u32, data_end: count };
            let came = CameBlocks::of(&batch_of(&[sent], data).unwrap()).unwrap();
            let came = came.iter().next().unwrap();
            assert_eq!(came.verified_alone().is_some(), is_block, "{count} bytes as block {block}");
            assert_eq!(
                came.verified(block * BLOCK_BYTES + count as u64).is_some(),
                is_block,
                "{count} bytes as block {block}"
            );
        }
    }
}
