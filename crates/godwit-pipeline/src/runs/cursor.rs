//! Reading of the records of one run in one partition, in order.

use std::io;

use godwit_kernels::sort::Spill;
use godwit_model::{BlockId, RawRecord, SortKey};

use super::store::{SortItem, SortedBlock};
use super::{ENTRY_HEADER_BYTES, Frame};
use crate::scratch::SpillFile;

/// A reader of the records of a run in the order of their sort keys. It always has a current record: the owner must
/// drop a cursor when [`Cursor::advance`] returns false.
pub struct Cursor<'s> {
    block: BlockId,
    key: SortKey,
    records: CursorSource<'s>,
}

enum CursorSource<'s> {
    Memory { block: &'s SortedBlock, items: &'s [SortItem] },
    Spilled(SpilledFrames<'s>),
}

/// A record of a run.
pub struct RunRecord<'c> {
    /// The record in the packed form of BAM.
    pub record: RawRecord<'c>,
    /// Index of the record in its block before sorting, 0-based.
    pub order: u32,
}

impl<'s> Cursor<'s> {
    /// Returns a cursor over records of a block in memory; `None` if `items` is empty.
    pub(super) fn in_memory(id: BlockId, block: &'s SortedBlock, items: &'s [SortItem]) -> Option<Self> {
        let key = items.first()?.key;
        Some(Self { block: id, key, records: CursorSource::Memory { block, items } })
    }

    /// Returns a cursor over the records in spilled frames whose sort keys are in `[from, until)`; `None` if there are
    /// no such records.
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

    /// Returns the block to which the records belong.
    pub fn block(&self) -> BlockId {
        self.block
    }

    /// Returns the sort key of the current record.
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

    /// Moves to the next record. Returns false if there are no more records in the range.
    ///
    /// # Errors
    /// The I/O error of the spill file.
    pub fn advance(&mut self) -> io::Result<bool> {
        let next = match &mut self.records {
            CursorSource::Memory { block, items } => {
                *items = &items[1..];
                // Items are sorted, but the records themselves are in input order, so the next record is at another
                // address. Prefetch it, because the cursors of the other runs advance before this record is read.
                items.first().inspect(|item| block.prefetch(item)).map(|item| item.key)
            }
            CursorSource::Spilled(frames) => frames.advance()?.filter(|key| *key < frames.until),
        };
        self.key = next.unwrap_or(self.key);
        Ok(next.is_some())
    }
}

/// A reader of the frames of a run in the spill file, which decompresses one frame at a time.
struct SpilledFrames<'s> {
    frames: std::slice::Iter<'s, Frame>,
    spill: &'s SpillFile,
    until: SortKey,
    /// The decompressed current frame. For each record: its length, its index in the block and its bytes.
    plain: Vec<u8>,
    packed: Vec<u8>,
    /// Offset of the current record in the frame, bytes.
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

    /// Moves to the next record and returns its sort key; `None` after the last record.
    fn advance(&mut self) -> io::Result<Option<SortKey>> {
        self.record_offset += ENTRY_HEADER_BYTES + self.u32_at(self.record_offset) as usize;
        if self.record_offset >= self.plain.len() {
            return self.load_frame();
        }
        Ok(Some(self.entry().record.sort_key()))
    }

    /// Reads the next frame and returns the sort key of its first record; `None` after the last frame.
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
