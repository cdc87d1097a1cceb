//! The unpacking end of a delta copy: unpacks to a temporary file and renames it if its bytes match the original.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use godwit_delta::bgzf_recompression::{BgzfBlockWriter, BlockSpec, SharedCell, decode_block_specs};
use godwit_delta::{DeltaError, LoadedReference, unpack};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::delta_message::{DeltaMessage, DeltaTrailer};
use crate::error::TransferError;
use crate::file_listing::Entry;
use crate::file_receiver::{AtomicIncomingFile, FileReceiver};

/// Size of the buffer for writes, bytes.
const WRITE_BUFFER_BYTES: usize = 1 << 20;

/// A file that is to be received and unpacked.
pub(crate) struct DeltaReceiver {
    pub(crate) receiver: Arc<FileReceiver>,
    pub(crate) entry: Entry,
    pub(crate) reference: Arc<LoadedReference>,
    pub(crate) threads: usize,
    /// Set by the caller to cancel unpacking.
    pub(crate) cancelled: Arc<AtomicBool>,
    /// Number of bytes of the file that are unpacked; updated while unpacking.
    pub(crate) processed_bytes: Arc<AtomicU64>,
}

/// The outcome of a delta copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DeltaOutcome {
    /// The file is complete under its final name and has this BLAKE3.
    #[serde(rename = "named")]
    Completed { blake3: String },
    /// The packing end cannot pack the file; the file should be sent without delta compression.
    #[serde(rename = "unsuited")]
    Unsuitable {
        #[serde(rename = "why")]
        reason: String,
    },
    /// The destination already has the complete file, or blocks of it from an interrupted copy.
    #[serde(rename = "here")]
    AlreadyPresent,
}

/// A reader of the packed file from the messages that are received.
struct DeltaInput<'c> {
    messages: &'c mut mpsc::Receiver<DeltaMessage>,
    packed_bytes: io::Cursor<Vec<u8>>,
    block_specs: SharedCell<VecDeque<BlockSpec>>,
    /// True if block specifications were received: the original file is BGZF.
    has_blocks: bool,
    trailer: Option<DeltaTrailer>,
}

impl DeltaInput<'_> {
    /// Receives the next message; returns false after the last one.
    fn receive_message(&mut self) -> io::Result<bool> {
        if self.trailer.is_some() {
            return Ok(false);
        }
        let Some(piece) = self.messages.blocking_recv() else {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the other end closed the stream before the file was complete",
            ));
        };
        if !piece.block_specs.is_empty() {
            self.has_blocks = true;
            let wrong =
                || io::Error::new(io::ErrorKind::InvalidData, "the other end sent invalid sizes of BGZF blocks");
            decode_block_specs(&piece.block_specs, &mut self.block_specs.borrow_mut()).ok_or_else(wrong)?;
        }
        (self.packed_bytes, self.trailer) = (io::Cursor::new(piece.packed), piece.trailer);
        Ok(true)
    }
}

impl Read for DeltaInput<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.packed_bytes.read(out)?;
            if read > 0 || out.is_empty() || !self.receive_message()? {
                return Ok(read);
            }
        }
    }
}

/// A writer to a file that computes the BLAKE3 of the bytes and rejects more than `max_bytes` bytes.
struct HashingWriter<'f> {
    file: BufWriter<&'f File>,
    hasher: blake3::Hasher,
    bytes: u64,
    max_bytes: u64,
    processed_bytes: Arc<AtomicU64>,
}

impl Write for HashingWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes + bytes.len() as u64 > self.max_bytes {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the other end sent more bytes than it announced for the file",
            ));
        }
        self.file.write_all(bytes)?;
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
        self.processed_bytes.store(self.bytes, Ordering::Relaxed);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl DeltaReceiver {
    /// Receives and unpacks the messages of the file. If this fails, the temporary file is removed.
    ///
    /// # Errors
    /// [`TransferError::Damaged`] if the bytes differ from the original, [`TransferError::Delta`] if they cannot be
    /// unpacked, [`TransferError::Io`] if the file cannot be written, [`TransferError::Busy`] if another copy writes
    /// it; [`TransferError::Interrupted`] if the messages end early.
    pub(crate) fn receive_file(
        &self,
        messages: &mut mpsc::Receiver<DeltaMessage>,
    ) -> Result<DeltaOutcome, TransferError> {
        let _operation = self.receiver.start_operation()?;
        let Some(whole) = self.receiver.start_atomic_file(&self.entry)? else {
            return Ok(DeltaOutcome::AlreadyPresent);
        };
        let blocks: SharedCell<VecDeque<BlockSpec>> = Rc::default();
        let packed_bytes = io::Cursor::default();
        let mut coming =
            DeltaInput { messages, packed_bytes, block_specs: blocks.clone(), has_blocks: false, trailer: None };
        let failed = |source: io::Error| self.error_from_io(&whole, source);
        if !coming.receive_message().map_err(failed)? {
            return Err(TransferError::Interrupted);
        }
        if let Some(DeltaTrailer::Unsuitable { reason }) = coming.trailer {
            return Ok(DeltaOutcome::Unsuitable { reason });
        }
        let hashed = HashingWriter {
            file: BufWriter::with_capacity(WRITE_BUFFER_BYTES, whole.file()),
            hasher: blake3::Hasher::new(),
            bytes: 0,
            max_bytes: self.entry.size_bytes,
            processed_bytes: self.processed_bytes.clone(),
        };
        let mut hashed = if coming.has_blocks {
            let mut out = BgzfBlockWriter::new(hashed, self.threads, blocks);
            self.unpack_into(&mut coming, &mut out, &whole)?;
            out.finish().map_err(failed)?
        } else {
            let mut hashed = hashed;
            self.unpack_into(&mut coming, &mut hashed, &whole)?;
            hashed
        };
        hashed.flush().map_err(failed)?;
        // The packed file has ended, and only the message with the trailer follows.
        while coming.trailer.is_none() {
            coming.receive_message().map_err(failed)?;
        }
        let (found, bytes) = (hashed.hasher.finalize().to_hex().to_string(), hashed.bytes);
        drop(hashed);
        match coming.trailer {
            Some(DeltaTrailer::Unsuitable { reason: why }) => Ok(DeltaOutcome::Unsuitable { reason: why }),
            Some(DeltaTrailer::Complete { bytes: wanted, blake3 })
                if (wanted, &blake3) == (bytes, &found) && bytes == self.entry.size_bytes =>
            {
                whole.commit(&self.receiver)?;
                Ok(DeltaOutcome::Completed { blake3 })
            }
            _ => Err(TransferError::Damaged { location: whole.target_path().display().to_string() }),
        }
    }

    fn unpack_into(
        &self,
        coming: &mut DeltaInput,
        out: &mut dyn Write,
        whole: &AtomicIncomingFile,
    ) -> Result<(), TransferError> {
        match unpack(coming, out, Some(&self.reference.reference), self.threads, &self.cancelled) {
            Ok(_) => Ok(()),
            Err(DeltaError::Cancelled) => Err(TransferError::Interrupted),
            Err(DeltaError::Stream { source, .. }) => Err(self.error_from_io(whole, source)),
            // If the packed file is truncated, either the packing end found the file unsuitable, or the connection
            // broke.
            Err(DeltaError::Truncated { .. }) if matches!(coming.trailer, Some(DeltaTrailer::Unsuitable { .. })) => {
                Ok(())
            }
            Err(DeltaError::Truncated { .. }) if coming.trailer.is_none() => Err(TransferError::Interrupted),
            Err(source) => Err(TransferError::Delta { location: whole.target_path().display().to_string(), source }),
        }
    }

    fn error_from_io(&self, whole: &AtomicIncomingFile, source: io::Error) -> TransferError {
        let location = whole.target_path().display().to_string();
        match source.kind() {
            io::ErrorKind::UnexpectedEof => TransferError::Interrupted,
            io::ErrorKind::InvalidData => TransferError::Damaged { location },
            _ => TransferError::Io { operation: "write", path: whole.target_path().to_owned(), source },
        }
    }
}
