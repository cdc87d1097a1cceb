//! Reads the records of one run in a partition, one by one.

use std::io;

use godwit_kernels::sort::Spill;
use godwit_model::{BlockId, RawRecord, SortKey};

use super::store::{SortItem, SortedBlock};
use super::{ENTRY_HEADER_BYTES, Frame};
use crate::scratch::SpillFile;

/// A reader of records in key order. There is always a current record: the owner drops an exhausted cursor.
pub struct Cursor<'s> {
    block: BlockId,
    key: SortKey,
    records: CursorSource<'s>,
}

enum CursorSource<'s> {
    Memory { block: &'s SortedBlock, items: &'s [SortItem] },
    Spilled(SpilledFrames<'s>),
}

/// One record as stored.
pub struct RunRecord<'c> {
    /// The packed record.
    pub record: RawRecord<'c>,
    /// 0-based index in its block.
    pub order: u32,
}

impl<'s> Cursor<'s> {
    /// Returns a cursor over records of a block in memory, `None` where there are none.
    pub(super) fn in_memory(id: BlockId, block: &'s SortedBlock, items: &'s [SortItem]) -> Option<Self> {
        let key = items.first()?.key;
        Some(Self { block: id, key, records: CursorSource::Memory { block, items } })
    }

    /// Returns a cursor at the first record of `[from, until)` in spilled frames, `None` where there is none.
    pub(super) fn in_spill(
        block: BlockId,
        frames: &'s [Frame],
        spill: &'s SpillFile,
        from: SortKey,
        until: SortKey,
    ) -> io::Result<Option<Self>> {
        let mut frames = SpilledFrames {
            frames: frames.iter(),
            spill,
            until,
            plain: Vec::new(),
            packed: Vec::new(),
            record_offset: 0,
        };
        let mut key = frames.load_frame()?;
        while key.is_some_and(|key| key < from) {
            key = frames.advance()?;
        }
        let key = key.filter(|key| *key < until);
        Ok(key.map(|key| Self { block, key, records: CursorSource::Spilled(frames) }))
    }

    /// Returns the block of the records.
    pub fn block(&self) -> BlockId {
        self.block
    }

    /// Returns the key of the current record.
    pub fn key(&self) -> SortKey {
        self.key
    }

    /// Returns the current record.
    pub fn entry(&self) -> RunRecord<'_> {
        match &self.records {
            CursorSource::Memory { block, items } => {
                RunRecord { record: block.record(&items[0]), order: items[0].order }
            }
            CursorSource::Spilled(frames) => frames.entry(),
        }
    }

    /// Moves to the next record; returns false at the end of the range.
    ///
    /// # Errors
    /// Errors of the spill.
    pub fn advance(&mut self) -> io::Result<bool> {
        let next = match &mut self.records {
            CursorSource::Memory { block, items } => {
                *items = &items[1..];
                // Records are in the order of the input, so the next one is at another address. The other runs of the merge
                // advance before it is read.
                items.first().inspect(|item| block.prefetch(item)).map(|item| item.key)
            }
            CursorSource::Spilled(frames) => frames.advance()?.filter(|key| *key < frames.until),
        };
        self.key = next.unwrap_or(self.key);
        Ok(next.is_some())
    }
}

/// A reader of frames from the spill, one at a time.
struct SpilledFrames<'s> {
    frames: std::slice::Iter<'s, Frame>,
    spill: &'s SpillFile,
    until: SortKey,
    /// The current frame: per record its length, its index in the block and its bytes.
    plain: Vec<u8>,
    packed: Vec<u8>,
    /// The current record, within the frame.
    record_offset: usize,
}

impl SpilledFrames<'_> {
    fn u32_at(&self, at: usize) -> u32 {
        let bytes = &self.plain[at..at + 4];
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }

    fn entry(&self) -> RunRecord<'_> {
        let start = self.record_offset + ENTRY_HEADER_BYTES;
        let record =
            RawRecord::from_trusted_bytes(&self.plain[start..start + self.u32_at(self.record_offset) as usize]);
        RunRecord { record, order: self.u32_at(self.record_offset + 4) }
    }

    /// Moves to the next record and returns its key, `None` after the last one.
    fn advance(&mut self) -> io::Result<Option<SortKey>> {
        self.record_offset += ENTRY_HEADER_BYTES + self.u32_at(self.record_offset) as usize;
        if self.record_offset >= self.plain.len() {
            return self.load_frame();
        }
        Ok(Some(self.entry().record.sort_key()))
    }

    /// Reads the next frame and returns its first key.
    fn load_frame(&mut self) -> io::Result<Option<SortKey>> {
        let Some(frame) = self.frames.next() else { return Ok(None) };
        self.packed.resize(frame.stored_bytes as usize, 0);
        self.spill.read_at(frame.offset, &mut self.packed)?;
        self.plain.resize(frame.plain_bytes as usize, 0);
        lz4_flex::block::decompress_into(&self.packed, &mut self.plain)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        self.record_offset = 0;
        Ok(Some(frame.first_key))
    }
}
