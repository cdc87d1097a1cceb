//! What a session is told, and what it answers.

use std::time::Duration;

use crate::ranges::RangeSet;

/// A file of the transfer, by its 0-based place in the manifest.
pub type FileId = u32;
/// A connection.
pub type StreamId = u32;
/// What a stream was asked for.
pub type RequestId = u64;

/// Some of the sources of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sources(u64);

impl Sources {
    /// So many sources there may be.
    pub const MOST: u32 = u64::BITS;

    /// One source, 0-based.
    pub fn only(source: u32) -> Self {
        Self(1_u64.checked_shl(source).unwrap_or_default())
    }

    /// Another one, too.
    pub fn and(self, source: u32) -> Self {
        Self(self.0 | Self::only(source).0)
    }

    /// All but one.
    pub fn without(self, source: u32) -> Self {
        Self(self.0 & !Self::only(source).0)
    }

    /// Whether this source, 0-based, is one of them.
    pub fn has(self, source: u32) -> bool {
        self.0 & Self::only(source).0 != 0
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Each of them, from the first.
    pub fn iter(self) -> impl Iterator<Item = u32> {
        (0..Self::MOST).filter(move |source| self.has(*source))
    }
}

/// How a session works.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// Connections, to begin with.
    pub streams: u32,
    /// Where the same files are to be had; at most [`Sources::MOST`].
    pub sources: u32,
    /// How long what a stream is asked for lasts at the rate that it has, towards the end: what keeps the path full, and no more, so that no
    /// slow stream has work left when the others have none.
    pub horizon: Duration,
    /// Bytes of a request, at most.
    pub request_bytes: u64,
    /// What connections have been asked for already, by their streams.
    pub ahead: Vec<Vec<Span>>,
    /// How long nothing may arrive before the transfer ends.
    pub patience: Duration,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            streams: 8,
            sources: 1,
            horizon: Duration::from_millis(250),
            request_bytes: 16 << 20,
            ahead: Vec::new(),
            patience: Duration::from_secs(900),
        }
    }
}

/// Blocks `[start, end)` of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The file.
    pub file: FileId,
    /// First block, 0-based.
    pub start: u64,
    /// The block after the last one.
    pub end: u64,
}

/// What is to be fetched of a file.
#[derive(Clone, Debug)]
pub struct FileWork {
    /// Its size.
    pub size_bytes: u64,
    /// Its blocks that are not there yet.
    pub missing: RangeSet,
    /// Which sources have it.
    pub sources: Sources,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A connection is made.
    Opened {
        /// Which.
        stream: StreamId,
    },
    /// A block is here, verified and written.
    Arrived {
        /// Over which connection.
        stream: StreamId,
        /// Its file.
        file: FileId,
        /// The block, 0-based.
        block: u64,
    },
    /// A block is here and is not what its hash says.
    Damaged {
        /// Over which connection.
        stream: StreamId,
        /// Its file.
        file: FileId,
        /// The block, 0-based.
        block: u64,
    },
    /// The other end has sent all that it will for a request.
    Ended {
        /// Over which connection.
        stream: StreamId,
        /// The request.
        request: RequestId,
    },
    /// A block cannot be written here: the disk is full, or the like. Nothing more is asked for, but what was asked for may fit.
    Unwritable {
        /// Over which connection it came.
        stream: StreamId,
        /// For which request; all of the connection's where it is not known.
        request: Option<RequestId>,
    },
    /// A connection broke, or could not be made.
    Lost {
        /// Which.
        stream: StreamId,
    },
    /// A file cannot be had of a source: it is refused, gone, or another by now.
    Unavailable {
        /// Which.
        file: FileId,
        /// Of which source, 0-based.
        source: u32,
    },
    /// The source says that blocks of a whole file are others: they are to be fetched again.
    Disproved {
        /// The file.
        file: FileId,
        /// Which blocks.
        blocks: RangeSet,
        /// Which source says so, 0-based.
        source: u32,
    },
    /// A file is proved and has its name.
    Finished {
        /// Which.
        file: FileId,
    },
    /// From now on so many connections are asked for blocks. Those that are missing are made; others are let be, or closed where they would
    /// take long.
    Streams {
        /// How many; at least 1.
        wanted: u32,
    },
    /// Time went on.
    Tick,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Make a connection.
    Open {
        /// Which.
        stream: StreamId,
        /// To which of the sources, 0-based.
        source: u32,
    },
    /// Close a connection: there are enough without it.
    Close {
        /// Which.
        stream: StreamId,
    },
    /// Ask a stream for blocks.
    Ask {
        /// Which.
        stream: StreamId,
        /// The request's name.
        request: RequestId,
        /// Whether it has been asked for these already.
        ahead: bool,
        /// What is asked for, in this order.
        spans: Vec<Span>,
    },
    /// All blocks are here: prove the file and give it its name. Files of one block are finished as they arrive.
    Finish {
        /// Which.
        file: FileId,
        /// Sources that may prove it, the first of them that answers.
        sources: Sources,
    },
    /// A file came damaged too often, or no source has it any more.
    Refuse {
        /// Which.
        file: FileId,
    },
    /// All is done that can be.
    Done,
    /// Nothing came for too long.
    GiveUp,
    /// What could be written is, after [`Event::Unwritable`].
    Stop,
}
