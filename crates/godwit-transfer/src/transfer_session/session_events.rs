//! Options, events and actions of a transfer session.

use std::time::Duration;

use crate::ranges::RangeSet;

/// 0-based index of a file in the manifest.
pub type FileId = u32;
/// 0-based index of a connection.
pub type StreamId = u32;
/// Number of a request.
pub type RequestId = u64;

/// A set of sources of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceSet(u64);

impl SourceSet {
    /// The largest number of sources.
    pub const MAX_SOURCES: u32 = u64::BITS;

    /// Returns the set of one source, 0-based.
    pub fn only(source: u32) -> Self {
        Self(1_u64.checked_shl(source).unwrap_or_default())
    }

    /// Returns this set with another source.
    pub fn with_source(self, source: u32) -> Self {
        Self(self.0 | Self::only(source).0)
    }

    /// Returns this set without a source.
    pub fn without_source(self, source: u32) -> Self {
        Self(self.0 & !Self::only(source).0)
    }

    /// Reports whether this source, 0-based, is in the set.
    pub fn contains(self, source: u32) -> bool {
        self.0 & Self::only(source).0 != 0
    }

    /// Reports whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the sources in increasing order.
    pub fn iter(self) -> impl Iterator<Item = u32> {
        (0..Self::MAX_SOURCES).filter(move |source| self.contains(*source))
    }
}

/// Options of a session.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// Number of connections at the start.
    pub streams: u32,
    /// Number of sources; at most [`SourceSet::MAX_SOURCES`].
    pub sources: u32,
    /// Duration that the requests of a stream last at its rate, towards the end of the transfer. It is just enough to keep
    /// the path full, so that a slow stream has no work left when the others have none.
    pub horizon: Duration,
    /// Largest size of a request, bytes.
    pub request_bytes: u64,
    /// Block ranges that were requested already, by stream.
    pub prefetched: Vec<Vec<BlockRange>>,
    /// Time without received data after which the transfer fails.
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
    /// Index of the file.
    pub file: FileId,
    /// First block, 0-based.
    pub start: u64,
    /// End, exclusive.
    pub end: u64,
}

/// The blocks of a file that are to be fetched.
#[derive(Clone, Debug)]
pub struct FileWork {
    /// Size of the file, bytes.
    pub size_bytes: u64,
    /// Blocks that the destination lacks.
    pub missing: RangeSet,
    /// Sources that have the file.
    pub sources: SourceSet,
}

/// An event of a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionEvent {
    /// A connection was made.
    StreamOpened {
        /// The connection.
        stream: StreamId,
    },
    /// A block was received, verified and written.
    BlockWritten {
        /// Its connection.
        stream: StreamId,
        /// Its file.
        file: FileId,
        /// The block, 0-based.
        block: u64,
    },
    /// A received block does not match its hash.
    BlockDamaged {
        /// Its connection.
        stream: StreamId,
        /// Its file.
        file: FileId,
        /// The block, 0-based.
        block: u64,
    },
    /// The other end has sent its whole response to a request.
    RequestEnded {
        /// The connection of the request.
        stream: StreamId,
        /// The request.
        request: RequestId,
    },
    /// A block cannot be written, for example because the disk is full. Nothing more is requested, but outstanding blocks may
    /// fit.
    WriteFailed {
        /// The connection of the block.
        stream: StreamId,
        /// The request of the block; `None` if unknown, which means all requests of the connection.
        request: Option<RequestId>,
    },
    /// A connection broke or could not be made.
    StreamLost {
        /// The connection.
        stream: StreamId,
    },
    /// A source cannot provide a file: access is denied, or the file was removed or changed.
    FileUnavailable {
        /// The file.
        file: FileId,
        /// The source, 0-based.
        source: u32,
    },
    /// Verification of a file found blocks that differ; they are fetched again.
    VerificationFailed {
        /// The file.
        file: FileId,
        /// The blocks that differ.
        blocks: RangeSet,
        /// The source that verified the file, 0-based.
        source: u32,
    },
    /// A file was verified and committed.
    FileFinished {
        /// The file.
        file: FileId,
    },
    /// The number of connections changed. Missing ones are opened; excess ones stay open, or are closed if their requests
    /// would take long.
    StreamCountChanged {
        /// Number of connections; at least 1.
        count: u32,
    },
    /// Time has passed.
    Tick,
}

/// An action that the driver of a session carries out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionAction {
    /// Open a connection.
    OpenStream {
        /// The connection.
        stream: StreamId,
        /// Its source, 0-based.
        source: u32,
    },
    /// Close an excess connection.
    CloseStream {
        /// The connection.
        stream: StreamId,
    },
    /// Request blocks over a connection.
    RequestBlocks {
        /// The connection.
        stream: StreamId,
        /// Number of the request.
        request: RequestId,
        /// The same blocks were already requested over this connection.
        is_prefetched: bool,
        /// The blocks, in this order.
        ranges: Vec<BlockRange>,
    },
    /// Verify and commit a file, all blocks of which are written. Files of one block are finished as they arrive.
    VerifyFile {
        /// The file.
        file: FileId,
        /// Sources that can verify it; the first that responds is used.
        sources: SourceSet,
    },
    /// Fail a file: a block was damaged too often, or no source has the file any more.
    FailFile {
        /// The file.
        file: FileId,
    },
    /// End: every file is finished or failed.
    Done,
    /// End: no data arrived within the idle timeout.
    FailWithTimeout,
    /// End: everything that could be written after [`SessionEvent::WriteFailed`] is written.
    StopAfterWriteFailure,
}
