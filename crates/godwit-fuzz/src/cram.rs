//! CRAM, with its checksums corrected first: an attacker would not leave them wrong.

use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::OnceLock;

use flate2::Crc;
use godwit_cram::{Decoder, EOF_CONTAINER, Reference};
use godwit_model::RawRecord;

use crate::alignment_files::read_all_record_fields;
use crate::input_files::anonymous_file;

/// Bytes before the first container (CRAMv3 §6).
const DEFINITION_BYTES: usize = 26;

/// Returns the reference of the seeds: one contig.
fn seed_reference() -> &'static Reference {
    static REFERENCE: OnceLock<Reference> = OnceLock::new();
    REFERENCE.get_or_init(|| {
        let directory = std::env::temp_dir();
        let fasta = tempfile::NamedTempFile::new().expect("there is room for a temporary file");
        std::fs::write(fasta.path(), cram_reference()).expect("it can be written to");
        // htslib opens it again by name.
        let (_, path) = fasta.keep().expect("it can stay");
        Reference::open(&path, &directory).expect("it is a reference")
    })
}

/// Returns the reference of the seeds, as FASTA.
pub fn cram_reference() -> Vec<u8> {
    let bases: Vec<u8> = (0..400usize).map(|at| b"ACGT"[(at * at / 7 + at / 3) % 4]).collect();
    [b">a\n", &bases[..], b"\n"].concat()
}

/// Returns the file for an input of the target `cram`, of version 2 or 3, and whether its reference is available, which the
/// first byte decides.
pub fn cram_file(bytes: &[u8]) -> Option<(Vec<u8>, bool)> {
    let (&options_byte, bytes) = bytes.split_first()?;
    let mut bytes = bytes.to_vec();
    if bytes.get(4) == Some(&3) {
        fix_checksums(&mut bytes);
        if !bytes.ends_with(&EOF_CONTAINER) {
            bytes.extend(EOF_CONTAINER);
        }
    }
    Some((bytes, options_byte & 1 == 1))
}

/// Decodes in this process, which shows the code that an input reaches. `examples/replay_cram.rs` checks that a crash of the
/// library is not fatal to godwit.
pub(crate) fn cram(bytes: &[u8]) {
    let Some((bytes, with_reference)) = cram_file(bytes) else { return };
    let file = anonymous_file(&bytes);
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let reference = with_reference.then(seed_reference);
    let Ok(mut reader) = Decoder::open(&path, reference, 1) else { return };
    let mut record = Vec::new();
    while let Ok(true) = reader.append_record(&mut record) {
        read_all_record_fields(RawRecord::from_trusted_bytes(&record));
        record.clear();
    }
}

/// Corrects the CRC-32 of containers and blocks, as far as they can be parsed.
fn fix_checksums(bytes: &mut [u8]) {
    let mut at = DEFINITION_BYTES;
    while let Some(end) = fix_container_checksums(bytes, at) {
        at = end;
    }
}

/// Returns the end of the container at `at`.
fn fix_container_checksums(bytes: &mut [u8], at: usize) -> Option<usize> {
    let length = u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?) as usize;
    let mut field = at + 4;
    // Contig, start, span, records, counter, bases, blocks (CRAMv3 §7); then the landmarks.
    for _ in 0..7 {
        field += read_itf8(bytes, field)?.1;
    }
    let (landmarks, width) = read_itf8(bytes, field)?;
    field += width;
    for _ in 0..landmarks {
        field += read_itf8(bytes, field)?.1;
    }
    let mut block = write_crc32(bytes, at, field)?;
    let end = block.checked_add(length)?.min(bytes.len());
    while block < end {
        let mut field = block + 2;
        let mut numbers = [0; 3];
        for value in &mut numbers {
            let (number, width) = read_itf8(bytes, field)?;
            (*value, field) = (number as usize, field + width);
        }
        block = write_crc32(bytes, block, field.checked_add(numbers[1])?)?;
    }
    Some(end)
}

/// Writes the CRC-32 of `[start, end)` after it and returns the end of the checksum.
fn write_crc32(bytes: &mut [u8], start: usize, end: usize) -> Option<usize> {
    let mut crc = Crc::new();
    crc.update(bytes.get(start..end)?);
    bytes.get_mut(end..end + 4)?.copy_from_slice(&crc.sum().to_le_bytes());
    Some(end + 4)
}

/// Reads an ITF8 or LTF8 number, truncated to 32 bits, and returns it with its end (CRAMv3 §2.3).
fn read_itf8(bytes: &[u8], at: usize) -> Option<(u32, usize)> {
    let first = *bytes.get(at)?;
    let more = first.leading_ones() as usize;
    // ITF8 has at most 5 bytes, the last of which is half used; no seed has longer LTF8 numbers.
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
