//! Fuzz target for CRAM files. The checksums of the input are corrected first, because a malicious file would have
//! correct ones.

use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::OnceLock;

use flate2::Crc;
use godwit_cram::{Decoder, EOF_CONTAINER, Reference};
use godwit_model::RawRecord;

use crate::alignment_files::read_all_record_fields;
use crate::input_files::anonymous_file;

/// Size in bytes of the file definition, which precedes the first container (CRAMv3 §6).
const DEFINITION_BYTES: usize = 26;

/// Returns the reference of the seed files, which has one contig.
fn seed_reference() -> &'static Reference {
    static REFERENCE: OnceLock<Reference> = OnceLock::new();
    REFERENCE.get_or_init(|| {
        let directory = std::env::temp_dir();
        let fasta = tempfile::NamedTempFile::new().expect("there is room for a temporary file");
        std::fs::write(fasta.path(), cram_reference()).expect("it can be written to");
        // Keep the file, because htslib will open it by its path.
        let (_, path) = fasta.keep().expect("it can stay");
        Reference::open(&path, &directory).expect("it is a reference")
    })
}

/// Returns the reference of the seed files in FASTA format.
pub fn cram_reference() -> Vec<u8> {
    let bases: Vec<u8> = (0..400usize).map(|at| b"ACGT"[(at * at / 7 + at / 3) % 4]).collect();
    [b">a\n", &bases[..], b"\n"].concat()
}

/// Converts an input of the target `cram` to the bytes of a CRAM file (version 2 or 3) with correct checksums. Also
/// returns the lowest bit of the first byte of the input, which decides whether the file is decoded with the reference.
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

/// Decodes a CRAM file in this process, so that the fuzzer can measure which code an input reaches. A crash of htslib
/// is expected here; `examples/replay_cram.rs` checks that godwit survives it.
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

/// Corrects the CRC-32 of all containers and blocks, up to the first that cannot be parsed.
fn fix_checksums(bytes: &mut [u8]) {
    let mut at = DEFINITION_BYTES;
    while let Some(end) = fix_container_checksums(bytes, at) {
        at = end;
    }
}

/// Corrects the CRC-32s of the container at offset `at`, and returns the offset of its end; `None` if it cannot be
/// parsed.
fn fix_container_checksums(bytes: &mut [u8], at: usize) -> Option<usize> {
    let length = u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?) as usize;
    let mut field = at + 4;
    // Skip seven numbers of the container header (CRAMv3 §7): contig, start, span, records, record counter, bases and
    // blocks. The landmarks follow.
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

/// Writes the CRC-32 of the bytes from `start` to `end` (exclusive) to the four bytes at `end`. Returns the offset
/// after them.
fn write_crc32(bytes: &mut [u8], start: usize, end: usize) -> Option<usize> {
    let mut crc = Crc::new();
    crc.update(bytes.get(start..end)?);
    bytes.get_mut(end..end + 4)?.copy_from_slice(&crc.sum().to_le_bytes());
    Some(end + 4)
}

/// Reads an ITF8 or LTF8 number (CRAMv3 §2.3) at offset `at`. Returns the number, truncated to 32 bits, and its size in
/// bytes.
fn read_itf8(bytes: &[u8], at: usize) -> Option<(u32, usize)> {
    let first = *bytes.get(at)?;
    let more = first.leading_ones() as usize;
    // An ITF8 number has at most 5 bytes, and only 4 bits of the fifth are used. No seed file has a longer LTF8 number.
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
