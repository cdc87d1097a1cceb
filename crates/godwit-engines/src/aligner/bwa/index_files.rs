//! Parses and checks the index files of bwa 0.7.17, bwa-mem2 2.2.1 and bwa-mem3 0.4.4.
//!
//! The formats are those that bwa 0.7.17 writes (`bntseq.c` `bns_dump` and `bns_fasta2bntseq`, `bwt.c` `bwt_dump_bwt`
//! and `bwt_dump_sa`, `bwtindex.c`) and those of bwa-mem2 2.2.1 (`FMI_search.cpp` `build_fm_index`), which shares the
//! first three files with bwa. All numbers are little-endian. The large files are checked only by their sizes and
//! headers.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use godwit_model::{Contig, Genome};

use super::fm_index;
use super::index_validation::{IndexError, StaleReason};

/// The kind of an index, which determines its files and the aligner program that loads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexKind {
    /// An index of bwa.
    Bwa,
    /// An index of bwa-mem3: the files of bwa-mem2 except the one with one byte per base.
    BwaMem3,
}

impl IndexKind {
    /// Returns the extensions of the index files. The path of an index file is the path of the reference, a dot and the
    /// extension.
    pub fn extensions(self) -> &'static [&'static str] {
        match self {
            Self::Bwa => &["amb", "ann", "bwt", "pac", "sa"],
            Self::BwaMem3 => &["amb", "ann", "pac", "bwt.2bit.64"],
        }
    }
}

/// Number of bases per entry of the occurrence table in the `.bwt` file.
const OCCURRENCE_INTERVAL: u64 = 128;
/// Maximum length of the first field of a line in an `.alt` file, bytes. bwa reads that field into an array of 1024
/// bytes without checking its length.
const MAX_ALT_NAME_BYTES: usize = 1023;

/// The description of the reference that the index files contain.
pub(super) struct IndexDescription {
    pub(super) genome: Genome,
    /// Runs of letters other than A, C, G and T, in genome order. Each has a 0-based offset in the concatenation of all
    /// contigs and a number of bases.
    pub(super) holes: Vec<(u64, u64)>,
}

/// Returns the paths of the index files that do not exist.
pub(super) fn missing_files(reference: &Path, kind: IndexKind) -> Vec<PathBuf> {
    kind.extensions()
        .iter()
        .map(|extension| reference.with_added_extension(extension))
        .filter(|path| !path.is_file())
        .collect()
}

/// Reads `.ann`, `.amb` and `.alt`, and checks the sizes of the other index files. The outer error means that a file
/// cannot be read; the inner error means that a file is invalid.
pub(super) fn read(reference: &Path, kind: IndexKind) -> Result<Result<IndexDescription, StaleReason>, IndexError> {
    let annotation = reference.with_added_extension("ann");
    let Some((total_bases, mut contigs)) = parse_ann(&read_file(&annotation)?) else {
        return Ok(Err(unusable_file(annotation, "it is malformed")));
    };
    let ambiguity = reference.with_added_extension("amb");
    let Some(holes) = parse_amb(&read_file(&ambiguity)?, total_bases, contigs.len()) else {
        return Ok(Err(unusable_file(ambiguity, "it is malformed, or belongs to another index")));
    };
    if let Err(reason) = check_large_files(reference, total_bases, kind)? {
        return Ok(Err(reason));
    }
    let alternates = reference.with_added_extension("alt");
    if alternates.is_file() && !mark_alternates(&read_file(&alternates)?, &mut contigs) {
        return Ok(Err(unusable_file(alternates, "a contig name is longer than 1023 bytes, which bwa cannot read")));
    }
    let genome = Genome::new(contigs).map_err(|source| IndexError::Genome { path: reference.to_owned(), source })?;
    Ok(Ok(IndexDescription { genome, holes }))
}

fn unusable_file(file: PathBuf, problem: &'static str) -> StaleReason {
    StaleReason::File { file, problem }
}

fn read_file(path: &Path) -> Result<Vec<u8>, IndexError> {
    std::fs::read(path).map_err(|source| IndexError::cannot_read(path, source))
}

/// Parses an `.ann` file: `total_bases contigs seed`, then for each contig `gi name comment` and `offset bases holes`.
fn parse_ann(bytes: &[u8]) -> Option<(u64, Vec<Contig>)> {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let [total_bases, count] = parse_numbers(lines.next()?)?;
    let mut contigs = Vec::new();
    let mut next_offset = 0;
    for _ in 0..count {
        let name = lines.next()?.split(|byte| *byte == b' ').nth(1)?;
        let [offset, length] = parse_numbers(lines.next()?)?;
        if offset != next_offset {
            return None;
        }
        next_offset = offset.checked_add(length)?;
        let name = std::str::from_utf8(name).ok()?.to_owned();
        contigs.push(Contig { name, length: i32::try_from(length).ok()? as u32, alternate: false });
    }
    (next_offset == total_bases).then_some((total_bases, contigs))
}

/// Parses an `.amb` file: `total_bases contigs holes`, then for each hole `offset bases letter`.
fn parse_amb(bytes: &[u8], total_bases: u64, contigs: usize) -> Option<Vec<(u64, u64)>> {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let [total, sequences, count] = parse_numbers(lines.next()?)?;
    if (total, sequences) != (total_bases, contigs as u64) {
        return None;
    }
    let mut holes = Vec::new();
    let mut last_end = 0;
    for _ in 0..count {
        let [offset, length] = parse_numbers(lines.next()?)?;
        if offset < last_end {
            return None;
        }
        last_end = offset.checked_add(length).filter(|end| *end <= total_bases)?;
        holes.push((offset, length));
    }
    Some(holes)
}

/// Parses the first `N` numbers of a line, separated by spaces; `None` if the line has fewer.
fn parse_numbers<const N: usize>(line: &[u8]) -> Option<[u64; N]> {
    let mut fields = std::str::from_utf8(line).ok()?.split(' ');
    let mut numbers = [0; N];
    for number in &mut numbers {
        *number = fields.next()?.parse().ok()?;
    }
    Some(numbers)
}

/// Marks the contigs that an `.alt` file names, in the same way as bwa 0.7.17 `bns_restore`. The name is the first
/// field of each line that does not start with `@`. A last line without a line end is ignored. Returns false if a field
/// is longer than bwa can read.
fn mark_alternates(bytes: &[u8], contigs: &mut [Contig]) -> bool {
    let whole_lines = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let mut names = std::collections::HashSet::new();
    for line in bytes[..whole_lines].split(|byte| *byte == b'\n') {
        let name = line.split(|byte| matches!(byte, b'\t' | b'\r')).next().unwrap_or_default();
        if name.len() > MAX_ALT_NAME_BYTES {
            return false;
        }
        if !name.starts_with(b"@") {
            names.insert(name);
        }
    }
    for contig in contigs {
        contig.alternate = names.contains(contig.name.as_bytes());
    }
    true
}

/// Checks the sizes and headers of the large index files against the number of bases in the genome.
fn check_large_files(
    reference: &Path,
    total_bases: u64,
    kind: IndexKind,
) -> Result<Result<(), StaleReason>, IndexError> {
    let both_strands = 2 * total_bases;
    let pac = reference.with_added_extension("pac");
    // The size of `.pac`: a byte per four bases (rounded up), a zero byte if there is no remainder, and a byte with the
    // remainder.
    if file_bytes(&pac)? != total_bases / 4 + 2 {
        return Ok(Err(unusable_file(pac, "its size does not match the .ann file")));
    }
    match kind {
        IndexKind::Bwa => check_bwt_and_sa(reference, both_strands),
        IndexKind::BwaMem3 => Ok(fm_index::verify_stride(reference, total_bases)?.map(|_| ())),
    }
}

/// Checks the sizes and headers of the `.bwt` and `.sa` files.
pub(super) fn check_bwt_and_sa(reference: &Path, both_strands: u64) -> Result<Result<(), StaleReason>, IndexError> {
    let bwt = reference.with_added_extension("bwt");
    let occurrences = both_strands.div_ceil(OCCURRENCE_INTERVAL) + 1;
    let bwt_bytes = 40 + 4 * (both_strands.div_ceil(16) + 8 * occurrences);
    let bwt_header = read_header_numbers::<5>(&bwt)?;
    if file_bytes(&bwt)? != bwt_bytes || bwt_header[4] != both_strands {
        return Ok(Err(unusable_file(bwt, "its size does not match the .ann file")));
    }
    let sa = reference.with_added_extension("sa");
    let sa_header = read_header_numbers::<7>(&sa)?;
    let (interval, entries) = (sa_header[5], sa_header[5].checked_add(both_strands));
    let entries = entries.and_then(|sum| sum.checked_div(interval)).unwrap_or_default();
    if sa_header[..5] != bwt_header || sa_header[6] != both_strands || file_bytes(&sa)? != 48 + 8 * entries {
        return Ok(Err(unusable_file(sa, "it does not belong to the .bwt file")));
    }
    Ok(Ok(()))
}

fn file_bytes(path: &Path) -> Result<u64, IndexError> {
    std::fs::metadata(path).map(|metadata| metadata.len()).map_err(|source| IndexError::cannot_read(path, source))
}

/// Reads the first `N` numbers of a file. Returns zeros if the file is shorter, because zeros match no index.
pub(super) fn read_header_numbers<const N: usize>(path: &Path) -> Result<[u64; N], IndexError> {
    let failed = |source| IndexError::cannot_read(path, source);
    let mut bytes = Vec::new();
    File::open(path).map_err(failed)?.take(8 * N as u64).read_to_end(&mut bytes).map_err(failed)?;
    let mut numbers = [0; N];
    for (number, bytes) in numbers.iter_mut().zip(bytes.chunks_exact(8)) {
        *number = bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contigs_whose_offsets_do_not_join_are_refused() {
        let whole = b"30 2 11\n0 a (null)\n0 10 0\n0 b some words\n10 20 1\n";
        assert_eq!(parse_ann(whole).unwrap().1[1].length, 20);
        assert!(parse_ann(b"30 2 11\n0 a (null)\n0 10 0\n0 b\n11 19 1\n").is_none());
        assert!(parse_ann(b"31 2 11\n0 a (null)\n0 10 0\n0 b\n10 20 1\n").is_none());
        assert!(parse_ann(b"30 9 11\n0 a (null)\n0 10 0\n").is_none());
        assert!(parse_ann(b"").is_none());
    }

    #[test]
    fn holes_are_in_order_and_within_the_genome() {
        assert_eq!(parse_amb(b"30 1 2\n3 4 N\n7 1 R\n", 30, 1), Some(vec![(3, 4), (7, 1)]));
        assert!(parse_amb(b"30 1 2\n3 4 N\n6 1 R\n", 30, 1).is_none());
        assert!(parse_amb(b"30 1 1\n3 28 N\n", 30, 1).is_none());
        assert!(parse_amb(b"30 2 0\n", 30, 1).is_none());
    }

    #[test]
    fn alternates_are_read_as_bwa_reads_them() {
        let mut contigs: Vec<Contig> =
            ["a", "b", "c", "d"].map(|name| Contig { name: name.into(), length: 1, alternate: false }).into();
        assert!(mark_alternates(b"@SQ\tSN:a\nb\t0\tx\nc\r\nd", &mut contigs));
        let marked: Vec<bool> = contigs.iter().map(|contig| contig.alternate).collect();
        assert_eq!(marked, [false, true, true, false]);
        assert!(!mark_alternates(&[b"x".repeat(1024), b"\n".to_vec()].concat(), &mut contigs));
    }
}
