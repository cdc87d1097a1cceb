//! Compression and decompression of a single BGZF block, and its header.

use libdeflater::{CompressionLvl, Compressor, Crc, Decompressor};

/// Maximum uncompressed bytes of a block, as in htslib. A block can then always hold its data, even if the data cannot
/// be compressed.
pub const MAX_BLOCK_DATA_BYTES: usize = 0xff00;

/// The empty block that marks the end of a complete BGZF file (SAMv1 §4.1.2).
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use godwit_io::bgzf::{EOF_BLOCK, Writer};
///
/// let mut writer = Writer::new(Vec::new(), 6);
/// writer.write_bytes(b"@r1\nACGT\n+\nIIII\n")?;
/// let (bytes, _) = writer.finish_file()?;
/// assert!(bytes.ends_with(&EOF_BLOCK));
/// # Ok(())
/// # }
/// ```
pub const EOF_BLOCK: [u8; 28] =
    [0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 0, 0xff, 6, 0, b'B', b'C', 2, 0, 27, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Bytes before the compressed data in the blocks that this module writes.
const HEADER_BYTES: usize = 18;
/// Bytes of a gzip header before its extra field.
pub(super) const FIXED_HEADER_BYTES: usize = 12;
/// Bytes of a gzip trailer: CRC32 and length of the uncompressed data.
const TRAILER_BYTES: usize = 8;
/// Maximum bytes of a block: the limit holds for the whole compressed block and for its uncompressed data.
pub(super) const MAX_BLOCK_BYTES: usize = 1 << 16;
/// Bytes before the data of a stored deflate block: its type and its length (RFC 1951 §3.2.4).
const STORED_HEADER_BYTES: usize = 5;

/// A compressor of single BGZF blocks (libdeflate). The same data and level always give the same bytes.
pub struct BlockCompressor {
    compressor: Compressor,
}

impl std::fmt::Debug for BlockCompressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockCompressor").finish_non_exhaustive()
    }
}

impl BlockCompressor {
    /// Creates a compressor for a level from 0 (stored, not compressed) to 12. Higher levels count as 12.
    pub fn new(level: u8) -> Self {
        let level = CompressionLvl::new(i32::from(level)).unwrap_or(CompressionLvl::best());
        Self { compressor: Compressor::new(level) }
    }

    /// Compresses `data`, at most [`MAX_BLOCK_DATA_BYTES`] bytes, and appends the block to `out`. Bytes of `data`
    /// beyond that limit are ignored.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::io::Read;
    ///
    /// use godwit_io::bgzf::BlockCompressor;
    ///
    /// let mut block = Vec::new();
    /// BlockCompressor::new(6).compress(b"@r1\nACGT\n+\nIIII\n", &mut block);
    /// let mut text = String::new();
    /// flate2::read::GzDecoder::new(&block[..]).read_to_string(&mut text)?;
    /// assert_eq!(text, "@r1\nACGT\n+\nIIII\n");
    /// # Ok(())
    /// # }
    /// ```
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

/// Writes `data` uncompressed, as one stored deflate block, and returns its length in bytes. The block always fits into
/// `space`, because [`MAX_BLOCK_DATA_BYTES`] leaves room for its header.
fn append_stored_block(data: &[u8], space: &mut [u8]) -> usize {
    let count = data.len() as u16;
    space[0] = 1;
    space[1..3].copy_from_slice(&count.to_le_bytes());
    space[3..5].copy_from_slice(&(!count).to_le_bytes());
    space[STORED_HEADER_BYTES..STORED_HEADER_BYTES + data.len()].copy_from_slice(data);
    STORED_HEADER_BYTES + data.len()
}

/// Returns the length in bytes of the compressed block that starts with `header`, or `None` if `header` is not that of
/// a BGZF block. If `header` is too short to decide, `Err` holds the number of header bytes needed.
pub(super) fn parse_block_length(header: &[u8]) -> Result<Option<usize>, usize> {
    let Some(fixed) = header.first_chunk::<FIXED_HEADER_BYTES>() else { return Err(FIXED_HEADER_BYTES) };
    // RFC 1952 §2.3: the magic number, the method deflate, and flags with only the bit of the extra field.
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

/// Returns the uncompressed length that the trailer of `block` claims, or `None` if it exceeds the limit of BGZF.
/// [`parse_block_length`] gives the length of `block`.
pub(super) fn parse_data_length(block: &[u8]) -> Option<usize> {
    let bytes = u32::from_le_bytes(*block.last_chunk::<4>()?) as usize;
    (bytes <= MAX_BLOCK_BYTES).then_some(bytes)
}

/// Decompresses a block into `space`, which must have exactly the length that [`parse_data_length`] returned. Returns
/// false if the compressed data, checksum or length is wrong.
pub(super) fn inflate_block(decompressor: &mut Decompressor, block: &[u8], space: &mut [u8]) -> bool {
    // libdeflate checks the header, the checksum and the length. If it returns less data than the trailer claims, the
    // compressed data ended early and is followed by other bytes.
    decompressor.gzip_decompress(block, space).is_ok_and(|count| count == space.len())
}
