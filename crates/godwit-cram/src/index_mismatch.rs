//! Comparison of a CRAM file with its index, to detect the index of another file.
//!
//! A program that reads a CRAM file by the index of another file may find no records and report no error. Only CRAM 3
//! is compared: its container headers have a checksum, so that other data is not mistaken for a header.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use flate2::Crc;

use crate::IndexEntry;

/// First bytes of a CRAM 3 file: magic number and major version (CRAMv3 §6).
const CRAM_3_MAGIC: &[u8; 5] = b"CRAM\x03";
/// Bytes before the first container, which has the SAM header (CRAMv3 §6).
const FILE_DEFINITION_BYTES: u64 = 26;
/// Bytes that are read for a container header. It has about 50 bytes, and up to 5 more for each slice.
const HEADER_READ_BYTES: u64 = 64 << 10;
/// Contig of a container with records of several contigs (CRAMv3 §7).
const SEVERAL_CONTIGS: i32 = -2;

/// A difference between a CRAM file and its index, which shows that the index belongs to another file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexMismatch {
    /// No container with records of the contig begins at the offset of an entry.
    #[error(
        "the file has no container with records of contig {} at byte {}, where the index has one",
        i64::from(.0.contig) + 1,
        .0.container_offset
    )]
    NoContainer(IndexEntry),
    /// The index does not have an entry for the first container with records.
    #[error("the file has a container with records at byte {container_offset}, but the index has none there")]
    NotIndexed {
        /// Offset of the container in the file, bytes.
        container_offset: u64,
    },
}

/// Compares a CRAM file with its index: at the offset of each entry, a container with records of the contig must
/// begin, and the first container with records must have an entry. At most about `max_entries` entries are compared,
/// evenly distributed. Returns `None` if the index matches the file.
///
/// # Errors
/// Read errors of `cram`.
pub fn find_index_mismatch(
    cram: &File,
    entries: &[IndexEntry],
    max_entries: usize,
) -> io::Result<Option<IndexMismatch>> {
    if !read_at(cram, 0, CRAM_3_MAGIC.len() as u64)?.starts_with(CRAM_3_MAGIC) {
        return Ok(None);
    }
    let file_bytes = cram.metadata()?.len();
    let step = entries.len().div_ceil(max_entries.max(1)).max(1);
    for entry in entries.iter().step_by(step).chain(entries.last()) {
        let header = match entry.container_offset < file_bytes {
            true => ContainerHeader::parse(&read_at(cram, entry.container_offset, HEADER_READ_BYTES)?),
            false => None,
        };
        if !header.is_some_and(|header| header.contig == entry.contig || header.contig == SEVERAL_CONTIGS) {
            return Ok(Some(IndexMismatch::NoContainer(*entry)));
        }
    }
    let first = first_data_container(cram)?;
    let not_indexed = first.filter(|offset| entries.iter().all(|entry| entry.container_offset != *offset));
    Ok(not_indexed.map(|container_offset| IndexMismatch::NotIndexed { container_offset }))
}

/// Returns the offset of the container after the one with the SAM header. Returns `None` if it is not a container with
/// records.
fn first_data_container(cram: &File) -> io::Result<Option<u64>> {
    let header_at = |offset| Ok::<_, io::Error>(ContainerHeader::parse(&read_at(cram, offset, HEADER_READ_BYTES)?));
    let Some(sam_header) = header_at(FILE_DEFINITION_BYTES)? else { return Ok(None) };
    let offset = FILE_DEFINITION_BYTES + sam_header.container_bytes;
    Ok(header_at(offset)?.filter(|header| header.records > 0).map(|_| offset))
}

/// Returns `bytes` bytes from `offset` on, or fewer at the end of the file.
fn read_at(mut file: &File, offset: u64, bytes: u64) -> io::Result<Vec<u8>> {
    let mut found = Vec::new();
    file.seek(SeekFrom::Start(offset))?;
    file.take(bytes).read_to_end(&mut found)?;
    Ok(found)
}

/// The header of a container (CRAMv3 §7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ContainerHeader {
    contig: i32,
    records: i32,
    /// Length of the container with its header, bytes.
    container_bytes: u64,
}

impl ContainerHeader {
    /// Parses the header of the container that begins with `bytes`. Returns `None` if they are not a container header
    /// with the right checksum.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let block_bytes = i32::from_le_bytes(*bytes.first_chunk()?);
        let mut fields = bytes.get(4..)?;
        let contig = take_itf8(&mut fields)?;
        let _start = take_itf8(&mut fields)?;
        let _span = take_itf8(&mut fields)?;
        let records = take_itf8(&mut fields)?;
        // Record counter and number of bases.
        for _ in 0..2 {
            skip_ltf8(&mut fields)?;
        }
        let _blocks = take_itf8(&mut fields)?;
        for _ in 0..take_itf8(&mut fields)? {
            take_itf8(&mut fields)?;
        }
        let checked_bytes = bytes.len() - fields.len();
        let mut checksum = Crc::new();
        checksum.update(&bytes[..checked_bytes]);
        let stored: [u8; 4] = *fields.first_chunk()?;
        if checksum.sum() != u32::from_le_bytes(stored) {
            return None;
        }
        let header_bytes = checked_bytes + stored.len();
        let container_bytes = header_bytes as u64 + u64::try_from(block_bytes).ok()?;
        Some(Self { contig, records, container_bytes })
    }
}

/// Takes a number of one to five bytes (ITF8, CRAMv3 §2.3).
fn take_itf8(fields: &mut &[u8]) -> Option<i32> {
    let (first, rest) = fields.split_first()?;
    let more = (first.leading_ones() as usize).min(4);
    let (tail, rest) = rest.split_at_checked(more)?;
    *fields = rest;
    let mask: u8 = if more == 4 { 0x0f } else { 0x7f >> more };
    let mut value = u32::from(first & mask);
    for (at, byte) in tail.iter().enumerate() {
        // Only four bits of the fifth byte count.
        value = if at == 3 { value << 4 | u32::from(byte & 0x0f) } else { value << 8 | u32::from(*byte) };
    }
    Some(value as i32)
}

/// Skips a number of one to nine bytes (LTF8, CRAMv3 §2.3).
fn skip_ltf8(fields: &mut &[u8]) -> Option<()> {
    let more = fields.first()?.leading_ones() as usize;
    *fields = fields.get(1 + more..)?;
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EOF_CONTAINER;

    #[test]
    fn headers_are_read_with_their_checksum() {
        let header = ContainerHeader { contig: -1, records: 0, container_bytes: EOF_CONTAINER.len() as u64 };
        assert_eq!(ContainerHeader::parse(&EOF_CONTAINER), Some(header));
        for at in 0..23 {
            let mut damaged = EOF_CONTAINER;
            damaged[at] ^= 1;
            assert_eq!(ContainerHeader::parse(&damaged), None, "byte {at}");
        }
        assert_eq!(ContainerHeader::parse(&EOF_CONTAINER[..20]), None);
        for (bytes, value) in [
            (&[0x7f][..], 127),
            (&[0x80, 0x80], 128),
            (&[0xc1, 0, 2], 65_538),
            (&[0xe1, 0, 0, 2], 16_777_218),
            (&[0xff, 0xff, 0xff, 0xff, 0x0e], SEVERAL_CONTIGS),
        ] {
            let mut fields = bytes;
            assert_eq!((take_itf8(&mut fields), fields.len()), (Some(value), 0));
        }
    }
}
