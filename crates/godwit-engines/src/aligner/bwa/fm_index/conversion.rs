//! From bwa's `.bwt`, `.sa` and `.pac` to `.bwt.2bit.64`.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::path::Path;

use super::suffix_array::{BWA_STRIDE, BwaSamples, SampledSuffixArray, WalkError};
use super::text::Text;
use super::transform::{self, Transform};
use super::{BLOCK_ROWS, SampleStride, path};
use crate::aligner::bwa::index::{IndexError, StaleReason};
use crate::aligner::bwa::layout::{self, IndexKind, header};

/// About what the buffers take.
pub(super) const BUFFERS_BYTES: u64 = 16 << 20;
/// Bytes read and written at a time.
const BUFFER_BYTES: usize = 1 << 20;

/// Writes to `out` the file that bwa-mem2 and bwa-mem3 load, from bwa's index beside `reference`. At stride 8 these are the bytes
/// of `bwa-mem2 index`.
///
/// It takes [`conversion_bytes`](super::conversion_bytes) of memory, at stride 8 0.7 times what the index takes when it is loaded. Everything is verified on the way: the
/// ranks in `.bwt` against its bases, the samples in `.sa` against each other, and every base of the transform against `.pac`. Where
/// they contradict each other, the inner error names a file of bwa's index, and `out` is worth nothing.
///
/// # Errors
/// [`IndexError::Read`] for bwa's files, [`IndexError::Write`] for `out`.
pub fn convert(
    reference: &Path,
    stride: SampleStride,
    threads: usize,
    out: impl Write,
) -> Result<Result<(), StaleReason>, IndexError> {
    let layout = match layout::read(reference, IndexKind::Bwa)? {
        Ok(layout) => layout,
        Err(reason) => return Ok(Err(reason)),
    };
    let genome_bases = layout.genome.contigs().iter().map(|contig| u64::from(contig.length)).sum::<u64>();
    let [bwt, sa, pac] = ["bwt", "sa", "pac"].map(|extension| reference.with_added_extension(extension));
    let broken = |file: &Path, problem| Ok(Err(StaleReason::File { file: file.to_owned(), problem }));
    let bwt_header = header::<5>(&bwt)?;
    if bwt_header[4] != 2 * genome_bases {
        return broken(&bwt, "it has another number of bases than the .ann file says");
    }
    if header::<6>(&sa)?[5] != BWA_STRIDE {
        return broken(&sa, "its samples are not those of every 32nd row");
    }
    let read = |path: &Path, source| IndexError::Read { path: path.to_owned(), source };
    let transform = match read_transform(&bwt, bwt_header).map_err(|source| read(&bwt, source))? {
        Ok(transform) => transform,
        Err(problem) => return broken(&bwt, problem),
    };
    let text = File::open(&pac).and_then(|file| Text::read(file, genome_bases));
    let text = text.map_err(|source| read(&pac, source))?;
    let samples = File::open(&sa).map_err(|source| read(&sa, source))?;
    let samples = BwaSamples::new(&samples, transform.rows());
    match SampledSuffixArray::fill(&transform, &text, &samples, stride, threads) {
        Ok(array) => {
            let failed = |source| IndexError::Write { path: path(reference), source };
            write(&transform, &array, stride, out).map(Ok).map_err(failed)
        }
        Err(WalkError::Read(source)) => Err(read(&sa, source)),
        Err(WalkError::Text) => broken(&bwt, "it and the .sa file are not of the genome in the .pac file"),
        Err(WalkError::Samples) => broken(&sa, "its samples contradict each other"),
    }
}

fn read_transform(path: &Path, header: [u64; 5]) -> io::Result<Result<Transform, &'static str>> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(transform::HEADER_BYTES))?;
    Transform::read(header, BufReader::with_capacity(BUFFER_BYTES, file))
}

fn write(transform: &Transform, array: &SampledSuffixArray, stride: SampleStride, out: impl Write) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, out);
    let mut numbers = |numbers: &[u64]| numbers.iter().try_for_each(|number| out.write_all(&number.to_le_bytes()));
    numbers(&[transform.rows()])?;
    numbers(&transform.smaller())?;
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
