//! Reading one run's share of a partition, record by record.

use std::io;

use godwit_kernels::sort::Spill;
use godwit_model::{BlockId, RawRecord, SortKey};

use super::{ENTRY_HEADER, Frame, RunBytes};
use crate::scratch::SpillFile;

/// Reads records in key order. There is always a current record: an exhausted cursor is dropped by its owner.
pub struct Cursor<'s> {
    block: BlockId,
    frames: std::slice::Iter<'s, Frame>,
    memory: Option<&'s [u8]>,
    spill: &'s SpillFile,
    until: SortKey,
    /// The current frame where it came from the spill.
    plain: Vec<u8>,
    packed: Vec<u8>,
    /// The current frame where it is in memory.
    frame: &'s [u8],
    /// The current entry, within the frame.
    at: usize,
    key: SortKey,
}

/// One record as stored.
pub struct Entry<'c> {
    /// The packed record.
    pub record: RawRecord<'c>,
    /// 0-based index in its block.
    pub order: u32,
}

impl<'s> Cursor<'s> {
    /// A cursor at the first record of `[from, until)`, `None` where there is none.
    pub(super) fn open(
        block: BlockId,
        frames: &'s [Frame],
        bytes: &'s RunBytes,
        spill: &'s SpillFile,
        from: SortKey,
        until: SortKey,
    ) -> io::Result<Option<Self>> {
        let memory = match bytes {
            RunBytes::Memory(bytes) => Some(&bytes[..]),
            RunBytes::Spilled => None,
        };
        let mut cursor = Self {
            block,
            frames: frames.iter(),
            memory,
            spill,
            until,
            plain: Vec::new(),
            packed: Vec::new(),
            frame: &[],
            at: 0,
            key: SortKey::FIRST,
        };
        let mut found = cursor.load_frame()?;
        while found && cursor.key < from {
            found = cursor.advance()?;
        }
        Ok((found && cursor.key < until).then_some(cursor))
    }

    /// The block the records came from.
    pub fn block(&self) -> BlockId {
        self.block
    }

    /// Key of the current record.
    pub fn key(&self) -> SortKey {
        self.key
    }

    fn plain(&self) -> &[u8] {
        if self.memory.is_some() { self.frame } else { &self.plain }
    }

    /// The current record.
    pub fn entry(&self) -> Entry<'_> {
        let header = &self.plain()[self.at..self.at + ENTRY_HEADER];
        let order = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
        let start = self.at + ENTRY_HEADER;
        Entry { record: RawRecord::trusted(&self.plain()[start..start + self.record_bytes()]), order }
    }

    fn record_bytes(&self) -> usize {
        let header = &self.plain()[self.at..self.at + 4];
        u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize
    }

    /// Steps to the next record; false at the end of the range.
    ///
    /// # Errors
    /// What the spill reports.
    pub fn advance(&mut self) -> io::Result<bool> {
        self.at += ENTRY_HEADER + self.record_bytes();
        if self.at >= self.plain().len() {
            return Ok(self.load_frame()? && self.key < self.until);
        }
        self.key = self.entry().record.sort_key();
        Ok(self.key < self.until)
    }

    fn load_frame(&mut self) -> io::Result<bool> {
        let Some(frame) = self.frames.next() else { return Ok(false) };
        let offset = frame.offset as usize;
        match self.memory {
            Some(memory) => self.frame = &memory[offset..offset + frame.plain_bytes as usize],
            None => {
                self.packed.resize(frame.stored_bytes as usize, 0);
                self.spill.read_at(frame.offset, &mut self.packed)?;
                self.plain.resize(frame.plain_bytes as usize, 0);
                lz4_flex::block::decompress_into(&self.packed, &mut self.plain)
                    .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            }
        }
        self.at = 0;
        self.key = frame.first_key;
        Ok(true)
    }
}
