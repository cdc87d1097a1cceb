//! Reads and hashes blocks of files at the sending end, and verifies that the files do not change during the copy.

use std::collections::HashMap;
use std::fs::File;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;
use parking_lot::Mutex;
use rustix::fs::{Advice, fadvise};

use crate::copy_protocol::{BLOCK_SCHEMA, OutgoingBlock, compress_block, encode_blocks};
use crate::error::TransferError;
use crate::file_listing::{file_version, open_for_reading};
use godwit_transfer_session::blake3_tree::{BLOCK_BYTES, BlockHash, block_byte_range, block_count, hash_block};

/// Largest size of a batch that contains several blocks, bytes.
pub(crate) const MAX_BATCH_BYTES: u64 = 1 << 20;
/// Number of bytes that the disk reads in advance of a reader. The read-ahead of the kernel, 128 KiB by default, begins
/// anew with each range, because each range opens its file.
const READ_AHEAD_BYTES: u64 = 4 << 20;
/// Largest number of files whose block hashes are cached. Memory: 128 bytes of hashes for each MiB of a file.
const MAX_CACHED_FILES: usize = 256;

/// Hashes of the blocks of a file by block index; `None` for blocks that were not hashed yet.
type SharedBlockHashes = Arc<Mutex<Vec<Option<BlockHash>>>>;

/// A cache of the hashes of blocks that were read, so that verification does not read the files again.
#[derive(Debug, Default)]
pub(crate) struct BlockHashCache {
    files: Mutex<HashMap<(PathBuf, u64), SharedBlockHashes>>,
}

impl BlockHashCache {
    fn file_hashes(&self, path: &Path, version: u64, size_bytes: u64) -> SharedBlockHashes {
        let mut files = self.files.lock();
        let key = (path.to_owned(), version);
        if !files.contains_key(&key) && files.len() >= MAX_CACHED_FILES {
            // Remove the cached hashes of files that no reader uses any more.
            files.retain(|_, hashes| Arc::strong_count(hashes) > 1);
        }
        let none = || Arc::new(Mutex::new(vec![None; block_count(size_bytes) as usize]));
        files.entry(key).or_insert_with(none).clone()
    }

    /// Returns the hashes of all blocks of a file; reads the blocks whose hashes are not in the cache.
    ///
    /// # Errors
    /// [`TransferError::SourceChanged`] if the file has changed; [`TransferError::Io`] if the file cannot be read.
    pub(crate) fn block_hashes(&self, path: &Path, version: u64) -> Result<Vec<BlockHash>, TransferError> {
        let open = SourceFile::open(path, version)?;
        let known = self.file_hashes(path, version, open.size_bytes);
        let mut data = Vec::new();
        let mut hashes = Vec::new();
        for block in 0..block_count(open.size_bytes) {
            let found = known.lock()[block as usize];
            hashes.push(match found {
                Some(hash) => hash,
                None => {
                    data.clear();
                    open.append_block(block, &mut data)?;
                    let hash = hash_block(&data, block, open.size_bytes);
                    known.lock()[block as usize] = Some(hash);
                    hash
                }
            });
        }
        open.check_unchanged()?;
        Ok(hashes)
    }
}

/// An open source file whose version was verified when it was opened.
struct SourceFile {
    path: PathBuf,
    file: File,
    version: u64,
    size_bytes: u64,
    /// End of the bytes that the kernel was advised to read in advance.
    advised_end: u64,
}

impl SourceFile {
    fn open(path: &Path, version: u64) -> Result<Self, TransferError> {
        let (file, metadata) = open_for_reading(path)?;
        let size_bytes = metadata.len();
        let open = Self { path: path.to_owned(), file, version, size_bytes, advised_end: 0 };
        if file_version(&metadata) == version { Ok(open) } else { Err(open.changed_error()) }
    }

    fn changed_error(&self) -> TransferError {
        TransferError::SourceChanged { location: self.path.display().to_string() }
    }

    /// Returns an error if the file has changed since it was listed.
    fn check_unchanged(&self) -> Result<(), TransferError> {
        let metadata = self.file.metadata().map_err(TransferError::io_error("read", &self.path))?;
        if file_version(&metadata) == self.version { Ok(()) } else { Err(self.changed_error()) }
    }

    /// Lets the kernel read the next bytes of `[start, end)`, of which those from `start` are read next.
    fn advise(&mut self, start: u64, end: u64) {
        if start + READ_AHEAD_BYTES / 2 < self.advised_end || self.advised_end >= end {
            return;
        }
        let first = self.advised_end.max(start);
        self.advised_end = end.min(first + READ_AHEAD_BYTES);
        // The advice only saves time; a file system may not support it.
        let _ = fadvise(&self.file, first, NonZeroU64::new(self.advised_end - first), Advice::WillNeed);
    }

    /// Appends the bytes of a block of the file to `data`.
    fn append_block(&self, block: u64, data: &mut Vec<u8>) -> Result<(), TransferError> {
        let (start, end) = block_byte_range(block, self.size_bytes);
        self.append_bytes(start..end, data)
    }

    fn append_bytes(&self, bytes: Range<u64>, data: &mut Vec<u8>) -> Result<(), TransferError> {
        let Range { start, end } = bytes;
        let before = data.len();
        data.resize(before + (end - start) as usize, 0);
        self.file.read_exact_at(&mut data[before..], start).map_err(|error| match error.kind() {
            // The file is shorter than when it was opened, so another process has truncated it.
            std::io::ErrorKind::UnexpectedEof => self.changed_error(),
            _ => TransferError::io_error("read", &self.path)(error),
        })
    }
}

/// Index and error of each file that cannot be read.
pub(crate) type ReadFailures = Vec<(u32, TransferError)>;

/// A range of blocks of a file that is to be read.
#[derive(Clone, Debug)]
pub(crate) struct SourceRange {
    pub(crate) file: u32,
    pub(crate) path: PathBuf,
    pub(crate) version: u64,
    /// First block and end (exclusive) of the range, 0-based.
    pub(crate) blocks: (u64, u64),
}

/// A reader of the requested block ranges of files. It returns the blocks in order, in batches of up to 1 MiB. For a
/// small request the batches are smaller, so that the client receives the first blocks soon. A file that cannot be read
/// is reported and skipped.
pub(crate) struct BlockReader {
    ranges: std::vec::IntoIter<SourceRange>,
    current: Option<(SourceRange, SourceFile)>,
    block_hashes: Arc<BlockHashCache>,
    compress: bool,
    batch_bytes: u64,
}

impl BlockReader {
    pub(crate) fn new(spans: Vec<SourceRange>, block_hashes: Arc<BlockHashCache>, compress: bool) -> Self {
        let blocks: u64 = spans.iter().map(|span| span.blocks.1.saturating_sub(span.blocks.0)).sum();
        let batch_bytes = (blocks.saturating_mul(BLOCK_BYTES) / 8).clamp(BLOCK_BYTES, MAX_BATCH_BYTES);
        Self { ranges: spans.into_iter(), current: None, block_hashes, compress, batch_bytes }
    }

    /// Returns the next batch of blocks and the files that cannot be read; `None` after the last batch.
    fn read_batch(&mut self) -> Result<Option<(RecordBatch, ReadFailures)>, TransferError> {
        let (mut blocks, mut data, mut unreadable) = (Vec::new(), Vec::new(), ReadFailures::new());
        let (hashes, compress, batch_bytes) = (self.block_hashes.clone(), self.compress, self.batch_bytes);
        while let Some((span, open)) = self.next_source(&mut unreadable) {
            let (start, end) = block_byte_range(span.blocks.0, open.size_bytes);
            let before = data.len();
            if before > 0 && before as u64 + (end - start) > batch_bytes {
                break;
            }
            let block_index = span.blocks.0;
            let range_end = (span.blocks.1 * BLOCK_BYTES).min(open.size_bytes);
            open.advise(start, range_end);
            data.reserve((range_end - start).min(batch_bytes.saturating_sub(before as u64)) as usize);
            match append_unchanged_block(open, block_index, &mut data) {
                Ok(hash) => {
                    hashes.file_hashes(&span.path, span.version, open.size_bytes).lock()[block_index as usize] =
                        Some(hash);
                    if let Some(frame) = compress.then(|| compress_block(&data[before..])).flatten() {
                        data.truncate(before);
                        data.extend_from_slice(&frame);
                    }
                    let block_bytes = (end - start) as u32;
                    blocks.push(OutgoingBlock {
                        file: span.file,
                        block_index,
                        hash,
                        block_bytes,
                        data_end: data.len(),
                    });
                    span.blocks.0 += 1;
                }
                Err(error) => {
                    data.truncate(before);
                    unreadable.push((span.file, error));
                    self.current = None;
                }
            }
        }
        if blocks.is_empty() && unreadable.is_empty() {
            return Ok(None);
        }
        Ok(Some((encode_blocks(&blocks, data)?, unreadable)))
    }

    /// Returns the current range and its open file; opens the next range if the current one is finished.
    fn next_source(&mut self, unreadable: &mut ReadFailures) -> Option<(&mut SourceRange, &mut SourceFile)> {
        while self.current.as_ref().is_none_or(|(span, _)| span.blocks.0 >= span.blocks.1) {
            let span = self.ranges.next()?;
            self.current = match SourceFile::open(&span.path, span.version) {
                Ok(open) if span.blocks.1 <= block_count(open.size_bytes) => Some((span, open)),
                Ok(open) => {
                    unreadable.push((span.file, open.changed_error()));
                    None
                }
                Err(error) => {
                    unreadable.push((span.file, error));
                    None
                }
            };
        }
        self.current.as_mut().map(|(span, open)| (span, open))
    }
}

/// Appends a block to `data` and returns its hash, or an error if the file changed while the block was read.
fn append_unchanged_block(open: &mut SourceFile, block: u64, data: &mut Vec<u8>) -> Result<BlockHash, TransferError> {
    let before = data.len();
    open.append_block(block, data)?;
    open.check_unchanged()?;
    Ok(hash_block(&data[before..], block, open.size_bytes))
}

/// Returns bytes `[start, end)` of a version of a file.
///
/// # Errors
/// [`TransferError::SourceChanged`] if the file has another version; [`TransferError::Io`] if it cannot be read.
pub(crate) fn read_unchanged_bytes(path: &Path, version: u64, bytes: Range<u64>) -> Result<Vec<u8>, TransferError> {
    let open = SourceFile::open(path, version)?;
    let mut data = Vec::new();
    open.append_bytes(bytes, &mut data)?;
    open.check_unchanged()?;
    Ok(data)
}

impl Iterator for BlockReader {
    type Item = Result<(RecordBatch, ReadFailures), TransferError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read_batch().transpose()
    }
}

/// Returns the Arrow schema of all batches of blocks.
pub(crate) fn block_schema() -> arrow_schema::SchemaRef {
    BLOCK_SCHEMA.clone()
}
