//! Positions of the first read of each block in the FASTQ files of its lane, from which a later process resumes
//! reading.
//!
//! If an entry is lost or damaged, reading resumes from an earlier block or from the start of the files.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use godwit_formats::fastq::FastqResumePoint;
use godwit_io::bgzf::WINDOW_BYTES;
use godwit_kernels::sort::Spill;
use godwit_model::BlockId;
use parking_lot::Mutex;

use super::JobDirectory;
use crate::journal::{AlignJournalEntry, BlockStartEntry};
use crate::scratch::SpillFile;

/// Name of the file with the DEFLATE windows, in the data directory of a job.
pub(super) const WINDOWS_FILE: &str = "windows";

/// A block from whose first read a lane is read.
pub struct BlockStart {
    /// The identifier of the block.
    pub id: BlockId,
    /// Number of reads of the lane before this block.
    pub first_ordinal: u64,
    /// Position of the first read of the block in each FASTQ file of the lane.
    pub file_positions: Vec<FastqResumePoint>,
}

/// The block starts that this process and earlier ones recorded.
pub(super) struct BlockStarts {
    /// File with the DEFLATE windows of all positions.
    windows: SpillFile,
    /// Recorded block starts, sorted by lane and block number.
    entries: Mutex<BTreeMap<BlockId, BlockStartEntry>>,
}

impl BlockStarts {
    pub(super) fn open(data: &Path) -> io::Result<Self> {
        let windows = SpillFile::open_without_digest(&data.join(WINDOWS_FILE), Arc::default())?;
        Ok(Self { windows, entries: Mutex::default() })
    }

    /// Removes the DEFLATE windows of all block starts.
    pub(super) fn clear(&self) -> io::Result<()> {
        self.windows.truncate(0)
    }

    /// Adds an entry that an earlier process wrote to the journal.
    pub(super) fn add_entry(&self, entry: BlockStartEntry) {
        self.entries.lock().insert(entry.id, entry);
    }

    fn read(&self, entry: &BlockStartEntry) -> io::Result<Option<Vec<FastqResumePoint>>> {
        let mut places = entry.file_positions.clone();
        let (mut hasher, mut offset) = (blake3::Hasher::new(), entry.window_offset);
        for (place, bytes) in places.iter_mut().zip(&entry.window_bytes) {
            let window = &mut place.resume_point.access_point.window;
            window.resize(*bytes as usize, 0);
            match self.windows.read_at(offset, window) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
                read => read?,
            }
            hasher.update(window);
            offset += u64::from(*bytes);
        }
        let whole = hasher.finalize().to_hex().as_str() == entry.window_checksum;
        Ok((whole && places.iter().all(FastqResumePoint::is_valid)).then_some(places))
    }
}

impl JobDirectory {
    /// Records the start of a block, unless the preceding recorded start of the lane has the same file offsets.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub fn record_block_start(
        &self,
        id: BlockId,
        first_ordinal: u64,
        file_positions: Vec<FastqResumePoint>,
    ) -> io::Result<()> {
        let starts = &self.block_starts;
        let offsets = |places: &[FastqResumePoint]| {
            places.iter().map(|place| place.resume_point.access_point.offset).collect::<Vec<_>>()
        };
        let mut noted = starts.entries.lock();
        let before = noted.range(BlockId { ordinal: 0, ..id }..=id).next_back();
        if before.is_some_and(|(_, before)| offsets(&before.file_positions) == offsets(&file_positions)) {
            return Ok(());
        }
        let window_offset = starts.windows.bytes();
        let mut hasher = blake3::Hasher::new();
        for place in &file_positions {
            starts.windows.append(&place.resume_point.access_point.window)?;
            hasher.update(&place.resume_point.access_point.window);
        }
        let window_bytes =
            file_positions.iter().map(|place| place.resume_point.access_point.window.len() as u32).collect();
        let window_checksum = hasher.finalize().to_hex().to_string();
        let mut entry =
            BlockStartEntry { id, first_ordinal, file_positions, window_offset, window_bytes, window_checksum };
        entry.file_positions.iter_mut().for_each(|place| place.resume_point.access_point.window = Vec::new());
        self.journal.append_unsynced(&AlignJournalEntry::BlockStart(entry.clone()))?;
        noted.insert(id, entry);
        Ok(())
    }

    /// Returns the last recorded start at or before block `id` in the same lane. `None`: read the lane from its start.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub fn latest_block_start(&self, id: BlockId) -> io::Result<Option<BlockStart>> {
        let noted = self.block_starts.entries.lock();
        for (id, entry) in noted.range(BlockId { ordinal: 0, ..id }..=id).rev() {
            if let Some(file_positions) = self.block_starts.read(entry)? {
                return Ok(Some(BlockStart { id: *id, first_ordinal: entry.first_ordinal, file_positions }));
            }
        }
        Ok(None)
    }
}

impl BlockStartEntry {
    /// Reports whether the numbers are consistent, so that godwit can have written the entry.
    pub fn is_sound(&self) -> bool {
        let windows = self.window_bytes.iter().all(|bytes| *bytes as usize <= WINDOW_BYTES);
        let bytes: u64 = self.window_bytes.iter().map(|bytes| u64::from(*bytes)).sum();
        let sound = windows && self.window_offset.checked_add(bytes).is_some() && self.id.ordinal > 0;
        let places =
            (1..=2).contains(&self.file_positions.len()) && self.file_positions.iter().all(FastqResumePoint::is_valid);
        sound
            && places
            && self.window_bytes.len() == self.file_positions.len()
            && self.first_ordinal == self.file_positions.iter().map(|place| place.records).sum::<u64>()
    }
}
