//! The packing end of a delta copy: emits a file as packed messages, then the BLAKE3 of its bytes.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use godwit_delta::bgzf_recompression::{BgzfTextReader, SharedCell, UnsuitableFile};
use godwit_delta::{DeltaError, LoadedReference, PackOptions, pack};
use godwit_io::bgzf::{GZIP_MAGIC, block_length};

use super::delta_message::{DeltaMessage, DeltaTrailer, MESSAGE_BYTES};
use crate::error::TransferError;
use crate::file_listing::{file_version, open_for_reading};

/// Size of the buffer for reads, bytes.
const READ_BUFFER_BYTES: usize = 1 << 20;
/// Number of bytes that are read to recognize BGZF, gzip or FASTA.
const FORMAT_PROBE_BYTES: u64 = 18;

/// A file that is to be packed and sent.
pub(crate) struct DeltaSender {
    pub(crate) path: PathBuf,
    /// Expected version of the file; see [`Entry::version`](crate::file_listing::Entry::version).
    pub(crate) version: u64,
    pub(crate) reference: Arc<LoadedReference>,
    pub(crate) threads: usize,
    /// Set by the caller to cancel packing.
    pub(crate) cancelled: Arc<AtomicBool>,
    /// Number of bytes of the file that were read; updated while packing.
    pub(crate) processed_bytes: Arc<AtomicU64>,
}

/// A reader of a file that computes the BLAKE3 of its bytes.
struct HashingReader {
    file: File,
    hasher: blake3::Hasher,
    bytes: u64,
    processed_bytes: Arc<AtomicU64>,
}

impl Read for HashingReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(out)?;
        self.hasher.update(&out[..read]);
        self.bytes += read as u64;
        self.processed_bytes.store(self.bytes, Ordering::Relaxed);
        Ok(read)
    }
}

/// A writer of the packed file that emits its bytes as messages.
struct MessageWriter<'g> {
    emit: &'g mut dyn FnMut(DeltaMessage) -> bool,
    packed: Vec<u8>,
    block_specs: SharedCell<Vec<u8>>,
}

impl MessageWriter<'_> {
    fn emit_message(&mut self, trailer: Option<DeltaTrailer>) -> io::Result<()> {
        let (packed, block_specs) =
            (std::mem::take(&mut self.packed), std::mem::take(&mut *self.block_specs.borrow_mut()));
        let taken = (self.emit)(DeltaMessage { packed, block_specs, trailer });
        if taken { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    }
}

impl Write for MessageWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.packed.extend_from_slice(bytes);
        if self.packed.len() >= MESSAGE_BYTES {
            self.emit_message(None)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl DeltaSender {
    /// Packs the file. Passes the messages to `emit`, which returns false to stop. The last message has the trailer.
    ///
    /// # Errors
    /// [`TransferError::SourceChanged`] if the file has another version, [`TransferError::Io`] if it cannot be read,
    /// [`TransferError::Delta`] if it cannot be packed; [`TransferError::Interrupted`] if `emit` returns false or
    /// `cancelled` is set.
    pub(crate) fn send_file(&self, emit: &mut dyn FnMut(DeltaMessage) -> bool) -> Result<(), TransferError> {
        let (file, metadata) = open_for_reading(&self.path)?;
        let changed = || TransferError::SourceChanged { location: self.path.display().to_string() };
        if file_version(&metadata) != self.version {
            return Err(changed());
        }
        let read_failed = |error| TransferError::io_error("read", &self.path)(error);
        let processed_bytes = self.processed_bytes.clone();
        let hashed = HashingReader { file, hasher: blake3::Hasher::new(), bytes: 0, processed_bytes };
        let mut input = BufReader::with_capacity(READ_BUFFER_BYTES, hashed);
        let mut head = Vec::new();
        Read::by_ref(&mut input).take(FORMAT_PROBE_BYTES).read_to_end(&mut head).map_err(read_failed)?;
        let is_bgzf = matches!(block_length(&head), Ok(Some(_)));
        let making: SharedCell<Vec<u8>> = Rc::default();
        let mut out = MessageWriter { emit, packed: Vec::new(), block_specs: Rc::clone(&making) };
        let last = match head.first() {
            Some(b'>') => self.pack_text(&mut io::Cursor::new(head).chain(&mut input), &mut out)?,
            _ if is_bgzf => {
                let raw = io::Cursor::new(head).chain(&mut input);
                self.pack_text(&mut BgzfTextReader::new(raw, self.threads, making), &mut out)?
            }
            _ if head.starts_with(&GZIP_MAGIC) => {
                Some("it is gzip, whose exact bytes could not be restored; compress it with bgzip".to_owned())
            }
            _ => Some("it is not a FASTA file".to_owned()),
        };
        let HashingReader { file, hasher, bytes, .. } = input.into_inner();
        let last = match last {
            Some(reason) => DeltaTrailer::Unsuitable { reason },
            None => DeltaTrailer::Complete { bytes, blake3: hasher.finalize().to_hex().to_string() },
        };
        let metadata = file.metadata().map_err(read_failed)?;
        if file_version(&metadata) != self.version
            || matches!(last, DeltaTrailer::Complete { bytes, .. } if bytes != metadata.len())
        {
            return Err(changed());
        }
        out.emit_message(Some(last)).map_err(|_| TransferError::Interrupted)
    }

    /// Packs a text; returns the reason if the file is unsuitable for delta compression.
    fn pack_text(&self, text: &mut dyn Read, out: &mut MessageWriter) -> Result<Option<String>, TransferError> {
        let place = || self.path.display().to_string();
        let failed = |source| TransferError::Delta { location: place(), source };
        let anchors = self.reference.kmer_index().map_err(failed)?;
        let options = PackOptions { threads: self.threads, fast: true, ..PackOptions::default() };
        match pack(text, out, &self.reference.reference, anchors, &options, &self.cancelled) {
            Ok(_) => Ok(None),
            Err(DeltaError::Cancelled) => Err(TransferError::Interrupted),
            Err(DeltaError::Stream { source, .. }) if source.kind() == io::ErrorKind::BrokenPipe => {
                Err(TransferError::Interrupted)
            }
            Err(DeltaError::Stream { source, .. }) => {
                match source.get_ref().and_then(|inner| inner.downcast_ref::<UnsuitableFile>()) {
                    Some(unsuited) => Ok(Some(unsuited.reason.to_owned())),
                    None => Err(TransferError::Io { operation: "read", path: self.path.clone(), source }),
                }
            }
            Err(source) => Err(failed(source)),
        }
    }
}
