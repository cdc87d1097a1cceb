//! A block of reads as bwa takes them, and the SAM text that bwa makes of them.
//!
//! Reads lie NUL-ended in one arena per batch, which bwa's structures point into; a block of 100 M bases takes a few
//! hundred allocations instead of millions, and all of it is gone the moment the block is aligned.

use std::ffi::{CStr, c_char, c_int};
use std::io::Write;
use std::ptr;

use arrow_array::RecordBatch;
use godwit_engines::aligner::{BlockHeader, StreamEncoder};

use crate::error::Error;
use crate::layout::Sequence;
use crate::reads::ReadColumns;
use crate::{BlockAnswer, BlockReads};

/// Reads of a block that wait to be aligned.
#[derive(Default)]
pub struct Sequences {
    entries: Vec<Sequence>,
    /// What `entries` point into; never touched again once they do.
    arenas: Vec<Vec<u8>>,
}

// SAFETY: the pointers lead into `arenas`, which travel along, or are null.
unsafe impl Send for Sequences {}

impl BlockReads for Sequences {
    fn push(&mut self, batch: &RecordBatch, keep_comments: bool) -> Result<(), Error> {
        let columns = ReadColumns::new(batch, self.reads(), keep_comments)?;
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
            self.entries.push(Sequence { bases, id, name, comment, sequence, quality, sam: ptr::null_mut() });
        }
        self.arenas.push(arena);
        Ok(())
    }

    fn reads(&self) -> usize {
        self.entries.len()
    }
}

impl Sequences {
    /// Aligns the reads by `align`, which is not called where there are none.
    ///
    /// The pointers of each entry lead to NUL-ended text that nothing else refers to, or are null; `bases` is the length of
    /// the sequence, whose letters are printable ASCII.
    ///
    /// # Safety
    /// `align` must do with the entries what bwa's `mem_process_seqs` does: leave in `sam` of each a NUL-ended string from
    /// `malloc`, or null, and keep none of the pointers.
    pub unsafe fn align_by(mut self, align: impl FnOnce(&mut [Sequence])) -> SamTexts {
        if !self.entries.is_empty() {
            align(&mut self.entries);
        }
        SamTexts { texts: self.entries.iter().map(|entry| entry.sam).collect(), next: 0 }
    }
}

/// SAM text of a block, per read in order; each is freed as it is passed.
pub struct SamTexts {
    texts: Vec<*mut c_char>,
    next: usize,
}

// SAFETY: the texts come from malloc and nothing else holds them.
unsafe impl Send for SamTexts {}

impl SamTexts {
    /// Passes the lines of the next read, newline-ended, to `take` and frees them. `None` after the last read.
    fn next_read<T>(&mut self, take: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let text = *self.texts.get(self.next)?;
        if text.is_null() {
            self.next += 1;
            return Some(take(b""));
        }
        // SAFETY: bwa left a NUL-ended string from malloc here; it is freed once, below, after its last use.
        let taken = take(unsafe { CStr::from_ptr(text) }.to_bytes());
        self.next += 1;
        // SAFETY: as above.
        unsafe { libc::free(text.cast()) };
        Some(taken)
    }
}

impl Drop for SamTexts {
    fn drop(&mut self) {
        while self.next_read(|_| ()).is_some() {}
    }
}

impl BlockAnswer for SamTexts {
    /// Text is freed as it is encoded.
    fn write<W: Write>(mut self, header: &BlockHeader, streams: &mut StreamEncoder<'_, W>) -> Result<u64, Error> {
        let reads = self.texts.len() as u64;
        let mut index = 0;
        while let Some(encoded) = self.next_read(|text| encode_read(streams, header, index, text)) {
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
        pushed.map_err(|source| Error::Record { id: header.id, index, source })?;
    }
    Ok(())
}
