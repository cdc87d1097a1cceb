//! Conversion of SEQ and QUAL from SAM text into the form of BAM.

use godwit_model::BASE_LETTERS;

/// The code for a byte of SEQ that is not a base.
const NO_BASE: u8 = 0x10;

/// 4-bit code of each base letter (SAMv1 §4.2.3), indexed by its byte; [`NO_BASE`] for bytes that are not letters.
/// Letters without a code of their own, such as U, count as N, as in htslib 1.16.
const BASE_CODES: [u8; 256] = base_codes();

const fn base_codes() -> [u8; 256] {
    let mut codes = [NO_BASE; 256];
    let mut letter = b'A';
    while letter <= b'Z' {
        codes[letter as usize] = 15;
        codes[letter.to_ascii_lowercase() as usize] = 15;
        letter += 1;
    }
    codes[b'.' as usize] = 15;
    let mut code = 0;
    while code < BASE_LETTERS.len() {
        codes[BASE_LETTERS[code] as usize] = code as u8;
        codes[BASE_LETTERS[code].to_ascii_lowercase() as usize] = code as u8;
        code += 1;
    }
    codes
}

/// Number of bases that are packed in one step.
const PACK_STEP_BASES: usize = 32;

/// Packs bases, two per byte with the first base in the high four bits, and appends them to `out`.
///
/// # Errors
/// The first byte that is not a base; `out` may then contain some of the bases.
pub(super) fn pack_bases(bases: &[u8], out: &mut Vec<u8>) -> Result<(), u8> {
    let start = out.len();
    out.resize(start + bases.len().div_ceil(2), 0);
    let (steps, rest) = bases.as_chunks::<PACK_STEP_BASES>();
    let (packed_steps, packed_rest) = out[start..].as_chunks_mut::<{ PACK_STEP_BASES / 2 }>();
    let mut done = 0;
    for (step, place) in steps.iter().zip(packed_steps.iter_mut()) {
        if !pack_acgtn(step, place) {
            pack_any_bases(step, place)?;
        }
        done += 1;
    }
    // If 31 bases remain, their packed form fills a complete step of 16 bytes.
    match packed_steps.get_mut(done) {
        Some(place) => pack_any_bases(rest, place),
        None => pack_any_bases(rest, packed_rest),
    }
}

/// Packs the upper-case letters A, C, G, T and N without a table, so that the compiler can use vector instructions.
/// Returns false if there are other bytes.
#[inline]
fn pack_acgtn(bases: &[u8; PACK_STEP_BASES], packed: &mut [u8; PACK_STEP_BASES / 2]) -> bool {
    let mut codes = [0u8; PACK_STEP_BASES];
    let mut unknown = 0u8;
    for (code, base) in codes.iter_mut().zip(bases) {
        let is = |letter: u8| 0u8.wrapping_sub(u8::from(*base == letter));
        *code = is(b'A') & 1 | is(b'C') & 2 | is(b'G') & 4 | is(b'T') & 8 | is(b'N') & 15;
        unknown |= u8::from(*code == 0);
    }
    for (byte, pair) in packed.iter_mut().zip(codes.as_chunks::<2>().0) {
        let pair = u16::from_le_bytes(*pair);
        *byte = (pair << 4 | pair >> 8) as u8;
    }
    unknown == 0
}

fn pack_any_bases(bases: &[u8], packed: &mut [u8]) -> Result<(), u8> {
    let mut seen = 0;
    for (byte, pair) in packed.iter_mut().zip(bases.chunks(2)) {
        let high = BASE_CODES[usize::from(pair[0])];
        let low = pair.get(1).map_or(0, |base| BASE_CODES[usize::from(*base)]);
        seen |= high | low;
        *byte = high << 4 | low & 0xf;
    }
    if seen & NO_BASE == 0 {
        return Ok(());
    }
    Err(bases.iter().copied().find(|base| BASE_CODES[usize::from(*base)] == NO_BASE).unwrap_or_default())
}

/// Converts Phred+33 characters into quality numbers and appends them to `out`.
///
/// # Errors
/// The first byte outside `!` to `~`; `out` then contains values for all bytes.
pub(super) fn append_phred_scores(qualities: &[u8], out: &mut Vec<u8>) -> Result<(), u8> {
    let start = out.len();
    out.extend_from_slice(qualities);
    let mut highest = 0u8;
    for quality in &mut out[start..] {
        *quality = quality.wrapping_sub(b'!');
        highest = highest.max(*quality);
    }
    if highest <= b'~' - b'!' {
        return Ok(());
    }
    Err(qualities.iter().copied().find(|byte| !(b'!'..=b'~').contains(byte)).unwrap_or_default())
}
