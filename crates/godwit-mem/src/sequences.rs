//! A block of reads in bwa's form, and the SAM text that bwa returns for them.
//!
//! Reads are NUL-terminated in one arena per batch, which bwa's structures point into. So a block of 100 M bases takes a few
//! hundred allocations instead of millions, and all are freed as soon as the block is aligned.

use std::ffi::{CStr, c_char, c_int};
use std::io::Write;
use std::ptr;

use arrow_array::RecordBatch;
use godwit_engines::aligner::{BlockHeader, StreamEncoder};

use crate::bwa_structs::BwaSequence;
use crate::error::Error;
use crate::read_columns::ReadColumns;
use crate::{BlockReads, BlockRecords};

/// The reads of a block before the alignment.
#[derive(Default)]
pub struct Sequences {
    entries: Vec<BwaSequence>,
    /// The memory that `entries` point into; it does not change once they do.
    arenas: Vec<Vec<u8>>,
}

// SAFETY: the pointers lead into `arenas`, which move along, or are null.
unsafe impl Send for Sequences {}

impl BlockReads for Sequences {
    fn push(&mut self, batch: &RecordBatch, keep_comments: bool) -> Result<(), Error> {
        let columns = ReadColumns::new(batch, self.read_count(), keep_comments)?;
        let texts = || columns.iter().map(|read| [Some(read.name), read.comment, Some(read.sequence), read.quality]);
        let arena_bytes = texts().flatten().flatten().map(|text| text.len() + 1).sum();
        let mut arena = Vec::with_capacity(arena_bytes);
        for text in texts().flatten().flatten() {
            arena.extend_from_slice(text);
            arena.push(0);
        }
        let base: *mut u8 = arena.as_mut_ptr();
        let mut offset = 0;
        for read in texts() {
            let bases = read[2].map_or(0, <[u8]>::len) as c_int;
            let [name, comment, sequence, quality] = read.map(|text| match text {
                None => ptr::null_mut(),
                Some(text) => {
                    let start = base.wrapping_add(offset).cast::<c_char>();
                    offset += text.len() + 1;
                    start
                }
            });
            let id = self.entries.len() as c_int;
            self.entries.push(BwaSequence { bases, id, name, comment, sequence, quality, sam: ptr::null_mut() });
        }
        self.arenas.push(arena);
        Ok(())
    }

    fn read_count(&self) -> usize {
        self.entries.len()
    }
}

impl Sequences {
    /// Aligns the reads by `align`, which is not called if there are none.
    ///
    /// The pointers of each entry lead to NUL-terminated text that nothing else refers to, or are null; `bases` is the
    /// length of the sequence, whose letters are printable ASCII.
    ///
    /// # Safety
    /// `align` must treat the entries as bwa's `mem_process_seqs` does: set `sam` of each to a NUL-terminated string from
    /// `malloc`, or null, and keep none of the pointers.
    pub unsafe fn align_with(mut self, align: impl FnOnce(&mut [BwaSequence])) -> SamTexts {
        if !self.entries.is_empty() {
            align(&mut self.entries);
        }
        SamTexts { texts: self.entries.iter().map(|entry| entry.sam).collect(), next_index: 0 }
    }
}

/// SAM text of a block, per read in order; each text is freed when it is passed on.
pub struct SamTexts {
    texts: Vec<*mut c_char>,
    next_index: usize,
}

// SAFETY: the texts come from malloc and nothing else holds them.
unsafe impl Send for SamTexts {}

impl SamTexts {
    /// Passes the lines of the next read, newline-ended, to `use_text` and frees them. Returns `None` after the last read.
    fn with_next_read<T>(&mut self, use_text: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let text = *self.texts.get(self.next_index)?;
        if text.is_null() {
            self.next_index += 1;
            return Some(use_text(b""));
        }
        // SAFETY: bwa set a NUL-terminated string from malloc here; it is freed once, below, after its last use.
        let result = use_text(unsafe { CStr::from_ptr(text) }.to_bytes());
        self.next_index += 1;
        // SAFETY: as above.
        unsafe { libc::free(text.cast()) };
        Some(result)
    }
}

impl Drop for SamTexts {
    fn drop(&mut self) {
        while self.with_next_read(|_| ()).is_some() {}
    }
}

impl BlockRecords for SamTexts {
    /// Writes the records; frees each text when it is encoded.
    fn write<W: Write>(mut self, header: &BlockHeader, streams: &mut StreamEncoder<'_, W>) -> Result<u64, Error> {
        let reads = self.texts.len() as u64;
        let mut index = 0;
        while let Some(encoded) = self.with_next_read(|text| encode_read(streams, header, index, text)) {
            encoded?;
            index += 1;
        }
        Ok(reads)
    }
}

/// Encodes the lines of one read.
fn encode_read<W: Write>(
    streams: &mut StreamEncoder<'_, W>,
    header: &BlockHeader,
    index: usize,
    text: &[u8],
) -> Result<(), Error> {
    for line in text.strip_suffix(b"\n").unwrap_or(text).split(|byte| *byte == b'\n') {
        let pushed = streams.push(line)?;
        pushed.map_err(|source| Error::InvalidRecord { id: header.id, index, source })?;
    }
    Ok(())
}
