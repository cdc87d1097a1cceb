//! The messages between client and server of a copy. Tickets, commands and actions carry JSON; blocks of files are sent
//! in Arrow batches.

mod block_batches;
mod file_operations;
mod list_response;

use bytes::Bytes;
use godwit_flight::FILES_PREFIX;
use godwit_transfer_session::blake3_tree::BlockHash;
use godwit_transfer_session::ranges::RangeSet;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::TransferError;
use crate::file_listing::{Entry, EntryFailure, LinkPolicy};
use crate::path_text::escape_for_display;
use crate::tcp_tuning::SendOptions;
pub(crate) use block_batches::{BLOCK_SCHEMA, BlockBatch, IncomingBlock, OutgoingBlock, compress_block, encode_blocks};
pub(crate) use file_operations::{
    BYTES_ACTION, BytesRequest, CHANGE_ACTION, DIRECTORY_ACTION, ENTRY_ACTION, PathRequest, SPACE_ACTION,
    STORE_COMMAND, STORE_COMMIT, StoreCommand, StoreReport,
};
pub use file_operations::{FileChange, StorageSpace};
pub(crate) use list_response::decode_listing;

/// Action that lists the entries below a path. On the wire, [`FILES_PREFIX`] precedes the name of each action.
pub(crate) const LIST_ACTION: &str = "list";
/// Action that returns the hashes of all blocks of a file.
pub(crate) const BLOCK_HASHES_ACTION: &str = "tree";
/// Action that starts an upload session, or adds files to it.
pub(crate) const BEGIN_ACTION: &str = "begin";
/// Action that verifies and commits an uploaded file.
pub(crate) const FINISH_ACTION: &str = "finish";
/// Action that issues a token by which another server may read below a path.
pub(crate) const READ_TOKEN_ACTION: &str = "grant";
/// Action that issues a token by which another server may send blocks of an upload session.
pub(crate) const WRITE_TOKEN_ACTION: &str = "grant-writing";
/// Action that makes the server fetch files from another server.
pub(crate) const FETCH_ACTION: &str = "fetch";
/// Action that returns the events of a fetch from another server since the previous call.
pub(crate) const FETCH_EVENTS_ACTION: &str = "happened";
/// Action that ends an upload session.
pub(crate) const END_ACTION: &str = "end";
/// Action that finds a reference at the server that matches a reference of the client; see [`ReferenceRequest`].
pub(crate) const REFERENCE_ACTION: &str = "reference";
/// Ticket for the download of a genome with delta compression.
pub(crate) const DELTA_TICKET: &str = "packed ";
/// Command for the upload of a genome with delta compression.
pub(crate) const DELTA_UPLOAD_COMMAND: &str = "unpack ";
/// Ticket for the download of blocks of files.
pub(crate) const READ_TICKET: &str = "read ";
/// Ticket for the download of the first blocks of a file or directory, before the client has received the list of
/// files.
pub(crate) const PREFETCH_TICKET: &str = "ahead ";
/// Ticket for the download of blocks that this server fetches from another server.
pub(crate) const RELAY_TICKET: &str = "relay ";
/// Command of `GetFlightInfo` for the endpoints of a file.
pub(crate) const INFO_COMMAND: &str = "info ";
/// Command for the upload of blocks.
pub(crate) const WRITE_COMMAND: &str = "write ";
/// Command for the upload of blocks that this server forwards to another server.
pub(crate) const RELAY_WRITE_COMMAND: &str = "relay-write ";

/// Largest number of entries in one message of a listing or a [`BeginRequest`].
pub(crate) const MAX_ENTRIES_PER_MESSAGE: usize = 2000;

/// A request for the entries below a path.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ListRequest {
    pub(crate) path: String,
    /// Treatment of symbolic links by the server.
    #[serde(default)]
    #[serde(rename = "links")]
    pub(crate) link_policy: LinkPolicy,
    /// True if the server is to send a [`ListTrailer`] as its last message. If false, one entry that cannot be copied
    /// fails the whole request. Servers of earlier versions ignore this field and `links`.
    #[serde(default)]
    #[serde(rename = "each")]
    pub(crate) per_entry_errors: bool,
}

/// Entries below a path that are not copied. This is the last message of a listing, and the only one that is a JSON
/// object.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct ListTrailer {
    pub(crate) failures: Vec<EntryFailureMessage>,
    pub(crate) skipped_links: Vec<String>,
}

/// An entry that is not copied: its path and the reason.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct EntryFailureMessage {
    pub(crate) path: String,
    #[serde(rename = "why")]
    pub(crate) error: FileError,
}

impl EntryFailureMessage {
    /// Converts a failure to the message that reports it.
    pub(crate) fn from_failure(failure: &EntryFailure) -> Self {
        Self { path: failure.path.clone(), error: FileError::from_entry_error(&failure.error) }
    }

    /// Converts a received message to the failure that it reports.
    pub(crate) fn into_failure(self) -> EntryFailure {
        let error = self.error.into_error(&escape_for_display(&self.path));
        EntryFailure { path: self.path, error }
    }
}

/// A request for the hashes of all blocks of a file. The response is the concatenation of the hashes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct BlockHashesRequest {
    pub(crate) path: String,
    pub(crate) version: u64,
}

/// A request for ranges of blocks.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ReadRequest {
    #[serde(rename = "spans")]
    pub(crate) ranges: Vec<ReadRange>,
    #[serde(rename = "manner")]
    pub(crate) send_options: SendOptions,
}

/// Blocks `[start, end)` of a file. `file` is the number by which the batches of the response refer to the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ReadRange {
    pub(crate) file: u32,
    pub(crate) path: String,
    #[serde(rename = "state")]
    pub(crate) version: FileVersion,
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// True if relays must not send cached blocks, and servers no cached hashes, because an earlier block failed
    /// verification.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[serde(rename = "fresh")]
    pub(crate) bypass_cache: bool,
}

/// A request for one connection's share of the first blocks of a file or directory, whatever its version. The response
/// starts with the ranges of the sent blocks as JSON.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PrefetchRequest {
    pub(crate) path: String,
    /// 0-based number of the connection for which this share is requested.
    pub(crate) stream: u32,
    /// Number of connections among which the blocks are divided.
    pub(crate) streams: u32,
    #[serde(rename = "manner")]
    pub(crate) send_options: SendOptions,
}

/// Blocks `[start, end)` that the server sends of a file: `file` is the index of the file in the listing, `version` its
/// version.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PrefetchRange {
    pub(crate) file: u32,
    /// Version of the file; see [`Entry::version`].
    pub(crate) version: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// The version of a file that a request refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FileVersion {
    /// The value of [`Entry::version`], which is valid only at the server that issued it.
    #[serde(rename = "version")]
    ServerVersion(u64),
    /// Size and modification time, which are the same at every server with a copy of the file.
    #[serde(rename = "written")]
    SizeAndTime { size_bytes: u64, modified_s: i64, modified_ns: u32 },
}

/// A request for a reference of the server that matches a reference of the client: the unpacking end must have all
/// sequences of the packing end. The response is its digest, or null if there is none.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ReferenceRequest {
    /// Identities of the sequences of the client's reference.
    pub(crate) sequences: Vec<String>,
    /// True if the client packs and the server unpacks; false for the opposite direction.
    #[serde(rename = "packs")]
    pub(crate) client_packs: bool,
}

/// A request to download a genome with delta compression.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct DeltaDownloadRequest {
    pub(crate) path: String,
    pub(crate) version: u64,
    /// Digest of the reference of the server with which the genome is packed.
    pub(crate) reference: String,
    #[serde(rename = "manner")]
    pub(crate) send_options: SendOptions,
}

/// The command that starts the upload of a genome with delta compression. The response is the outcome of the delta copy
/// as JSON.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct DeltaUploadCommand {
    /// Destination of the upload; see `base_path` of [`BeginRequest`].
    #[serde(rename = "base")]
    pub(crate) base_path: String,
    pub(crate) entry: Entry,
    /// Digest of the reference of the server with which the genome is unpacked.
    pub(crate) reference: String,
}

/// A request for the endpoints from which a file can be downloaded.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct InfoRequest {
    /// Path of the file below the root of the server.
    pub(crate) path: String,
    /// Approximate number of bytes of the file for each endpoint.
    #[serde(rename = "piece_bytes")]
    pub(crate) endpoint_bytes: Option<u64>,
}

/// A request to a relay for blocks of another server.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RelayRequest {
    /// URI of the server from which the relay reads.
    #[serde(rename = "from")]
    pub(crate) server: String,
    /// Delegation token that the server named in `server` issued.
    pub(crate) token: String,
    /// Name of the relay's connection to the server named in `server`. Requests of one client connection use one name,
    /// and so one connection of the relay.
    #[serde(rename = "lane")]
    pub(crate) connection_name: String,
    #[serde(rename = "read")]
    pub(crate) read_request: ReadRequest,
}

/// A request to start an upload session below a path, or to add entries to a session.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct BeginRequest {
    pub(crate) session: Option<String>,
    /// Path of the file if there is a single entry with an empty path; else path of the directory that contains all
    /// entries.
    #[serde(rename = "base")]
    pub(crate) base_path: String,
    #[serde(rename = "first")]
    pub(crate) first_file: u32,
    pub(crate) entries: Vec<Entry>,
    /// True if the server only returns the states of the files and starts no session.
    pub(crate) dry_run: bool,
    /// True if the client lost the pool member that had the session. The member that receives this request then takes
    /// over the open files of that session in the same directory.
    #[serde(default)]
    pub(crate) take_over: bool,
    /// True if a file that cannot be started has the state [`ReceiverState::Rejected`]. If false, such a file fails the
    /// whole request.
    #[serde(default)]
    #[serde(rename = "each")]
    pub(crate) per_entry_errors: bool,
}

/// The response to a [`BeginRequest`]: the name of the session, and the state of each file at the destination.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct BeginResponse {
    pub(crate) session: String,
    #[serde(rename = "have")]
    pub(crate) receiver_states: Vec<ReceiverState>,
    /// True if the server supports links, names that are not UTF-8, and `each` in requests. Servers of earlier versions
    /// omit this field.
    #[serde(default)]
    #[serde(rename = "each")]
    pub(crate) per_entry_errors: bool,
}

/// The state of a file at the destination of a copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ReceiverState {
    /// The destination has no block of the file.
    #[serde(rename = "Nothing")]
    Absent,
    /// The destination has the complete file: size and modification time match.
    #[serde(rename = "All")]
    Complete,
    /// The destination has these blocks of the file.
    #[serde(rename = "Part")]
    Partial(RangeSet),
    /// The destination has these blocks of an earlier version of the file; unchanged ones can be kept.
    Stale(RangeSet),
    /// The destination cannot receive the file. Sent only to clients that set `per_entry_errors`.
    #[serde(rename = "Refused")]
    Rejected(FileError),
}

/// A request to verify and commit an uploaded file.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FinishRequest {
    pub(crate) session: String,
    pub(crate) file: u32,
    /// Hashes of all blocks of the file, hexadecimal, concatenated.
    pub(crate) hashes: String,
    /// If true, the server discards the blocks whose hashes differ, but does not commit the file.
    #[serde(rename = "keep_only")]
    pub(crate) discard_stale_only: bool,
}

/// The response to a [`FinishRequest`]: the blocks whose hashes differ.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FinishResponse {
    #[serde(rename = "wrong")]
    pub(crate) mismatched_blocks: RangeSet,
}

/// The command that starts the upload of blocks of a session.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WriteCommand {
    pub(crate) session: String,
}

/// The command to a relay that starts the upload of blocks for another server.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RelayWriteCommand {
    /// URI of the server to which the relay writes.
    #[serde(rename = "to")]
    pub(crate) server: String,
    /// Delegation token that the server named in `server` issued.
    pub(crate) token: String,
    /// Name of the relay's connection to the server named in `server`; see [`RelayRequest`].
    #[serde(rename = "lane")]
    pub(crate) connection_name: String,
    #[serde(rename = "write")]
    pub(crate) write_command: WriteCommand,
    #[serde(rename = "manner")]
    pub(crate) send_options: SendOptions,
}

/// A request to end an upload session.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct EndRequest {
    pub(crate) session: String,
    /// Extraneous paths below `base_path` that the server is to remove.
    #[serde(rename = "remove")]
    pub(crate) paths_to_remove: Vec<String>,
    /// True if the server is to return a list of [`EntryFailureMessage`], one for each file that could not be
    /// completed. If false, the first such file fails the request.
    #[serde(default)]
    #[serde(rename = "each")]
    pub(crate) per_entry_errors: bool,
}

/// The receiver's report about blocks that were sent to it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct BlockReport {
    /// File and 0-based block index of each block that was written.
    pub(crate) written: Vec<(u32, u64)>,
    /// File and 0-based block index of each block that was received damaged.
    pub(crate) damaged: Vec<(u32, u64)>,
    /// Number of each file that cannot be read or written, and the reason.
    #[serde(rename = "refused")]
    pub(crate) rejected_files: Vec<(u32, FileError)>,
}

/// The reason why a file cannot be read or written, as sent between client and server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FileError {
    /// The file has changed since it was listed.
    #[serde(rename = "Changed")]
    SourceChanged,
    /// The file does not exist.
    NotFound,
    /// The checksum of the file differs from the expected one; contains the error message.
    #[serde(rename = "Unlike")]
    ChecksumMismatch(String),
    /// The type of the entry is not supported; contains the error message. Used only if `per_entry_errors` is set.
    Unsupported(String),
    /// The request cannot be carried out; contains the error message. Used only if `per_entry_errors` is set.
    #[serde(rename = "Refused")]
    Rejected(String),
    /// Any other error; contains the error message.
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

    /// Converts an error as [`Self::from_error`] does, but keeps the kinds that are allowed if `per_entry_errors` is
    /// set.
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
            Self::Other(text) => TransferError::RemoteFailure { problem: format!("{location}: {text}"), reason: None },
        }
    }
}

/// Returns the bytes of a ticket or command: the prefix, the kind, and `value` as JSON.
pub(crate) fn encode_message(kind: &str, value: &impl Serialize) -> Result<Vec<u8>, TransferError> {
    Ok([FILES_PREFIX.as_bytes(), kind.as_bytes(), &to_json(value)?].concat())
}

pub(crate) fn to_json(value: &impl Serialize) -> Result<Vec<u8>, TransferError> {
    serde_json::to_vec(value).map_err(|error| TransferError::Internal { problem: error.to_string() })
}

/// Parses a JSON message of the other end.
pub(crate) fn from_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, TransferError> {
    serde_json::from_slice(bytes).map_err(|error| {
        TransferError::rejected(format!(
            "the other end sent an invalid message ({error}); install the same version of godwit at both ends"
        ))
    })
}

/// Returns the hashes as concatenated hexadecimal digits.
pub(crate) fn hashes_to_text(hashes: &[BlockHash]) -> String {
    hashes.iter().map(|hash| blake3::Hash::from_bytes(*hash).to_hex().to_string()).collect()
}

/// Parses hashes from the output of [`hashes_to_text`]; `None` if the text is invalid.
pub(crate) fn hashes_from_text(text: &str) -> Option<Vec<BlockHash>> {
    let digits = text.as_bytes().chunks(2 * blake3::OUT_LEN);
    digits.map(|digits| blake3::Hash::from_hex(digits).ok().map(|hash| *hash.as_bytes())).collect()
}

/// Returns the full name of an action on the wire: the prefix and the kind.
pub(crate) fn action_name(kind: &str) -> String {
    format!("{FILES_PREFIX}{kind}")
}

/// Returns the bytes after the prefix and the kind; `None` if the message is of another kind.
pub(crate) fn strip_message_prefix<'b>(bytes: &'b Bytes, kind: &str) -> Option<&'b [u8]> {
    bytes.strip_prefix(FILES_PREFIX.as_bytes())?.strip_prefix(kind.as_bytes())
}
