//! What an index of unknown origin says of its file: enough to tell whether they belong together.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::contig::first_bin;
use super::{BAI_DEPTH, IndexFormat};
use crate::bgzf::{BgzfError, open_text};

/// Records per contig, and how far into the file the index points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexSummary {
    /// Mapped and unmapped records of each contig, where the index counts them.
    pub contigs: Vec<Option<(u64, u64)>>,
    /// Records without a contig, where the index counts them.
    pub without_contig: Option<u64>,
    /// Greatest offset in the compressed file that it points to.
    pub last_offset: u64,
}

/// Why an index cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum IndexReadError {
    /// The file is not there.
    #[error(transparent)]
    Bgzf(#[from] BgzfError),
    /// It is neither `.bai` nor `.csi`, is cut short, or is damaged gzip.
    #[error("{} is no whole .bai or .csi index", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// It is of a file with other contigs.
    #[error("{} is for {indexed} contigs, not {expected}", path.display())]
    OtherContigs {
        /// The file.
        path: PathBuf,
        /// Contigs that it is for.
        indexed: u32,
        /// Contigs that it should be for.
        expected: usize,
    },
}

impl IndexSummary {
    /// Reads the index of a file with `contigs` contigs, in either format, told apart by content. Memory goes by that
    /// number, not by what the index says or unpacks to.
    ///
    /// # Errors
    /// [`IndexReadError`].
    pub fn read(path: &Path, contigs: usize) -> Result<Self, IndexReadError> {
        let damaged = || IndexReadError::Damaged { path: path.to_owned() };
        let mut fields = Fields(open_text(path, 1)?);
        let (format, metadata_bin) = fields.head().ok_or_else(damaged)?;
        let indexed = fields.short().ok_or_else(damaged)?;
        if usize::try_from(indexed) != Ok(contigs) {
            return Err(IndexReadError::OtherContigs { path: path.to_owned(), indexed, expected: contigs });
        }
        fields.summary(format, metadata_bin, contigs).ok_or_else(damaged)
    }
}

/// Little-endian numbers, one behind the other.
pub(super) struct Fields<R>(pub(super) R);

impl<R: Read> Fields<R> {
    /// The format, and the bin that holds counts.
    pub(super) fn head(&mut self) -> Option<(IndexFormat, u32)> {
        let (format, depth) = match &self.bytes::<4>()? {
            b"BAI\x01" => (IndexFormat::Bai, BAI_DEPTH),
            b"CSI\x01" => {
                let (_, depth, auxiliary) = (self.short()?, self.short()?, self.short()?);
                self.skip(auxiliary.into())?;
                (IndexFormat::Csi, depth)
            }
            _ => return None,
        };
        // Deeper ones would not fit the 32 bits of a bin's number (CSIv1).
        Some((format, (depth <= 9).then(|| first_bin(depth + 1) + 1)?))
    }

    /// What follows the number of contigs.
    fn summary(&mut self, format: IndexFormat, metadata_bin: u32, contigs: usize) -> Option<IndexSummary> {
        let mut summary = IndexSummary { contigs: Vec::new(), without_contig: None, last_offset: 0 };
        for _ in 0..contigs {
            let mut counts = None;
            for _ in 0..self.short()? {
                let bin = self.short()?;
                if format == IndexFormat::Csi {
                    self.long()?;
                }
                for chunk in 0..self.short()? {
                    let pair = (self.long()?, self.long()?);
                    match (bin == metadata_bin, chunk) {
                        (true, 1) => counts = Some(pair),
                        (true, _) => {}
                        (false, _) => summary.last_offset = summary.last_offset.max(pair.1 >> 16),
                    }
                }
            }
            if format == IndexFormat::Bai {
                let windows = self.short()?;
                self.skip(u64::from(windows) * 8)?;
            }
            summary.contigs.push(counts);
        }
        // Old ones end here; of anything else there is nothing behind the last number.
        let mut rest = Vec::new();
        self.0.by_ref().take(9).read_to_end(&mut rest).ok()?;
        match <[u8; 8]>::try_from(&rest[..]) {
            Ok(last) => summary.without_contig = Some(u64::from_le_bytes(last)),
            Err(_) if rest.is_empty() => {}
            Err(_) => return None,
        }
        Some(summary)
    }

    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.0.read_exact(&mut bytes).ok()?;
        Some(bytes)
    }

    pub(super) fn short(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_le_bytes)
    }

    pub(super) fn long(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_le_bytes)
    }

    pub(super) fn skip(&mut self, bytes: u64) -> Option<()> {
        (io::copy(&mut self.0.by_ref().take(bytes), &mut io::sink()).ok()? == bytes).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use godwit_model::{Contig, Genome};

    use super::*;
    use crate::bgzf::RecordPlace;
    use crate::index::IndexBuilder;

    #[test]
    fn counts_come_back_and_cut_indexes_are_refused() {
        for (length, format) in [(1 << 20, IndexFormat::Bai), (1 << 30, IndexFormat::Csi)] {
            let contigs = ["a", "b"].map(|name| Contig { name: name.into(), length, alternate: false });
            let genome = Genome::new(contigs.to_vec()).unwrap();
            let mut index = IndexBuilder::new(&genome);
            index.push(1, 10, 110, true, RecordPlace { before: 5 << 16, after: 7 << 16 }).unwrap();
            index.push(1, 20, 21, false, RecordPlace { before: 7 << 16, after: 9 << 16 | 3 }).unwrap();
            index.push(-1, -1, 0, false, RecordPlace { before: 9 << 16 | 3, after: 9 << 16 | 6 }).unwrap();
            assert_eq!(IndexFormat::for_genome(&genome), format);
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("index");
            let mut bytes = Vec::new();
            index.write(format, &genome, &mut bytes).unwrap();
            std::fs::write(&path, &bytes).unwrap();
            let summary = IndexSummary::read(&path, 2).unwrap();
            assert_eq!(summary.contigs, [None, Some((1, 1))]);
            assert_eq!((summary.without_contig, summary.last_offset), (Some(1), 9));
            // Without its last field a .bai is an old one; cut anywhere else it is none.
            for cut in (0..bytes.len()).filter(|cut| format == IndexFormat::Csi || *cut != bytes.len() - 8) {
                std::fs::write(&path, &bytes[..cut]).unwrap();
                assert!(IndexSummary::read(&path, 2).is_err(), "{cut}");
            }
        }
    }

    #[test]
    fn an_index_that_unpacks_to_more_than_its_file_can_have_costs_nothing() {
        // 256 MiB of contigs without bins, in a few hundred kilobytes.
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
