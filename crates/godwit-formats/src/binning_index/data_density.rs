//! An estimate of the distribution of the data of a file along the genome, made from the index of the file. It gives
//! the cost of reading an interval.

use std::io::{BufRead, BufReader};
use std::path::Path;

use godwit_io::bgzf::open_text;

use super::IndexFormat;
use super::contig_index::first_bin;
use super::index_summary::{IndexFieldReader, IndexReadError};
use super::{BAI_DEPTH, MIN_SHIFT};

/// Width of a window in bases.
pub const DENSITY_WINDOW_BASES: u32 = 1 << MIN_SHIFT;

/// Estimated compressed bytes for each window of each contig.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DataDensity {
    contig_windows: Vec<Vec<f64>>,
}

impl DataDensity {
    /// Reads a `.bai`, `.csi` or `.crai` index, whose format is detected from its content. `contig_bases` are the
    /// lengths of the contigs of the indexed file. These lengths, and not the content of the index, determine the
    /// memory used.
    ///
    /// # Errors
    /// [`IndexReadError`] if the index cannot be read, is damaged, or has another number of contigs.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_formats::binning_index::DataDensity;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("a.cram.crai");
    /// // A slice with 5000 bytes of records on the first 32,768 bases of the first contig.
    /// std::fs::write(&path, "0\t1\t32768\t100\t10\t5000\n")?;
    /// let density = DataDensity::read(&path, &[100_000])?;
    /// assert_eq!(density.contig_bytes(0), 5000.0);
    /// assert_eq!(density.interval_bytes(0, 0, 16_384), 2500.0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn read(path: &Path, contig_bases: &[u32]) -> Result<Self, IndexReadError> {
        let damaged = || IndexReadError::Damaged { path: path.to_owned() };
        let windows = |bases: &u32| vec![0.0; (bases / DENSITY_WINDOW_BASES + 1) as usize];
        let mut density = Self { contig_windows: contig_bases.iter().map(windows).collect() };
        let mut text = BufReader::new(open_text(path, 1)?);
        let start = text.fill_buf().map_err(|_| damaged())?;
        if !start.starts_with(b"BAI\x01") && !start.starts_with(b"CSI\x01") {
            density.read_crai(text).ok_or_else(damaged)?;
            return Ok(density);
        }
        let mut fields = IndexFieldReader(text);
        let (format, metadata_bin) = fields.read_format().ok_or_else(damaged)?;
        let indexed = fields.read_u32().ok_or_else(damaged)?;
        if usize::try_from(indexed) != Ok(contig_bases.len()) {
            let expected = contig_bases.len();
            return Err(IndexReadError::OtherContigs { path: path.to_owned(), indexed, expected });
        }
        density.read_bins(&mut fields, format, metadata_bin).ok_or_else(damaged)?;
        Ok(density)
    }

    /// Returns the estimated compressed bytes of the data in the interval `[start, end)` of a contig, 0-based.
    pub fn interval_bytes(&self, contig: usize, start: u32, end: u32) -> f64 {
        let Some(windows) = self.contig_windows.get(contig) else { return 0.0 };
        let overlap = |window: usize| {
            let first = window as u32 * DENSITY_WINDOW_BASES;
            let last = first.saturating_add(DENSITY_WINDOW_BASES);
            f64::from(end.min(last).saturating_sub(start.max(first))) / f64::from(DENSITY_WINDOW_BASES)
        };
        let (first, last) = ((start / DENSITY_WINDOW_BASES) as usize, (end / DENSITY_WINDOW_BASES) as usize);
        (first..=last).filter_map(|window| Some(windows.get(window)? * overlap(window))).sum()
    }

    /// Returns the estimated compressed bytes of the data of a contig; 0 only if the contig has no data.
    pub fn contig_bytes(&self, contig: usize) -> f64 {
        self.contig_windows.get(contig).map_or(0.0, |windows| windows.iter().sum())
    }

    /// Distributes bytes evenly over the windows of the interval `[start, end)` of a contig. Bytes beyond the end of
    /// the contig are added to its last window.
    fn add_bytes(&mut self, contig: usize, start: u64, end: u64, bytes: f64) {
        let Some(windows) = self.contig_windows.get_mut(contig) else { return };
        let last = windows.len() - 1;
        let window =
            |position: u64| usize::try_from(position / u64::from(DENSITY_WINDOW_BASES)).map_or(last, |at| at.min(last));
        let (first, last) = (window(start), window(end.saturating_sub(1).max(start)));
        let share = bytes / (last - first + 1) as f64;
        windows[first..=last].iter_mut().for_each(|window| *window += share);
    }

    fn read_bins<R: std::io::Read>(
        &mut self,
        fields: &mut IndexFieldReader<R>,
        format: IndexFormat,
        metadata: u32,
    ) -> Option<()> {
        let depth = match format {
            IndexFormat::Bai => BAI_DEPTH,
            // The number of levels follows from the number of the metadata bin.
            IndexFormat::Csi => (0..=9).find(|depth| first_bin(depth + 1) + 1 == metadata)?,
        };
        for contig in 0..self.contig_windows.len() {
            for _ in 0..fields.read_u32()? {
                let bin = fields.read_u32()?;
                if format == IndexFormat::Csi {
                    fields.read_u64()?;
                }
                let mut bytes = 0.0;
                for _ in 0..fields.read_u32()? {
                    let (start, end) = (fields.read_u64()?, fields.read_u64()?);
                    // A chunk within one block has no length in compressed bytes. Estimate the length as a quarter of
                    // the uncompressed bytes.
                    let blocks = (end >> 16).saturating_sub(start >> 16) as f64;
                    bytes += blocks.max(((end & 0xffff) as f64 - (start & 0xffff) as f64) / 4.0).max(1.0);
                }
                if bin == metadata {
                    continue;
                }
                let level = (0..=depth).rev().find(|level| first_bin(*level) <= bin)?;
                let shift = MIN_SHIFT + 3 * (depth - level);
                let start = u64::from(bin - first_bin(level)) << shift;
                self.add_bytes(contig, start, start + (1 << shift), bytes);
            }
            if format == IndexFormat::Bai {
                let windows = fields.read_u32()?;
                fields.skip_bytes(u64::from(windows) * 8)?;
            }
        }
        Some(())
    }

    /// Reads lines with the contig, first position (1-based) and length in bases of a slice, two offsets, and the
    /// length of the slice in bytes (CRAMv3 §12).
    fn read_crai(&mut self, text: impl BufRead) -> Option<()> {
        for line in text.lines() {
            let line = line.ok()?;
            let numbers: Vec<i64> = line.split('\t').map(str::parse).collect::<Result<_, _>>().ok()?;
            let [contig, first_1based, bases, _, _, bytes] = numbers[..] else { return None };
            let Ok(contig) = usize::try_from(contig) else { continue };
            let (start, bases) = (u64::try_from(first_1based - 1).unwrap_or(0), u64::try_from(bases).ok()?);
            self.add_bytes(contig, start, start.checked_add(bases)?, bytes.max(1) as f64);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use godwit_io::bgzf::RecordOffsets;
    use godwit_model::{Contig, Genome};

    use super::*;
    use crate::binning_index::IndexBuilder;

    fn write_index(length: u32) -> (tempfile::TempDir, std::path::PathBuf) {
        let contigs = ["a", "b"].map(|name| Contig { name: name.into(), length, alternate: false });
        let genome = Genome::new(contigs.to_vec()).unwrap();
        let mut index = IndexBuilder::new(&genome);
        let mut at = 0;
        for start in (0..200_000).step_by(100) {
            // The second half of the contig has ten times as much data.
            let before = at << 16;
            at += if start < 100_000 { 1_000 } else { 10_000 };
            index.push(1, start, start + 100, true, RecordOffsets { start: before, end: at << 16 }).unwrap();
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
            let (_directory, path) = write_index(length);
            let spread = DataDensity::read(&path, &[length, length]).unwrap();
            assert_eq!(spread.contig_bytes(0), 0.0);
            assert!((spread.contig_bytes(1) / 11e6 - 1.0).abs() < 0.01, "{}", spread.contig_bytes(1));
            let ratio = spread.interval_bytes(1, 131_072, 163_840) / spread.interval_bytes(1, 16_384, 49_152);
            assert!((9.0..11.0).contains(&ratio), "{ratio}");
            assert!(DataDensity::read(&path, &[length]).is_err());
            let bytes = std::fs::read(&path).unwrap();
            std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
            assert!(DataDensity::read(&path, &[length, length]).is_err());
        }
    }

    #[test]
    fn an_index_of_cram_is_read_by_the_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.crai");
        std::fs::write(&path, "0\t1\t32768\t100\t10\t5000\n-1\t0\t0\t9000\t10\t700\n0\t30000\t100\t6000\t10\t900\n")
            .unwrap();
        let spread = DataDensity::read(&path, &[100_000]).unwrap();
        assert_eq!(spread.contig_bytes(0), 5900.0);
        assert_eq!(spread.interval_bytes(0, 0, 16_384), 2500.0);
        for wrong in ["0\t1\t2\n", "a\tb\tc\td\te\tf\n", "0\t1\t-5\t1\t1\t1\n"] {
            std::fs::write(&path, wrong).unwrap();
            assert!(DataDensity::read(&path, &[100_000]).is_err());
        }
    }
}
