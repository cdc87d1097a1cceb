//! A reader of the bytes of a file as they are on disk. It can look ahead, and it counts and hashes the bytes.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard};

use super::access_point::ResumePoint;
use super::error::InputError;
use crate::crypt4gh::open_if_encrypted;
use crate::random_access::SequentialReader;

/// Bytes per read call: four times the size of the largest BGZF block.
const BUFFER_BYTES: usize = 256 << 10;

/// State that the consumer of a file shares with the threads that read and decompress the file.
#[derive(Debug, Default)]
pub(super) struct ReadAheadState {
    /// Number of compressed bytes read from disk.
    pub(super) compressed_bytes_read: AtomicU64,
    /// Number of compressed bytes that were passed on for decompression; at most the number of bytes read.
    pub(super) consumed_bytes: AtomicU64,
    /// True after the consumer has dropped its reader, so that no further text is needed.
    pub(super) stopped: AtomicBool,
    /// True if the file is compressed; set before the first text is sent.
    pub(super) compressed: AtomicBool,
    /// State of the BLAKE3 hash over the bytes read from the start of the file.
    hasher: Mutex<blake3::Hasher>,
    /// BLAKE3 hash of the whole file as it is on disk, set after the end of the file was read.
    pub(super) checksum: OnceLock<blake3::Hash>,
    /// True if the file may contain only BGZF blocks; set before the first text is sent.
    pub(super) bgzf: AtomicBool,
}

impl ReadAheadState {
    /// Returns the state of the hash over the bytes read so far. The threads read ahead, so these are more bytes than
    /// any consumer has received.
    pub(super) fn hasher(&self) -> MutexGuard<'_, blake3::Hasher> {
        self.hasher.lock()
    }
}

/// The input of a reader that reads from the start to the end.
#[derive(Debug)]
pub(crate) enum Input {
    /// A file or a pipe.
    File(File),
    /// A source with random access that is read sequentially, such as the decrypted content of a file.
    Sequential(SequentialReader),
}

impl Input {
    /// Creates an input from an open file. If the file is encrypted, the input is its decrypted content.
    pub(super) fn open_decrypted(path: &Path, file: File) -> Result<Self, InputError> {
        let failed = |error: io::Error| match error.downcast() {
            Ok(error) => InputError::Encrypted(error),
            Err(error) => InputError::Open(error),
        };
        let encrypted = open_if_encrypted(path, &file).map_err(failed)?;
        Ok(encrypted.map_or(Self::File(file), |inner| Self::Sequential(SequentialReader::new(inner))))
    }

    /// Returns whether the file is encrypted and the input is its decrypted content.
    pub(super) fn is_decrypted(&self) -> bool {
        matches!(self, Self::Sequential(input) if input.is_decrypted())
    }

    /// Returns the length of the input in bytes, or `None` for a pipe.
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

/// A reader that looks ahead in a buffer instead of seeking back, so that it can read pipes. Only
/// [`PeekReader::resume_at`] seeks.
#[derive(Debug)]
pub(super) struct PeekReader {
    input: Input,
    buffer: Vec<u8>,
    buffer_start: usize,
    buffer_end: usize,
    /// Offset in the file of the byte at `buffer_start`.
    offset: u64,
    /// Number of next bytes to be read that are already in the hash.
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

    /// Seeks to the access point of `resume_point` in a regular file, after comparing the hash of the bytes at the
    /// start of the file.
    ///
    /// # Errors
    /// [`InputError::Changed`] if the hash differs.
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

    /// Returns the offset in the file of the next byte to consume.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Marks the file as compressed, which means that offsets in the text are not offsets in the file.
    pub(super) fn mark_compressed(&self) {
        self.shared.compressed.store(true, Ordering::Relaxed);
    }

    /// Marks the file as one that may contain only BGZF blocks.
    pub(super) fn mark_bgzf(&self) {
        self.shared.bgzf.store(true, Ordering::Relaxed);
    }

    /// Returns the next bytes without consuming them: at least `bytes` of them (which is at most [`BUFFER_BYTES`]), or
    /// fewer at the end of the file.
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

    /// Consumes `bytes` bytes that [`PeekReader::peek`] has returned.
    pub(super) fn consume(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.buffer_end - self.buffer_start);
        self.buffer_start += bytes;
        self.advance_offset(bytes as u64);
    }

    fn advance_offset(&mut self, bytes: u64) {
        self.offset += bytes;
        self.shared.consumed_bytes.store(self.offset, Ordering::Relaxed);
    }

    /// Consumes the next bytes and copies them into `space`. Returns their number, which is 0 at the end of the file.
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

/// Reads the next bytes, and adds those to the hash that are not in it already.
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
