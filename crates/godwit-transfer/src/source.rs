//! The reading end: blocks of files, hashed as they are read, and files that are seen not to change meanwhile.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_array::RecordBatch;

use crate::error::TransferError;
use crate::manifest::{open_for_reading, version_of};
use crate::protocol::{SCHEMA, SentBlock, batch_of, packed};
use crate::tree::{BLOCK_BYTES, BlockHash, block_count, block_span, hash_block};

/// Bytes of a batch of several blocks, at most.
pub(crate) const BATCH_BYTES: u64 = 1 << 20;
/// Files whose hashes are remembered; 128 bytes for each MiB of theirs.
const REMEMBERED_FILES: usize = 256;

/// Hashes of a file's blocks, where they are known.
type Known = Arc<Mutex<Vec<Option<BlockHash>>>>;

/// Hashes of the blocks of files that were read, so that their proof costs no second reading.
#[derive(Debug, Default)]
pub(crate) struct Hashes {
    files: Mutex<HashMap<(PathBuf, u64), Known>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hashes {
    fn of_file(&self, path: &Path, version: u64, size_bytes: u64) -> Known {
        let mut files = lock(&self.files);
        let key = (path.to_owned(), version);
        if !files.contains_key(&key) && files.len() >= REMEMBERED_FILES {
            // Those that nobody reads now.
            files.retain(|_, hashes| Arc::strong_count(hashes) > 1);
        }
        let none = || Arc::new(Mutex::new(vec![None; block_count(size_bytes) as usize]));
        files.entry(key).or_insert_with(none).clone()
    }

    /// Hashes of all blocks of a file; those that are not known are read.
    ///
    /// # Errors
    /// Where it cannot be read, or is another by now.
    pub(crate) fn all(&self, path: &Path, version: u64) -> Result<Vec<BlockHash>, TransferError> {
        let mut open = OpenSource::new(path, version)?;
        let known = self.of_file(path, version, open.size_bytes);
        let mut data = Vec::new();
        let mut hashes = Vec::new();
        for block in 0..block_count(open.size_bytes) {
            let found = lock(&known)[block as usize];
            hashes.push(match found {
                Some(hash) => hash,
                None => {
                    data.clear();
                    open.read(block, &mut data)?;
                    let hash = hash_block(&data, block, open.size_bytes);
                    lock(&known)[block as usize] = Some(hash);
                    hash
                }
            });
        }
        open.check()?;
        Ok(hashes)
    }
}

/// A file in one state of it.
struct OpenSource {
    path: PathBuf,
    file: File,
    version: u64,
    size_bytes: u64,
}

impl OpenSource {
    fn new(path: &Path, version: u64) -> Result<Self, TransferError> {
        let (file, metadata) = open_for_reading(path)?;
        let size_bytes = metadata.len();
        let open = Self { path: path.to_owned(), file, version, size_bytes };
        if version_of(&metadata) == version { Ok(open) } else { Err(open.changed()) }
    }

    fn changed(&self) -> TransferError {
        TransferError::Changed { place: self.path.display().to_string() }
    }

    /// Fails where the file is not what it was.
    fn check(&self) -> Result<(), TransferError> {
        let metadata = self.file.metadata().map_err(TransferError::file("read", &self.path))?;
        if version_of(&metadata) == self.version { Ok(()) } else { Err(self.changed()) }
    }

    /// Appends the bytes of a block.
    fn read(&mut self, block: u64, data: &mut Vec<u8>) -> Result<(), TransferError> {
        let (start, end) = block_span(block, self.size_bytes);
        let before = data.len();
        data.resize(before + (end - start) as usize, 0);
        self.file.read_exact_at(&mut data[before..], start).map_err(|error| match error.kind() {
            // It ends before its end: somebody cut it.
            std::io::ErrorKind::UnexpectedEof => self.changed(),
            _ => TransferError::file("read", &self.path)(error),
        })
    }
}

/// Files that cannot be read, by their numbers, and why.
pub(crate) type ReadFailures = Vec<(u32, TransferError)>;

/// Blocks of a file that are to be read.
#[derive(Clone, Debug)]
pub(crate) struct SourceSpan {
    pub(crate) file: u32,
    pub(crate) path: PathBuf,
    pub(crate) version: u64,
    /// First block, and the one after the last.
    pub(crate) blocks: (u64, u64),
}

/// Reads spans in their order as batches of up to 1 MiB, smaller where little is asked for: who asks for little wants to know soon that it is there. A file that cannot be read is said to be so, and left out.
pub(crate) struct BlockReader {
    spans: std::vec::IntoIter<SourceSpan>,
    current: Option<(SourceSpan, OpenSource)>,
    hashes: Arc<Hashes>,
    compress: bool,
    batch_bytes: u64,
}

impl BlockReader {
    pub(crate) fn new(spans: Vec<SourceSpan>, hashes: Arc<Hashes>, compress: bool) -> Self {
        let blocks: u64 = spans.iter().map(|span| span.blocks.1.saturating_sub(span.blocks.0)).sum();
        let batch_bytes = (blocks.saturating_mul(BLOCK_BYTES) / 8).clamp(BLOCK_BYTES, BATCH_BYTES);
        Self { spans: spans.into_iter(), current: None, hashes, compress, batch_bytes }
    }

    /// The next batch, and files that cannot be read; `None` after the last.
    fn read_batch(&mut self) -> Result<Option<(RecordBatch, ReadFailures)>, TransferError> {
        let (mut blocks, mut data, mut unreadable) = (Vec::new(), Vec::new(), ReadFailures::new());
        let (hashes, compress, batch_bytes) = (self.hashes.clone(), self.compress, self.batch_bytes);
        while let Some((span, open)) = self.next_open(&mut unreadable) {
            let (start, end) = block_span(span.blocks.0, open.size_bytes);
            let before = data.len();
            if before > 0 && before as u64 + (end - start) > batch_bytes {
                break;
            }
            let block = span.blocks.0;
            match read_block(open, block, &mut data) {
                Ok(hash) => {
                    lock(&hashes.of_file(&span.path, span.version, open.size_bytes))[block as usize] = Some(hash);
                    if let Some(frame) = compress.then(|| packed(&data[before..])).flatten() {
                        data.truncate(before);
                        data.extend_from_slice(&frame);
                    }
                    let bytes = (end - start) as u32;
                    blocks.push(SentBlock { file: span.file, block, hash, bytes, data_end: data.len() });
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
        Ok(Some((batch_of(&blocks, data)?, unreadable)))
    }

    /// The span that is being read, opened.
    fn next_open(&mut self, unreadable: &mut ReadFailures) -> Option<(&mut SourceSpan, &mut OpenSource)> {
        while self.current.as_ref().is_none_or(|(span, _)| span.blocks.0 >= span.blocks.1) {
            let span = self.spans.next()?;
            self.current = match OpenSource::new(&span.path, span.version) {
                Ok(open) if span.blocks.1 <= block_count(open.size_bytes) => Some((span, open)),
                Ok(open) => {
                    unreadable.push((span.file, open.changed()));
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

/// Appends a block of a file that did not change while it was read; returns its hash.
fn read_block(open: &mut OpenSource, block: u64, data: &mut Vec<u8>) -> Result<BlockHash, TransferError> {
    let before = data.len();
    open.read(block, data)?;
    open.check()?;
    Ok(hash_block(&data[before..], block, open.size_bytes))
}

impl Iterator for BlockReader {
    type Item = Result<(RecordBatch, ReadFailures), TransferError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read_batch().transpose()
    }
}

/// The schema of all batches.
pub(crate) fn schema() -> arrow_schema::SchemaRef {
    SCHEMA.clone()
}
