//! A packed file as a row of chunks, each with checksums of its own.
//!
//! `docs/formats/gwp.md` says what is where. Checksums are XXH3 whose seed is the number of the chunk, so that chunks that trade
//! places are noticed.

use std::io::{self, Read, Write};

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::error::DeltaError;
use super::reference::{DIGEST_BYTES, Digest};
use super::varint::{Cursor, put_varint};

/// First bytes of a file of chunks, and of one that is nothing but text; the fourth is the version, its upper bit set for text.
pub(super) const MAGIC: [u8; 4] = *b"GWP\x01";
pub(super) const TEXT_MAGIC: [u8; 4] = *b"GWP\x81";
/// Chunks: edits, text, and the end.
pub(super) const EDITS: u8 = 1;
pub(super) const TEXT: u8 = 2;
pub(super) const END: u8 = 3;
/// Bytes of a checksum.
const CHECKSUM_BYTES: usize = 8;
/// Bytes of a head or a body at most: more than the text of a segment takes in any form.
const MAX_BYTES: u64 = 160 << 20;

/// What stands at the start of a file of chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileHead {
    /// The reference it was packed with.
    pub(super) reference: Digest,
    /// Its bases.
    pub(super) reference_bases: u64,
}

/// How many bytes there are of everything, and how many chunks before the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) text_bytes: u64,
    pub(super) chunks: u64,
}

/// A chunk, its checksums right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    pub(super) tag: u8,
    pub(super) head: Vec<u8>,
    pub(super) body: Vec<u8>,
    /// Where it starts.
    pub(super) offset: u64,
}

/// A checksum of a text chunk's head: its text, and whether it repeats the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TextHead {
    pub(super) text_bytes: u64,
    pub(super) text_checksum: u64,
    pub(super) repeats_earlier: bool,
}

impl TextHead {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, self.text_bytes << 1 | u64::from(self.repeats_earlier));
        out.extend(self.text_checksum.to_le_bytes());
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut cursor = Cursor::new(bytes);
        let head = cursor.varint()?;
        let text_checksum = u64::from_le_bytes(cursor.array()?);
        let text_bytes = Some(head >> 1).filter(|bytes| *bytes <= super::segment::MAX_TEXT_BYTES)?;
        cursor.is_empty().then_some(Self { text_bytes, text_checksum, repeats_earlier: head & 1 == 1 })
    }
}

/// Writes chunks.
#[derive(Debug)]
pub(super) struct ChunkWriter<W> {
    out: W,
    chunks: u64,
    bytes: u64,
}

fn written(source: io::Error) -> DeltaError {
    DeltaError::Stream { what: "write the output", source }
}

impl<W: Write> ChunkWriter<W> {
    /// Writes the start of a file.
    pub(super) fn start(mut out: W, head: &FileHead) -> Result<Self, DeltaError> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(head.reference.0);
        put_varint(&mut bytes, head.reference_bases);
        bytes.extend(xxh3_64(&bytes).to_le_bytes());
        out.write_all(&bytes).map_err(written)?;
        Ok(Self { out, chunks: 0, bytes: bytes.len() as u64 })
    }

    pub(super) fn write(&mut self, tag: u8, head: &[u8], body: &[u8]) -> Result<(), DeltaError> {
        let mut start = vec![tag];
        put_varint(&mut start, head.len() as u64);
        put_varint(&mut start, body.len() as u64);
        start.extend(head);
        start.extend(checksum(self.chunks, &start));
        self.out.write_all(&start).map_err(written)?;
        self.bytes += start.len() as u64;
        if !body.is_empty() {
            self.out.write_all(body).map_err(written)?;
            self.out.write_all(&checksum(self.chunks, body)).map_err(written)?;
            self.bytes += (body.len() + CHECKSUM_BYTES) as u64;
        }
        self.chunks += 1;
        Ok(())
    }

    /// Writes the last chunk. Bytes of the file.
    pub(super) fn finish(mut self, text_bytes: u64) -> Result<u64, DeltaError> {
        let mut head = Vec::new();
        put_varint(&mut head, text_bytes);
        put_varint(&mut head, self.chunks);
        self.write(END, &head, &[])?;
        self.out.flush().map_err(written)?;
        Ok(self.bytes)
    }
}

fn checksum(chunk: u64, bytes: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let mut hash = Xxh3::with_seed(chunk);
    hash.update(bytes);
    hash.digest().to_le_bytes()
}

/// Reads chunks.
#[derive(Debug)]
pub(super) struct ChunkReader<R> {
    input: R,
    pub(super) offset: u64,
    chunks: u64,
}

/// What a file begins with.
#[derive(Debug)]
pub(super) enum Start {
    Chunks(FileHead),
    Text,
}

/// The start of a chunk; its body comes next in the file.
#[derive(Clone, Debug)]
pub(super) struct ChunkStart {
    pub(super) tag: u8,
    pub(super) head: Vec<u8>,
    /// Where the chunk starts.
    pub(super) offset: u64,
    /// Where its body starts.
    pub(super) body_offset: u64,
    pub(super) body_bytes: u64,
    /// Its number.
    pub(super) number: u64,
}

impl<R: Read> ChunkReader<R> {
    /// Reads the start of a file.
    pub(super) fn start(input: R) -> Result<(Self, Start), DeltaError> {
        let mut reader = Self { input, offset: 0, chunks: 0 };
        let magic: [u8; 4] = match reader.array() {
            Err(DeltaError::Truncated { .. }) => return Err(DeltaError::NotPacked),
            magic => magic?,
        };
        match magic {
            TEXT_MAGIC => return Ok((reader, Start::Text)),
            MAGIC => {}
            [b'G', b'W', b'P', version] if version & 0x7F > 1 => {
                return Err(DeltaError::Version { version: version & 0x7F });
            }
            _ => return Err(DeltaError::NotPacked),
        }
        let digest: [u8; DIGEST_BYTES] = reader.array()?;
        let mut bytes = [&magic[..], &digest].concat();
        let reference_bases = reader.varint(&mut bytes)?;
        let known = u64::from_le_bytes(reader.array()?);
        if known != xxh3_64(&bytes) {
            return Err(DeltaError::Damaged { offset: 0, what: "its head has another checksum" });
        }
        Ok((reader, Start::Chunks(FileHead { reference: Digest(digest), reference_bases })))
    }

    /// All that is left.
    pub(super) fn rest(&mut self, max_bytes: u64) -> Result<Vec<u8>, DeltaError> {
        self.bytes_up_to(max_bytes)
    }

    /// The next chunk up to its body; `None` behind the last one, which has to be right.
    pub(super) fn next_start(&mut self) -> Result<ChunkStart, DeltaError> {
        let offset = self.offset;
        let [tag] = self.array()?;
        let mut bytes = vec![tag];
        let head_bytes = self.varint(&mut bytes)?;
        let body_bytes = self.varint(&mut bytes)?;
        if head_bytes > MAX_BYTES || body_bytes > MAX_BYTES {
            return Err(DeltaError::Damaged { offset, what: "a chunk is longer than can be" });
        }
        let head = self.exactly(head_bytes)?;
        bytes.extend(&head);
        let known: [u8; CHECKSUM_BYTES] = self.array()?;
        if known != checksum(self.chunks, &bytes) {
            return Err(DeltaError::Damaged { offset, what: "the head of a chunk has another checksum" });
        }
        let number = self.chunks;
        self.chunks += 1;
        Ok(ChunkStart { tag, head, offset, body_offset: self.offset, body_bytes, number })
    }

    /// The body of the chunk whose start was read last.
    pub(super) fn body(&mut self, start: &ChunkStart) -> Result<Vec<u8>, DeltaError> {
        if start.body_bytes == 0 {
            return Ok(Vec::new());
        }
        let body = self.exactly(start.body_bytes)?;
        let known: [u8; CHECKSUM_BYTES] = self.array()?;
        if known != checksum(start.number, &body) {
            return Err(DeltaError::Damaged { offset: start.offset, what: "the body of a chunk has another checksum" });
        }
        Ok(body)
    }

    /// The next chunk; `None` behind the last one, with which the file has to end.
    pub(super) fn next_chunk(&mut self, done: &Totals) -> Result<Option<Chunk>, DeltaError> {
        let start = self.next_start()?;
        if start.tag == END {
            self.end(&start, done)?;
            return Ok(None);
        }
        let body = self.body(&start)?;
        Ok(Some(Chunk { tag: start.tag, head: start.head, body, offset: start.offset }))
    }

    /// Checks the last chunk, and that nothing is behind it.
    pub(super) fn end(&mut self, start: &ChunkStart, done: &Totals) -> Result<(), DeltaError> {
        let offset = start.offset;
        let mut cursor = Cursor::new(&start.head);
        let (text_bytes, chunks) = (cursor.varint(), cursor.varint());
        let right = text_bytes == Some(done.text_bytes) && chunks == Some(done.chunks) && cursor.is_empty();
        if !right || start.body_bytes > 0 {
            return Err(DeltaError::Damaged { offset, what: "what is in it is not what its end says" });
        }
        match self.bytes_up_to(1)?.is_empty() {
            true => Ok(()),
            false => Err(DeltaError::Damaged { offset: self.offset, what: "something follows its end" }),
        }
    }

    fn exactly(&mut self, bytes: u64) -> Result<Vec<u8>, DeltaError> {
        let read = self.bytes_up_to(bytes)?;
        match read.len() as u64 == bytes {
            true => Ok(read),
            false => Err(DeltaError::Truncated { offset: self.offset }),
        }
    }

    fn bytes_up_to(&mut self, bytes: u64) -> Result<Vec<u8>, DeltaError> {
        let mut read = Vec::new();
        let result = self.input.by_ref().take(bytes).read_to_end(&mut read);
        result.map_err(|source| DeltaError::Stream { what: "read the packed file", source })?;
        self.offset += read.len() as u64;
        Ok(read)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DeltaError> {
        let mut array = [0; N];
        array.copy_from_slice(&self.exactly(N as u64)?);
        Ok(array)
    }

    fn varint(&mut self, seen: &mut Vec<u8>) -> Result<u64, DeltaError> {
        let from = seen.len();
        loop {
            seen.extend(self.array::<1>()?);
            if seen[seen.len() - 1] < 0x80 || seen.len() - from > 9 {
                let number = Cursor::new(&seen[from..]).varint();
                return number.ok_or(DeltaError::Damaged { offset: self.offset, what: "a number has too many bytes" });
            }
        }
    }
}

impl<R: Read + io::Seek> ChunkReader<R> {
    /// Goes to behind the body of a chunk.
    pub(super) fn pass(&mut self, start: &ChunkStart) -> Result<(), DeltaError> {
        let checksum = if start.body_bytes > 0 { CHECKSUM_BYTES as u64 } else { 0 };
        self.seek(start.body_offset + start.body_bytes + checksum)
    }

    /// The body of any chunk.
    pub(super) fn body_of(&mut self, start: &ChunkStart) -> Result<Vec<u8>, DeltaError> {
        self.seek(start.body_offset)?;
        self.body(start)
    }

    fn seek(&mut self, offset: u64) -> Result<(), DeltaError> {
        let sought = self.input.seek(io::SeekFrom::Start(offset));
        sought.map_err(|source| DeltaError::Stream { what: "read the packed file", source })?;
        self.offset = offset;
        Ok(())
    }
}
