//! The reads of a run that is not over, as its run directory has them.
//!
//! Blocks that are aligned lie there, sorted, and named by the [journal](crate::journal). Nothing is locked and nothing is
//! written: the run goes on as if nobody looked. What is not in it yet is which reads are duplicates, which is known last.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use godwit_formats::bam::RecordChunk;
use godwit_formats::sam::{Header, HeaderError};
use godwit_model::{PartitionPlan, SortKey, SpanSet};

use crate::journal::{self, BlockEntry, Entry};
use crate::run_directory::{LIVE, NAME};
use crate::runs::{FramePlace, RunTable, unpack_frame};

/// A table of more bytes is none: that of the largest block, of tiny frames.
const MOST_TABLE_BYTES: u64 = 1 << 30;

/// Why a run that is not over cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LiveRunError {
    /// What the file system reports.
    #[error("cannot read the run in {}", out.display())]
    Io {
        /// Its output directory.
        out: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Its files are none of a run.
    #[error("the run in {} cannot be read: {problem}", out.display())]
    Damaged {
        /// Its output directory.
        out: PathBuf,
        /// What is wrong.
        problem: String,
    },
}

/// A run that is not over.
#[derive(Debug)]
pub struct LiveRun {
    out: PathBuf,
    header: Header,
    contigs: usize,
    blocks: File,
    version: u64,
}

/// The name of the outputs that a run makes in a directory; `None` where there is none that can be looked at.
pub fn live_name(out: &Path) -> Option<String> {
    let bytes = fs::read(out.join(NAME).join(LIVE)).ok()?;
    let line = bytes.split(|byte| *byte == b'\n').next()?;
    let name = String::from_utf8(line.to_vec()).ok()?;
    (!name.is_empty() && !name.contains('/') && !name.starts_with('.')).then_some(name)
}

impl LiveRun {
    /// Opens the run that makes outputs in a directory.
    ///
    /// # Errors
    /// [`LiveRunError`]; one of [`io::ErrorKind::NotFound`] where there is no run, or it has ended.
    pub fn open(out: &Path) -> Result<Self, LiveRunError> {
        let failed = |source| LiveRunError::Io { out: out.to_owned(), source };
        let directory = out.join(NAME);
        let shown = directory.join(LIVE);
        // A run that starts over makes this file anew.
        let metadata = fs::metadata(&shown).map_err(failed)?;
        let bytes = fs::read(&shown).map_err(failed)?;
        let text = bytes.iter().position(|byte| *byte == b'\n').map_or(&[][..], |end| &bytes[end + 1..]);
        let damaged = |error: HeaderError| LiveRunError::Damaged { out: out.to_owned(), problem: error.to_string() };
        let header = Header::parse(text).map_err(damaged)?;
        let contigs = header.genome().map_err(damaged)?.contigs().len();
        let entries: Vec<Entry> = journal::read(&directory.join("journal")).map_err(failed)?;
        let data = match entries.first() {
            Some(Entry::Start { data: Some(bytes), .. }) => std::ffi::OsString::from_vec(bytes.clone()).into(),
            _ => directory,
        };
        let blocks = File::open(data.join("blocks")).map_err(failed)?;
        let state = [metadata.ino(), metadata.mtime() as u64, metadata.mtime_nsec() as u64].map(u64::to_le_bytes);
        let hash = blake3::hash(state.as_flattened());
        let version = hash.as_bytes().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        Ok(Self { out: out.to_owned(), header, contigs, blocks, version })
    }

    fn failed(&self, source: io::Error) -> LiveRunError {
        LiveRunError::Io { out: self.out.clone(), source }
    }

    fn damaged(&self, problem: &str) -> LiveRunError {
        LiveRunError::Damaged { out: self.out.clone(), problem: problem.to_owned() }
    }

    /// The header that its outputs get.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Not the same for two runs; blocks that come do not change it.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// How the genome is cut, and the blocks that are aligned by now.
    fn blocks(&self) -> Result<(usize, Vec<BlockEntry>), LiveRunError> {
        let entries: Vec<Entry> = match journal::read(&self.out.join(NAME).join("journal")) {
            Ok(entries) => entries,
            // It has just ended, and its outputs are there.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(self.failed(error)),
        };
        let (mut partitions, mut blocks) = (0, Vec::new());
        for entry in entries {
            match entry {
                Entry::Plan { starts } => {
                    let plan = PartitionPlan::from_starts(starts.into_iter().map(SortKey).collect());
                    partitions = plan.map_or(0, |plan| plan.partitions());
                }
                Entry::Block(block) => blocks.push(block),
                _ => {}
            }
        }
        Ok((partitions, blocks))
    }

    /// Records of the blocks that are aligned by now, and the bytes they take.
    ///
    /// # Errors
    /// [`LiveRunError`].
    pub fn counts(&self) -> Result<(u64, u64), LiveRunError> {
        let (_, blocks) = self.blocks()?;
        let sum = |of: fn(&BlockEntry) -> u64| blocks.iter().map(of).fold(0, u64::saturating_add);
        Ok((sum(|block| block.records), sum(|block| block.frame_bytes)))
    }

    /// Frames of the blocks that are aligned by now, block by block, each in the order of the genome: where a frame is, and its bytes
    /// packed (low half) and plain (high half). With spans only those that may have a record that overlaps one.
    ///
    /// # Errors
    /// [`LiveRunError`].
    pub fn frames(&self, spans: Option<&SpanSet>) -> Result<Vec<(u64, u64)>, LiveRunError> {
        let (partitions, blocks) = self.blocks()?;
        let mut frames = Vec::new();
        for block in &blocks {
            let places = self.places(block, partitions)?;
            for (at, place) in places.iter().enumerate() {
                let next = places.get(at + 1).map_or(SortKey(u64::MAX), |next| next.first_key);
                if spans.is_none_or(|spans| may_overlap(spans, place.first_key, next, block.longest_bases)) {
                    frames.push((place.offset, u64::from(place.plain_bytes) << 32 | u64::from(place.stored_bytes)));
                }
            }
        }
        Ok(frames)
    }

    fn places(&self, block: &BlockEntry, partitions: usize) -> Result<Vec<FramePlace>, LiveRunError> {
        if block.table_bytes > MOST_TABLE_BYTES {
            return Err(self.damaged("a block has a table that none can have"));
        }
        let mut table = vec![0; block.table_bytes as usize];
        let offset = block.offset + block.frame_bytes + block.pair_bytes + block.end_bytes;
        self.blocks.read_exact_at(&mut table, offset).map_err(|error| self.failed(error))?;
        RunTable(table)
            .places(partitions)
            .ok_or_else(|| self.damaged("the table of a block is none; it may have begun anew"))
    }

    /// Reads the records of a frame, as [`LiveRun::frames`] tells it, in the order of their places.
    ///
    /// # Errors
    /// [`LiveRunError`].
    pub fn read_frame(&self, (offset, bytes): (u64, u64), chunk: &mut RecordChunk) -> Result<(), LiveRunError> {
        let mut packed = vec![0; bytes as u32 as usize];
        self.blocks.read_exact_at(&mut packed, offset).map_err(|error| self.failed(error))?;
        let unpacked = unpack_frame(&packed, (bytes >> 32) as u32, self.contigs, chunk);
        unpacked.map_err(|error| self.damaged(&error.to_string()))
    }
}

/// Whether records with keys from `first` to `next` and no longer than that may overlap one of the spans.
fn may_overlap(spans: &SpanSet, first: SortKey, next: SortKey, longest_bases: u32) -> bool {
    spans.iter().any(|(contig, start, end)| {
        let key = |position: u32| SortKey::new(contig as i32, position.min(i32::MAX as u32) as i32, false);
        first < key(end) && next >= key(start.saturating_sub(longest_bases))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_left_out_where_no_record_of_theirs_can_reach_a_span() {
        let spans = SpanSet::new([(1, 1000, 1100)]);
        let key = |contig: i32, position: i32| SortKey::new(contig, position, false);
        let may = |first, next| may_overlap(&spans, first, next, 150);
        assert!(may(key(1, 0), key(1, 850)) && may(key(1, 1050), key(2, 0)) && may(key(0, 7), key(2, 7)));
        assert!(!may(key(1, 0), key(1, 849)) && !may(key(1, 1100), key(2, 0)) && !may(key(0, 0), key(0, 1050)));
        // Where nobody counted, a record may be as long as can be.
        assert!(may_overlap(&spans, key(1, 0), key(1, 1), u32::MAX));
    }
}
