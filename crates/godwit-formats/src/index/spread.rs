//! Where on the genome the data of a file lie, as far as its index tells: an estimate of what a stretch of it costs.

use std::io::{BufRead, BufReader};
use std::path::Path;

use super::IndexFormat;
use super::contig::first_bin;
use super::read::{Fields, IndexReadError};
use super::{BAI_DEPTH, MIN_SHIFT};
use crate::bgzf::open_text;

/// Bases that are told apart.
pub const WINDOW_BASES: u32 = 1 << MIN_SHIFT;

/// Compressed bytes per window of each contig.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DataSpread {
    contigs: Vec<Vec<f64>>,
}

impl DataSpread {
    /// Reads a `.bai`, `.csi` or `.crai`, told apart by content, of a file with contigs of those lengths. Memory goes by
    /// these, not by what the index says.
    ///
    /// # Errors
    /// [`IndexReadError`].
    pub fn read(path: &Path, contig_bases: &[u32]) -> Result<Self, IndexReadError> {
        let damaged = || IndexReadError::Damaged { path: path.to_owned() };
        let windows = |bases: &u32| vec![0.0; (bases / WINDOW_BASES + 1) as usize];
        let mut spread = Self { contigs: contig_bases.iter().map(windows).collect() };
        let mut text = BufReader::new(open_text(path, 1)?);
        let start = text.fill_buf().map_err(|_| damaged())?;
        if !start.starts_with(b"BAI\x01") && !start.starts_with(b"CSI\x01") {
            spread.take_crai(text).ok_or_else(damaged)?;
            return Ok(spread);
        }
        let mut fields = Fields(text);
        let (format, metadata_bin) = fields.head().ok_or_else(damaged)?;
        let indexed = fields.short().ok_or_else(damaged)?;
        if usize::try_from(indexed) != Ok(contig_bases.len()) {
            let expected = contig_bases.len();
            return Err(IndexReadError::OtherContigs { path: path.to_owned(), indexed, expected });
        }
        spread.take_bins(&mut fields, format, metadata_bin).ok_or_else(damaged)?;
        Ok(spread)
    }

    /// Compressed bytes in `[start, end)` of a contig, 0-based, about.
    pub fn bytes(&self, contig: usize, start: u32, end: u32) -> f64 {
        let Some(windows) = self.contigs.get(contig) else { return 0.0 };
        let overlap = |window: usize| {
            let first = window as u32 * WINDOW_BASES;
            let last = first.saturating_add(WINDOW_BASES);
            f64::from(end.min(last).saturating_sub(start.max(first))) / f64::from(WINDOW_BASES)
        };
        let (first, last) = ((start / WINDOW_BASES) as usize, (end / WINDOW_BASES) as usize);
        (first..=last).filter_map(|window| Some(windows.get(window)? * overlap(window))).sum()
    }

    /// Compressed bytes of a contig, about; 0 only where it has no data.
    pub fn contig_bytes(&self, contig: usize) -> f64 {
        self.contigs.get(contig).map_or(0.0, |windows| windows.iter().sum())
    }

    /// Spreads bytes evenly over `[start, end)` of a contig. What lies beyond its end is of its last window.
    fn add(&mut self, contig: usize, start: u64, end: u64, bytes: f64) {
        let Some(windows) = self.contigs.get_mut(contig) else { return };
        let last = windows.len() - 1;
        let window =
            |position: u64| usize::try_from(position / u64::from(WINDOW_BASES)).map_or(last, |at| at.min(last));
        let (first, last) = (window(start), window(end.saturating_sub(1).max(start)));
        let share = bytes / (last - first + 1) as f64;
        windows[first..=last].iter_mut().for_each(|window| *window += share);
    }

    fn take_bins<R: std::io::Read>(
        &mut self,
        fields: &mut Fields<R>,
        format: IndexFormat,
        metadata: u32,
    ) -> Option<()> {
        let depth = match format {
            IndexFormat::Bai => BAI_DEPTH,
            // Where the bin of counts is says how deep the others go.
            IndexFormat::Csi => (0..=9).find(|depth| first_bin(depth + 1) + 1 == metadata)?,
        };
        for contig in 0..self.contigs.len() {
            for _ in 0..fields.short()? {
                let bin = fields.short()?;
                if format == IndexFormat::Csi {
                    fields.long()?;
                }
                let mut bytes = 0.0;
                for _ in 0..fields.short()? {
                    let (start, end) = (fields.long()?, fields.long()?);
                    // Within a block data bytes count, which are a few times the compressed ones.
                    let blocks = (end >> 16).saturating_sub(start >> 16) as f64;
                    bytes += blocks.max(((end & 0xffff) as f64 - (start & 0xffff) as f64) / 4.0).max(1.0);
                }
                if bin == metadata {
                    continue;
                }
                let level = (0..=depth).rev().find(|level| first_bin(*level) <= bin)?;
                let shift = MIN_SHIFT + 3 * (depth - level);
                let start = u64::from(bin - first_bin(level)) << shift;
                self.add(contig, start, start + (1 << shift), bytes);
            }
            if format == IndexFormat::Bai {
                let windows = fields.short()?;
                fields.skip(u64::from(windows) * 8)?;
            }
        }
        Some(())
    }

    /// Lines of contig, first position (1-based), bases, and offset, offset and bytes of a slice (CRAMv3 §12).
    fn take_crai(&mut self, text: impl BufRead) -> Option<()> {
        for line in text.lines() {
            let line = line.ok()?;
            let numbers: Vec<i64> = line.split('\t').map(str::parse).collect::<Result<_, _>>().ok()?;
            let [contig, first_1based, bases, _, _, bytes] = numbers[..] else { return None };
            let Ok(contig) = usize::try_from(contig) else { continue };
            let (start, bases) = (u64::try_from(first_1based - 1).unwrap_or(0), u64::try_from(bases).ok()?);
            self.add(contig, start, start.checked_add(bases)?, bytes.max(1) as f64);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use godwit_model::{Contig, Genome};

    use super::*;
    use crate::bgzf::RecordPlace;
    use crate::index::IndexBuilder;

    fn index(length: u32) -> (tempfile::TempDir, std::path::PathBuf) {
        let contigs = ["a", "b"].map(|name| Contig { name: name.into(), length, alternate: false });
        let genome = Genome::new(contigs.to_vec()).unwrap();
        let mut index = IndexBuilder::new(&genome);
        let mut at = 0;
        for start in (0..200_000).step_by(100) {
            // Ten times as much in the second half.
            let before = at << 16;
            at += if start < 100_000 { 1_000 } else { 10_000 };
            index.push(1, start, start + 100, true, RecordPlace { before, after: at << 16 }).unwrap();
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("index");
        let format = IndexFormat::for_genome(&genome);
        index.write(format, &genome, std::fs::File::create(&path).unwrap()).unwrap();
        (directory, path)
    }

    #[test]
    fn data_are_found_where_they_are() {
        for length in [250_000, 1 << 30] {
            let (_directory, path) = index(length);
            let spread = DataSpread::read(&path, &[length, length]).unwrap();
            assert_eq!(spread.contig_bytes(0), 0.0);
            assert!((spread.contig_bytes(1) / 11e6 - 1.0).abs() < 0.01, "{}", spread.contig_bytes(1));
            let ratio = spread.bytes(1, 131_072, 163_840) / spread.bytes(1, 16_384, 49_152);
            assert!((9.0..11.0).contains(&ratio), "{ratio}");
            assert!(DataSpread::read(&path, &[length]).is_err());
            let bytes = std::fs::read(&path).unwrap();
            std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
            assert!(DataSpread::read(&path, &[length, length]).is_err());
        }
    }

    #[test]
    fn an_index_of_cram_is_read_by_the_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.crai");
        std::fs::write(&path, "0\t1\t32768\t100\t10\t5000\n-1\t0\t0\t9000\t10\t700\n0\t30000\t100\t6000\t10\t900\n")
            .unwrap();
        let spread = DataSpread::read(&path, &[100_000]).unwrap();
        assert_eq!(spread.contig_bytes(0), 5900.0);
        assert_eq!(spread.bytes(0, 0, 16_384), 2500.0);
        for wrong in ["0\t1\t2\n", "a\tb\tc\td\te\tf\n", "0\t1\t-5\t1\t1\t1\n"] {
            std::fs::write(&path, wrong).unwrap();
            assert!(DataSpread::read(&path, &[100_000]).is_err());
        }
    }
}
