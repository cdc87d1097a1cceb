//! The bytes of a file as they are on disk, with a look ahead, counted for progress.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::error::Fault;
use super::point::Start;
use crate::crypt4gh::opened_if_encrypted;
use crate::random_access::FrontToBack;

/// Bytes asked of the system at a time: four times the largest block.
const BUFFER_BYTES: usize = 256 << 10;

/// What the reader of a file and its threads share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Bytes read from disk.
    pub(super) bytes_read: AtomicU64,
    /// Bytes that were looked at and passed over, which runs behind what was read.
    pub(super) offset: AtomicU64,
    /// Set when nobody will take further text.
    pub(super) stopped: AtomicBool,
    /// Set before the first text of a compressed file is handed over.
    pub(super) compressed: AtomicBool,
    /// BLAKE3 of what was read from the start of the file on.
    hasher: Mutex<blake3::Hasher>,
    /// BLAKE3 of the file as it is on disk, set when its end was read.
    pub(super) checksum: OnceLock<blake3::Hash>,
    /// Set before the first text of a file that is read as BGZF and nothing else is handed over.
    pub(super) bgzf: AtomicBool,
}

impl Shared {
    /// BLAKE3 of what was read so far from the start of the file on, which is more than anybody has seen of it.
    pub(super) fn hasher(&self) -> MutexGuard<'_, blake3::Hasher> {
        self.hasher.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is read forward.
#[derive(Debug)]
pub(crate) enum Input {
    /// A file, or a pipe.
    File(File),
    /// What lies anywhere.
    Anywhere(FrontToBack),
}

impl Input {
    /// A file as it is, or what is in it where it is encrypted.
    pub(super) fn of(path: &Path, file: File) -> Result<Self, Fault> {
        let failed = |error: io::Error| match error.downcast() {
            Ok(error) => Fault::Encrypted(error),
            Err(error) => Fault::Open(error),
        };
        let encrypted = opened_if_encrypted(path, &file).map_err(failed)?;
        Ok(encrypted.map_or(Self::File(file), |inner| Self::Anywhere(FrontToBack::new(inner))))
    }

    /// Whether it is what is in an encrypted file.
    pub(super) fn is_decrypted(&self) -> bool {
        matches!(self, Self::Anywhere(input) if input.is_decrypted())
    }

    /// Its length, bytes; `None` where it cannot be read again.
    pub(super) fn bytes(&self) -> io::Result<Option<u64>> {
        match self {
            Self::File(file) => {
                let metadata = file.metadata()?;
                Ok(metadata.is_file().then_some(metadata.len()))
            }
            Self::Anywhere(input) => Ok(Some(input.bytes())),
        }
    }
}

impl Read for Input {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::File(file) => file.read(space),
            Self::Anywhere(input) => input.read(space),
        }
    }
}

impl Seek for Input {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match self {
            Self::File(file) => file.seek(to),
            Self::Anywhere(input) => input.seek(to),
        }
    }
}

/// A file read forward only, so that pipes work.
#[derive(Debug)]
pub(super) struct Source {
    file: Input,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Offset in the file of `buffer[start]`.
    offset: u64,
    /// Bytes still to come that were hashed before.
    hashed_ahead: u64,
    shared: Arc<Shared>,
}

impl Source {
    pub(super) fn new(file: Input, shared: Arc<Shared>) -> Self {
        Self { file, buffer: vec![0; BUFFER_BYTES], start: 0, end: 0, offset: 0, hashed_ahead: 0, shared }
    }

    /// Goes to a point of a regular file, once all that lies before the start is found to be what it was.
    ///
    /// # Errors
    /// [`Fault::Changed`] where it is not.
    pub(super) fn go_to(&mut self, start: &Start) -> Result<(), Fault> {
        let mut missing = start.hashed_bytes;
        while missing > 0 {
            let space = missing.min(BUFFER_BYTES as u64) as usize;
            match read(&mut self.file, &mut self.buffer[..space], &mut self.hashed_ahead, &self.shared)? {
                0 => return Err(Fault::Changed),
                count => missing -= count as u64,
            }
        }
        if self.shared.hasher().finalize().to_hex().as_str() != start.hash {
            return Err(Fault::Changed);
        }
        let offset = start.point.offset;
        self.file.seek(SeekFrom::Start(offset)).map_err(|source| Fault::Read { offset, source })?;
        self.hashed_ahead = start.hashed_bytes - offset;
        self.pass(offset);
        Ok(())
    }

    /// Offset in the file of the next byte.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Tells the reader that offsets in the text are none in the file.
    pub(super) fn mark_compressed(&self) {
        self.shared.compressed.store(true, Ordering::Relaxed);
    }

    /// Tells the reader that all of the file has to be BGZF.
    pub(super) fn mark_bgzf(&self) {
        self.shared.bgzf.store(true, Ordering::Relaxed);
    }

    /// The bytes ahead: at least `bytes` (at most [`BUFFER_BYTES`]) of them, fewer only at the end of the file.
    pub(super) fn peek(&mut self, bytes: usize) -> Result<&[u8], Fault> {
        debug_assert!(bytes <= BUFFER_BYTES);
        if self.end - self.start < bytes {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            while self.end < bytes {
                match read(&mut self.file, &mut self.buffer[self.end..], &mut self.hashed_ahead, &self.shared)? {
                    0 => break,
                    count => self.end += count,
                }
            }
        }
        Ok(&self.buffer[self.start..self.end])
    }

    /// Passes over bytes that were looked at.
    pub(super) fn consume(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.end - self.start);
        self.start += bytes;
        self.pass(bytes as u64);
    }

    fn pass(&mut self, bytes: u64) {
        self.offset += bytes;
        self.shared.offset.store(self.offset, Ordering::Relaxed);
    }

    /// Moves bytes into `space`; 0 at the end of the file.
    pub(super) fn read(&mut self, space: &mut [u8]) -> Result<usize, Fault> {
        let ahead = &self.buffer[self.start..self.end];
        if ahead.is_empty() {
            let count = read(&mut self.file, space, &mut self.hashed_ahead, &self.shared)?;
            self.pass(count as u64);
            return Ok(count);
        }
        let count = ahead.len().min(space.len());
        space[..count].copy_from_slice(&ahead[..count]);
        self.consume(count);
        Ok(count)
    }
}

/// Reads what comes next, and hashes it unless it was before.
fn read(file: &mut Input, space: &mut [u8], hashed_ahead: &mut u64, shared: &Shared) -> Result<usize, Fault> {
    loop {
        if shared.stopped.load(Ordering::Relaxed) {
            return Err(Fault::Stopped);
        }
        match file.read(space) {
            Ok(count) => {
                let known = count.min(usize::try_from(*hashed_ahead).unwrap_or(count));
                *hashed_ahead -= known as u64;
                let mut hasher = shared.hasher();
                hasher.update(&space[known..count]);
                if count == 0 && !space.is_empty() && *hashed_ahead == 0 {
                    shared.checksum.get_or_init(|| hasher.finalize());
                }
                shared.bytes_read.fetch_add((count - known) as u64, Ordering::Relaxed);
                return Ok(count);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(source) => return Err(Fault::of_reading(shared.bytes_read.load(Ordering::Relaxed), source)),
        }
    }
}
