//! Compression with zstd, without magic bytes, sizes and checksums in the frames: packed files store the sizes and
//! checksums elsewhere.

use godwit_io::varint::{VarintReader, append_varint};
use zstd_safe::{CCtx, CParameter, DCtx, DParameter, FrameFormat};

/// zstd level for text that is written to packed files.
pub(super) const TEXT_LEVEL: i32 = 19;
/// zstd level for estimates of the compressed size.
pub(super) const ESTIMATE_LEVEL: i32 = 3;
/// Logarithm of the zstd window: 2^26 bytes contain a segment and the preceding text to which it refers.
const WINDOW_LOG: u32 = 26;
/// Largest size of the preceding text to which a segment may refer, bytes.
pub(super) const MAX_PREFIX_BYTES: usize = 8 << 20;

/// Returns the end of a text, to which zstd may refer when it compresses the next text.
pub(super) fn trailing_prefix(text: &[u8]) -> &[u8] {
    &text[text.len().saturating_sub(MAX_PREFIX_BYTES)..]
}

/// Compresses bytes. zstd may refer to `prefix`, which decompression then needs too.
pub(super) fn compress(bytes: &[u8], level: i32, prefix: &[u8]) -> Vec<u8> {
    let mut context = CCtx::create();
    let far = bytes.len() + prefix.len() > 1 << 23;
    let mut parameters = vec![
        CParameter::CompressionLevel(level),
        CParameter::Format(FrameFormat::Magicless),
        CParameter::ContentSizeFlag(false),
        CParameter::ChecksumFlag(false),
        CParameter::DictIdFlag(false),
    ];
    if far {
        parameters.push(CParameter::WindowLog(WINDOW_LOG));
    }
    if level < TEXT_LEVEL {
        parameters.push(CParameter::EnableLongDistanceMatching(true));
    }
    for parameter in parameters {
        context.set_parameter(parameter).expect("zstd knows its parameters");
    }
    if !prefix.is_empty() {
        context.ref_prefix(prefix).expect("nothing was compressed yet");
    }
    let mut packed = Vec::with_capacity(zstd_safe::compress_bound(bytes.len()));
    context.compress2(&mut packed, bytes).expect("there is room for what cannot be compressed");
    packed
}

/// Decompresses to exactly `bytes` bytes; `None` if the data are invalid.
pub(super) fn decompress(packed: &[u8], bytes: usize, prefix: &[u8]) -> Option<Vec<u8>> {
    let mut context = DCtx::create();
    context.set_parameter(DParameter::Format(FrameFormat::Magicless)).ok()?;
    context.set_parameter(DParameter::WindowLogMax(WINDOW_LOG)).ok()?;
    if !prefix.is_empty() {
        context.ref_prefix(prefix).ok()?;
    }
    let mut out = Vec::with_capacity(bytes);
    context.decompress(&mut out, packed).ok()?;
    (out.len() == bytes).then_some(out)
}

/// Appends bytes, compressed if this is shorter, with their length.
pub(super) fn append_compressed_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let packed = compress(bytes, TEXT_LEVEL, &[]);
    if packed.len() + 3 < bytes.len() {
        append_varint(out, (bytes.len() as u64) << 1 | 1);
        append_varint(out, packed.len() as u64);
        out.extend(packed);
    } else {
        append_varint(out, (bytes.len() as u64) << 1);
        out.extend(bytes);
    }
}

/// Reads the output of [`append_compressed_bytes`]. Returns `None` if it is invalid or exceeds `max_bytes` bytes.
pub(super) fn read_compressed_bytes(cursor: &mut VarintReader, max_bytes: u64) -> Option<Vec<u8>> {
    let head = cursor.read_varint()?;
    let bytes = usize::try_from(Some(head >> 1).filter(|bytes| *bytes <= max_bytes)?).ok()?;
    if head & 1 == 0 {
        return cursor.read_bytes(bytes).map(<[u8]>::to_vec);
    }
    let packed = usize::try_from(cursor.read_varint()?).ok()?;
    decompress(cursor.read_bytes(packed)?, bytes, &[])
}
