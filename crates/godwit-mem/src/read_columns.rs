//! Access to the reads of a block in the columns of the received Arrow record batches.

use std::ffi::c_int;

use arrow_array::{Array, BinaryArray, RecordBatch};

use crate::BlockReads;
use crate::error::Error;

/// Maximum length in bytes of a read name in BAM (SAMv1 §4.2). bwa-mem3 aborts the process on a longer name.
const MAX_NAME_BYTES: usize = 254;

/// A read to align. As in bwa, an empty comment or quality string counts as absent.
#[derive(Clone, Copy, Debug)]
pub struct Read<'a> {
    /// Read name: the name line of the FASTQ record from after `@` up to the first white space.
    pub name: &'a [u8],
    /// The name line after the white space; `None` without the option `-C`.
    pub comment: Option<&'a [u8]>,
    /// Letters of the bases, all printable ASCII.
    pub sequence: &'a [u8],
    /// Phred+33 qualities, of the same length as the sequence.
    pub quality: Option<&'a [u8]>,
}

impl Read<'_> {
    /// Returns the reason if the library of bwa or bwa-mem3 cannot process this read.
    fn check_limits(&self) -> Result<(), &'static str> {
        if c_int::try_from(self.sequence.len()).is_err() {
            return Err("it has more than 2,147,483,647 bases");
        }
        // The libraries use each letter as a signed index into tables, and interpret the bytes 0 to 4 as encoded bases.
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

/// The columns of an Arrow record batch with the schema `schema::pipe_reads`.
pub struct ReadColumns {
    name: BinaryArray,
    comment: BinaryArray,
    sequence: BinaryArray,
    quality: BinaryArray,
    keep_comments: bool,
}

impl ReadColumns {
    /// Validates all reads of `batch` and returns its columns. `before` is the number of reads in the block before this
    /// batch.
    ///
    /// # Errors
    /// [`Error::InvalidRead`] if the batch lacks a column, or a read would make a library access memory outside its
    /// tables: a letter that is not printable ASCII, a NUL, or qualities whose length differs from that of the
    /// sequence.
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

    /// Returns the number of reads in the batch.
    pub fn row_count(&self) -> usize {
        self.name.len()
    }

    /// Returns the read in a row of the batch, from 0.
    ///
    /// # Panics
    /// If the batch has fewer rows.
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

    /// Returns an iterator over the reads of the batch, in order.
    pub fn iter(&self) -> impl Iterator<Item = Read<'_>> {
        (0..self.row_count()).map(|row| self.read(row))
    }
}

/// All reads of a block, stored as the received record batches without copying the strings.
#[derive(Default)]
pub struct ReadBatches {
    batches: Vec<ReadColumns>,
    /// For each batch, the number of reads in this and all earlier batches.
    ends: Vec<usize>,
}

impl ReadBatches {
    /// Returns the read with this 0-based index in the block.
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
