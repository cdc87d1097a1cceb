//! The messages of a copy: JSON in tickets, commands and actions, and blocks of files in Arrow batches.

use std::sync::{Arc, LazyLock};

use arrow_array::builder::FixedSizeBinaryBuilder;
use arrow_array::{Array, BinaryArray, FixedSizeBinaryArray, RecordBatch, UInt32Array, UInt64Array};
use arrow_buffer::{Buffer, OffsetBuffer};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
use godwit_flight::FILES_PREFIX;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::blake3_tree::{BLOCK_BYTES, BlockHash, block_count, hash_block};
use crate::error::TransferError;
use crate::file_listing::{Entry, EntryFailure, LinkPolicy};
use crate::path_text::escape_for_display;
use crate::ranges::RangeSet;
use crate::tcp_tuning::SendOptions;

/// Action: lists the entries below a path. [`FILES_PREFIX`] precedes the names of actions.
pub(crate) const LIST_ACTION: &str = "list";
/// Action: returns the hashes of all blocks of a file.
pub(crate) const BLOCK_HASHES_ACTION: &str = "tree";
/// Action: starts to receive files, or adds further ones.
pub(crate) const BEGIN_ACTION: &str = "begin";
/// Action: verifies and commits a received file.
pub(crate) const FINISH_ACTION: &str = "finish";
/// Action: issues a token by which another server may read below a path.
pub(crate) const READ_TOKEN_ACTION: &str = "grant";
/// Action: issues a token by which another server may send blocks of a session.
pub(crate) const WRITE_TOKEN_ACTION: &str = "grant-writing";
/// Action: fetches files from another server.
pub(crate) const FETCH_ACTION: &str = "fetch";
/// Action: returns the events of a fetch since the last call.
pub(crate) const FETCH_EVENTS_ACTION: &str = "happened";
/// Action: ends an upload session.
pub(crate) const END_ACTION: &str = "end";
/// Action: finds a reference with the sequences of the client's.
pub(crate) const REFERENCE_ACTION: &str = "reference";
/// Ticket: a genome with delta compression.
pub(crate) const DELTA_TICKET: &str = "packed ";
/// Command: the upload of a genome with delta compression.
pub(crate) const DELTA_UPLOAD_COMMAND: &str = "unpack ";
/// Ticket: blocks of files.
pub(crate) const READ_TICKET: &str = "read ";
/// Ticket: the first blocks of a file or directory.
pub(crate) const PREFETCH_TICKET: &str = "ahead ";
/// Ticket: blocks of another server, to be forwarded.
pub(crate) const RELAY_TICKET: &str = "relay ";
/// Command: the locations of a file.
pub(crate) const INFO_COMMAND: &str = "info ";
/// Command: the upload of blocks.
pub(crate) const WRITE_COMMAND: &str = "write ";
/// Command: the upload of blocks for another server.
pub(crate) const RELAY_WRITE_COMMAND: &str = "relay-write ";

/// Largest number of entries in a message.
pub(crate) const MAX_ENTRIES_PER_MESSAGE: usize = 2000;

/// A request for the entries below a path.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ListRequest {
    pub(crate) path: String,
    /// The treatment of links.
    #[serde(default)]
    #[serde(rename = "links")]
    pub(crate) link_policy: LinkPolicy,
    /// True if the last message is to be a [`ListTrailer`]. Without it, one entry that cannot be copied fails the whole
    /// request. Earlier servers ignore both.
    #[serde(default)]
    #[serde(rename = "each")]
    pub(crate) per_entry_errors: bool,
}

/// Entries below a path that are not copied. The last message of a list, the only one that is a JSON object.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct ListTrailer {
    pub(crate) failures: Vec<EntryFailureMessage>,
    pub(crate) skipped_links: Vec<String>,
}

/// An entry that is not copied, by path, with the reason.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct EntryFailureMessage {
    pub(crate) path: String,
    #[serde(rename = "why")]
    pub(crate) error: FileError,
}

impl EntryFailureMessage {
    /// Converts a failure to its message.
    pub(crate) fn from_failure(failure: &EntryFailure) -> Self {
        Self { path: failure.path.clone(), error: FileError::from_entry_error(&failure.error) }
    }

    /// Converts a message to its failure.
    pub(crate) fn into_failure(self) -> EntryFailure {
        let error = self.error.into_error(&escape_for_display(&self.path));
        EntryFailure { path: self.path, error }
    }
}

/// A request for the hashes of a file's blocks; the response is their concatenation.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct BlockHashesRequest {
    pub(crate) path: String,
    pub(crate) version: u64,
}

/// A request for blocks.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ReadRequest {
    #[serde(rename = "spans")]
    pub(crate) ranges: Vec<ReadRange>,
    #[serde(rename = "manner")]
    pub(crate) send_options: SendOptions,
}

/// Blocks `[start, end)` of a file; `file` is its number in the batches.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ReadRange {
    pub(crate) file: u32,
    pub(crate) path: String,
    #[serde(rename = "state")]
    pub(crate) version: FileVersion,
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Bypasses caches on the route: their blocks failed verification.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[serde(rename = "fresh")]
    pub(crate) bypass_cache: bool,
}

/// A request for a connection's part of the first blocks of a file or directory, of any version. The response starts with the
/// block ranges as JSON.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PrefetchRequest {
    pub(crate) path: String,
    /// 0-based number of the connection.
    pub(crate) stream: u32,
    /// Number of connections that share the blocks.
    pub(crate) streams: u32,
    #[serde(rename = "manner")]
    pub(crate) send_options: SendOptions,
}

/// Blocks `[start, end)` that are sent of a file, by its index in the listing, and the version of the file.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PrefetchRange {
    pub(crate) file: u32,
    /// See [`Entry::version`].
    pub(crate) version: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// The version of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FileVersion {
    /// The value of [`Entry::version`], which is valid at one server.
    #[serde(rename = "version")]
    ServerVersion(u64),
    /// Size and modification time, which other servers may have as well.
    #[serde(rename = "written")]
    SizeAndTime { size_bytes: u64, modified_s: i64, modified_ns: u32 },
}

/// A request for a reference by which one end can unpack what the other packs. The response is its digest, or null.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ReferenceRequest {
    /// The sequences of the client's reference.
    pub(crate) sequences: Vec<String>,
    /// The client packs and the server unpacks.
    #[serde(rename = "packs")]
    pub(crate) client_packs: bool,
}

/// A request for a genome with delta compression.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct DeltaDownloadRequest {
    pub(crate) path: String,
    pub(crate) version: u64,
    /// Digest of a reference at the server.
    pub(crate) reference: String,
    #[serde(rename = "manner")]
    pub(crate) send_options: SendOptions,
}

/// The announcement of a genome with delta compression. The response to the last batch is null.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct DeltaUploadCommand {
    /// See [`BeginRequest`].
    #[serde(rename = "base")]
    pub(crate) base_path: String,
    pub(crate) entry: Entry,
    /// Digest of a reference at the server.
    pub(crate) reference: String,
}

/// A request for the locations of a file.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct InfoRequest {
    /// Path below the root.
    pub(crate) path: String,
    /// Approximate size of each endpoint, bytes.
    #[serde(rename = "piece_bytes")]
    pub(crate) endpoint_bytes: Option<u64>,
}

/// A request for blocks of another server.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RelayRequest {
    /// URI of the other server.
    #[serde(rename = "from")]
    pub(crate) server: String,
    /// Its delegation token.
    pub(crate) token: String,
    /// Name of the connection to it: the requests of one connection here share one connection there.
    #[serde(rename = "lane")]
    pub(crate) connection_name: String,
    #[serde(rename = "read")]
    pub(crate) read_request: ReadRequest,
}

/// The start of an upload below a path, or further entries of it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct BeginRequest {
    pub(crate) session: Option<String>,
    /// Path of the file if there is one entry with an empty path; else of the directory that contains all entries.
    #[serde(rename = "base")]
    pub(crate) base_path: String,
    #[serde(rename = "first")]
    pub(crate) first_file: u32,
    pub(crate) entries: Vec<Entry>,
    /// Only returns the states.
    pub(crate) dry_run: bool,
    /// The client lost the member of the pool that received the session; this member takes over its open files in the same
    /// directory.
    #[serde(default)]
    pub(crate) take_over: bool,
    /// True if the response for a file that cannot be started is [`ReceiverState::Rejected`], instead of an error of the
    /// whole request.
    #[serde(default)]
    #[serde(rename = "each")]
    pub(crate) per_entry_errors: bool,
}

/// The states of files of an upload.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct BeginResponse {
    pub(crate) session: String,
    #[serde(rename = "have")]
    pub(crate) receiver_states: Vec<ReceiverState>,
    /// True if the server supports links, names of any bytes, and `each` of requests. Earlier servers do not.
    #[serde(default)]
    #[serde(rename = "each")]
    pub(crate) per_entry_errors: bool,
}

/// The state of a file at its destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ReceiverState {
    /// No block.
    #[serde(rename = "Nothing")]
    Absent,
    /// The complete file, by size and time.
    #[serde(rename = "All")]
    Complete,
    /// Blocks of the file.
    #[serde(rename = "Part")]
    Partial(RangeSet),
    /// Blocks of an earlier version; unchanged ones can be kept.
    Stale(RangeSet),
    /// The file cannot be received. Only for clients that support it.
    #[serde(rename = "Refused")]
    Rejected(FileError),
}

/// A request to verify a received file.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FinishRequest {
    pub(crate) session: String,
    pub(crate) file: u32,
    /// Hashes of its blocks, hexadecimal, concatenated.
    pub(crate) hashes: String,
    /// Only discards blocks of an earlier version that differ; the file is not finished.
    #[serde(rename = "keep_only")]
    pub(crate) discard_stale_only: bool,
}

/// The blocks that differ.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FinishResponse {
    #[serde(rename = "wrong")]
    pub(crate) mismatched_blocks: RangeSet,
}

/// The session that receives blocks.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WriteCommand {
    pub(crate) session: String,
}

/// The upload of blocks for another server.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RelayWriteCommand {
    /// URI of the other server.
    #[serde(rename = "to")]
    pub(crate) server: String,
    /// Its delegation token.
    pub(crate) token: String,
    /// Name of the connection to it; see [`RelayRequest`].
    #[serde(rename = "lane")]
    pub(crate) connection_name: String,
    #[serde(rename = "write")]
    pub(crate) write_command: WriteCommand,
    #[serde(rename = "manner")]
    pub(crate) send_options: SendOptions,
}

/// The end of a session.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct EndRequest {
    pub(crate) session: String,
    /// Extraneous paths below the base, to be removed.
    #[serde(rename = "remove")]
    pub(crate) paths_to_remove: Vec<String>,
    /// True if the response is to be a list of [`EntryFailureMessage`], one for each file that could not be completed.
    /// Without it, the first failure fails the request.
    #[serde(default)]
    #[serde(rename = "each")]
    pub(crate) per_entry_errors: bool,
}

/// The outcome of blocks that were sent.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct BlockReport {
    /// File and 0-based block of the written ones.
    pub(crate) written: Vec<(u32, u64)>,
    /// File and 0-based block of the damaged ones.
    pub(crate) damaged: Vec<(u32, u64)>,
    /// Files that cannot be read or written, with the reason.
    #[serde(rename = "refused")]
    pub(crate) rejected_files: Vec<(u32, FileError)>,
}

/// The reason why a file cannot be read or written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FileError {
    /// The file has changed.
    #[serde(rename = "Changed")]
    SourceChanged,
    /// The file does not exist.
    NotFound,
    /// The checksum differs; the message.
    #[serde(rename = "Unlike")]
    ChecksumMismatch(String),
    /// The type of the entry is not supported; the message. Only in responses with separate errors of entries.
    Unsupported(String),
    /// The request cannot be carried out; the message. Only in responses with separate errors of entries.
    #[serde(rename = "Refused")]
    Rejected(String),
    /// Any other error; the message.
    Other(String),
}

impl FileError {
    pub(crate) fn from_error(error: &TransferError) -> Self {
        match error {
            TransferError::SourceChanged { .. } => Self::SourceChanged,
            TransferError::NotFound { .. } => Self::NotFound,
            TransferError::ChecksumMismatch { problem } => Self::ChecksumMismatch(problem.clone()),
            other => Self::Other(godwit_model::message_with_causes(other)),
        }
    }

    /// Converts as [`Self::from_error`], for responses with separate errors of entries.
    pub(crate) fn from_entry_error(error: &TransferError) -> Self {
        match error {
            TransferError::Unsupported { problem } => Self::Unsupported(problem.clone()),
            TransferError::Rejected { problem } => Self::Rejected(problem.clone()),
            other => Self::from_error(other),
        }
    }

    pub(crate) fn into_error(self, place: &str) -> TransferError {
        let location = place.to_owned();
        match self {
            Self::SourceChanged => TransferError::SourceChanged { location },
            Self::NotFound => TransferError::NotFound { location },
            Self::ChecksumMismatch(problem) => TransferError::ChecksumMismatch { problem },
            Self::Unsupported(problem) => TransferError::Unsupported { problem },
            Self::Rejected(problem) => TransferError::Rejected { problem },
            Self::Other(text) => TransferError::RemoteFailure { problem: format!("{location}: {text}") },
        }
    }
}

/// Returns a ticket or command: prefix, kind, and value as JSON.
pub(crate) fn encode_message(kind: &str, value: &impl Serialize) -> Result<Vec<u8>, TransferError> {
    Ok([FILES_PREFIX.as_bytes(), kind.as_bytes(), &to_json(value)?].concat())
}

pub(crate) fn to_json(value: &impl Serialize) -> Result<Vec<u8>, TransferError> {
    serde_json::to_vec(value).map_err(|error| TransferError::Internal { problem: error.to_string() })
}

/// Parses a message of the other end.
pub(crate) fn from_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, TransferError> {
    serde_json::from_slice(bytes).map_err(|error| {
        TransferError::rejected(format!(
            "the other end says what is not understood here ({error}); is it of another version?"
        ))
    })
}

/// Returns the hashes as hexadecimal digits.
pub(crate) fn hashes_to_text(hashes: &[BlockHash]) -> String {
    hashes.iter().map(|hash| blake3::Hash::from_bytes(*hash).to_hex().to_string()).collect()
}

/// Parses the text of [`hashes_to_text`].
pub(crate) fn hashes_from_text(text: &str) -> Option<Vec<BlockHash>> {
    let digits = text.as_bytes().chunks(2 * blake3::OUT_LEN);
    digits.map(|digits| blake3::Hash::from_hex(digits).ok().map(|hash| *hash.as_bytes())).collect()
}

/// Schema of batches of blocks.
pub(crate) static BLOCK_SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    Arc::new(Schema::new(vec![
        Field::new("file", DataType::UInt32, false),
        Field::new("offset", DataType::UInt64, false),
        Field::new("hash", DataType::FixedSizeBinary(blake3::OUT_LEN as i32), false),
        // Size of the block; fewer bytes in `data` are a zstd frame.
        Field::new("bytes", DataType::UInt32, false),
        Field::new("data", DataType::Binary, false),
    ]))
});

/// A block to be sent.
#[derive(Debug)]
pub(crate) struct OutgoingBlock {
    pub(crate) file: u32,
    pub(crate) block_index: u64,
    pub(crate) hash: BlockHash,
    /// Size of the block, bytes.
    pub(crate) block_bytes: u32,
    /// End of its bytes, or of its frame, in the data of the batch.
    pub(crate) data_end: usize,
}

/// Returns a batch of blocks over contiguous data.
pub(crate) fn encode_blocks(blocks: &[OutgoingBlock], data: Vec<u8>) -> Result<RecordBatch, TransferError> {
    let bug = |error: arrow_schema::ArrowError| TransferError::Internal { problem: error.to_string() };
    let mut hashes = FixedSizeBinaryBuilder::with_capacity(blocks.len(), blake3::OUT_LEN as i32);
    for block in blocks {
        hashes.append_value(block.hash).map_err(bug)?;
    }
    let ends = std::iter::once(0).chain(blocks.iter().map(|block| block.data_end as i32)).collect::<Vec<i32>>();
    let data = BinaryArray::try_new(OffsetBuffer::new(ends.into()), Buffer::from_vec(data), None).map_err(bug)?;
    let columns: Vec<Arc<dyn Array>> = vec![
        Arc::new(blocks.iter().map(|block| Some(block.file)).collect::<UInt32Array>()),
        Arc::new(blocks.iter().map(|block| Some(block.block_index * BLOCK_BYTES)).collect::<UInt64Array>()),
        Arc::new(hashes.finish()),
        Arc::new(blocks.iter().map(|block| Some(block.block_bytes)).collect::<UInt32Array>()),
        Arc::new(data),
    ];
    RecordBatch::try_new(BLOCK_SCHEMA.clone(), columns).map_err(bug)
}

/// A received batch of blocks.
pub(crate) struct BlockBatch {
    files: UInt32Array,
    offsets: UInt64Array,
    hashes: FixedSizeBinaryArray,
    bytes: UInt32Array,
    data: BinaryArray,
}

/// A received block.
pub(crate) struct IncomingBlock<'b> {
    pub(crate) file: u32,
    pub(crate) block_index: u64,
    hash: &'b [u8],
    block_bytes: u32,
    data: &'b [u8],
}

impl BlockBatch {
    /// Parses a received batch.
    pub(crate) fn from_batch(batch: &RecordBatch) -> Result<Self, TransferError> {
        let wrong = || TransferError::rejected("the other end sent columns that are no blocks of files");
        if batch.schema().fields() != BLOCK_SCHEMA.fields() {
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

    pub(crate) fn iter(&self) -> impl Iterator<Item = IncomingBlock<'_>> {
        (0..self.files.len()).map(|row| IncomingBlock {
            file: self.files.value(row),
            block_index: self.offsets.value(row) / BLOCK_BYTES,
            hash: self.hashes.value(row),
            block_bytes: self.bytes.value(row),
            data: self.data.value(row),
        })
    }
}

impl<'b> IncomingBlock<'b> {
    /// Returns its bytes and hash if they match as that block of a file of this size.
    pub(crate) fn verify(&self, size_bytes: u64) -> Option<(std::borrow::Cow<'b, [u8]>, BlockHash)> {
        let data = if self.data.len() == self.block_bytes as usize {
            std::borrow::Cow::Borrowed(self.data)
        } else {
            std::borrow::Cow::Owned(decompress_block(self.data, self.block_bytes as usize)?)
        };
        // Bytes that are not a block have no hash.
        if data.len() as u64 > BLOCK_BYTES || data.is_empty() && block_count(size_bytes) > 1 {
            return None;
        }
        let hash = hash_block(&data, self.block_index, size_bytes);
        (hash[..] == *self.hash).then_some((data, hash))
    }

    /// Verifies as [`Self::verify`], for a file of unknown size.
    pub(crate) fn verify_without_file_size(&self) -> Option<(std::borrow::Cow<'b, [u8]>, BlockHash)> {
        let bytes = u64::from(self.block_bytes);
        let of_several = (self.block_index > 0 || bytes == BLOCK_BYTES).then(|| self.verify(u64::MAX)).flatten();
        of_several.or_else(|| (self.block_index == 0).then(|| self.verify(bytes)).flatten())
    }
}

/// Compresses a block with zstd; `None` if that is not shorter.
pub(crate) fn compress_block(data: &[u8]) -> Option<Vec<u8>> {
    // Level 1 processes a gigabit per second on half a core; compressed files (BAM, CRAM, gzip) are sent unchanged.
    let mut frame: Vec<u8> = Vec::with_capacity(zstd_safe::compress_bound(data.len()));
    zstd_safe::compress(&mut frame, data, 1).ok()?;
    (frame.len() < data.len()).then_some(frame)
}

fn decompress_block(frame: &[u8], bytes: usize) -> Option<Vec<u8>> {
    if bytes as u64 > BLOCK_BYTES {
        return None;
    }
    let mut data: Vec<u8> = Vec::with_capacity(bytes);
    zstd_safe::decompress(&mut data, frame).ok()?;
    (data.len() == bytes).then_some(data)
}

/// Returns the name of the action of this kind.
pub(crate) fn action_name(kind: &str) -> String {
    format!("{FILES_PREFIX}{kind}")
}

/// Returns the bytes after the prefix and the kind.
pub(crate) fn strip_message_prefix<'b>(bytes: &'b Bytes, kind: &str) -> Option<&'b [u8]> {
    bytes.strip_prefix(FILES_PREFIX.as_bytes())?.strip_prefix(kind.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_not_a_block_never_verify() {
        let most = BLOCK_BYTES as usize;
        for (block_index, count, is_block) in
            [(0, 0, true), (1, 0, false), (1, most, true), (1, most + 1, false), (0, most + 1, false)]
        {
            let data = vec![7; count];
            let hash = if is_block {
                hash_block(&data, block_index, block_index * BLOCK_BYTES + count as u64)
            } else {
                [0; 32]
            };
            let sent = OutgoingBlock { file: 0, block_index, hash, block_bytes: count as u32, data_end: count };
            let came = BlockBatch::from_batch(&encode_blocks(&[sent], data).unwrap()).unwrap();
            let came = came.iter().next().unwrap();
            assert_eq!(came.verify_without_file_size().is_some(), is_block, "{count} bytes as block {block_index}");
            assert_eq!(
                came.verify(block_index * BLOCK_BYTES + count as u64).is_some(),
                is_block,
                "{count} bytes as block {block_index}"
            );
        }
    }
}
