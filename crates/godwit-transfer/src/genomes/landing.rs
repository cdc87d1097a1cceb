//! The end that unpacks: pieces become a file beside its place, which gets its name when its bytes are those of the original.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::pieces::{Last, Piece};
use super::references::Loaded;
use super::remade::{BlockWriter, Shared, ToMake, read_entries};
use crate::delta::{DeltaError, unpack};
use crate::error::TransferError;
use crate::inbox::{Inbox, Whole};
use crate::manifest::Entry;

/// Bytes that are written at once.
const BUFFER_BYTES: usize = 1 << 20;

/// A file that is to be unpacked.
pub(crate) struct Landing {
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) entry: Entry,
    pub(crate) loaded: Arc<Loaded>,
    pub(crate) threads: usize,
    /// Set where nobody wants it any more.
    pub(crate) stop: Arc<AtomicBool>,
    /// Counts bytes of the file.
    pub(crate) done_bytes: Arc<AtomicU64>,
}

/// What became of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Landed {
    /// It has its name, and this BLAKE3.
    Named { blake3: String },
    /// Its source says that it is better sent as it is.
    Unsuited { why: String },
    /// It is here already, or parts of it are.
    Here,
}

/// The packed file as it comes.
struct Coming<'c> {
    pieces: &'c mut mpsc::Receiver<Piece>,
    packed: io::Cursor<Vec<u8>>,
    blocks: Shared<VecDeque<ToMake>>,
    /// Whether anything was said of blocks.
    has_blocks: bool,
    last: Option<Last>,
}

impl Coming<'_> {
    /// The next piece; false after the last.
    fn next(&mut self) -> io::Result<bool> {
        if self.last.is_some() {
            return Ok(false);
        }
        let Some(piece) = self.pieces.blocking_recv() else {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "what is sent breaks off"));
        };
        if !piece.making.is_empty() {
            self.has_blocks = true;
            let wrong = || io::Error::new(io::ErrorKind::InvalidData, "what is said of its blocks cannot be read");
            read_entries(&piece.making, &mut self.blocks.borrow_mut()).ok_or_else(wrong)?;
        }
        (self.packed, self.last) = (io::Cursor::new(piece.packed), piece.last);
        Ok(true)
    }
}

impl Read for Coming<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.packed.read(out)?;
            if read > 0 || out.is_empty() || !self.next()? {
                return Ok(read);
            }
        }
    }
}

/// Writes to a file, never more than it is to have, and hashes what is written.
struct Hashed<'f> {
    file: BufWriter<&'f File>,
    hasher: blake3::Hasher,
    bytes: u64,
    most_bytes: u64,
    done_bytes: Arc<AtomicU64>,
}

impl Write for Hashed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes + bytes.len() as u64 > self.most_bytes {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it has more bytes than it should"));
        }
        self.file.write_all(bytes)?;
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
        self.done_bytes.store(self.bytes, Ordering::Relaxed);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Landing {
    /// Takes all pieces of the file. Nothing is left of one that does not become whole.
    ///
    /// # Errors
    /// [`TransferError::Damaged`] where it becomes another file; [`TransferError::Packing`], [`TransferError::File`], [`TransferError::Busy`];
    /// [`TransferError::Interrupted`] where nothing more comes.
    pub(crate) fn run(&self, pieces: &mut mpsc::Receiver<Piece>) -> Result<Landed, TransferError> {
        let _operation = self.inbox.operation()?;
        let Some(whole) = self.inbox.begin_whole(&self.entry)? else { return Ok(Landed::Here) };
        let blocks: Shared<VecDeque<ToMake>> = Rc::default();
        let packed = io::Cursor::default();
        let mut coming = Coming { pieces, packed, blocks: blocks.clone(), has_blocks: false, last: None };
        let failed = |source: io::Error| self.failed(&whole, source);
        if !coming.next().map_err(failed)? {
            return Err(TransferError::Interrupted);
        }
        if let Some(Last::Unsuited { why }) = coming.last {
            return Ok(Landed::Unsuited { why });
        }
        let hashed = Hashed {
            file: BufWriter::with_capacity(BUFFER_BYTES, whole.file()),
            hasher: blake3::Hasher::new(),
            bytes: 0,
            most_bytes: self.entry.size_bytes,
            done_bytes: self.done_bytes.clone(),
        };
        let mut hashed = if coming.has_blocks {
            let mut out = BlockWriter::new(hashed, self.threads, blocks);
            self.unpack(&mut coming, &mut out, &whole)?;
            out.finish().map_err(failed)?
        } else {
            let mut hashed = hashed;
            self.unpack(&mut coming, &mut hashed, &whole)?;
            hashed
        };
        hashed.flush().map_err(failed)?;
        // What was packed ends before what is said of it.
        while coming.last.is_none() {
            coming.next().map_err(failed)?;
        }
        let (found, bytes) = (hashed.hasher.finalize().to_hex().to_string(), hashed.bytes);
        drop(hashed);
        match coming.last {
            Some(Last::Unsuited { why }) => Ok(Landed::Unsuited { why }),
            Some(Last::Whole { bytes: wanted, blake3 })
                if (wanted, &blake3) == (bytes, &found) && bytes == self.entry.size_bytes =>
            {
                whole.name(&self.inbox)?;
                Ok(Landed::Named { blake3 })
            }
            _ => Err(TransferError::Damaged { place: whole.target().display().to_string() }),
        }
    }

    fn unpack(&self, coming: &mut Coming, out: &mut dyn Write, whole: &Whole) -> Result<(), TransferError> {
        match unpack(coming, out, Some(&self.loaded.reference), self.threads, &self.stop) {
            Ok(_) => Ok(()),
            Err(DeltaError::Cancelled) => Err(TransferError::Interrupted),
            Err(DeltaError::Stream { source, .. }) => Err(self.failed(whole, source)),
            // Where the source gives up on its way, what came before is cut off; so it is where the way breaks.
            Err(DeltaError::Truncated { .. }) if matches!(coming.last, Some(Last::Unsuited { .. })) => Ok(()),
            Err(DeltaError::Truncated { .. }) if coming.last.is_none() => Err(TransferError::Interrupted),
            Err(source) => Err(TransferError::Packing { place: whole.target().display().to_string(), source }),
        }
    }

    fn failed(&self, whole: &Whole, source: io::Error) -> TransferError {
        let place = whole.target().display().to_string();
        match source.kind() {
            io::ErrorKind::UnexpectedEof => TransferError::Interrupted,
            io::ErrorKind::InvalidData => TransferError::Damaged { place },
            _ => TransferError::File { doing: "write", path: whole.target().to_owned(), source },
        }
    }
}
