//! A summary of an index of unknown origin, which suffices to decide whether the index belongs to a given file.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use godwit_io::bgzf::{BgzfError, open_text};

use super::contig_index::first_bin;
use super::{BAI_DEPTH, FileChunk, IndexFormat};

/// The record counts of an index, and the ends of the file ranges to which it refers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexSummary {
    /// Number of mapped and of unmapped records of each contig; `None` for a contig without counts in the index.
    pub contig_counts: Vec<Option<(u64, u64)>>,
    /// For each contig, the smallest start and the greatest end of its chunks; `None` for a contig without records.
    pub contig_chunks: Vec<Option<FileChunk>>,
    /// Number of records without a contig; `None` if the index does not contain it.
    pub unplaced_records: Option<u64>,
    /// Greatest offset in the compressed file to which the index refers.
    pub last_compressed_offset: u64,
}

/// A reason why an index cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum IndexReadError {
    /// The index file cannot be read or decompressed.
    #[error(transparent)]
    Bgzf(#[from] BgzfError),
    /// The file is not a `.bai` or `.csi` index, is truncated, or is damaged gzip data.
    #[error("{} is not a complete .bai or .csi index", path.display())]
    Damaged {
        /// Path of the index.
        path: PathBuf,
    },
    /// The index belongs to a file with another number of contigs.
    #[error("{} is an index of {indexed} contigs, but the file has {expected}", path.display())]
    OtherContigs {
        /// Path of the index.
        path: PathBuf,
        /// Number of contigs of the index.
        indexed: u32,
        /// Number of contigs of the file.
        expected: usize,
    },
}

impl IndexSummary {
    /// Reads the `.bai` or `.csi` index of a file with `contigs` contigs; the format is detected from the content. This
    /// number, and not the content of the index, determines the memory used.
    ///
    /// # Errors
    /// [`IndexReadError`] if the index cannot be read, is damaged, or has another number of contigs.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::fs::File;
    ///
    /// use godwit_io::bgzf::RecordOffsets;
    /// use godwit_formats::binning_index::{IndexBuilder, IndexFormat, IndexSummary};
    /// use godwit_model::{Contig, Genome};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("a.bam.bai");
    /// # let contig = Contig { name: "chr1".to_owned(), length: 1_000_000, alternate: false };
    /// # let genome = Genome::new(vec![contig])?;
    /// let mut index = IndexBuilder::new(&genome);
    /// index.push(0, 100, 250, true, RecordOffsets { start: 0, end: 90 })?;
    /// index.push(-1, -1, 0, false, RecordOffsets { start: 90, end: 180 })?;
    /// index.write(IndexFormat::Bai, &genome, File::create(&path)?)?;
    ///
    /// let summary = IndexSummary::read(&path, 1)?;
    /// assert_eq!(summary.contig_counts, [Some((1, 0))]);
    /// assert_eq!(summary.unplaced_records, Some(1));
    /// # Ok(())
    /// # }
    /// ```
    pub fn read(path: &Path, contigs: usize) -> Result<Self, IndexReadError> {
        let damaged = || IndexReadError::Damaged { path: path.to_owned() };
        let mut fields = IndexFieldReader(open_text(path, 1)?);
        let (format, metadata_bin) = fields.read_format().ok_or_else(damaged)?;
        let indexed = fields.read_u32().ok_or_else(damaged)?;
        if usize::try_from(indexed) != Ok(contigs) {
            return Err(IndexReadError::OtherContigs { path: path.to_owned(), indexed, expected: contigs });
        }
        fields.read_summary(format, metadata_bin, contigs).ok_or_else(damaged)
    }
}

/// A reader of the fields of an index, which are consecutive little-endian numbers.
pub(super) struct IndexFieldReader<R>(pub(super) R);

impl<R: Read> IndexFieldReader<R> {
    /// Reads the format of the index, and returns it with the number of the metadata bin.
    pub(super) fn read_format(&mut self) -> Option<(IndexFormat, u32)> {
        let (format, depth) = match &self.read_array::<4>()? {
            b"BAI\x01" => (IndexFormat::Bai, BAI_DEPTH),
            b"CSI\x01" => {
                let (_, depth, auxiliary) = (self.read_u32()?, self.read_u32()?, self.read_u32()?);
                self.skip_bytes(auxiliary.into())?;
                (IndexFormat::Csi, depth)
            }
            _ => return None,
        };
        // With more than 9 levels, bin numbers would not fit into 32 bits (CSIv1).
        Some((format, (depth <= 9).then(|| first_bin(depth + 1) + 1)?))
    }

    /// Reads the rest of the index, after the number of contigs.
    fn read_summary(&mut self, format: IndexFormat, metadata_bin: u32, contigs: usize) -> Option<IndexSummary> {
        let mut summary = IndexSummary {
            contig_counts: Vec::new(),
            contig_chunks: Vec::new(),
            unplaced_records: None,
            last_compressed_offset: 0,
        };
        for _ in 0..contigs {
            let (mut counts, mut whole) = (None, None);
            for _ in 0..self.read_u32()? {
                let bin = self.read_u32()?;
                if format == IndexFormat::Csi {
                    self.read_u64()?;
                }
                for chunk in 0..self.read_u32()? {
                    let pair = (self.read_u64()?, self.read_u64()?);
                    match (bin == metadata_bin, chunk) {
                        (true, 1) => counts = Some(pair),
                        (true, _) => {}
                        (false, _) => {
                            summary.last_compressed_offset = summary.last_compressed_offset.max(pair.1 >> 16);
                            whole = join_chunks(whole, pair);
                        }
                    }
                }
            }
            if format == IndexFormat::Bai {
                let windows = self.read_u32()?;
                self.skip_bytes(u64::from(windows) * 8)?;
            }
            summary.contig_counts.push(counts);
            summary.contig_chunks.push(whole);
        }
        // The number of records without a contig is missing in indexes of old programs. No bytes may follow it.
        let mut rest = Vec::new();
        self.0.by_ref().take(9).read_to_end(&mut rest).ok()?;
        match <[u8; 8]>::try_from(&rest[..]) {
            Ok(last) => summary.unplaced_records = Some(u64::from_le_bytes(last)),
            Err(_) if rest.is_empty() => {}
            Err(_) => return None,
        }
        Some(summary)
    }

    fn read_array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.0.read_exact(&mut bytes).ok()?;
        Some(bytes)
    }

    pub(super) fn read_u32(&mut self) -> Option<u32> {
        self.read_array().map(u32::from_le_bytes)
    }

    pub(super) fn read_u64(&mut self) -> Option<u64> {
        self.read_array().map(u64::from_le_bytes)
    }

    pub(super) fn skip_bytes(&mut self, bytes: u64) -> Option<()> {
        (io::copy(&mut self.0.by_ref().take(bytes), &mut io::sink()).ok()? == bytes).then_some(())
    }
}

/// Returns the chunk from the smallest start to the greatest end of two chunks. An empty chunk does not count.
fn join_chunks(whole: Option<FileChunk>, chunk: FileChunk) -> Option<FileChunk> {
    let (start, end) = chunk;
    if start >= end {
        return whole;
    }
    Some(whole.map_or(chunk, |whole| (whole.0.min(start), whole.1.max(end))))
}

#[cfg(test)]
mod tests {
    use godwit_io::bgzf::RecordOffsets;
    use godwit_model::{Contig, Genome};

    use super::*;
    use crate::binning_index::IndexBuilder;

    #[test]
    fn counts_come_back_and_cut_indexes_are_refused() {
        for (length, format) in [(1 << 20, IndexFormat::Bai), (1 << 30, IndexFormat::Csi)] {
            let contigs = ["a", "b"].map(|name| Contig { name: name.into(), length, alternate: false });
            let genome = Genome::new(contigs.to_vec()).unwrap();
            let mut index = IndexBuilder::new(&genome);
            index.push(1, 10, 110, true, RecordOffsets { start: 5 << 16, end: 7 << 16 }).unwrap();
            index.push(1, 20, 21, false, RecordOffsets { start: 7 << 16, end: 9 << 16 | 3 }).unwrap();
            index.push(-1, -1, 0, false, RecordOffsets { start: 9 << 16 | 3, end: 9 << 16 | 6 }).unwrap();
            assert_eq!(IndexFormat::for_genome(&genome), format);
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("index");
            let mut bytes = Vec::new();
            index.write(format, &genome, &mut bytes).unwrap();
            std::fs::write(&path, &bytes).unwrap();
            let summary = IndexSummary::read(&path, 2).unwrap();
            assert_eq!(summary.contig_counts, [None, Some((1, 1))]);
            assert_eq!(summary.contig_chunks, [None, Some((5 << 16, 9 << 16 | 3))]);
            assert_eq!((summary.unplaced_records, summary.last_compressed_offset), (Some(1), 9));
            // A .bai without the last field is valid, because old programs wrote it so; any other truncation is
            // invalid.
            for cut in (0..bytes.len()).filter(|cut| format == IndexFormat::Csi || *cut != bytes.len() - 8) {
                std::fs::write(&path, &bytes[..cut]).unwrap();
                assert!(IndexSummary::read(&path, 2).is_err(), "{cut}");
            }
        }
    }

    #[test]
    fn an_index_that_unpacks_to_more_than_its_file_can_have_costs_nothing() {
        // An index that claims 256 MiB of contigs without bins, compressed to a few hundred kilobytes.
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.csi");
        let mut packed =
            flate2::write::GzEncoder::new(std::fs::File::create(&path).unwrap(), flate2::Compression::fast());
        let head = [&b"CSI\x01"[..], &14u32.to_le_bytes(), &5u32.to_le_bytes(), &[0; 4], &(64u32 << 20).to_le_bytes()];
        std::io::Write::write_all(&mut packed, &head.concat()).unwrap();
        for _ in 0..256 {
            std::io::Write::write_all(&mut packed, &vec![0; 1 << 20]).unwrap();
        }
        packed.finish().unwrap();
        let refused = IndexSummary::read(&path, 2);
        assert!(matches!(refused, Err(IndexReadError::OtherContigs { indexed: 67_108_864, .. })), "{refused:?}");
    }
}
