//! Reading and writing the chunks of a packed file, each of which has its own checksums.
//!
//! `docs/formats/gwp.md` describes the format. The checksums are XXH3 with the number of the chunk as seed, so that
//! chunks in wrong order are detected.

use std::io::{self, Read, Write};

use godwit_io::varint::{VarintReader, append_varint};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::error::DeltaError;
use super::reference::{DIGEST_BYTES, Digest};

/// Magic bytes of a file of chunks, and of a file that contains only zstd-compressed text. The fourth byte is the
/// format version; its upper bit is set for text.
pub(super) const GWP_MAGIC: [u8; 4] = *b"GWP\x01";
pub(super) const GWP_TEXT_MAGIC: [u8; 4] = *b"GWP\x81";
/// Tags of the three types of chunks: edits, zstd-compressed text, and the end of the file.
pub(super) const EDITS_TAG: u8 = 1;
pub(super) const TEXT_TAG: u8 = 2;
pub(super) const END_TAG: u8 = 3;
/// Size of the checksum of a chunk header or body, bytes.
const CHECKSUM_BYTES: usize = 8;
/// Largest size of the header or body of a chunk, bytes. The text of a segment never takes more, however it is encoded.
const MAX_HEADER_OR_BODY_BYTES: u64 = 160 << 20;

/// The header of a packed file that consists of chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GwpHeader {
    /// Digest of the reference with which the file was packed.
    pub(super) reference: Digest,
    /// Number of bases of the reference with which the file was packed.
    pub(super) reference_bases: u64,
}

/// Size of the unpacked text, and number of chunks before the end chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct GwpTotals {
    pub(super) text_bytes: u64,
    pub(super) chunk_count: u64,
}

/// A chunk whose checksums were verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GwpChunk {
    pub(super) tag: u8,
    pub(super) header: Vec<u8>,
    pub(super) body: Vec<u8>,
    /// Offset of the chunk in the file, bytes.
    pub(super) offset: u64,
}

/// The header of a text chunk: size and checksum of the unpacked text. `repeats_earlier` is true if zstd refers to the
/// text of the preceding chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TextChunkHeader {
    pub(super) text_bytes: u64,
    pub(super) text_checksum: u64,
    pub(super) repeats_earlier: bool,
}

impl TextChunkHeader {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        append_varint(&mut out, self.text_bytes << 1 | u64::from(self.repeats_earlier));
        out.extend(self.text_checksum.to_le_bytes());
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut cursor = VarintReader::new(bytes);
        let head = cursor.read_varint()?;
        let text_checksum = u64::from_le_bytes(cursor.read_array()?);
        let text_bytes = Some(head >> 1).filter(|bytes| *bytes <= super::segment::MAX_TEXT_BYTES)?;
        cursor.is_empty().then_some(Self { text_bytes, text_checksum, repeats_earlier: head & 1 == 1 })
    }
}

/// A writer of a packed file that consists of chunks.
#[derive(Debug)]
pub(super) struct GwpChunkWriter<W> {
    out: W,
    chunk_count: u64,
    bytes: u64,
}

fn write_error(source: io::Error) -> DeltaError {
    DeltaError::Stream { operation: "write the output", source }
}

impl<W: Write> GwpChunkWriter<W> {
    /// Writes the header of the file.
    pub(super) fn create(mut out: W, head: &GwpHeader) -> Result<Self, DeltaError> {
        let mut bytes = GWP_MAGIC.to_vec();
        bytes.extend(head.reference.0);
        append_varint(&mut bytes, head.reference_bases);
        bytes.extend(xxh3_64(&bytes).to_le_bytes());
        out.write_all(&bytes).map_err(write_error)?;
        Ok(Self { out, chunk_count: 0, bytes: bytes.len() as u64 })
    }

    pub(super) fn write_chunk(&mut self, tag: u8, head: &[u8], body: &[u8]) -> Result<(), DeltaError> {
        let mut start = vec![tag];
        append_varint(&mut start, head.len() as u64);
        append_varint(&mut start, body.len() as u64);
        start.extend(head);
        start.extend(chunk_checksum(self.chunk_count, &start));
        self.out.write_all(&start).map_err(write_error)?;
        self.bytes += start.len() as u64;
        if !body.is_empty() {
            self.out.write_all(body).map_err(write_error)?;
            self.out.write_all(&chunk_checksum(self.chunk_count, body)).map_err(write_error)?;
            self.bytes += (body.len() + CHECKSUM_BYTES) as u64;
        }
        self.chunk_count += 1;
        Ok(())
    }

    /// Writes the end chunk; returns the size of the file, bytes.
    pub(super) fn finish(mut self, text_bytes: u64) -> Result<u64, DeltaError> {
        let mut head = Vec::new();
        append_varint(&mut head, text_bytes);
        append_varint(&mut head, self.chunk_count);
        self.write_chunk(END_TAG, &head, &[])?;
        self.out.flush().map_err(write_error)?;
        Ok(self.bytes)
    }
}

fn chunk_checksum(chunk: u64, bytes: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let mut hash = Xxh3::with_seed(chunk);
    hash.update(bytes);
    hash.digest().to_le_bytes()
}

/// A reader of a packed file that consists of chunks.
#[derive(Debug)]
pub(super) struct GwpChunkReader<R> {
    input: R,
    pub(super) offset: u64,
    chunk_count: u64,
}

/// The kind of a packed file, as its magic bytes show.
#[derive(Debug)]
pub(super) enum GwpFileKind {
    Chunks(GwpHeader),
    Text,
}

/// The header of a chunk; its body follows in the file.
#[derive(Clone, Debug)]
pub(super) struct GwpChunkHeader {
    pub(super) tag: u8,
    pub(super) header: Vec<u8>,
    /// Offset of the chunk in the file, bytes.
    pub(super) offset: u64,
    /// Offset of the body of the chunk in the file, bytes.
    pub(super) body_offset: u64,
    pub(super) body_bytes: u64,
    /// 0-based number of the chunk in the file.
    pub(super) number: u64,
}

impl<R: Read> GwpChunkReader<R> {
    /// Reads the magic bytes and, for a file of chunks, the header of the file.
    pub(super) fn open(input: R) -> Result<(Self, GwpFileKind), DeltaError> {
        let mut reader = Self { input, offset: 0, chunk_count: 0 };
        let magic: [u8; 4] = match reader.read_array() {
            Err(DeltaError::Truncated { .. }) => return Err(DeltaError::NotGwp),
            magic => magic?,
        };
        match magic {
            GWP_TEXT_MAGIC => return Ok((reader, GwpFileKind::Text)),
            GWP_MAGIC => {}
            [b'G', b'W', b'P', version] if version & 0x7F > 1 => {
                return Err(DeltaError::UnsupportedVersion { found_version: version & 0x7F });
            }
            _ => return Err(DeltaError::NotGwp),
        }
        let digest: [u8; DIGEST_BYTES] = reader.read_array()?;
        let mut bytes = [&magic[..], &digest].concat();
        let reference_bases = reader.read_varint(&mut bytes)?;
        let known = u64::from_le_bytes(reader.read_array()?);
        if known != xxh3_64(&bytes) {
            return Err(DeltaError::Damaged { offset: 0, problem: "checksum mismatch in the header of the file" });
        }
        Ok((reader, GwpFileKind::Chunks(GwpHeader { reference: Digest(digest), reference_bases })))
    }

    /// Reads the remaining bytes of the file, at most `max_bytes`.
    pub(super) fn read_rest(&mut self, max_bytes: u64) -> Result<Vec<u8>, DeltaError> {
        self.read_up_to(max_bytes)
    }

    /// Reads the header of the next chunk and verifies its checksum.
    pub(super) fn next_header(&mut self) -> Result<GwpChunkHeader, DeltaError> {
        let offset = self.offset;
        let [tag] = self.read_array()?;
        let mut bytes = vec![tag];
        let head_bytes = self.read_varint(&mut bytes)?;
        let body_bytes = self.read_varint(&mut bytes)?;
        if head_bytes > MAX_HEADER_OR_BODY_BYTES || body_bytes > MAX_HEADER_OR_BODY_BYTES {
            return Err(DeltaError::Damaged { offset, problem: "a chunk exceeds the size limit" });
        }
        let header = self.read_exactly(head_bytes)?;
        bytes.extend(&header);
        let known: [u8; CHECKSUM_BYTES] = self.read_array()?;
        if known != chunk_checksum(self.chunk_count, &bytes) {
            return Err(DeltaError::Damaged { offset, problem: "checksum mismatch in the header of a chunk" });
        }
        let number = self.chunk_count;
        self.chunk_count += 1;
        Ok(GwpChunkHeader { tag, header, offset, body_offset: self.offset, body_bytes, number })
    }

    /// Reads the body of a chunk after its header was read.
    pub(super) fn read_body(&mut self, start: &GwpChunkHeader) -> Result<Vec<u8>, DeltaError> {
        if start.body_bytes == 0 {
            return Ok(Vec::new());
        }
        let body = self.read_exactly(start.body_bytes)?;
        let known: [u8; CHECKSUM_BYTES] = self.read_array()?;
        if known != chunk_checksum(start.number, &body) {
            return Err(DeltaError::Damaged {
                offset: start.offset,
                problem: "checksum mismatch in the body of a chunk",
            });
        }
        Ok(body)
    }

    /// Reads the next chunk. Returns `None` at the end chunk, after verifying it; no bytes may follow.
    pub(super) fn next_chunk(&mut self, done: &GwpTotals) -> Result<Option<GwpChunk>, DeltaError> {
        let start = self.next_header()?;
        if start.tag == END_TAG {
            self.check_end(&start, done)?;
            return Ok(None);
        }
        let body = self.read_body(&start)?;
        Ok(Some(GwpChunk { tag: start.tag, header: start.header, body, offset: start.offset }))
    }

    /// Verifies the totals in the end chunk, and that the file ends after this chunk.
    pub(super) fn check_end(&mut self, start: &GwpChunkHeader, done: &GwpTotals) -> Result<(), DeltaError> {
        let offset = start.offset;
        let mut cursor = VarintReader::new(&start.header);
        let (text_bytes, chunks) = (cursor.read_varint(), cursor.read_varint());
        let right = text_bytes == Some(done.text_bytes) && chunks == Some(done.chunk_count) && cursor.is_empty();
        if !right || start.body_bytes > 0 {
            return Err(DeltaError::Damaged {
                offset,
                problem: "the totals at the end of the file do not match its contents",
            });
        }
        match self.read_up_to(1)?.is_empty() {
            true => Ok(()),
            false => Err(DeltaError::Damaged { offset: self.offset, problem: "data follow the end mark of the file" }),
        }
    }

    fn read_exactly(&mut self, bytes: u64) -> Result<Vec<u8>, DeltaError> {
        let read = self.read_up_to(bytes)?;
        match read.len() as u64 == bytes {
            true => Ok(read),
            false => Err(DeltaError::Truncated { offset: self.offset }),
        }
    }

    fn read_up_to(&mut self, bytes: u64) -> Result<Vec<u8>, DeltaError> {
        let mut read = Vec::new();
        let result = self.input.by_ref().take(bytes).read_to_end(&mut read);
        result.map_err(|source| DeltaError::Stream { operation: "read the packed file", source })?;
        self.offset += read.len() as u64;
        Ok(read)
    }

    fn read_array<const N: usize>(&mut self) -> Result<[u8; N], DeltaError> {
        let mut array = [0; N];
        array.copy_from_slice(&self.read_exactly(N as u64)?);
        Ok(array)
    }

    fn read_varint(&mut self, seen: &mut Vec<u8>) -> Result<u64, DeltaError> {
        let from = seen.len();
        loop {
            seen.extend(self.read_array::<1>()?);
            if seen[seen.len() - 1] < 0x80 || seen.len() - from > 9 {
                let number = VarintReader::new(&seen[from..]).read_varint();
                return number.ok_or(DeltaError::Damaged {
                    offset: self.offset,
                    problem: "a number is longer than its type permits",
                });
            }
        }
    }
}

impl<R: Read + io::Seek> GwpChunkReader<R> {
    /// Seeks past the body of a chunk.
    pub(super) fn skip_body(&mut self, start: &GwpChunkHeader) -> Result<(), DeltaError> {
        let checksum = if start.body_bytes > 0 { CHECKSUM_BYTES as u64 } else { 0 };
        self.seek(start.body_offset + start.body_bytes + checksum)
    }

    /// Seeks to the body of a chunk, reads it and verifies its checksum.
    pub(super) fn read_body_at(&mut self, start: &GwpChunkHeader) -> Result<Vec<u8>, DeltaError> {
        self.seek(start.body_offset)?;
        self.read_body(start)
    }

    fn seek(&mut self, offset: u64) -> Result<(), DeltaError> {
        let sought = self.input.seek(io::SeekFrom::Start(offset));
        sought.map_err(|source| DeltaError::Stream { operation: "read the packed file", source })?;
        self.offset = offset;
        Ok(())
    }
}
