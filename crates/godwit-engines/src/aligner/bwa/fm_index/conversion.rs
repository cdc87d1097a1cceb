//! Converts the files `.bwt`, `.sa` and `.pac` of bwa to the file `.bwt.2bit.64` of bwa-mem2 and bwa-mem3.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::path::Path;

use super::bwt::{self, Bwt};
use super::indexed_text::IndexedText;
use super::suffix_array::{BWA_STRIDE, BwaSuffixArray, SampledSuffixArray, WalkError};
use super::{BLOCK_ROWS, SampleStride, index_path};
use crate::aligner::bwa::index_files::{self, IndexKind, read_header_numbers};
use crate::aligner::bwa::index_validation::{IndexError, StaleReason};

/// Approximate total size of the buffers of a conversion, bytes.
pub(super) const CONVERSION_BUFFERS_BYTES: u64 = 16 << 20;
/// Size of one read or write, bytes.
const BUFFER_BYTES: usize = 1 << 20;

/// Converts the index of bwa beside `reference` to the file `.bwt.2bit.64`, which bwa-mem2 and bwa-mem3 load, and
/// writes that file to `out`. At stride 8, the file equals that of `bwa-mem2 index` byte by byte.
///
/// The conversion needs [`conversion_memory_bytes`](super::conversion_memory_bytes), which is 0.7 times the memory of
/// the loaded index at stride 8. It verifies the ranks in `.bwt` against the bases in it, the samples in `.sa` against
/// each other, and every base of the transform against `.pac`. On a mismatch, the inner error names the invalid file of
/// bwa's index, and the content of `out` is invalid.
///
/// # Errors
/// [`IndexError::Read`] if a file of bwa's index cannot be read, [`IndexError::Write`] if `out` cannot be written.
pub fn convert_bwa_index(
    reference: &Path,
    stride: SampleStride,
    threads: usize,
    out: impl Write,
) -> Result<Result<(), StaleReason>, IndexError> {
    let layout = match index_files::read(reference, IndexKind::Bwa)? {
        Ok(layout) => layout,
        Err(reason) => return Ok(Err(reason)),
    };
    let genome_bases = layout.genome.contigs().iter().map(|contig| u64::from(contig.length)).sum::<u64>();
    let [bwt, sa, pac] = ["bwt", "sa", "pac"].map(|extension| reference.with_added_extension(extension));
    let broken = |file: &Path, problem| Ok(Err(StaleReason::File { file: file.to_owned(), problem }));
    let bwt_header = read_header_numbers::<5>(&bwt)?;
    if bwt_header[4] != 2 * genome_bases {
        return broken(&bwt, "its number of bases differs from that in the .ann file");
    }
    if read_header_numbers::<6>(&sa)?[5] != BWA_STRIDE {
        return broken(&sa, "its samples are not those of every 32nd row");
    }
    let read = |path: &Path, source| IndexError::Read { path: path.to_owned(), source };
    let transform = match read_bwt(&bwt, bwt_header).map_err(|source| read(&bwt, source))? {
        Ok(transform) => transform,
        Err(problem) => return broken(&bwt, problem),
    };
    let text = File::open(&pac).and_then(|file| IndexedText::read(file, genome_bases));
    let text = text.map_err(|source| read(&pac, source))?;
    let samples = File::open(&sa).map_err(|source| read(&sa, source))?;
    let samples = BwaSuffixArray::new(&samples, transform.rows());
    match SampledSuffixArray::resample(&transform, &text, &samples, stride, threads) {
        Ok(array) => {
            let failed = |source| IndexError::Write { path: index_path(reference), source };
            write_index(&transform, &array, stride, out).map(Ok).map_err(failed)
        }
        Err(WalkError::Read(source)) => Err(read(&sa, source)),
        Err(WalkError::TextMismatch) => broken(&bwt, "it and the .sa file do not match the genome in the .pac file"),
        Err(WalkError::SampleMismatch) => broken(&sa, "its samples of the suffix array are inconsistent"),
    }
}

fn read_bwt(path: &Path, header: [u64; 5]) -> io::Result<Result<Bwt, &'static str>> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(bwt::HEADER_BYTES))?;
    Bwt::read(header, BufReader::with_capacity(BUFFER_BYTES, file))
}

fn write_index(transform: &Bwt, array: &SampledSuffixArray, stride: SampleStride, out: impl Write) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, out);
    let mut numbers = |numbers: &[u64]| numbers.iter().try_for_each(|number| out.write_all(&number.to_le_bytes()));
    numbers(&[transform.rows()])?;
    numbers(&transform.cumulative_counts())?;
    let mut counts = [0; 4];
    for index in 0..=transform.rows() / BLOCK_ROWS {
        let bits = transform.row_bits(index);
        numbers(&counts)?;
        numbers(&bits)?;
        for (count, bits) in counts.iter_mut().zip(bits) {
            *count += u64::from(bits.count_ones());
        }
    }
    array.write(&mut out)?;
    out.write_all(&transform.sentinel_row().to_le_bytes())?;
    if stride != SampleStride::EVERY_8 {
        out.write_all(&u64::from(stride.shift).to_le_bytes())?;
    }
    out.flush()
}
