//! Checks that a minimap2 index is complete and was built from the given reference with the given preset.
//!
//! The format is that of minimap2 2.24 (`mm_idx_dump` in index.c), with little-endian numbers. It begins with the magic
//! `MMI\2`, window length, k-mer length, bucket bits, number of contigs and flags. For each contig, the length of its
//! name, its name and its number of bases follow. For each bucket, the file has its positions and its hash table. The
//! bases follow last, four bits each.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use godwit_formats::fasta;
use godwit_model::{Contig, Genome};

use crate::EngineError;

const MAGIC: &[u8; 4] = b"MMI\x02";
/// Flag of an index with homopolymer compression (`MM_I_HPC`).
const HOMOPOLYMER_COMPRESSED_FLAG: u32 = 0x1;
/// Flag of an index without bases (`MM_I_NO_SEQ`).
const NO_SEQUENCE_FLAG: u32 = 0x2;
/// Number of bytes of packed bases that are in memory at a time.
const WINDOW_BYTES: usize = 256 << 10;

/// The parameters of an index that the preset determines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IndexParameters {
    window: u32,
    kmer: u32,
    homopolymer_compressed: bool,
}

impl std::fmt::Display for IndexParameters {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(formatter, "-k {} -w {}{}", self.kmer, self.window, if self.homopolymer_compressed { " -H" } else { "" })
    }
}

impl IndexParameters {
    /// Parses the parameters from the first bytes of an index file; `None` if they are not those of a minimap2 index.
    pub(super) fn read(index: &[u8]) -> Option<Self> {
        let number = |at: usize| Some(u32::from_le_bytes(*index.get(at..at + 4)?.first_chunk()?));
        if index.get(..4)? != MAGIC {
            return None;
        }
        Some(Self {
            window: number(4)?,
            kmer: number(8)?,
            homopolymer_compressed: number(20)? & HOMOPOLYMER_COMPRESSED_FLAG != 0,
        })
    }
}

/// The contigs of an index, and the byte offset of its bases in the file.
struct MmiHeader {
    contigs: Vec<Contig>,
    bases_offset: u64,
    is_complete: bool,
}

/// Returns the contigs of `reference` if the index at `path` was built from it with the parameters of the preset.
pub(super) fn check_index(
    path: &Path,
    reference: &Path,
    parameters: IndexParameters,
    preset: &str,
    remedy: String,
) -> Result<Genome, EngineError> {
    let failed = |source| EngineError::Io { program: path.to_owned(), action: "read", source };
    let wrong = |problem: String| EngineError::WrongIndex { path: path.to_owned(), problem, remedy: remedy.clone() };
    let mut file = BufReader::new(File::open(path).map_err(failed)?);
    let mut head = [0; 24];
    if file.read_exact(&mut head).is_err() {
        return Err(wrong("it is too short".into()));
    }
    match IndexParameters::read(&head) {
        None => return Err(wrong("it is not an index of minimap2".into())),
        Some(found) if found != parameters => {
            return Err(wrong(format!("it was built with {found}, but the preset {preset} requires {parameters}")));
        }
        Some(_) => {}
    }
    let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    if number(20) & NO_SEQUENCE_FLAG != 0 {
        return Err(wrong("it was built without the bases of the reference".into()));
    }
    let layout = read_header(&mut file, number(12), number(16)).map_err(failed)?;
    let Some(layout) = layout.filter(|layout| layout.is_complete) else {
        return Err(wrong("it is truncated, or has more than one part".into()));
    };
    file.seek(SeekFrom::Start(layout.bases_offset)).map_err(failed)?;
    let difference = first_difference(reference, &layout.contigs, &mut MmiBaseReader::new(file));
    match difference.map_err(|source| EngineError::Reference { path: reference.to_owned(), source })? {
        Some(difference) => Err(wrong(format!("the reference differs: {difference}"))),
        None => Genome::new(layout.contigs).map_err(|error| wrong(error.to_string())),
    }
}

/// Reads the header after its fixed fields; returns `None` if the file ends too early.
fn read_header(file: &mut BufReader<File>, bucket_bits: u32, contigs: u32) -> std::io::Result<Option<MmiHeader>> {
    match parse_header(file, bucket_bits, contigs) {
        Ok(layout) => Ok(Some(layout)),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

fn parse_header(file: &mut BufReader<File>, bucket_bits: u32, contigs: u32) -> std::io::Result<MmiHeader> {
    let file_bytes = file.get_ref().metadata()?.len();
    let mut read = Vec::new();
    let mut all_bases = 0u64;
    for _ in 0..contigs {
        let [name_bytes] = read_array::<1>(file)?;
        let mut name = vec![0; usize::from(name_bytes)];
        file.read_exact(&mut name)?;
        let length = u32::from_le_bytes(read_array(file)?);
        all_bases += u64::from(length);
        read.push(Contig { name: String::from_utf8_lossy(&name).into_owned(), length, alternate: false });
    }
    for _ in 0..1u64 << bucket_bits.min(32) {
        let positions = u32::from_le_bytes(read_array(file)?);
        file.seek_relative(8 * i64::from(positions))?;
        let entries = u32::from_le_bytes(read_array(file)?);
        file.seek_relative(16 * i64::from(entries))?;
    }
    let bases_offset = file.stream_position()?;
    let is_complete = bases_offset + 4 * all_bases.div_ceil(8) == file_bytes;
    Ok(MmiHeader { contigs: read, bases_offset, is_complete })
}

fn read_array<const N: usize>(file: &mut impl Read) -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// A sequential reader of the bases in an index.
struct MmiBaseReader<R> {
    file: R,
    window: Vec<u8>,
    /// Index in the window of the next base to read.
    next_base: usize,
}

impl<R: Read> MmiBaseReader<R> {
    fn new(file: R) -> Self {
        Self { file, window: Vec::new(), next_base: 0 }
    }

    /// Returns the code of the next base: 0 to 3 for A, C, G and T, 4 for any other letter.
    fn next_code(&mut self) -> std::io::Result<u8> {
        if self.next_base == 2 * self.window.len() {
            self.window.clear();
            self.next_base = 0;
            (&mut self.file).take(WINDOW_BYTES as u64).read_to_end(&mut self.window)?;
        }
        // A 32-bit little-endian word contains eight bases of four bits each, so each byte contains two: the first in
        // its lower half.
        let byte = *self.window.get(self.next_base / 2).ok_or(std::io::ErrorKind::UnexpectedEof)?;
        let code = if self.next_base.is_multiple_of(2) { byte & 0xf } else { byte >> 4 };
        self.next_base += 1;
        Ok(code)
    }
}

/// Returns the code of a base, equal to that in minimap2's table `seq_nt4_table`.
fn base_code(base: u8) -> u8 {
    match base {
        b'A' | b'a' => 0,
        b'C' | b'c' => 1,
        b'G' | b'g' => 2,
        b'T' | b't' | b'U' | b'u' => 3,
        _ => 4,
    }
}

/// Describes the first difference between the reference and the index; `None` if they are equal.
fn first_difference(
    reference: &Path,
    contigs: &[Contig],
    packed: &mut MmiBaseReader<impl Read>,
) -> Result<Option<String>, fasta::FastaError> {
    let mut fasta = fasta::Reader::open(reference, 1)?;
    for contig in contigs {
        let name = fasta.next_contig()?;
        if name.as_ref() != Some(&contig.name) {
            let named = name.as_deref().unwrap_or("no contig");
            return Ok(Some(format!("it has {named} instead of {} in the index", contig.name)));
        }
        let mut bases = 0u64;
        while let Some(run) = fasta.next_bases()? {
            for base in run {
                if bases == u64::from(contig.length) {
                    return Ok(Some(format!("contig {} is longer than in the index", contig.name)));
                }
                bases += 1;
                if !packed.next_code().is_ok_and(|packed| packed == base_code(*base)) {
                    return Ok(Some(format!("contig {} differs at position {bases}", contig.name)));
                }
            }
        }
        if bases != u64::from(contig.length) {
            return Ok(Some(format!("contig {} is shorter than in the index", contig.name)));
        }
    }
    Ok(fasta.next_contig()?.map(|name| format!("it has a contig {name}, which is not in the index")))
}
