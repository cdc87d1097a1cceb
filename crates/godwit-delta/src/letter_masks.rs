//! Encoding of the properties of letters that two-bit bases do not store: lower case, and letters other than ACGT.

use super::bases::{BitVector, NonAcgtInterval};
use super::copy_source::CopiedInterval;
use super::range_coder::{BitModel, NumberModel, RangeCoder};

/// Encoding of the case of the letters of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CaseCoding {
    /// All letters are upper case.
    AllUpper,
    /// By the positions at which the case changes.
    ChangePositions,
    /// By the positions at which agreement with the case of the copied reference letters starts or ends.
    AgainstReference,
}

impl CaseCoding {
    pub(super) const ALL: [Self; 3] = [Self::AllUpper, Self::ChangePositions, Self::AgainstReference];
}

/// Encodes or decodes `count` ascending positions below `end`. Returns `None` if a decoded position is not below `end`.
pub(super) fn code_positions(
    coder: &mut impl RangeCoder,
    known: Option<&[usize]>,
    count: usize,
    end: usize,
) -> Option<Vec<usize>> {
    let mut gaps = [NumberModel::default(), NumberModel::default()];
    let mut places = Vec::new();
    let mut next = 0;
    for at in 0..count {
        let gap = known.map_or(0, |known| (known[at] - next) as u64);
        let gap = gaps[at & 1].code_number(coder, gap);
        let place = usize::try_from(gap).ok().and_then(|gap| next.checked_add(gap)).filter(|place| *place < end)?;
        places.push(place);
        next = place + 1;
    }
    Some(places)
}

/// Encodes or decodes `count` ascending intervals of letters other than ACGT in `[0, end)`. Returns `None` if a decoded
/// interval exceeds `end`.
pub(super) fn code_non_acgt(
    coder: &mut impl RangeCoder,
    known: Option<&[NonAcgtInterval]>,
    count: usize,
    end: usize,
) -> Option<Vec<NonAcgtInterval>> {
    let (mut gaps, mut lengths) = (NumberModel::default(), NumberModel::default());
    let (mut same, mut letters) = (BitModel::default(), [BitModel::default(); 256]);
    let mut runs: Vec<NonAcgtInterval> = Vec::new();
    let (mut next, mut letter) = (0, b'N');
    for at in 0..count {
        let run = known.map_or(NonAcgtInterval { start: next, end: next + 1, letter }, |known| known[at]);
        let gap = gaps.code_number(coder, (run.start - next) as u64);
        let length = lengths.code_number(coder, (run.end - run.start - 1) as u64);
        if coder.code_bit(run.letter != letter, &mut same) {
            letter = coder.code_bit_tree(run.letter.into(), 8, &mut letters) as u8;
        }
        let start = usize::try_from(gap).ok()?.checked_add(next)?;
        let stop = usize::try_from(length).ok()?.checked_add(start)?.checked_add(1).filter(|stop| *stop <= end)?;
        runs.push(NonAcgtInterval { start, end: stop, letter });
        next = stop;
    }
    Some(runs)
}

/// Returns the case that copied letters have in the reference. Letters between copied intervals get the case of the
/// letter before them.
pub(super) fn expected_case(copies: &[CopiedInterval], soft_mask: &BitVector, count: usize) -> BitVector {
    let mut expected = BitVector::zeros(count);
    let mut done = 0;
    for copied in copies {
        let (to, bases) = (copied.target_start as usize, copied.bases as usize);
        extend_case(&mut expected, done, to);
        let mut at = 0;
        while at < bases {
            let bits = (bases - at).min(64);
            let word = match copied.reverse {
                true => soft_mask.window_reversed(copied.local_position - at),
                false => soft_mask.window(copied.local_position + at),
            };
            expected.write_bits(to + at, word, bits);
            at += bits;
        }
        done = to + bases;
    }
    extend_case(&mut expected, done, count);
    expected
}

fn extend_case(expected: &mut BitVector, start: usize, end: usize) {
    if start > 0 && start < end && expected.get(start - 1) {
        expected.set_range(start, end);
    }
}

/// Returns `count` bits, which start with 0 and change at each of the positions in `toggles`.
pub(super) fn soft_mask_from_changes(toggles: &[usize], count: usize) -> BitVector {
    let mut bits = BitVector::zeros(count);
    for pair in toggles.chunks(2) {
        bits.set_range(pair[0], pair.get(1).copied().unwrap_or(count));
    }
    bits
}

/// Replaces the letters in the intervals `non_acgt`, then makes the letters lower case whose bit in `soft_mask` is set.
pub(super) fn apply_letter_masks(letters: &mut [u8], non_acgt: &[NonAcgtInterval], soft_mask: Option<&BitVector>) {
    for run in non_acgt {
        letters[run.start..run.end].fill(run.letter);
    }
    let Some(lower) = soft_mask else { return };
    let toggles: Vec<usize> = lower.change_positions().collect();
    for pair in toggles.chunks(2) {
        let end = pair.get(1).copied().unwrap_or(letters.len());
        letters[pair[0]..end].make_ascii_lowercase();
    }
}
