//! Where blocks start in the files of their lanes, so that a later process reads on from there.
//!
//! What is noted may be lost or damaged: then an earlier start does, or the start of the files.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use godwit_formats::bgzf::WINDOW_BYTES;
use godwit_formats::fastq::FilePlace;
use godwit_kernels::sort::Spill;
use godwit_model::BlockId;

use super::RunDirectory;
use crate::journal::{BlockStartEntry, Entry};
use crate::scratch::SpillFile;

/// The file of windows, within the data of a run.
pub(super) const NAME: &str = "windows";

/// A block to begin a lane with.
pub struct BlockStart {
    /// The block.
    pub id: BlockId,
    /// Reads of the lane before it.
    pub first_ordinal: u64,
    /// Where it starts in each file.
    pub places: Vec<FilePlace>,
}

/// What was noted, by this process and those before it.
pub(super) struct BlockStarts {
    /// The windows of all places.
    windows: SpillFile,
    /// By lane and ordinal.
    noted: Mutex<BTreeMap<BlockId, BlockStartEntry>>,
}

impl BlockStarts {
    pub(super) fn open(data: &Path) -> io::Result<Self> {
        let windows = SpillFile::reopen(&data.join(NAME), Arc::default())?;
        Ok(Self { windows, noted: Mutex::default() })
    }

    /// Drops everything.
    pub(super) fn clear(&self) -> io::Result<()> {
        self.windows.truncate(0)
    }

    /// Takes over what an earlier process noted.
    pub(super) fn take_over(&self, entry: BlockStartEntry) {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner).insert(entry.id, entry);
    }

    fn read(&self, entry: &BlockStartEntry) -> io::Result<Option<Vec<FilePlace>>> {
        let mut places = entry.places.clone();
        let (mut hasher, mut offset) = (blake3::Hasher::new(), entry.window_offset);
        for (place, bytes) in places.iter_mut().zip(&entry.window_bytes) {
            let window = &mut place.start.point.window;
            window.resize(*bytes as usize, 0);
            match self.windows.read_at(offset, window) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
                read => read?,
            }
            hasher.update(window);
            offset += u64::from(*bytes);
        }
        let whole = hasher.finalize().to_hex().as_str() == entry.window_checksum;
        Ok((whole && places.iter().all(FilePlace::is_sound)).then_some(places))
    }
}

impl RunDirectory {
    /// Notes where a block starts, unless reading could begin no later than is known already.
    ///
    /// # Errors
    /// What the file system reports.
    pub fn note_block_start(&self, id: BlockId, first_ordinal: u64, places: Vec<FilePlace>) -> io::Result<()> {
        let starts = &self.block_starts;
        let offsets = |places: &[FilePlace]| places.iter().map(|place| place.start.point.offset).collect::<Vec<_>>();
        let mut noted = starts.noted.lock().unwrap_or_else(PoisonError::into_inner);
        let before = noted.range(BlockId { ordinal: 0, ..id }..=id).next_back();
        if before.is_some_and(|(_, before)| offsets(&before.places) == offsets(&places)) {
            return Ok(());
        }
        let window_offset = starts.windows.bytes();
        let mut hasher = blake3::Hasher::new();
        for place in &places {
            starts.windows.append(&place.start.point.window)?;
            hasher.update(&place.start.point.window);
        }
        let window_bytes = places.iter().map(|place| place.start.point.window.len() as u32).collect();
        let window_checksum = hasher.finalize().to_hex().to_string();
        let mut entry = BlockStartEntry { id, first_ordinal, places, window_offset, window_bytes, window_checksum };
        entry.places.iter_mut().for_each(|place| place.start.point.window = Vec::new());
        self.journal.note(&Entry::BlockStart(entry.clone()))?;
        noted.insert(id, entry);
        Ok(())
    }

    /// The last start of a block that is not after `id`; `None` for the start of the lane.
    ///
    /// # Errors
    /// What the file system reports.
    pub fn block_start(&self, id: BlockId) -> io::Result<Option<BlockStart>> {
        let noted = self.block_starts.noted.lock().unwrap_or_else(PoisonError::into_inner);
        for (id, entry) in noted.range(BlockId { ordinal: 0, ..id }..=id).rev() {
            if let Some(places) = self.block_starts.read(entry)? {
                return Ok(Some(BlockStart { id: *id, first_ordinal: entry.first_ordinal, places }));
            }
        }
        Ok(None)
    }
}

impl BlockStartEntry {
    /// Whether its numbers can be those of a run.
    pub(crate) fn is_sound(&self) -> bool {
        let windows = self.window_bytes.iter().all(|bytes| *bytes as usize <= WINDOW_BYTES);
        let bytes: u64 = self.window_bytes.iter().map(|bytes| u64::from(*bytes)).sum();
        let sound = windows && self.window_offset.checked_add(bytes).is_some() && self.id.ordinal > 0;
        let places = (1..=2).contains(&self.places.len()) && self.places.iter().all(FilePlace::is_sound);
        sound
            && places
            && self.window_bytes.len() == self.places.len()
            && self.first_ordinal == self.places.iter().map(|place| place.records).sum::<u64>()
    }
}
