//! The options of a transfer session, the events that it handles, and the actions that it returns.

use std::time::Duration;

use crate::ranges::RangeSet;

/// 0-based index of a file in the list of files of the session.
pub type FileId = u32;
/// 0-based index of a stream, that is of a connection.
pub type StreamId = u32;
/// 0-based number of a request, unique within a session.
pub type RequestId = u64;

/// A set of sources of a transfer.
///
/// # Examples
///
/// ```
/// use godwit_transfer_session::SourceSet;
///
/// let sources = SourceSet::only(0).with_source(2);
/// assert!(sources.contains(2) && !sources.contains(1));
/// assert_eq!(sources.iter().collect::<Vec<_>>(), [0, 2]);
/// assert!(sources.without_source(0).without_source(2).is_empty());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceSet(u64);

impl SourceSet {
    /// Largest number of sources of a transfer.
    pub const MAX_SOURCES: u32 = u64::BITS;

    /// Returns the set that contains only the source with this 0-based index.
    pub fn only(source: u32) -> Self {
        Self(1_u64.checked_shl(source).unwrap_or_default())
    }

    /// Returns this set with a source added.
    pub fn with_source(self, source: u32) -> Self {
        Self(self.0 | Self::only(source).0)
    }

    /// Returns this set with a source removed.
    pub fn without_source(self, source: u32) -> Self {
        Self(self.0 & !Self::only(source).0)
    }

    /// Reports whether the source with this 0-based index is in the set.
    pub fn contains(self, source: u32) -> bool {
        self.0 & Self::only(source).0 != 0
    }

    /// Reports whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the indices of the sources in increasing order.
    pub fn iter(self) -> impl Iterator<Item = u32> {
        (0..Self::MAX_SOURCES).filter(move |source| self.contains(*source))
    }
}

/// Options of a transfer session.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// Number of connections at the start of the transfer.
    pub streams: u32,
    /// Number of sources; at most [`SourceSet::MAX_SOURCES`].
    pub sources: u32,
    /// Time that the outstanding requests of a stream should last towards the end of the transfer. It is just long
    /// enough to keep the path full, so that a slow stream does not have work left when the others have finished.
    pub horizon: Duration,
    /// Largest number of bytes that one request asks for.
    pub request_bytes: u64,
    /// For each stream, the block ranges that were requested over it before the session started.
    pub prefetched: Vec<Vec<BlockRange>>,
    /// Longest time without received data; after it, the transfer fails.
    pub idle_timeout: Duration,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            streams: 8,
            sources: 1,
            horizon: Duration::from_millis(250),
            request_bytes: 16 << 20,
            prefetched: Vec::new(),
            idle_timeout: Duration::from_secs(900),
        }
    }
}

/// Blocks `[start, end)` of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRange {
    /// Index of the file in the list of files of the session.
    pub file: FileId,
    /// First block, 0-based.
    pub start: u64,
    /// End of the range, 0-based, exclusive.
    pub end: u64,
}

/// A file of a transfer, and the blocks of it that are to be fetched.
#[derive(Clone, Debug)]
pub struct FileWork {
    /// Size of the file, bytes.
    pub size_bytes: u64,
    /// Blocks that the destination lacks.
    pub missing: RangeSet,
    /// Sources that have the file.
    pub sources: SourceSet,
}

/// An event that the driver reports to the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionEvent {
    /// The connection of a stream was opened.
    StreamOpened {
        /// Stream whose connection was opened.
        stream: StreamId,
    },
    /// A block was received, verified and written.
    BlockWritten {
        /// Stream that received the block.
        stream: StreamId,
        /// File of the block.
        file: FileId,
        /// 0-based index of the block in the file.
        block: u64,
    },
    /// A received block does not match its hash.
    BlockDamaged {
        /// Stream that received the block.
        stream: StreamId,
        /// File of the block.
        file: FileId,
        /// 0-based index of the block in the file.
        block: u64,
    },
    /// The other end has sent its complete response to a request.
    RequestEnded {
        /// Stream over which the request was sent.
        stream: StreamId,
        /// Number of the request.
        request: RequestId,
    },
    /// A block cannot be written, for example because the disk is full. No more blocks are requested, but outstanding
    /// ones may still be written.
    WriteFailed {
        /// Stream that received the block.
        stream: StreamId,
        /// Request of the block; `None` if it is unknown, which ends all requests of the stream.
        request: Option<RequestId>,
    },
    /// The connection of a stream broke or could not be opened.
    StreamLost {
        /// Stream whose connection was lost.
        stream: StreamId,
    },
    /// A source cannot provide a file: it denies access, or the file was removed or changed.
    FileUnavailable {
        /// File that is unavailable.
        file: FileId,
        /// 0-based index of the source.
        source: u32,
    },
    /// The verification of a file found blocks that differ; they are fetched again.
    VerificationFailed {
        /// File that was verified.
        file: FileId,
        /// Blocks that differ from those of the source.
        blocks: RangeSet,
        /// 0-based index of the source that verified the file.
        source: u32,
    },
    /// A file was verified and committed at the destination.
    FileFinished {
        /// File that was committed.
        file: FileId,
    },
    /// The number of connections has changed. Missing connections are opened. Excess ones finish their requests, or are
    /// closed if that would take long.
    StreamCountChanged {
        /// New number of connections; at least 1.
        count: u32,
    },
    /// No event occurred, but the time has advanced.
    Tick,
}

/// An action that the driver of a session must carry out.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use godwit_transfer_session::ranges::RangeSet;
/// use godwit_transfer_session::{FileWork, SessionAction, SessionEvent, SessionOptions};
/// use godwit_transfer_session::{SourceSet, TransferSession};
///
/// let file = FileWork { size_bytes: 4096, missing: RangeSet::from_range(0, 1), sources: SourceSet::only(0) };
/// let options = SessionOptions { streams: 1, ..SessionOptions::default() };
/// let (mut session, actions) = TransferSession::new(vec![file], options, Duration::ZERO);
/// assert_eq!(actions, [SessionAction::OpenStream { stream: 0, source: 0 }]);
///
/// let now = Duration::from_millis(10);
/// let actions = session.handle_event(now, SessionEvent::StreamOpened { stream: 0 });
/// assert!(matches!(actions[0], SessionAction::RequestBlocks { stream: 0, .. }));
/// let actions = session.handle_event(now, SessionEvent::BlockWritten { stream: 0, file: 0, block: 0 });
/// assert_eq!(actions, [SessionAction::Done]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionAction {
    /// Open the connection of a stream.
    OpenStream {
        /// Stream to open.
        stream: StreamId,
        /// 0-based index of the source to which the connection goes.
        source: u32,
    },
    /// Close the connection of a stream that is not needed any more.
    CloseStream {
        /// Stream to close.
        stream: StreamId,
    },
    /// Request blocks over the connection of a stream.
    RequestBlocks {
        /// Stream over which the request is sent.
        stream: StreamId,
        /// Number by which later events refer to the request.
        request: RequestId,
        /// True if the same blocks were already requested over this connection before the session started.
        is_prefetched: bool,
        /// The blocks to request, in this order.
        ranges: Vec<BlockRange>,
    },
    /// Verify and commit a file whose blocks are all written. A file of one block is committed when the block arrives,
    /// without this action.
    VerifyFile {
        /// File to verify.
        file: FileId,
        /// Sources that have the hashes of the file; the first one that responds is used.
        sources: SourceSet,
    },
    /// Record a file as failed: a block was received damaged too often, or no source has the file any more.
    FailFile {
        /// File that failed.
        file: FileId,
    },
    /// End the transfer: every file is finished or has failed.
    Done,
    /// End the transfer with an error: no data arrived within the idle timeout.
    FailWithTimeout,
    /// End the transfer with an error: a write failed, and all outstanding blocks that could be written are written.
    StopAfterWriteFailure,
}
