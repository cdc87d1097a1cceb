//! Reading one run's share of a partition, record by record.

use std::io;

use godwit_kernels::sort::Spill;
use godwit_model::{BlockId, RawRecord, SortKey};

use super::store::{Item, SortedBlock};
use super::{ENTRY_HEADER, Frame};
use crate::scratch::SpillFile;

/// Reads records in key order. There is always a current record: an exhausted cursor is dropped by its owner.
pub struct Cursor<'s> {
    block: BlockId,
    key: SortKey,
    records: Records<'s>,
}

enum Records<'s> {
    Memory { block: &'s SortedBlock, items: &'s [Item] },
    Spilled(SpilledFrames<'s>),
}

/// One record as stored.
pub struct Entry<'c> {
    /// The packed record.
    pub record: RawRecord<'c>,
    /// 0-based index in its block.
    pub order: u32,
}

impl<'s> Cursor<'s> {
    /// A cursor over records of a block in memory, `None` where there are none.
    pub(super) fn in_memory(id: BlockId, block: &'s SortedBlock, items: &'s [Item]) -> Option<Self> {
        let key = items.first()?.key;
        Some(Self { block: id, key, records: Records::Memory { block, items } })
    }

    /// A cursor at the first record of `[from, until)` in spilled frames, `None` where there is none.
    pub(super) fn in_spill(
        block: BlockId,
        frames: &'s [Frame],
        spill: &'s SpillFile,
        from: SortKey,
        until: SortKey,
    ) -> io::Result<Option<Self>> {
        let mut frames =
            SpilledFrames { frames: frames.iter(), spill, until, plain: Vec::new(), packed: Vec::new(), at: 0 };
        let mut key = frames.load_frame()?;
        while key.is_some_and(|key| key < from) {
            key = frames.advance()?;
        }
        let key = key.filter(|key| *key < until);
        Ok(key.map(|key| Self { block, key, records: Records::Spilled(frames) }))
    }

    /// The block the records came from.
    pub fn block(&self) -> BlockId {
        self.block
    }

    /// Key of the current record.
    pub fn key(&self) -> SortKey {
        self.key
    }

    /// The current record.
    pub fn entry(&self) -> Entry<'_> {
        match &self.records {
            Records::Memory { block, items } => Entry { record: block.record(&items[0]), order: items[0].order },
            Records::Spilled(frames) => frames.entry(),
        }
    }

    /// Steps to the next record; false at the end of the range.
    ///
    /// # Errors
    /// What the spill reports.
    pub fn advance(&mut self) -> io::Result<bool> {
        let next = match &mut self.records {
            Records::Memory { block, items } => {
                *items = &items[1..];
                // Records lie in the order of the input, so the next one is nowhere near. The other runs of the merge
                // take their turns before it is read.
                items.first().inspect(|item| block.prefetch(item)).map(|item| item.key)
            }
            Records::Spilled(frames) => frames.advance()?.filter(|key| *key < frames.until),
        };
        self.key = next.unwrap_or(self.key);
        Ok(next.is_some())
    }
}

/// Frames read from the spill one at a time.
struct SpilledFrames<'s> {
    frames: std::slice::Iter<'s, Frame>,
    spill: &'s SpillFile,
    until: SortKey,
    /// The current frame: per record its length, its index in the block and its bytes.
    plain: Vec<u8>,
    packed: Vec<u8>,
    /// The current record, within the frame.
    at: usize,
}

impl SpilledFrames<'_> {
    fn u32_at(&self, at: usize) -> u32 {
        let bytes = &self.plain[at..at + 4];
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }

    fn entry(&self) -> Entry<'_> {
        let start = self.at + ENTRY_HEADER;
        let record = RawRecord::trusted(&self.plain[start..start + self.u32_at(self.at) as usize]);
        Entry { record, order: self.u32_at(self.at + 4) }
    }

    /// Steps to the next record and returns its key, `None` behind the last one.
    fn advance(&mut self) -> io::Result<Option<SortKey>> {
        self.at += ENTRY_HEADER + self.u32_at(self.at) as usize;
        if self.at >= self.plain.len() {
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
        self.at = 0;
        Ok(Some(frame.first_key))
    }
}
