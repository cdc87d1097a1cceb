//! Comparison of a BAM file with an index, to detect the index of another file.
//!
//! An index of another file refers to offsets at which this file has no records, or records of other contigs. Programs
//! that read the file by such an index may find no records and report no error.

use godwit_io::bgzf::{BgzfError, SeekReader, VirtualOffset};
use godwit_model::RawRecord;

use super::BamFile;
use crate::bam::BamError;
use crate::bam::reader::append_record;
use crate::binning_index::FileChunk;

/// Contig of records without a contig, which follow all others (SAMv1 §4.2).
const NO_CONTIG: i32 = -1;

/// A difference between a BAM file and an index, which shows that the index belongs to another file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexMismatch {
    /// The records of a contig do not begin where the index has their start.
    #[error(
        "the file has no record of contig {contig} at virtual offset {offset}, where its records begin in the index"
    )]
    Start {
        /// Name of the contig.
        contig: String,
        /// Start of the first chunk of the contig in the index.
        offset: VirtualOffset,
    },
    /// The records of a contig do not end where the index has their end.
    #[error("the records of contig {contig} do not end at virtual offset {offset}, where they end in the index")]
    End {
        /// Name of the contig.
        contig: String,
        /// End of the last chunk of the contig in the index.
        offset: VirtualOffset,
    },
    /// The file has records of a contig that the index does not have.
    #[error("the file has records of contig {contig} at virtual offset {offset}, but the index has none there")]
    NotIndexed {
        /// Name of the contig.
        contig: String,
        /// Offset of the first of the records that were found.
        offset: VirtualOffset,
    },
}

impl BamFile {
    /// Compares the file with an index: the records of each contig must begin and end where they do in the index, and
    /// there must not be records of other contigs before, between and after them. `contig_chunks` is [`IndexSummary::contig_chunks`]. At most about `max_contigs` contigs with records are
    /// compared, evenly distributed; two blocks are read for each. Returns `None` if the index matches the file.
    ///
    /// [`IndexSummary::contig_chunks`]: crate::binning_index::IndexSummary::contig_chunks
    ///
    /// # Errors
    /// [`BamError::Bgzf`] if the file cannot be read. Damaged data at the offsets of the index is a mismatch.
    pub fn find_index_mismatch(
        &self,
        contig_chunks: &[Option<FileChunk>],
        max_contigs: usize,
    ) -> Result<Option<IndexMismatch>, BamError> {
        let contigs = self.genome.contigs().iter().zip(contig_chunks).enumerate();
        let indexed: Vec<(i32, &str, FileChunk)> =
            contigs.filter_map(|(id, (contig, chunk))| Some((id as i32, contig.name.as_str(), (*chunk)?))).collect();
        let step = indexed.len().div_ceil(max_contigs.max(1)).max(1);
        let mut input = SeekReader::new(self.source.clone());
        // `found` is the contig of the record at `offset`, and `next` the first contig of the index from there on.
        let not_indexed = |found: Option<i32>, next: Option<&(i32, &str, FileChunk)>, offset: VirtualOffset| {
            let id = found.filter(|id| *id >= 0 && next.is_none_or(|(next, ..)| id < next))?;
            let contig = self.genome.contigs()[id as usize].name.clone();
            Some(IndexMismatch::NotIndexed { contig, offset })
        };
        let first = self.first_record_offset;
        let mismatch = not_indexed(self.contig_at(&mut input, first)?, indexed.first(), first);
        if mismatch.is_some() {
            return Ok(mismatch);
        }
        // The last contig is always compared: its offsets differ most from those of another file.
        for at in (0..indexed.len()).step_by(step).chain(indexed.len().checked_sub(1)) {
            let (id, contig, (start, end)) = &indexed[at];
            let (id, contig) = (*id, (*contig).to_owned());
            if self.contig_at(&mut input, *start)? != Some(id) {
                return Ok(Some(IndexMismatch::Start { contig, offset: *start }));
            }
            let next = self.contig_at(&mut input, *end)?;
            if !next.is_some_and(|next| next == NO_CONTIG || next > id) {
                return Ok(Some(IndexMismatch::End { contig, offset: *end }));
            }
            let mismatch = not_indexed(next, indexed.get(at + 1), *end);
            if mismatch.is_some() {
                return Ok(mismatch);
            }
        }
        Ok(None)
    }

    /// Returns the contig of the record at a virtual offset, or [`NO_CONTIG`] at the end of the file. Returns `None` if
    /// there is neither a record nor the end of the file.
    fn contig_at(&self, input: &mut SeekReader, offset: VirtualOffset) -> Result<Option<i32>, BamError> {
        // Some programs take the end of the last chunk after the end-of-file block.
        if offset == self.source.byte_len() << 16 {
            return Ok(Some(NO_CONTIG));
        }
        let mut record = Vec::new();
        let contig_count = self.genome.contigs().len();
        let read = input.seek(offset).and_then(|()| append_record(input, contig_count, &mut record));
        match read {
            Ok(Ok(true)) => Ok(Some(RawRecord::from_trusted_bytes(&record).contig())),
            Ok(Ok(false)) => Ok(Some(NO_CONTIG)),
            // The index may match although another field of the record is invalid.
            Ok(Err(Some(_))) => Ok(RawRecord::from_bytes(&record, contig_count).ok().map(RawRecord::contig)),
            Err(error @ BgzfError::Io { .. }) => Err(error.into()),
            Ok(Err(None)) | Err(_) => Ok(None),
        }
    }
}
