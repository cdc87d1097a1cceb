//! What letters are besides bases: their case, and which are others than A, C, G and T.

use super::bases::{Bits, OtherRun};
use super::place::Copied;
use super::range_coder::{Bit, Coder, Number};

/// How the case of letters is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CaseKind {
    /// All upper.
    Upper,
    /// By the places where it changes.
    Changes,
    /// By the places where it starts or stops to be that of the reference.
    AgainstReference,
}

impl CaseKind {
    pub(super) const ALL: [Self; 3] = [Self::Upper, Self::Changes, Self::AgainstReference];
}

/// Codes ascending places below `end`; how many there are both sides know. `None` where there is no place left.
pub(super) fn code_places(
    coder: &mut impl Coder,
    known: Option<&[usize]>,
    count: usize,
    end: usize,
) -> Option<Vec<usize>> {
    let mut gaps = [Number::default(), Number::default()];
    let mut places = Vec::new();
    let mut next = 0;
    for at in 0..count {
        let gap = known.map_or(0, |known| (known[at] - next) as u64);
        let gap = gaps[at & 1].code(coder, gap);
        let place = usize::try_from(gap).ok().and_then(|gap| next.checked_add(gap)).filter(|place| *place < end)?;
        places.push(place);
        next = place + 1;
    }
    Some(places)
}

/// Codes ascending runs of letters in `[0, end)`.
pub(super) fn code_others(
    coder: &mut impl Coder,
    known: Option<&[OtherRun]>,
    count: usize,
    end: usize,
) -> Option<Vec<OtherRun>> {
    let (mut gaps, mut lengths) = (Number::default(), Number::default());
    let (mut same, mut letters) = (Bit::default(), [Bit::default(); 256]);
    let mut runs: Vec<OtherRun> = Vec::new();
    let (mut next, mut byte) = (0, b'N');
    for at in 0..count {
        let run = known.map_or(OtherRun { start: next, end: next + 1, byte }, |known| known[at]);
        let gap = gaps.code(coder, (run.start - next) as u64);
        let length = lengths.code(coder, (run.end - run.start - 1) as u64);
        if coder.bit(run.byte != byte, &mut same) {
            byte = coder.tree(run.byte.into(), 8, &mut letters) as u8;
        }
        let start = usize::try_from(gap).ok()?.checked_add(next)?;
        let stop = usize::try_from(length).ok()?.checked_add(start)?.checked_add(1).filter(|stop| *stop <= end)?;
        runs.push(OtherRun { start, end: stop, byte });
        next = stop;
    }
    Some(runs)
}

/// The case that letters have where they were copied from; that of the letter before for those in between.
pub(super) fn expected_case(copies: &[Copied], lower: &Bits, count: usize) -> Bits {
    let mut expected = Bits::zeros(count);
    let mut done = 0;
    for copied in copies {
        let (to, bases) = (copied.to as usize, copied.bases as usize);
        carry_on(&mut expected, done, to);
        let mut at = 0;
        while at < bases {
            let bits = (bases - at).min(64);
            let word = match copied.reverse {
                true => lower.window_reversed(copied.local - at),
                false => lower.window(copied.local + at),
            };
            expected.put(to + at, word, bits);
            at += bits;
        }
        done = to + bases;
    }
    carry_on(&mut expected, done, count);
    expected
}

fn carry_on(expected: &mut Bits, start: usize, end: usize) {
    if start > 0 && start < end && expected.get(start - 1) {
        expected.fill(start, end);
    }
}

/// Bits that change at those places, the first from 0.
pub(super) fn from_toggles(toggles: &[usize], count: usize) -> Bits {
    let mut bits = Bits::zeros(count);
    for pair in toggles.chunks(2) {
        bits.fill(pair[0], pair.get(1).copied().unwrap_or(count));
    }
    bits
}

/// Makes letters lower case where bits are set, and others where runs say so.
pub(super) fn dress(letters: &mut [u8], others: &[OtherRun], lower: Option<&Bits>) {
    for run in others {
        letters[run.start..run.end].fill(run.byte);
    }
    let Some(lower) = lower else { return };
    let toggles: Vec<usize> = lower.toggles().collect();
    for pair in toggles.chunks(2) {
        let end = pair.get(1).copied().unwrap_or(letters.len());
        letters[pair[0]..end].make_ascii_lowercase();
    }
}
