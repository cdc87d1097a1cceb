//! Verifies that the file `.bwt.2bit.64` is complete and belongs to the same genome as the other index files.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::indexed_text::read_base;
use super::suffix_array::{BWA_STRIDE, SA_HEADER_BYTES};
use super::{
    BLOCK_BYTES, BLOCK_ROWS, HEADER_BYTES, MAX_SHIFT, SampleStride, index_file_bytes, sample_count, samples_offset,
};
use crate::aligner::bwa::index_files::{check_bwt_and_sa, read_header_numbers};
use crate::aligner::bwa::index_validation::{IndexError, StaleReason};

/// Number of blocks whose suffix array samples are compared. With stride 32, this means 256 samples. If one base of the
/// genome differs, about a tenth of the samples differ.
const COMPARED_BLOCKS: u64 = 128;

/// Returns the stride of the file `.bwt.2bit.64` of a reference with `genome_bases` bases. The inner error is the
/// reason why the file does not match the other index files. The file may come from
/// [`convert_bwa_index`](super::convert_bwa_index), bwa-mem2 or bwa-mem3.
///
/// The function compares the size and the header with the number of bases, and samples from the whole file with `.pac`.
/// If the index of bwa exists, the function also compares the header, the sentinel row and the samples with it. The
/// indexes of two genomes that differ in a single base differ in many samples. The reason: one changed base moves the
/// suffixes before it to other rows, and all rows in between shift.
///
/// # Errors
/// [`IndexError::Read`] if a file cannot be read.
pub(in crate::aligner::bwa) fn verify_stride(
    reference: &Path,
    genome_bases: u64,
) -> Result<Result<SampleStride, StaleReason>, IndexError> {
    let path = super::index_path(reference);
    let read = |source| IndexError::Read { path: path.clone(), source };
    let broken = |problem| Ok(Err(StaleReason::File { file: path.clone(), problem }));
    let [rows, smaller @ ..] = read_header_numbers::<6>(&path)?;
    if rows != 2 * genome_bases + 1 {
        return broken("it is the index of a genome whose number of bases differs from that in the .ann file");
    }
    let file = File::open(&path).map_err(read)?;
    let Some(stride) = detect_stride(&file, rows).map_err(read)? else {
        return broken("it is truncated or too long: its size matches no stride of the suffix array");
    };
    let table = FmIndexFile { file: &file, rows, stride };
    let samples = table.read_samples().map_err(read)?;
    if samples.iter().any(|sample| sample.position >= rows) {
        return broken("it is damaged: its suffix array has a position outside the genome");
    }
    let pac_path = reference.with_added_extension("pac");
    if !samples_match_pac(&samples, &pac_path, genome_bases)
        .map_err(|source| IndexError::Read { path: pac_path, source })?
    {
        return broken("it is damaged, or the index of another genome than the .pac file");
    }
    let [bwt, sa] = ["bwt", "sa"].map(|extension| reference.with_added_extension(extension));
    if bwt.is_file() && sa.is_file() && check_bwt_and_sa(reference, 2 * genome_bases)?.is_ok() {
        let [sentinel_row, a, c, g, bases] = read_header_numbers::<5>(&bwt)?;
        let same_header = (sentinel_row, [0, a, c, g, bases]) == (table.read_sentinel_row().map_err(read)?, smaller);
        let same = same_header
            && samples_match_sa(&samples, &sa).map_err(|source| IndexError::Read { path: sa.clone(), source })?;
        if !same {
            return broken("it is the index of another genome than the .bwt and .sa files");
        }
    }
    Ok(Ok(stride))
}

/// Checks that the base before the position of each sample equals the base in the `.pac` file.
fn samples_match_pac(samples: &[SuffixArraySample], path: &Path, genome_bases: u64) -> io::Result<bool> {
    let pac = File::open(path)?;
    for sample in samples {
        let before = sample.position.checked_sub(1);
        if before.map(|position| read_base(&pac, position, genome_bases)).transpose()? != sample.base_before {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Checks that the positions of the samples equal those in bwa's `.sa` file.
fn samples_match_sa(samples: &[SuffixArraySample], path: &Path) -> io::Result<bool> {
    let sa = File::open(path)?;
    for sample in samples.iter().filter(|sample| sample.row > 0 && sample.row.is_multiple_of(BWA_STRIDE)) {
        let offset = SA_HEADER_BYTES + 8 * (sample.row / BWA_STRIDE - 1);
        if read_numbers_at(&sa, offset)? != [sample.position] {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the stride of the file `.bwt.2bit.64` beside a reference; `None` if the file does not exist, or its size
/// fits no stride. [`index_state`](crate::aligner::bwa::index_state) does the complete check.
///
/// # Errors
/// [`IndexError::Read`] if the file cannot be read.
pub fn sample_stride(reference: &Path) -> Result<Option<SampleStride>, IndexError> {
    let path = super::index_path(reference);
    let read = |source| IndexError::Read { path: path.clone(), source };
    let file = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(read)?,
    };
    let [rows] = read_header_numbers::<1>(&path)?;
    detect_stride(&file, rows).map_err(read)
}

/// Returns the stride that the last eight bytes of the file contain, or else stride 8; `None` if the file size does not
/// fit the stride.
fn detect_stride(file: &File, rows: u64) -> io::Result<Option<SampleStride>> {
    let found = file.metadata()?.len();
    // Five-byte positions cannot number that many rows, and the size computation would overflow.
    if rows >> 40 != 0 || found < HEADER_BYTES {
        return Ok(None);
    }
    let [tag] = read_numbers_at(file, found - 8)?;
    let tagged = u32::try_from(tag).ok().filter(|shift| *shift <= MAX_SHIFT).map(|shift| SampleStride { shift });
    if let Some(stride) = tagged.filter(|stride| index_file_bytes(rows, *stride, true) == found) {
        return Ok(Some(stride));
    }
    Ok(Some(SampleStride::EVERY_8).filter(|stride| index_file_bytes(rows, *stride, false) == found))
}

/// Reads `N` little-endian numbers of eight bytes each at a byte offset.
fn read_numbers_at<const N: usize>(file: &File, offset: u64) -> io::Result<[u64; N]> {
    let mut bytes = [[0; 8]; N];
    file.read_exact_at(bytes.as_flattened_mut(), offset)?;
    Ok(bytes.map(u64::from_le_bytes))
}

/// A sample of the suffix array, with the base of the transform in the same row.
struct SuffixArraySample {
    row: u64,
    position: u64,
    /// Code of the base before the position in the text, 0 to 3; `None` for position 0.
    base_before: Option<u8>,
}

/// A file `.bwt.2bit.64` whose size fits its number of rows and its stride.
struct FmIndexFile<'a> {
    file: &'a File,
    rows: u64,
    stride: SampleStride,
}

impl FmIndexFile<'_> {
    fn read_sentinel_row(&self) -> io::Result<u64> {
        let offset = samples_offset(self.rows) + super::SAMPLE_BYTES * sample_count(self.rows, self.stride);
        read_numbers_at(self.file, offset).map(|[row]| row)
    }

    /// Reads the suffix array position of a sampled row.
    fn read_position(&self, row: u64) -> io::Result<u64> {
        let (start, index) = (samples_offset(self.rows), row / self.stride.rows());
        let (mut high, mut low) = ([0; 1], [0; 4]);
        self.file.read_exact_at(&mut high, start + index)?;
        self.file.read_exact_at(&mut low, start + sample_count(self.rows, self.stride) + 4 * index)?;
        Ok(u64::from(high[0]) << 32 | u64::from(u32::from_le_bytes(low)))
    }

    /// Reads the samples of up to 128 blocks, which are spread evenly over the whole file.
    fn read_samples(&self) -> io::Result<Vec<SuffixArraySample>> {
        let blocks = self.rows.div_ceil(BLOCK_ROWS);
        let mut samples = Vec::new();
        for index in (0..blocks).step_by(blocks.div_ceil(COMPARED_BLOCKS) as usize) {
            let [_, _, _, _, bits @ ..] = read_numbers_at::<8>(self.file, HEADER_BYTES + BLOCK_BYTES * index)?;
            let start = index * BLOCK_ROWS;
            for row in (start..self.rows.min(start + BLOCK_ROWS)).step_by(self.stride.rows() as usize) {
                let has = |base: &u8| bits[usize::from(*base)] << (row - start) >> (BLOCK_ROWS - 1) == 1;
                samples.push(SuffixArraySample {
                    row,
                    position: self.read_position(row)?,
                    base_before: (0..4).find(has),
                });
            }
        }
        Ok(samples)
    }
}
