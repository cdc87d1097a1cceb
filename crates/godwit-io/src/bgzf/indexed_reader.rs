//! A reader of the records that begin in given chunks of a BGZF file. An index lists the chunks; the record format does
//! not matter.
//!
//! Flows in: a file, chunks (pairs of virtual offsets), and a function that reads one record. Flows out: the records of
//! all chunks in order, with their virtual offsets. An index selects the chunks.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use super::{BgzfError, SeekReader, VirtualOffset};
use crate::random_access::RandomAccess;

/// A reader of records in chunks, positioned before the next record or after the last one.
#[derive(Debug)]
pub struct IndexedReader {
    input: SeekReader,
    chunks: VecDeque<(VirtualOffset, VirtualOffset)>,
    /// End of the current chunk; `None` between chunks.
    chunk_end: Option<VirtualOffset>,
    record_offset: VirtualOffset,
}

impl IndexedReader {
    /// Creates a reader of `chunks`, each of which begins with a record. An end of `u64::MAX` means the end of the
    /// file.
    pub fn new(source: Arc<dyn RandomAccess>, chunks: Vec<(VirtualOffset, VirtualOffset)>) -> Self {
        Self { input: SeekReader::new(source), chunks: chunks.into(), chunk_end: None, record_offset: 0 }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        self.input.source().path()
    }

    /// Returns the virtual offset of the last record read, or of the record that could not be read.
    pub fn record_offset(&self) -> VirtualOffset {
        self.record_offset
    }

    /// Skips all remaining chunks.
    pub fn skip_rest(&mut self) {
        self.chunks.clear();
        self.chunk_end = None;
    }

    /// Calls `read` for the next record; `read` returns false if the file ends before another record. Returns false if
    /// the chunks contain no further record.
    ///
    /// # Errors
    /// The errors of `read`, and those of seeking to a chunk.
    pub fn read_next_with<E: From<BgzfError>>(
        &mut self,
        mut read: impl FnMut(&mut SeekReader) -> Result<bool, E>,
    ) -> Result<bool, E> {
        loop {
            let Some(end) = self.chunk_end else {
                let Some((start, end)) = self.chunks.pop_front() else { return Ok(false) };
                self.input.seek(start)?;
                self.chunk_end = Some(end);
                continue;
            };
            self.record_offset = self.input.virtual_offset();
            if self.record_offset < end && read(&mut self.input)? {
                return Ok(true);
            }
            self.chunk_end = None;
        }
    }
}
