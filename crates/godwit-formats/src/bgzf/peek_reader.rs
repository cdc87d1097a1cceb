//! The bytes of a file as they are on disk, with look-ahead, counted for progress.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::access_point::ResumePoint;
use super::error::InputError;
use crate::crypt4gh::open_if_encrypted;
use crate::random_access::SequentialReader;

/// Bytes per read call: four times the largest block.
const BUFFER_BYTES: usize = 256 << 10;

/// State that the reader of a file shares with its threads.
#[derive(Debug, Default)]
pub(super) struct ReadAheadState {
    /// Bytes read from disk.
    pub(super) compressed_bytes_read: AtomicU64,
    /// Bytes consumed, which lags behind the bytes read.
    pub(super) consumed_bytes: AtomicU64,
    /// Set when the reader accepts no further text.
    pub(super) stopped: AtomicBool,
    /// Set before the first text of a compressed file is sent.
    pub(super) compressed: AtomicBool,
    /// BLAKE3 of the bytes read from the start of the file.
    hasher: Mutex<blake3::Hasher>,
    /// BLAKE3 of the file as it is on disk, set when its end was read.
    pub(super) checksum: OnceLock<blake3::Hash>,
    /// Set before the first text of a file that must be BGZF throughout is sent.
    pub(super) bgzf: AtomicBool,
}

impl ReadAheadState {
    /// Returns the BLAKE3 of the bytes read so far, which exceed the bytes that any consumer has seen.
    pub(super) fn hasher(&self) -> MutexGuard<'_, blake3::Hasher> {
        self.hasher.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The input, read forward.
#[derive(Debug)]
pub(crate) enum Input {
    /// A file, or a pipe.
    File(File),
    /// A source with random access, read in order.
    Sequential(SequentialReader),
}

impl Input {
    /// Opens a file; decrypts it where it is encrypted.
    pub(super) fn open_decrypted(path: &Path, file: File) -> Result<Self, InputError> {
        let failed = |error: io::Error| match error.downcast() {
            Ok(error) => InputError::Encrypted(error),
            Err(error) => InputError::Open(error),
        };
        let encrypted = open_if_encrypted(path, &file).map_err(failed)?;
        Ok(encrypted.map_or(Self::File(file), |inner| Self::Sequential(SequentialReader::new(inner))))
    }

    /// Reports whether the input is the content of an encrypted file.
    pub(super) fn is_decrypted(&self) -> bool {
        matches!(self, Self::Sequential(input) if input.is_decrypted())
    }

    /// Returns the length, bytes; `None` for a pipe.
    pub(super) fn byte_len(&self) -> io::Result<Option<u64>> {
        match self {
            Self::File(file) => {
                let metadata = file.metadata()?;
                Ok(metadata.is_file().then_some(metadata.len()))
            }
            Self::Sequential(input) => Ok(Some(input.byte_len())),
        }
    }
}

impl Read for Input {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::File(file) => file.read(space),
            Self::Sequential(input) => input.read(space),
        }
    }
}

impl Seek for Input {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match self {
            Self::File(file) => file.seek(to),
            Self::Sequential(input) => input.seek(to),
        }
    }
}

/// A reader that only moves forward, so that pipes work.
#[derive(Debug)]
pub(super) struct PeekReader {
    input: Input,
    buffer: Vec<u8>,
    buffer_start: usize,
    buffer_end: usize,
    /// Offset in the file of `buffer[start]`.
    offset: u64,
    /// Remaining bytes that were hashed before.
    already_hashed_bytes: u64,
    shared: Arc<ReadAheadState>,
}

impl PeekReader {
    pub(super) fn new(input: Input, shared: Arc<ReadAheadState>) -> Self {
        Self {
            input,
            buffer: vec![0; BUFFER_BYTES],
            buffer_start: 0,
            buffer_end: 0,
            offset: 0,
            already_hashed_bytes: 0,
            shared,
        }
    }

    /// Moves to an access point of a regular file, after verifying the bytes before the resume point.
    ///
    /// # Errors
    /// [`InputError::Changed`] where they differ.
    pub(super) fn resume_at(&mut self, resume_point: &ResumePoint) -> Result<(), InputError> {
        let mut missing = resume_point.hashed_bytes;
        while missing > 0 {
            let space = missing.min(BUFFER_BYTES as u64) as usize;
            match read_and_hash(
                &mut self.input,
                &mut self.buffer[..space],
                &mut self.already_hashed_bytes,
                &self.shared,
            )? {
                0 => return Err(InputError::Changed),
                count => missing -= count as u64,
            }
        }
        if self.shared.hasher().finalize().to_hex().as_str() != resume_point.blake3 {
            return Err(InputError::Changed);
        }
        let offset = resume_point.access_point.offset;
        self.input.seek(SeekFrom::Start(offset)).map_err(|source| InputError::Read { offset, source })?;
        self.already_hashed_bytes = resume_point.hashed_bytes - offset;
        self.advance_offset(offset);
        Ok(())
    }

    /// Returns the offset in the file of the next byte.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Marks the file as compressed: offsets in the text are not offsets in the file.
    pub(super) fn mark_compressed(&self) {
        self.shared.compressed.store(true, Ordering::Relaxed);
    }

    /// Marks the file as BGZF throughout.
    pub(super) fn mark_bgzf(&self) {
        self.shared.bgzf.store(true, Ordering::Relaxed);
    }

    /// Returns the bytes ahead: at least `bytes` (at most [`BUFFER_BYTES`]) of them, fewer only at the end of the file.
    pub(super) fn peek(&mut self, bytes: usize) -> Result<&[u8], InputError> {
        debug_assert!(bytes <= BUFFER_BYTES);
        if self.buffer_end - self.buffer_start < bytes {
            self.buffer.copy_within(self.buffer_start..self.buffer_end, 0);
            self.buffer_end -= self.buffer_start;
            self.buffer_start = 0;
            while self.buffer_end < bytes {
                match read_and_hash(
                    &mut self.input,
                    &mut self.buffer[self.buffer_end..],
                    &mut self.already_hashed_bytes,
                    &self.shared,
                )? {
                    0 => break,
                    count => self.buffer_end += count,
                }
            }
        }
        Ok(&self.buffer[self.buffer_start..self.buffer_end])
    }

    /// Consumes bytes that were peeked.
    pub(super) fn consume(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.buffer_end - self.buffer_start);
        self.buffer_start += bytes;
        self.advance_offset(bytes as u64);
    }

    fn advance_offset(&mut self, bytes: u64) {
        self.offset += bytes;
        self.shared.consumed_bytes.store(self.offset, Ordering::Relaxed);
    }

    /// Moves bytes into `space`; returns 0 at the end of the file.
    pub(super) fn read(&mut self, space: &mut [u8]) -> Result<usize, InputError> {
        let ahead = &self.buffer[self.buffer_start..self.buffer_end];
        if ahead.is_empty() {
            let count = read_and_hash(&mut self.input, space, &mut self.already_hashed_bytes, &self.shared)?;
            self.advance_offset(count as u64);
            return Ok(count);
        }
        let count = ahead.len().min(space.len());
        space[..count].copy_from_slice(&ahead[..count]);
        self.consume(count);
        Ok(count)
    }
}

/// Reads the next bytes, and hashes those that were not hashed before.
fn read_and_hash(
    file: &mut Input,
    space: &mut [u8],
    hashed_ahead: &mut u64,
    shared: &ReadAheadState,
) -> Result<usize, InputError> {
    loop {
        if shared.stopped.load(Ordering::Relaxed) {
            return Err(InputError::Stopped);
        }
        match file.read(space) {
            Ok(count) => {
                let already_hashed = count.min(usize::try_from(*hashed_ahead).unwrap_or(count));
                *hashed_ahead -= already_hashed as u64;
                let mut hasher = shared.hasher();
                hasher.update(&space[already_hashed..count]);
                if count == 0 && !space.is_empty() && *hashed_ahead == 0 {
                    shared.checksum.get_or_init(|| hasher.finalize());
                }
                shared.compressed_bytes_read.fetch_add((count - already_hashed) as u64, Ordering::Relaxed);
                return Ok(count);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(source) => {
                return Err(InputError::from_read_error(shared.compressed_bytes_read.load(Ordering::Relaxed), source));
            }
        }
    }
}
