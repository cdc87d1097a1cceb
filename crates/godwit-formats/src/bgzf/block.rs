//! One block: compression, decompression and the header between them.

use libdeflater::{CompressionLvl, Compressor, Crc, Decompressor};

/// Maximum data bytes of a block, htslib's choice: compressed data that does not shrink still fits a block.
pub const MAX_BLOCK_DATA_BYTES: usize = 0xff00;

/// The empty block that marks the end of a whole file (SAMv1 §4.1.2).
pub const EOF_BLOCK: [u8; 28] =
    [0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 0, 0xff, 6, 0, b'B', b'C', 2, 0, 27, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Bytes before the compressed data in blocks written here.
const HEADER_BYTES: usize = 18;
/// Bytes of a gzip header up to its extra field.
pub(super) const FIXED_HEADER_BYTES: usize = 12;
/// CRC32 and length.
const TRAILER_BYTES: usize = 8;
/// Maximum bytes of a block, compressed or not.
pub(super) const MAX_BLOCK_BYTES: usize = 1 << 16;
/// Type and length of one stored deflate block (RFC 1951 §3.2.4).
const STORED_HEADER_BYTES: usize = 5;

/// A compressor of single blocks by libdeflate: the same data and level always give the same bytes.
pub struct BlockCompressor {
    compressor: Compressor,
}

impl std::fmt::Debug for BlockCompressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockCompressor").finish_non_exhaustive()
    }
}

impl BlockCompressor {
    /// Creates a compressor of level 0 (stored) to 12; higher levels count as 12.
    pub fn new(level: u8) -> Self {
        let level = CompressionLvl::new(i32::from(level)).unwrap_or(CompressionLvl::best());
        Self { compressor: Compressor::new(level) }
    }

    /// Appends one block with `data`, at most [`MAX_BLOCK_DATA_BYTES`] bytes; further bytes are left out.
    pub fn compress(&mut self, data: &[u8], out: &mut Vec<u8>) {
        debug_assert!(data.len() <= MAX_BLOCK_DATA_BYTES);
        let data = &data[..data.len().min(MAX_BLOCK_DATA_BYTES)];
        let start = out.len();
        out.resize(start + MAX_BLOCK_BYTES, 0);
        let block = &mut out[start..];
        block[..HEADER_BYTES].copy_from_slice(&EOF_BLOCK[..HEADER_BYTES]);
        let space = &mut block[HEADER_BYTES..MAX_BLOCK_BYTES - TRAILER_BYTES];
        let deflated = self.compressor.deflate_compress(data, space);
        let data_end = HEADER_BYTES + deflated.unwrap_or_else(|_| append_stored_block(data, space));
        block[16..18].copy_from_slice(&((data_end + TRAILER_BYTES - 1) as u16).to_le_bytes());
        block[data_end..data_end + 4].copy_from_slice(&crc32(data).to_le_bytes());
        block[data_end + 4..data_end + TRAILER_BYTES].copy_from_slice(&(data.len() as u32).to_le_bytes());
        out.truncate(start + data_end + TRAILER_BYTES);
    }
}

fn crc32(data: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(data);
    crc.sum()
}

/// Writes one stored deflate block: it always fits, because [`MAX_BLOCK_DATA_BYTES`] leaves room for it.
fn append_stored_block(data: &[u8], space: &mut [u8]) -> usize {
    let count = data.len() as u16;
    space[0] = 1;
    space[1..3].copy_from_slice(&count.to_le_bytes());
    space[3..5].copy_from_slice(&(!count).to_le_bytes());
    space[STORED_HEADER_BYTES..STORED_HEADER_BYTES + data.len()].copy_from_slice(data);
    STORED_HEADER_BYTES + data.len()
}

/// Returns the compressed bytes of the block that starts here, from a whole gzip header; `None` where the header is not one
/// of BGZF. `Err` holds the bytes of header that are needed to decide.
pub(super) fn parse_block_length(header: &[u8]) -> Result<Option<usize>, usize> {
    let Some(fixed) = header.first_chunk::<FIXED_HEADER_BYTES>() else { return Err(FIXED_HEADER_BYTES) };
    // RFC 1952 §2.3: magic, deflate, an extra field and nothing else.
    if !fixed.starts_with(&[0x1f, 0x8b, 8, 4]) {
        return Ok(None);
    }
    let extra_end = FIXED_HEADER_BYTES + usize::from(u16::from_le_bytes([fixed[10], fixed[11]]));
    let Some(mut extra) = header.get(FIXED_HEADER_BYTES..extra_end) else { return Err(extra_end) };
    while let [id1, id2, low, high, rest @ ..] = extra {
        let field_bytes = usize::from(u16::from_le_bytes([*low, *high]));
        if (*id1, *id2, field_bytes) == (b'B', b'C', 2) && rest.len() >= 2 {
            let bytes = usize::from(u16::from_le_bytes([rest[0], rest[1]])) + 1;
            return Ok((bytes >= extra_end + TRAILER_BYTES).then_some(bytes));
        }
        extra = rest.get(field_bytes..).unwrap_or_default();
    }
    Ok(None)
}

/// Returns the data bytes that a block of [`parse_block_length`] claims; `None` where they exceed the limit.
pub(super) fn parse_data_length(block: &[u8]) -> Option<usize> {
    let bytes = u32::from_le_bytes(*block.last_chunk::<4>()?) as usize;
    (bytes <= MAX_BLOCK_BYTES).then_some(bytes)
}

/// Decompresses a block into a buffer of exactly its [`parse_data_length`]; returns false where its data, checksum or
/// length are wrong.
pub(super) fn inflate_block(decompressor: &mut Decompressor, block: &[u8], space: &mut [u8]) -> bool {
    // libdeflate checks the header, the checksum and the length. Less data than the trailer claims means that the
    // compressed data ended early, with other bytes behind it.
    decompressor.gzip_decompress(block, space).is_ok_and(|count| count == space.len())
}
