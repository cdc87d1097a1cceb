//! CRAM, whose checksums are made right first: nobody who means harm would get them wrong.

use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::OnceLock;

use flate2::Crc;
use godwit_cram::{Decoder, EOF_CONTAINER, Reference};
use godwit_model::RawRecord;

use crate::alignments::look_at;
use crate::file::file;

/// Bytes before the first container (CRAMv3 §6).
const DEFINITION_BYTES: usize = 26;

/// The reference of the seeds: one contig.
fn reference() -> &'static Reference {
    static REFERENCE: OnceLock<Reference> = OnceLock::new();
    REFERENCE.get_or_init(|| {
        let directory = std::env::temp_dir();
        let fasta = tempfile::NamedTempFile::new().expect("there is room for a temporary file");
        std::fs::write(fasta.path(), cram_reference()).expect("it can be written to");
        // htslib goes back to it by name.
        let (_, path) = fasta.keep().expect("it can stay");
        Reference::open(&path, &directory).expect("it is a reference")
    })
}

/// The reference of the seeds, as FASTA.
pub fn cram_reference() -> Vec<u8> {
    let bases: Vec<u8> = (0..400usize).map(|at| b"ACGT"[(at * at / 7 + at / 3) % 4]).collect();
    [b">a\n", &bases[..], b"\n"].concat()
}

/// The file that an input of the target `cram` stands for, of version 2 or 3, and whether its reference is at hand, which
/// the first byte says.
pub fn cram_file(bytes: &[u8]) -> Option<(Vec<u8>, bool)> {
    let (&way, bytes) = bytes.split_first()?;
    let mut bytes = bytes.to_vec();
    if bytes.get(4) == Some(&3) {
        mend(&mut bytes);
        if !bytes.ends_with(&EOF_CONTAINER) {
            bytes.extend(EOF_CONTAINER);
        }
    }
    Some((bytes, way & 1 == 1))
}

/// Decodes in this process, where it can be seen what an input reaches. What the library does to a process must not be
/// fatal to godwit: `examples/replay_cram.rs` looks at that.
pub(crate) fn cram(bytes: &[u8]) {
    let Some((bytes, with_reference)) = cram_file(bytes) else { return };
    let file = file(&bytes);
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let reference = with_reference.then(reference);
    let Ok(mut reader) = Decoder::open(&path, reference, 1) else { return };
    let mut record = Vec::new();
    while let Ok(true) = reader.append_record(&mut record) {
        look_at(RawRecord::trusted(&record));
        record.clear();
    }
}

/// Gives containers and blocks their CRC-32, as far as they can be followed.
fn mend(bytes: &mut [u8]) {
    let mut at = DEFINITION_BYTES;
    while let Some(end) = mend_container(bytes, at) {
        at = end;
    }
}

/// The end of the container at `at`.
fn mend_container(bytes: &mut [u8], at: usize) -> Option<usize> {
    let length = u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?) as usize;
    let mut field = at + 4;
    // Contig, start, span, records, counter, bases, blocks (CRAMv3 §7); then the landmarks.
    for _ in 0..7 {
        field += number(bytes, field)?.1;
    }
    let (landmarks, width) = number(bytes, field)?;
    field += width;
    for _ in 0..landmarks {
        field += number(bytes, field)?.1;
    }
    let mut block = seal(bytes, at, field)?;
    let end = block.checked_add(length)?.min(bytes.len());
    while block < end {
        let mut field = block + 2;
        let mut numbers = [0; 3];
        for value in &mut numbers {
            let (number, width) = number(bytes, field)?;
            (*value, field) = (number as usize, field + width);
        }
        block = seal(bytes, block, field.checked_add(numbers[1])?)?;
    }
    Some(end)
}

/// Writes the CRC-32 of `[start, end)` behind it and returns where that ends.
fn seal(bytes: &mut [u8], start: usize, end: usize) -> Option<usize> {
    let mut crc = Crc::new();
    crc.update(bytes.get(start..end)?);
    bytes.get_mut(end..end + 4)?.copy_from_slice(&crc.sum().to_le_bytes());
    Some(end + 4)
}

/// A number of the kind ITF8 or LTF8, cut to 32 bits, and its bytes (CRAMv3 §2.3).
fn number(bytes: &[u8], at: usize) -> Option<(u32, usize)> {
    let first = *bytes.get(at)?;
    let more = first.leading_ones() as usize;
    // ITF8 ends with 5 bytes, of the last of which half is used; no seed has numbers of LTF8 that are longer.
    let width = 1 + more.min(4);
    let rest = bytes.get(at + 1..at + width)?;
    Some(match more {
        0 => (first.into(), 1),
        1..=3 => {
            (rest.iter().fold(u32::from(first) & (0x7f >> more), |value, byte| value << 8 | u32::from(*byte)), width)
        }
        _ => {
            let whole = rest[..3].iter().fold(u32::from(first) & 0xf, |value, byte| value << 8 | u32::from(*byte));
            (whole << 4 | u32::from(rest[3]) & 0xf, width)
        }
    })
}
