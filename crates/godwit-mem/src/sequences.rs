//! A block of reads in bwa's structures, and the SAM text that bwa returns for the reads.
//!
//! The strings of all reads of a batch, NUL-terminated, are in one allocation (arena), and bwa's structures point into
//! it. So a block of 100 million bases takes a few hundred allocations instead of millions. All are freed when the
//! block is aligned.

use std::ffi::{CStr, c_char, c_int};
use std::io::Write;
use std::ptr;

use arrow_array::RecordBatch;
use godwit_engines::aligner::{BlockHeader, StreamEncoder};

use crate::bwa_structs::BwaSequence;
use crate::error::Error;
use crate::read_columns::ReadColumns;
use crate::{BlockReads, BlockRecords};

/// The reads of a block before the alignment, as an array of bwa's `bseq1_t`.
#[derive(Default)]
pub struct Sequences {
    entries: Vec<BwaSequence>,
    /// Strings that `entries` point to, one arena per batch. An arena is never changed or reallocated after it was
    /// filled.
    arenas: Vec<Vec<u8>>,
}

// SAFETY: the pointers are null, or point to the heap memory of `arenas`, which moves to the other thread together with
// them.
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
    /// Calls `align` with the reads, and returns the SAM text that it has set. If there are no reads, `align` is not
    /// called.
    ///
    /// The pointers of each entry are null, or point to NUL-terminated strings that nothing else uses. `bases` is the
    /// length of the sequence, whose letters are printable ASCII.
    ///
    /// # Safety
    /// `align` must treat the entries as bwa's `mem_process_seqs` does. It must set `sam` of each entry to null or to a
    /// NUL-terminated string from `malloc`, and must not keep any of the pointers.
    pub unsafe fn align_with(mut self, align: impl FnOnce(&mut [BwaSequence])) -> SamTexts {
        if !self.entries.is_empty() {
            align(&mut self.entries);
        }
        SamTexts { texts: self.entries.iter().map(|entry| entry.sam).collect(), next_index: 0 }
    }
}

/// The SAM text of each read of a block, in the order of the reads. The text of a read is freed as soon as it has been
/// used.
pub struct SamTexts {
    texts: Vec<*mut c_char>,
    next_index: usize,
}

// SAFETY: the texts come from `malloc`, and only this value has pointers to them.
unsafe impl Send for SamTexts {}

impl SamTexts {
    /// Calls `use_text` with the SAM lines of the next read, each ending with a newline, and frees them. Returns `None`
    /// after the last read.
    fn with_next_read<T>(&mut self, use_text: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let text = *self.texts.get(self.next_index)?;
        if text.is_null() {
            self.next_index += 1;
            return Some(use_text(b""));
        }
        // SAFETY: bwa has set this pointer to a NUL-terminated string from `malloc`, which is freed once, after this
        // use.
        let result = use_text(unsafe { CStr::from_ptr(text) }.to_bytes());
        self.next_index += 1;
        // SAFETY: the string comes from `malloc`. `next_index` has advanced, so it is not used or freed again.
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
    /// Encodes the SAM lines of all reads, and frees the text of each read after its encoding.
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

/// Encodes the SAM lines of one read as records of the output streams.
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
