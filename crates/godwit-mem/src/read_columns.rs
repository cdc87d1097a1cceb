//! The reads of a block, as the columns of the received batches.

use std::ffi::c_int;

use arrow_array::{Array, BinaryArray, RecordBatch};

use crate::BlockReads;
use crate::error::Error;

/// Maximum length of the name of a BAM record (SAMv1 §4.2). bwa-mem3 aborts on a longer one.
const MAX_NAME_BYTES: usize = 254;

/// A read. An empty comment or quality counts as absent, as in bwa.
#[derive(Clone, Copy, Debug)]
pub struct Read<'a> {
    /// Name without `@`, up to the first white space.
    pub name: &'a [u8],
    /// The rest of the name line, if `-C` keeps it.
    pub comment: Option<&'a [u8]>,
    /// Letters of the bases: printable ASCII.
    pub sequence: &'a [u8],
    /// Qualities, of the same length as the sequence.
    pub quality: Option<&'a [u8]>,
}

impl Read<'_> {
    /// Rejects a read that one of the libraries cannot process, with the reason.
    fn check_limits(&self) -> Result<(), &'static str> {
        if c_int::try_from(self.sequence.len()).is_err() {
            return Err("it has more than 2,147,483,647 bases");
        }
        // The libraries use letters as signed index into tables, and treat 0 to 4 as encoded bases.
        if !self.sequence.iter().all(u8::is_ascii_graphic) {
            return Err("its sequence has a byte that is not a letter");
        }
        if !self.name.iter().all(|byte| *byte > b' ') {
            return Err("its name has white space or a control character");
        }
        if self.comment.is_some_and(|comment| comment.contains(&0)) {
            return Err("its comment has a NUL");
        }
        match self.quality {
            Some(quality) if quality.len() != self.sequence.len() => {
                Err("its quality has another length than its sequence")
            }
            Some(quality) if quality.contains(&0) => Err("its quality has a NUL"),
            _ => Ok(()),
        }
    }
}

/// The columns of a batch of `schema::reads`.
pub struct ReadColumns {
    name: BinaryArray,
    comment: BinaryArray,
    sequence: BinaryArray,
    quality: BinaryArray,
    keep_comments: bool,
}

impl ReadColumns {
    /// Returns the columns of `batch`, with each of its reads checked. `before`: reads of the block before this batch.
    ///
    /// # Errors
    /// [`Error::InvalidRead`] for a read that makes a library read outside its tables: a letter that is not printable ASCII,
    /// a NUL, a quality of another length.
    pub fn new(batch: &RecordBatch, before: usize, keep_comments: bool) -> Result<Self, Error> {
        let column = |name| batch.column_by_name(name)?.as_any().downcast_ref::<BinaryArray>().cloned();
        let columns = || {
            let (name, comment) = (column("name")?, column("comment")?);
            Some(Self { name, comment, sequence: column("sequence")?, quality: column("quality")?, keep_comments })
        };
        let columns = columns().ok_or(Error::InvalidRead { index: before, problem: "its batch lacks a column" })?;
        for (row, read) in columns.iter().enumerate() {
            read.check_limits().map_err(|problem| Error::InvalidRead { index: before + row, problem })?;
        }
        Ok(columns)
    }

    /// Returns the number of reads.
    pub fn row_count(&self) -> usize {
        self.name.len()
    }

    /// Returns the read in a row.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn read(&self, row: usize) -> Read<'_> {
        fn optional(column: &BinaryArray, row: usize) -> Option<&[u8]> {
            column.is_valid(row).then(|| column.value(row)).filter(|text| !text.is_empty())
        }
        Read {
            name: self.name.value(row),
            comment: if self.keep_comments { optional(&self.comment, row) } else { None },
            sequence: self.sequence.value(row),
            quality: optional(&self.quality, row),
        }
    }

    /// Iterates over the reads in order.
    pub fn iter(&self) -> impl Iterator<Item = Read<'_>> {
        (0..self.row_count()).map(|row| self.read(row))
    }
}

/// All reads of a block, without copies.
#[derive(Default)]
pub struct ReadBatches {
    batches: Vec<ReadColumns>,
    /// For each batch, the number of reads up to its end.
    ends: Vec<usize>,
}

impl ReadBatches {
    /// Returns the read with a 0-based index within the block.
    ///
    /// # Panics
    /// If the block has fewer reads.
    pub fn read(&self, index: usize) -> Read<'_> {
        let batch = self.ends.partition_point(|end| *end <= index);
        let before = if batch == 0 { 0 } else { self.ends[batch - 1] };
        self.batches[batch].read(index - before)
    }
}

impl BlockReads for ReadBatches {
    fn push(&mut self, batch: &RecordBatch, keep_comments: bool) -> Result<(), Error> {
        let columns = ReadColumns::new(batch, self.read_count(), keep_comments)?;
        if let Some(row) = columns.iter().position(|read| read.name.len() > MAX_NAME_BYTES) {
            let problem = "its name is longer than the 254 bytes that BAM can hold";
            return Err(Error::InvalidRead { index: self.read_count() + row, problem });
        }
        if columns.row_count() > 0 {
            self.ends.push(self.read_count() + columns.row_count());
            self.batches.push(columns);
        }
        Ok(())
    }

    fn read_count(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }
}
