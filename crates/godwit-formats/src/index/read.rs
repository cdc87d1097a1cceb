//! What an index of unknown origin says of its file: enough to tell whether they belong together.

use std::path::Path;

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
    /// The file is not there, or is damaged gzip.
    #[error(transparent)]
    Bgzf(#[from] BgzfError),
    /// It is neither `.bai` nor `.csi`, or is cut short.
    #[error("{} is no whole .bai or .csi index", path.display())]
    Damaged {
        /// The file.
        path: std::path::PathBuf,
    },
}

impl IndexSummary {
    /// Reads an index of either format, told apart by content.
    ///
    /// # Errors
    /// [`IndexReadError`].
    pub fn read(path: &Path) -> Result<Self, IndexReadError> {
        let (mut input, mut bytes) = (open_text(path, 1)?, Vec::new());
        while input.append_to(&mut bytes, 1 << 20)? > 0 {}
        parse(&bytes).ok_or_else(|| IndexReadError::Damaged { path: path.to_owned() })
    }
}

fn parse(bytes: &[u8]) -> Option<IndexSummary> {
    let (magic, rest) = bytes.split_first_chunk::<4>()?;
    let mut fields = Fields(rest);
    let (format, depth) = match magic {
        b"BAI\x01" => (IndexFormat::Bai, BAI_DEPTH),
        b"CSI\x01" => {
            let (_, depth, auxiliary) = (fields.short()?, fields.short()?, fields.short()?);
            fields.skip(auxiliary as usize)?;
            (IndexFormat::Csi, depth)
        }
        _ => return None,
    };
    // Deeper ones would not fit the 32 bits of a bin's number (CSIv1).
    let metadata_bin = (depth <= 9).then(|| first_bin(depth + 1) + 1)?;
    let mut summary = IndexSummary { contigs: Vec::new(), without_contig: None, last_offset: 0 };
    for _ in 0..fields.short()? {
        let mut counts = None;
        for _ in 0..fields.short()? {
            let bin = fields.short()?;
            if format == IndexFormat::Csi {
                fields.long()?;
            }
            let chunks = fields.short()?;
            for chunk in 0..chunks {
                let pair = (fields.long()?, fields.long()?);
                match (bin == metadata_bin, chunk) {
                    (true, 1) => counts = Some(pair),
                    (true, _) => {}
                    (false, _) => summary.last_offset = summary.last_offset.max(pair.1 >> 16),
                }
            }
        }
        if format == IndexFormat::Bai {
            let windows = fields.short()?;
            fields.skip(windows as usize * 8)?;
        }
        summary.contigs.push(counts);
    }
    if !fields.0.is_empty() {
        summary.without_contig = Some(fields.long()?);
    }
    fields.0.is_empty().then_some(summary)
}

/// Little-endian numbers, one behind the other.
struct Fields<'b>(&'b [u8]);

impl Fields<'_> {
    fn short(&mut self) -> Option<u32> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*number))
    }

    fn long(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    fn skip(&mut self, bytes: usize) -> Option<()> {
        self.0 = self.0.get(bytes..)?;
        Some(())
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
            let summary = IndexSummary::read(&path).unwrap();
            assert_eq!(summary.contigs, [None, Some((1, 1))]);
            assert_eq!((summary.without_contig, summary.last_offset), (Some(1), 9));
            // Without its last field a .bai is an old one; cut anywhere else it is none.
            for cut in (0..bytes.len()).filter(|cut| format == IndexFormat::Csi || *cut != bytes.len() - 8) {
                std::fs::write(&path, &bytes[..cut]).unwrap();
                assert!(IndexSummary::read(&path).is_err(), "{cut}");
            }
        }
    }
}
