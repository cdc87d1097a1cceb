//! Bytes through zstd at its best, without what a frame says besides: sizes and checksums stand around it.

use zstd_safe::{CCtx, CParameter, DCtx, DParameter, FrameFormat};

use super::varint::{Cursor, put_varint};

/// The level that text is packed at.
pub(super) const LEVEL: i32 = 19;
/// The level at which it is packed to guess how long it would be.
pub(super) const GUESS_LEVEL: i32 = 3;
/// Largest distance at which a repeat is found: 2^26 bytes, a segment and what is before it.
const WINDOW_LOG: u32 = 26;
/// Bytes before a text that it may repeat.
pub(super) const PREFIX_BYTES: usize = 8 << 20;

/// The end of an earlier text that a later one may repeat.
pub(super) fn prefix_of(text: &[u8]) -> &[u8] {
    &text[text.len().saturating_sub(PREFIX_BYTES)..]
}

/// Packs bytes that may repeat what is in `prefix`.
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
    if level < LEVEL {
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

/// Unpacks what becomes that many bytes; `None` where it does not.
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

/// Appends bytes, packed where that is shorter.
pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let packed = compress(bytes, LEVEL, &[]);
    if packed.len() + 3 < bytes.len() {
        put_varint(out, (bytes.len() as u64) << 1 | 1);
        put_varint(out, packed.len() as u64);
        out.extend(packed);
    } else {
        put_varint(out, (bytes.len() as u64) << 1);
        out.extend(bytes);
    }
}

/// Reads what [`put_bytes`] appended, at most `max_bytes`.
pub(super) fn take_bytes(cursor: &mut Cursor, max_bytes: u64) -> Option<Vec<u8>> {
    let head = cursor.varint()?;
    let bytes = usize::try_from(Some(head >> 1).filter(|bytes| *bytes <= max_bytes)?).ok()?;
    if head & 1 == 0 {
        return cursor.bytes(bytes).map(<[u8]>::to_vec);
    }
    let packed = usize::try_from(cursor.varint()?).ok()?;
    decompress(cursor.bytes(packed)?, bytes, &[])
}
