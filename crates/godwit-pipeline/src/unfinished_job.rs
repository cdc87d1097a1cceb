//! Reading of the aligned reads of an unfinished `align` job from its job directory.
//!
//! The job directory contains the blocks that are aligned so far, each of them sorted, and the
//! [journal](crate::journal), which lists the blocks. Reading takes no locks and writes no files, so that the job is not
//! affected. Duplicate flags are not available, because the job marks duplicates after the last block.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use godwit_files::{FileStamp, Journal};
use godwit_formats::bam::RecordBuffer;
use godwit_formats::sam::{Header, HeaderError};
use godwit_model::{IntervalSet, PartitionPlan, SortKey};

use crate::job_directory::{DIRECTORY_NAME, HEADER_FILE};
use crate::journal::{AlignJournalEntry, BlockEntry};
use crate::runs::{FrameLocation, RunTable, unpack_frame};

/// Maximum size of the frame table of a block, bytes. Even the largest block with very small frames has a smaller
/// table, so a larger one is damaged.
const MAX_TABLE_BYTES: u64 = 1 << 30;

/// The reason why an unfinished job cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum UnfinishedJobError {
    /// An I/O error of the file system.
    #[error("cannot read the job in {}", out.display())]
    Io {
        /// Output directory of the job.
        out: PathBuf,
        /// The I/O error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The files in the job directory are not those of a job, or are damaged.
    #[error("the job in {} cannot be read: {problem}", out.display())]
    Damaged {
        /// Output directory of the job.
        out: PathBuf,
        /// The problem, for the error message.
        problem: String,
    },
}

/// An `align` job whose outputs are not published yet.
#[derive(Debug)]
pub struct UnfinishedJob {
    out: PathBuf,
    header: Header,
    contigs: usize,
    blocks: File,
    version: u64,
}

/// Returns the name of the outputs of the job in a directory; `None` if the directory contains no readable job.
pub fn unfinished_output_name(out: &Path) -> Option<String> {
    let bytes = fs::read(out.join(DIRECTORY_NAME).join(HEADER_FILE)).ok()?;
    let line = bytes.split(|byte| *byte == b'\n').next()?;
    let name = String::from_utf8(line.to_vec()).ok()?;
    (!name.is_empty() && !name.contains('/') && !name.starts_with('.')).then_some(name)
}

impl UnfinishedJob {
    /// Opens the unfinished job that writes its outputs to directory `out`.
    ///
    /// # Errors
    /// An [`UnfinishedJobError`]. It contains an error of kind [`io::ErrorKind::NotFound`] if there is no job or if the
    /// job has ended.
    pub fn open(out: &Path) -> Result<Self, UnfinishedJobError> {
        let failed = |source| UnfinishedJobError::Io { out: out.to_owned(), source };
        let directory = out.join(DIRECTORY_NAME);
        let shown = directory.join(HEADER_FILE);
        // A job that starts over writes the header file again, so the stamp of this file identifies the job.
        let stamp = FileStamp::read(&shown).map_err(failed)?;
        let bytes = fs::read(&shown).map_err(failed)?;
        let text = bytes.iter().position(|byte| *byte == b'\n').map_or(&[][..], |end| &bytes[end + 1..]);
        let damaged =
            |error: HeaderError| UnfinishedJobError::Damaged { out: out.to_owned(), problem: error.to_string() };
        let header = Header::parse(text).map_err(damaged)?;
        let contigs = header.genome().map_err(damaged)?.contigs().len();
        let entries: Vec<AlignJournalEntry> = Journal::read(&directory.join("journal")).map_err(failed)?;
        let data = match entries.first() {
            Some(AlignJournalEntry::Start { data_directory: Some(bytes), .. }) => {
                std::ffi::OsString::from_vec(bytes.clone()).into()
            }
            _ => directory,
        };
        let blocks = File::open(data.join("blocks")).map_err(failed)?;
        let state = [stamp.inode, stamp.modified_s as u64, stamp.modified_ns as u64].map(u64::to_le_bytes);
        let hash = blake3::hash(state.as_flattened());
        let version = hash.as_bytes().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        Ok(Self { out: out.to_owned(), header, contigs, blocks, version })
    }

    fn io_error(&self, source: io::Error) -> UnfinishedJobError {
        UnfinishedJobError::Io { out: self.out.clone(), source }
    }

    fn damaged_error(&self, problem: &str) -> UnfinishedJobError {
        UnfinishedJobError::Damaged { out: self.out.clone(), problem: problem.to_owned() }
    }

    /// Returns the SAM header of the outputs.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns a number that identifies the job. It stays the same when blocks are added.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the number of partitions, and the entries of the blocks that are aligned so far.
    fn partitions_and_blocks(&self) -> Result<(usize, Vec<BlockEntry>), UnfinishedJobError> {
        let entries: Vec<AlignJournalEntry> = match Journal::read(&self.out.join(DIRECTORY_NAME).join("journal")) {
            Ok(entries) => entries,
            // The job has ended since it was opened, and has published its outputs.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(self.io_error(error)),
        };
        let (mut partitions, mut blocks) = (0, Vec::new());
        for entry in entries {
            match entry {
                AlignJournalEntry::Plan { starts } => {
                    let plan = PartitionPlan::from_starts(starts.into_iter().map(SortKey).collect());
                    partitions = plan.map_or(0, |plan| plan.partition_count());
                }
                AlignJournalEntry::Block(block) => blocks.push(block),
                _ => {}
            }
        }
        Ok((partitions, blocks))
    }

    /// Returns the number of records in the blocks that are aligned so far, and their compressed size in bytes.
    ///
    /// # Errors
    /// An [`UnfinishedJobError`] if the journal cannot be read.
    pub fn counts(&self) -> Result<(u64, u64), UnfinishedJobError> {
        let (_, blocks) = self.partitions_and_blocks()?;
        let sum = |of: fn(&BlockEntry) -> u64| blocks.iter().map(of).fold(0, u64::saturating_add);
        Ok((sum(|block| block.records), sum(|block| block.frame_bytes)))
    }

    /// Returns the frames of all blocks that are aligned so far, block by block. The frames of a block are in genome
    /// order. Each frame is a pair: its offset in the `blocks` file, and its compressed size (low 32 bits) with its
    /// decompressed size (high 32 bits), bytes. With `spans`, only frames that may contain an overlapping record are
    /// returned.
    ///
    /// # Errors
    /// An [`UnfinishedJobError`] if the journal or a frame table cannot be read.
    pub fn frames(&self, spans: Option<&IntervalSet>) -> Result<Vec<(u64, u64)>, UnfinishedJobError> {
        let (partitions, blocks) = self.partitions_and_blocks()?;
        let mut frames = Vec::new();
        for block in &blocks {
            let places = self.frame_locations(block, partitions)?;
            for (at, place) in places.iter().enumerate() {
                let next = places.get(at + 1).map_or(SortKey(u64::MAX), |next| next.first_key);
                if spans.is_none_or(|spans| may_overlap(spans, place.first_key, next, block.longest_bases)) {
                    frames.push((place.offset, u64::from(place.plain_bytes) << 32 | u64::from(place.stored_bytes)));
                }
            }
        }
        Ok(frames)
    }

    fn frame_locations(&self, block: &BlockEntry, partitions: usize) -> Result<Vec<FrameLocation>, UnfinishedJobError> {
        if block.table_bytes > MAX_TABLE_BYTES {
            return Err(self.damaged_error("the frame table of a block is too large"));
        }
        let mut table = vec![0; block.table_bytes as usize];
        let offset = block.offset + block.frame_bytes + block.pair_bytes + block.end_bytes;
        self.blocks.read_exact_at(&mut table, offset).map_err(|error| self.io_error(error))?;
        RunTable(table).frame_locations(partitions).ok_or_else(|| {
            self.damaged_error("the frame table of a block is invalid; open the dataset again if the job was restarted")
        })
    }

    /// Reads the records of a frame in genome order. The frame is a pair that [`UnfinishedJob::frames`] has returned.
    ///
    /// # Errors
    /// An [`UnfinishedJobError`] if the frame cannot be read or is damaged.
    pub fn read_frame(&self, (offset, bytes): (u64, u64), chunk: &mut RecordBuffer) -> Result<(), UnfinishedJobError> {
        let mut packed = vec![0; bytes as u32 as usize];
        self.blocks.read_exact_at(&mut packed, offset).map_err(|error| self.io_error(error))?;
        let unpacked = unpack_frame(&packed, (bytes >> 32) as u32, self.contigs, chunk);
        unpacked.map_err(|error| self.damaged_error(&error.to_string()))
    }
}

/// Reports whether records with sort keys from `first` to `next` may overlap an interval. `longest_bases`: the maximum
/// length of a record on the reference.
fn may_overlap(spans: &IntervalSet, first: SortKey, next: SortKey, longest_bases: u32) -> bool {
    spans.iter().any(|(contig, start, end)| {
        if contig == IntervalSet::UNPLACED {
            return next >= SortKey::UNPLACED;
        }
        // A sort key contains the position plus one, which must not exceed the greatest position.
        let key = |position: u32| SortKey::new(contig as i32, position.min(i32::MAX as u32 - 1) as i32, false);
        first < key(end) && next >= key(start.saturating_sub(longest_bases))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_left_out_where_no_record_of_theirs_can_reach_a_span() {
        let spans = IntervalSet::new([(1, 1000, 1100)]);
        let key = |contig: i32, position: i32| SortKey::new(contig, position, false);
        let may = |first, next| may_overlap(&spans, first, next, 150);
        assert!(may(key(1, 0), key(1, 850)) && may(key(1, 1050), key(2, 0)) && may(key(0, 7), key(2, 7)));
        assert!(!may(key(1, 0), key(1, 849)) && !may(key(1, 1100), key(2, 0)) && !may(key(0, 0), key(0, 1050)));
        // If the maximum length is unknown, a record may have any length.
        assert!(may_overlap(&spans, key(1, 0), key(1, 1), u32::MAX));
        let whole = IntervalSet::new([(1, 0, i32::MAX as u32)]);
        let may = |first, next| may_overlap(&whole, first, next, 150);
        assert!(may(key(1, 0), key(1, 849)) && may(key(1, 1100), key(2, 0)) && !may(key(2, 0), key(2, 9)));
        let unplaced = IntervalSet::new([(IntervalSet::UNPLACED, 0, i32::MAX as u32)]);
        let may = |first, next| may_overlap(&unplaced, first, next, 150);
        assert!(may(SortKey::UNPLACED, SortKey::UNPLACED) && may(key(1, 0), SortKey(u64::MAX)));
        assert!(!may(key(1, 0), key(2, 0)));
    }
}
