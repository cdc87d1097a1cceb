//! The end that packs: a file in one state of it becomes pieces, and the BLAKE3 of its bytes.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use godwit_formats::bgzf::block_length;

use super::pieces::{Last, PIECE_BYTES, Piece};
use super::references::Loaded;
use super::remade::{Shared, TextReader, Unsuited};
use crate::delta::{DeltaError, PackOptions, pack};
use crate::error::TransferError;
use crate::manifest::{open_for_reading, version_of};

/// Bytes that are read at once.
const BUFFER_BYTES: usize = 1 << 20;
/// Bytes by which BGZF, gzip and FASTA are told apart.
const HEAD_BYTES: u64 = 18;
/// First bytes of gzip and BGZF.
const GZIP: [u8; 2] = [0x1F, 0x8B];

/// A file that is to be packed.
pub(crate) struct Packing {
    pub(crate) path: PathBuf,
    /// Its state, as [`Entry::version`](crate::manifest::Entry::version) says it.
    pub(crate) version: u64,
    pub(crate) loaded: Arc<Loaded>,
    pub(crate) threads: usize,
    /// Set where nobody wants it any more.
    pub(crate) stop: Arc<AtomicBool>,
    /// Counts bytes of the file.
    pub(crate) done_bytes: Arc<AtomicU64>,
}

/// What goes with the bytes of a file as they are read.
struct Hashed {
    file: File,
    hasher: blake3::Hasher,
    bytes: u64,
    done_bytes: Arc<AtomicU64>,
}

impl Read for Hashed {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(out)?;
        self.hasher.update(&out[..read]);
        self.bytes += read as u64;
        self.done_bytes.store(self.bytes, Ordering::Relaxed);
        Ok(read)
    }
}

/// Gives pieces as the packed file grows.
struct Given<'g> {
    give: &'g mut dyn FnMut(Piece) -> bool,
    packed: Vec<u8>,
    making: Shared<Vec<u8>>,
}

impl Given<'_> {
    fn give(&mut self, last: Option<Last>) -> io::Result<()> {
        let (packed, making) = (std::mem::take(&mut self.packed), std::mem::take(&mut *self.making.borrow_mut()));
        let taken = (self.give)(Piece { packed, making, last });
        if taken { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    }
}

impl Write for Given<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.packed.extend_from_slice(bytes);
        if self.packed.len() >= PIECE_BYTES {
            self.give(None)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Packing {
    /// Packs it; `give` takes pieces, and says whether more are wanted. The last one says what became of it.
    ///
    /// # Errors
    /// [`TransferError::Changed`], [`TransferError::File`], [`TransferError::Packing`]; [`TransferError::Interrupted`] where nobody wants it.
    pub(crate) fn run(&self, give: &mut dyn FnMut(Piece) -> bool) -> Result<(), TransferError> {
        let (file, metadata) = open_for_reading(&self.path)?;
        let changed = || TransferError::Changed { place: self.path.display().to_string() };
        if version_of(&metadata) != self.version {
            return Err(changed());
        }
        let read_failed = |error| TransferError::file("read", &self.path)(error);
        let done_bytes = self.done_bytes.clone();
        let hashed = Hashed { file, hasher: blake3::Hasher::new(), bytes: 0, done_bytes };
        let mut input = BufReader::with_capacity(BUFFER_BYTES, hashed);
        let mut head = Vec::new();
        Read::by_ref(&mut input).take(HEAD_BYTES).read_to_end(&mut head).map_err(read_failed)?;
        let is_bgzf = matches!(block_length(&head), Ok(Some(_)));
        let making: Shared<Vec<u8>> = Rc::default();
        let mut out = Given { give, packed: Vec::new(), making: Rc::clone(&making) };
        let last = match head.first() {
            Some(b'>') => self.pack(&mut io::Cursor::new(head).chain(&mut input), &mut out)?,
            _ if is_bgzf => {
                let raw = io::Cursor::new(head).chain(&mut input);
                self.pack(&mut TextReader::new(raw, self.threads, making), &mut out)?
            }
            _ if head.starts_with(&GZIP) => {
                Some("it is gzip, whose bytes cannot be made again; bgzip makes files of which they can".to_owned())
            }
            _ => Some("it is no FASTA".to_owned()),
        };
        let Hashed { file, hasher, bytes, .. } = input.into_inner();
        let last = match last {
            Some(why) => Last::Unsuited { why },
            None => Last::Whole { bytes, blake3: hasher.finalize().to_hex().to_string() },
        };
        let metadata = file.metadata().map_err(read_failed)?;
        if version_of(&metadata) != self.version || matches!(last, Last::Whole { bytes, .. } if bytes != metadata.len())
        {
            return Err(changed());
        }
        out.give(Some(last)).map_err(|_| TransferError::Interrupted)
    }

    /// Packs text; why it is better sent as it is, where it is.
    fn pack(&self, text: &mut dyn Read, out: &mut Given) -> Result<Option<String>, TransferError> {
        let place = || self.path.display().to_string();
        let failed = |source| TransferError::Packing { place: place(), source };
        let anchors = self.loaded.anchors().map_err(failed)?;
        let options = PackOptions { threads: self.threads, quick: true, ..PackOptions::default() };
        match pack(text, out, &self.loaded.reference, anchors, &options, &self.stop) {
            Ok(_) => Ok(None),
            Err(DeltaError::Cancelled) => Err(TransferError::Interrupted),
            Err(DeltaError::Stream { source, .. }) if source.kind() == io::ErrorKind::BrokenPipe => {
                Err(TransferError::Interrupted)
            }
            Err(DeltaError::Stream { source, .. }) => {
                match source.get_ref().and_then(|inner| inner.downcast_ref::<Unsuited>()) {
                    Some(unsuited) => Ok(Some(unsuited.why.to_owned())),
                    None => Err(TransferError::File { doing: "read", path: self.path.clone(), source }),
                }
            }
            Err(source) => Err(failed(source)),
        }
    }
}
