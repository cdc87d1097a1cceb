//! Reads and hashes blocks of files at the sending end, and verifies that the files do not change during the copy.

use std::collections::HashMap;
use std::fs::File;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use arrow_array::RecordBatch;
use parking_lot::Mutex;
use rustix::buffer::spare_capacity;
use rustix::fs::{Advice, fadvise};
use rustix::io::{pread, retry_on_intr};

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

/// Time after the last change of a file from which on block hashes are cached. A file that is changed again in this time
/// may have the same version, because file systems store times in steps of up to two seconds.
const SETTLE_TIME: Duration = Duration::from_secs(2);

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
                    open.hash_and_cache(&data, block, &known)
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
    /// Whether the file has not been changed for [`SETTLE_TIME`].
    is_settled: bool,
    /// End of the bytes that the kernel was advised to read in advance.
    advised_end: u64,
}

impl SourceFile {
    fn open(path: &Path, version: u64) -> Result<Self, TransferError> {
        let (file, metadata) = open_for_reading(path)?;
        let size_bytes = metadata.len();
        let changed = UNIX_EPOCH + Duration::from_secs(metadata.ctime().max(0) as u64);
        let is_settled = changed.elapsed().is_ok_and(|elapsed| elapsed > SETTLE_TIME);
        let open = Self { path: path.to_owned(), file, version, size_bytes, is_settled, advised_end: 0 };
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

    /// Hashes the bytes of a block. Stores the hash if the file has not been changed for [`SETTLE_TIME`].
    fn hash_and_cache(&self, bytes: &[u8], block: u64, known: &SharedBlockHashes) -> BlockHash {
        let hash = hash_block(bytes, block, self.size_bytes);
        known.lock()[block as usize] = self.is_settled.then_some(hash);
        hash
    }

    /// Appends the blocks of a range before `end_block` to `data`, each as a zstd frame if `compress` is true and that is
    /// shorter. A hash that is in the cache is not computed again: if the bytes are others, the receiver finds it out.
    ///
    /// # Errors
    /// [`TransferError::SourceChanged`] if the file changed while the blocks were read.
    fn append_blocks(
        &mut self,
        range: &SourceRange,
        end_block: u64,
        cache: &BlockHashCache,
        compress: bool,
        data: &mut Vec<u8>,
    ) -> Result<Vec<OutgoingBlock>, TransferError> {
        let (before, first) = (data.len(), range.blocks.0);
        let (first_byte, end_byte) = (first * BLOCK_BYTES, (end_block * BLOCK_BYTES).min(self.size_bytes));
        self.advise(first_byte, (range.blocks.1 * BLOCK_BYTES).min(self.size_bytes));
        self.append_bytes(first_byte..end_byte, data)?;
        self.check_unchanged()?;
        let known = cache.file_hashes(&range.path, range.version, self.size_bytes);
        let mut blocks = Vec::new();
        for block_index in first..end_block {
            let (start, end) = block_byte_range(block_index, self.size_bytes);
            let in_data = before + (start - first_byte) as usize..before + (end - first_byte) as usize;
            let cached = known.lock()[block_index as usize].filter(|_| !range.bypass_cache);
            let hash = cached.unwrap_or_else(|| self.hash_and_cache(&data[in_data.clone()], block_index, &known));
            let (block_bytes, data_end) = ((end - start) as u32, in_data.end);
            blocks.push(OutgoingBlock { file: range.file, block_index, hash, block_bytes, data_end });
        }
        if compress {
            compress_blocks(data, before, &mut blocks);
        }
        Ok(blocks)
    }

    fn append_bytes(&self, bytes: Range<u64>, data: &mut Vec<u8>) -> Result<(), TransferError> {
        let (before, length) = (data.len(), (bytes.end - bytes.start) as usize);
        data.reserve(length);
        // A read may return fewer bytes than requested, or more, if the buffer is larger.
        while data.len() < before + length {
            let offset = bytes.start + (data.len() - before) as u64;
            match retry_on_intr(|| pread(&self.file, spare_capacity(data), offset)) {
                // The file is shorter than when it was opened, so another process has truncated it.
                Ok(0) => return Err(self.changed_error()),
                Ok(_) => {}
                Err(error) => return Err(TransferError::io_error("read", &self.path)(error.into())),
            }
        }
        data.truncate(before + length);
        Ok(())
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
    /// Whether the blocks are hashed again, because a cached hash was not that of the sent bytes.
    pub(crate) bypass_cache: bool,
}

impl SourceRange {
    /// Returns the end of the first blocks that together have at most `room` bytes, in a file of `size_bytes` bytes.
    fn end_within(&self, room: u64, size_bytes: u64) -> u64 {
        let (start, end) = self.blocks;
        let bytes = (end * BLOCK_BYTES).min(size_bytes).saturating_sub(start * BLOCK_BYTES);
        if bytes <= room { end } else { start + room / BLOCK_BYTES }
    }
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
            let room = batch_bytes.saturating_sub(data.len() as u64);
            let end_block = span.end_within(room, open.size_bytes);
            if end_block == span.blocks.0 {
                break;
            }
            let before = data.len();
            match open.append_blocks(span, end_block, &hashes, compress, &mut data) {
                Ok(appended) => {
                    blocks.extend(appended);
                    span.blocks.0 = end_block;
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

/// Replaces the bytes of blocks, which begin at `start` of `data`, by zstd frames where these are shorter.
fn compress_blocks(data: &mut Vec<u8>, start: usize, blocks: &mut [OutgoingBlock]) {
    let plain = data.split_off(start);
    let mut rest = &plain[..];
    for block in blocks {
        let bytes;
        (bytes, rest) = rest.split_at(block.block_bytes as usize);
        data.extend_from_slice(compress_block(bytes).as_deref().unwrap_or(bytes));
        block.data_end = data.len();
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy_protocol::BlockBatch;

    #[test]
    fn a_block_is_hashed_again_after_its_hash_was_wrong() -> Result<(), Box<dyn std::error::Error>> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("file");
        let content: Vec<u8> = (0..3 * BLOCK_BYTES + 5).map(|at| (at / 100) as u8).collect();
        std::fs::write(&path, &content)?;
        let (version, size_bytes) = (file_version(&path.metadata()?), content.len() as u64);
        let cache = Arc::new(BlockHashCache::default());
        // The hash of other bytes, as if the file had changed without a new modification time.
        cache.file_hashes(&path, version, size_bytes).lock()[1] = Some([7; 32]);
        let verified_blocks = |bypass_cache, compress| -> Result<Vec<bool>, TransferError> {
            let range = SourceRange { file: 0, path: path.clone(), version, blocks: (0, 4), bypass_cache };
            let mut verified = Vec::new();
            for batch in BlockReader::new(vec![range], cache.clone(), compress) {
                let (batch, failures) = batch?;
                assert!(failures.is_empty());
                for block in BlockBatch::from_batch(&batch)?.iter() {
                    let (start, end) = block_byte_range(block.block_index, size_bytes);
                    let data = block.verified_bytes(size_bytes);
                    assert!(data.as_deref().is_none_or(|data| data == &content[start as usize..end as usize]));
                    verified.push(data.is_some());
                }
            }
            Ok(verified)
        };
        assert_eq!(verified_blocks(false, true)?, [true, false, true, true]);
        assert_eq!(verified_blocks(true, false)?, [true; 4]);
        assert_eq!(verified_blocks(false, true)?, [true; 4]);
        Ok(())
    }
}
