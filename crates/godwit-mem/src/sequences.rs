//! A block of reads as bwa wants them, and the SAM text it makes of them.
//!
//! Reads lie NUL-ended in one arena per batch, which bwa's structures point into; a block of 100 M bases takes a few
//! hundred allocations instead of millions, and all of it is gone the moment the block is aligned.

use std::ffi::{CStr, c_char, c_int};
use std::ptr;

use arrow_array::{Array, BinaryArray, RecordBatch};

use crate::MemLibrary;
use crate::error::Error;
use crate::layout::{InsertSizes, MemOptions, Sequence};

/// Reads of a block that wait to be aligned.
#[derive(Default)]
pub struct Sequences {
    entries: Vec<Sequence>,
    /// What `entries` point into; never touched again once they do.
    arenas: Vec<Vec<u8>>,
}

// SAFETY: the pointers lead into `arenas`, which travel along, or are null.
unsafe impl Send for Sequences {}

/// The columns of a batch of `schema::reads`.
struct Columns<'a> {
    name: &'a BinaryArray,
    comment: &'a BinaryArray,
    sequence: &'a BinaryArray,
    quality: &'a BinaryArray,
    keep_comments: bool,
}

impl<'a> Columns<'a> {
    fn of(batch: &'a RecordBatch, keep_comments: bool) -> Option<Self> {
        let column = |name| batch.column_by_name(name)?.as_any().downcast_ref::<BinaryArray>();
        Some(Self {
            name: column("name")?,
            comment: column("comment")?,
            sequence: column("sequence")?,
            quality: column("quality")?,
            keep_comments,
        })
    }

    /// Name, comment, sequence and quality of a read; an empty comment or quality counts as none, as in bwa.
    fn read(&self, row: usize) -> [Option<&'a [u8]>; 4] {
        let optional =
            |column: &'a BinaryArray| column.is_valid(row).then(|| column.value(row)).filter(|text| !text.is_empty());
        let comment = if self.keep_comments { optional(self.comment) } else { None };
        [Some(self.name.value(row)), comment, Some(self.sequence.value(row)), optional(self.quality)]
    }
}

impl Sequences {
    /// Number of reads.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Adds the reads of a batch of `schema::reads`.
    ///
    /// # Errors
    /// [`Error::Read`] for a read that bwa could not take without reading outside its tables: a letter that is not
    /// printable ASCII, a NUL, a quality of another length.
    pub fn push(&mut self, batch: &RecordBatch, keep_comments: bool) -> Result<(), Error> {
        let Some(columns) = Columns::of(batch, keep_comments) else {
            return Err(Error::Read { index: self.len(), problem: "its batch lacks a column" });
        };
        let reads = || (0..batch.num_rows()).map(|row| columns.read(row));
        let arena_bytes = reads().flatten().flatten().map(|text| text.len() + 1).sum();
        let mut arena = Vec::with_capacity(arena_bytes);
        for (row, read) in reads().enumerate() {
            check(&read).map_err(|problem| Error::Read { index: self.len() + row, problem })?;
            for text in read.into_iter().flatten() {
                arena.extend_from_slice(text);
                arena.push(0);
            }
        }
        let base: *mut u8 = arena.as_mut_ptr();
        let mut offset = 0;
        for read in reads() {
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

    /// Aligns the reads as one batch of bwa.
    ///
    /// `first_ordinal`: reads of the lane before this block. `read_group`: its ID, empty for none, at most 255 bytes.
    pub fn align<L: MemLibrary>(
        mut self,
        library: &L,
        options: &MemOptions,
        insert_sizes: Option<&[InsertSizes; 4]>,
        read_group: &CStr,
        first_ordinal: i64,
    ) -> SamTexts {
        if !self.entries.is_empty() {
            // SAFETY: each entry points to NUL-ended text in `arenas`, which nothing else refers to, with `bases` the length
            // of the sequence, whose letters `check` has found to be printable ASCII. Only the one aligning thread gets
            // here. `SamTexts` frees the answers.
            unsafe { library.align(options, read_group, first_ordinal, &mut self.entries, insert_sizes) }
        }
        SamTexts { texts: self.entries.iter().map(|entry| entry.sam).collect(), next: 0 }
    }
}

/// Why a read cannot be given to bwa.
fn check([name, comment, sequence, quality]: &[Option<&[u8]>; 4]) -> Result<(), &'static str> {
    let sequence = sequence.unwrap_or_default();
    if c_int::try_from(sequence.len()).is_err() {
        return Err("it has more than 2,147,483,647 bases");
    }
    // bwa looks letters up by a signed char, and takes 0 to 4 for bases that are encoded already.
    if !sequence.iter().all(u8::is_ascii_graphic) {
        return Err("its sequence has a byte that is not a letter");
    }
    if !name.unwrap_or_default().iter().all(|byte| *byte > b' ') {
        return Err("its name has white space or a control character");
    }
    if comment.is_some_and(|comment| comment.contains(&0)) {
        return Err("its comment has a NUL");
    }
    match quality {
        Some(quality) if quality.len() != sequence.len() => Err("its quality has another length than its sequence"),
        Some(quality) if quality.contains(&0) => Err("its quality has a NUL"),
        _ => Ok(()),
    }
}

/// SAM text of a block, per read in order; each is freed as it is passed.
pub struct SamTexts {
    texts: Vec<*mut c_char>,
    next: usize,
}

// SAFETY: the texts come from malloc and nobody else holds them.
unsafe impl Send for SamTexts {}

impl SamTexts {
    /// Number of reads.
    pub fn reads(&self) -> usize {
        self.texts.len()
    }

    /// Passes the lines of the next read, newline-ended, to `take` and frees them. `None` after the last read.
    pub fn next_read<T>(&mut self, take: impl FnOnce(&[u8]) -> T) -> Option<T> {
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
