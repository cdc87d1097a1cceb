//! Records that begin in stretches of a BGZF file, as indexes tell them, whatever a record is.
//!
//! Flows in: a file, stretches of it, and how one record is read. Flows out: the records of all stretches in order, with their
//! places. Choosing stretches is [`crate::index::RegionIndex`]'s business.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use super::{BgzfError, SeekReader, VirtualOffset};
use crate::random_access::RandomAccess;

/// Stands in front of a record, or behind the last one.
#[derive(Debug)]
pub(crate) struct StretchReader {
    input: SeekReader,
    stretches: VecDeque<(VirtualOffset, VirtualOffset)>,
    /// Where the stretch ends that is being read.
    end: Option<VirtualOffset>,
    offset: VirtualOffset,
}

impl StretchReader {
    /// Reads stretches, each of which begins with a record. `u64::MAX` for the end of one is that of the file.
    pub(crate) fn new(source: Arc<dyn RandomAccess>, stretches: Vec<(VirtualOffset, VirtualOffset)>) -> Self {
        Self { input: SeekReader::new(source), stretches: stretches.into(), end: None, offset: 0 }
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        self.input.source().path()
    }

    /// Where the record begins that was read last, or should have been.
    pub(crate) fn offset(&self) -> VirtualOffset {
        self.offset
    }

    /// Passes over all that is left.
    pub(crate) fn finish(&mut self) {
        self.stretches.clear();
        self.end = None;
    }

    /// Has `read` read the next record, which says whether there was one before the end of the file; false where there is none
    /// any more.
    ///
    /// # Errors
    /// Those of `read`, and of going to a stretch.
    pub(crate) fn next<E: From<BgzfError>>(
        &mut self,
        mut read: impl FnMut(&mut SeekReader) -> Result<bool, E>,
    ) -> Result<bool, E> {
        loop {
            let Some(end) = self.end else {
                let Some((start, end)) = self.stretches.pop_front() else { return Ok(false) };
                self.input.seek(start)?;
                self.end = Some(end);
                continue;
            };
            self.offset = self.input.virtual_offset();
            if self.offset < end && read(&mut self.input)? {
                return Ok(true);
            }
            self.end = None;
        }
    }
}
