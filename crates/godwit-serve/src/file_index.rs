//! The index file beside a data file, and the check whether it can be used.

use godwit_dataset::{DatasetError, ScanPart};
use godwit_formats::binning_index::{FileChunk, IndexReadError, RegionIndex, merge_chunks};
use godwit_model::message_with_causes;

use crate::bucket::find_remote_error;
use crate::file_snapshot::{DatasetSnapshot, FileSnapshot};
use crate::file_store::FileStore;
use crate::read_error::dataset_error;

/// The state of the index of a data file.
#[derive(Debug)]
pub(crate) enum FileIndex {
    /// The index was read and can be used.
    Usable(Box<RegionIndex>),
    /// The index does not exist, so the whole file must be read to find the records of a region.
    Missing,
    /// The index exists but cannot be used.
    Unusable {
        /// Description of the reason, and of the remedy.
        problem: String,
    },
}

impl FileIndex {
    /// Reads the index beside a data file. `command`: command line that builds such an index, for error messages.
    ///
    /// # Errors
    /// [`DatasetError`] only for errors of an object store. If a local index cannot be read, the result is
    /// [`FileIndex::Unusable`].
    pub(crate) fn read_beside(store: &FileStore, seen: &DatasetSnapshot, command: &str) -> Result<Self, DatasetError> {
        let (file, Some(index)) = (seen.single_file()?, &seen.index) else { return Ok(Self::Missing) };
        let unusable = |problem: String| {
            let problem = format!("{problem} build it again with `{command} {}`", file.path.display());
            Ok(Self::Unusable { problem })
        };
        if let Some(problem) = staleness_problem(file, index) {
            return unusable(problem);
        }
        match read_index(store, index)? {
            Ok(found) if found.last_compressed_offset() > file.bytes => {
                unusable(format!("the index {} refers to offsets after the end of its file;", index.path.display()))
            }
            Ok(found) => Ok(Self::Usable(Box::new(found))),
            Err(problem) => unusable(problem + ";"),
        }
    }

    /// Returns the index; `None` if it does not exist.
    ///
    /// # Errors
    /// [`DatasetError::InvalidRequest`] if the index exists but cannot be used.
    pub(crate) fn usable_or_error(&self) -> Result<Option<&RegionIndex>, DatasetError> {
        match self {
            Self::Usable(index) => Ok(Some(index)),
            Self::Missing => Ok(None),
            Self::Unusable { problem } => Err(DatasetError::InvalidRequest { problem: problem.clone() }),
        }
    }

    /// Returns the index; `None` if it does not exist or cannot be used.
    pub(crate) fn usable(&self) -> Option<&RegionIndex> {
        match self {
            Self::Usable(index) => Some(index),
            Self::Missing | Self::Unusable { .. } => None,
        }
    }

    /// Splits the records of the whole file into at most `most` parts. `first`: virtual offset of the first record;
    /// `bytes`: size of the file.
    pub(crate) fn whole_file_parts(&self, first: u64, bytes: u64, most: usize) -> Vec<ScanPart> {
        let cuts = self.usable().map(|index| index.split_offsets(first, bytes, most)).unwrap_or_default();
        let starts = [first].into_iter().chain(cuts.iter().copied());
        let ends = cuts.iter().copied().chain([u64::MAX]);
        starts.zip(ends).map(|chunk| ScanPart { ranges: vec![chunk] }).collect()
    }

    /// Divides a part of a file of `bytes` bytes into pieces of at least [`PIECE_BYTES`], as far as the index knows records
    /// in it; returns the part itself if it is small.
    pub(crate) fn pieces(&self, part: &ScanPart, bytes: u64) -> Vec<ScanPart> {
        let length = |(start, end): FileChunk| (end >> 16).min(bytes).saturating_sub(start >> 16);
        let is_small = part.ranges.iter().map(|range| length(*range)).sum::<u64>() < MIN_PART_BYTES;
        let Some(index) = self.usable().filter(|_| !is_small) else { return vec![part.clone()] };
        let offsets = index.record_offsets();
        let (mut pieces, mut piece, mut filled) = (Vec::new(), ScanPart::default(), 0);
        for (mut start, end) in part.ranges.iter().copied() {
            let after_start = &offsets[offsets.partition_point(|offset| *offset <= start)..];
            for cut in after_start.iter().copied().take_while(|offset| *offset < end) {
                if filled + length((start, cut)) >= PIECE_BYTES {
                    piece.ranges.push((start, cut));
                    pieces.push(std::mem::take(&mut piece));
                    (start, filled) = (cut, 0);
                }
            }
            piece.ranges.push((start, end));
            filled += length((start, end));
        }
        pieces.push(piece);
        pieces
    }
}

/// Returns a description of the problem if the index is older than its data file; `None` otherwise.
pub(crate) fn staleness_problem(file: &FileSnapshot, index: &FileSnapshot) -> Option<String> {
    let (of_file, of_index) = file.modified.zip(index.modified)?;
    (of_index < of_file).then(|| {
        format!(
            "the index {} is older than its file, so it may be the index of an earlier file; if it is correct, update \
             its time with touch, or",
            index.path.display()
        )
    })
}

/// Reads an index file. The inner error is the reason why the index cannot be used.
fn read_index(store: &FileStore, index: &FileSnapshot) -> Result<Result<RegionIndex, String>, DatasetError> {
    let input = match store.open_text(index) {
        Ok(input) => input,
        Err(error @ (DatasetError::Remote(_) | DatasetError::Changed { .. })) => return Err(error),
        Err(error) => return Ok(Err(message_with_causes(&error))),
    };
    match RegionIndex::read_from(input) {
        Ok(found) => Ok(Ok(found)),
        Err(error @ IndexReadError::Bgzf(_)) if find_remote_error(&error).is_some() => Err(dataset_error(error)),
        Err(error) => Ok(Err(message_with_causes(&error))),
    }
}

/// Minimum size of a part, as compressed bytes. Reading such a part takes some milliseconds, so smaller parts are not
/// worthwhile.
const MIN_PART_BYTES: u64 = 1 << 20;

/// Minimum size of a piece of a part, as compressed bytes: usually a batch of reads, or a few batches of variants.
const PIECE_BYTES: u64 = 256 << 10;

/// Distributes chunks, in their order, to at most `most` parts of similar size. A chunk is never split, because no
/// start of a record inside it is known. A part may also contain records between its chunks.
pub(crate) fn parts_of_chunks(chunks: Vec<FileChunk>, most: usize) -> Vec<ScanPart> {
    // Chunks of different regions may overlap. Merge them, so that no record is read twice.
    let chunks = merge_chunks(chunks);
    let bytes = |chunk: &FileChunk| (chunk.1 >> 16) - (chunk.0 >> 16) + 1;
    let total = chunks.iter().map(bytes).sum::<u64>();
    let share = total.div_ceil(most.max(1) as u64).max(MIN_PART_BYTES);
    let (mut parts, mut filled) = (Vec::new(), 0);
    for chunk in chunks {
        if parts.is_empty() || filled >= share {
            parts.push(ScanPart::default());
            filled = 0;
        }
        filled += bytes(&chunk);
        if let Some(part) = parts.last_mut() {
            part.ranges.push(chunk);
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use godwit_formats::binning_index::{IndexBuilder, IndexFormat};
    use godwit_io::bgzf::RecordOffsets;
    use godwit_model::{Contig, Genome};

    use super::*;

    #[test]
    fn pieces_are_cut_at_records_and_have_all_ranges_of_their_part() -> Result<(), Box<dyn std::error::Error>> {
        let contig = Contig { name: "chr1".to_owned(), length: 400_000_000, alternate: false };
        let genome = Genome::new(vec![contig])?;
        let mut builder = IndexBuilder::new(&genome);
        let block = 10_000;
        for number in 0..1000 {
            let offsets = RecordOffsets { start: (number * block) << 16, end: ((number + 1) * block) << 16 };
            builder.push(0, number as i32 * 20_000, number as i32 * 20_000 + 150, true, offsets)?;
        }
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("a.bam.bai");
        builder.write(IndexFormat::Bai, &genome, std::fs::File::create(&path)?)?;
        let index = FileIndex::Usable(Box::new(RegionIndex::read(&path)?));
        let ranges = vec![(0, 2_000_000 << 16), (5_000_000 << 16, u64::MAX)];
        let pieces = index.pieces(&ScanPart { ranges: ranges.clone() }, 1000 * block);
        assert_eq!(pieces.len(), 26);
        let mut joined: Vec<FileChunk> = Vec::new();
        for range in pieces.iter().flat_map(|piece| &piece.ranges) {
            assert!((range.0 >> 16).is_multiple_of(block), "a record begins there");
            match joined.last_mut() {
                Some(last) if last.1 == range.0 => last.1 = range.1,
                _ => joined.push(*range),
            }
        }
        assert_eq!(joined, ranges);
        // A region between two records may give a range that is empty.
        let empty = (2_000_000 << 16, 2_000_000 << 16);
        let with_empty = ScanPart { ranges: vec![ranges[0], empty, ranges[1]] };
        assert_eq!(index.pieces(&with_empty, 1000 * block).len(), 26);
        let small = ScanPart { ranges: vec![(0, 1_000_000 << 16)] };
        assert_eq!(index.pieces(&small, 1000 * block), std::slice::from_ref(&small));
        assert_eq!(FileIndex::Missing.pieces(&pieces[0], 1000 * block), &pieces[..1]);
        Ok(())
    }

    #[test]
    fn chunks_that_overlap_are_read_once_and_split_in_order() {
        let parts = |chunks: &[FileChunk], most| -> Vec<_> {
            parts_of_chunks(chunks.to_vec(), most).into_iter().map(|part| part.ranges).collect()
        };
        let few = [(5 << 16, 9 << 16), (0, 2 << 16), (8 << 16, 12 << 16), (1 << 16, 2 << 16)];
        assert_eq!(parts(&few, 2), [vec![(0, 2 << 16), (5 << 16, 12 << 16)]]);
        let in_one_block = [(3 << 16, (5 << 16) | 100), ((5 << 16) | 700, (5 << 16) | 900), (6 << 16, 7 << 16)];
        assert_eq!(parts(&in_one_block, 2), [vec![(3 << 16, (5 << 16) | 900), (6 << 16, 7 << 16)]]);
        let long = [0, 2, 4].map(|start| ((start * MIN_PART_BYTES) << 16, ((start + 1) * MIN_PART_BYTES) << 16));
        assert_eq!(parts(&long, 3), long.map(|chunk| vec![chunk]));
        assert_eq!(parts(&long, 1), [long]);
        let short = long.map(|(start, _)| (start, start + (9 << 16)));
        assert_eq!(parts(&short, 3), [short], "not worth it");
        assert!(parts_of_chunks(Vec::new(), 3).is_empty());
    }
}
