//! The cycle and the context of each base (GATK 4.6.2.0, `CycleCovariate` and `ContextCovariate`).

use godwit_model::flags;

/// Maximum cycle, and so the maximum number of bases of a read.
pub(crate) const MAX_CYCLE: usize = 500;
/// Number of cycle keys. A key is twice the cycle, plus 1 for the second read of a pair, whose cycles are negative.
pub(crate) const CYCLE_KEYS: usize = 2 * MAX_CYCLE + 2;
/// Number of contexts: a base and the one that was sequenced before it.
pub(crate) const CONTEXTS: usize = 16;
/// Bases with at most this quality (Phred) at the ends of a read are ignored in contexts.
const LOW_QUALITY_TAIL: u8 = 2;
/// The code of a base other than A, C, G and T.
pub(crate) const OTHER_BASE: u8 = 4;

/// Letters of the base codes.
const LETTERS: [char; 4] = ['A', 'C', 'G', 'T'];

/// Base codes 0 to 3 for A, C, G and T, or [`OTHER_BASE`], indexed by the 4-bit codes of SAMv1 §4.2.3.
const SIMPLE_CODES: [u8; 16] = [4, 0, 1, 4, 2, 4, 4, 4, 3, 4, 4, 4, 4, 4, 4, 4];

/// Appends the base codes of packed bases. `bases`: the number of bases.
pub(crate) fn unpack_bases(packed: &[u8], bases: usize, codes: &mut Vec<u8>) {
    codes.clear();
    let pairs = packed.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    codes.extend(pairs.take(bases).map(|code| SIMPLE_CODES[usize::from(code)]));
}

/// The cycle keys and contexts of the bases of a read.
pub(crate) struct ReadCovariates<'r> {
    codes: &'r [u8],
    /// Range of the bases that are not in a tail of low quality.
    usable: (usize, usize),
    is_reverse: bool,
    is_second: bool,
}

impl<'r> ReadCovariates<'r> {
    /// Creates the covariates of a read with the given base codes and qualities, which have the same length.
    pub(crate) fn new(codes: &'r [u8], qualities: &[u8], flag: u16) -> Self {
        let is_usable = |quality: &u8| *quality > LOW_QUALITY_TAIL;
        let start = qualities.iter().position(is_usable).unwrap_or(qualities.len());
        let end = qualities.iter().rposition(is_usable).map_or(start, |last| last + 1);
        Self {
            codes,
            usable: (start, end),
            is_reverse: flag & flags::REVERSE != 0,
            is_second: flag & (flags::PAIRED | flags::LAST) == flags::PAIRED | flags::LAST,
        }
    }

    /// Returns the cycle key of the base at `at`.
    #[inline]
    pub(crate) fn cycle_key(&self, at: usize) -> usize {
        let cycle = if self.is_reverse { self.codes.len() - at } else { at + 1 };
        2 * cycle + usize::from(self.is_second)
    }

    /// Returns the index of the context of the base at `at`; [`CONTEXTS`] if it has none.
    #[inline]
    pub(crate) fn context(&self, at: usize) -> usize {
        let (start, end) = self.usable;
        let previous = if self.is_reverse { at + 1 } else { at.wrapping_sub(1) };
        if at < start || at >= end || previous < start || previous >= end {
            return CONTEXTS;
        }
        let (before, base) = (self.codes[previous], self.codes[at]);
        match before | base {
            codes if codes >= OTHER_BASE => CONTEXTS,
            _ if self.is_reverse => usize::from(3 - before) * 4 + usize::from(3 - base),
            _ => usize::from(before) * 4 + usize::from(base),
        }
    }
}

/// Returns the value of a cycle key in reports.
pub(crate) fn cycle_text(key: usize) -> String {
    format!("{}{}", if key % 2 == 1 { "-" } else { "" }, key / 2)
}

/// Returns the cycle key of a value in reports.
pub(crate) fn parse_cycle(text: &str) -> Option<usize> {
    let (cycle, is_second) = text.strip_prefix('-').map_or((text, 0), |cycle| (cycle, 1));
    let cycle: usize = cycle.parse().ok().filter(|cycle| (1..=MAX_CYCLE).contains(cycle))?;
    Some(2 * cycle + is_second)
}

/// Returns the value of a context in reports.
pub(crate) fn context_text(context: usize) -> String {
    [LETTERS[context / 4], LETTERS[context % 4]].iter().collect()
}

/// Returns the index of a context from its value in reports.
pub(crate) fn parse_context(text: &str) -> Option<usize> {
    let mut letters = text.chars();
    let mut code = || letters.next().and_then(|letter| LETTERS.iter().position(|other| *other == letter));
    let context = code()? * 4 + code()?;
    letters.next().is_none().then_some(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the contexts of a read in the order of its record; `.` for none.
    fn contexts(letters: &str, qualities: &[u8], flag: u16) -> Vec<String> {
        let code = |letter| LETTERS.iter().position(|other| *other == letter).map_or(OTHER_BASE, |code| code as u8);
        let codes: Vec<u8> = letters.chars().map(code).collect();
        let read = ReadCovariates::new(&codes, qualities, flag);
        let text = |context| if context == CONTEXTS { ".".to_owned() } else { context_text(context) };
        (0..codes.len()).map(|at| text(read.context(at))).collect()
    }

    #[test]
    fn a_context_is_the_base_and_the_one_sequenced_before_it() {
        assert_eq!(contexts("ACNGT", &[30; 5], 0), [".", "AC", ".", ".", "GT"]);
        assert_eq!(contexts("ACNGT", &[30; 5], flags::REVERSE), ["GT", ".", ".", "AC", "."]);
    }

    #[test]
    fn tails_of_low_quality_are_no_context() {
        assert_eq!(contexts("ACGTA", &[2, 30, 2, 30, 1], 0), [".", ".", "CG", "GT", "."]);
        assert_eq!(contexts("ACGTA", &[2; 5], 0), ["."; 5]);
    }

    #[test]
    fn cycles_count_from_the_first_sequenced_base() {
        let read = |flag| ReadCovariates::new(&[0, 1, 2], &[30; 3], flag);
        let cycles = |flag| (0..3).map(|at| cycle_text(read(flag).cycle_key(at))).collect::<Vec<_>>();
        assert_eq!(cycles(0), ["1", "2", "3"]);
        assert_eq!(cycles(flags::REVERSE), ["3", "2", "1"]);
        assert_eq!(cycles(flags::PAIRED | flags::LAST), ["-1", "-2", "-3"]);
        assert_eq!(cycles(flags::PAIRED | flags::LAST | flags::REVERSE), ["-3", "-2", "-1"]);
    }

    #[test]
    fn values_of_reports_are_parsed() {
        assert!((2..CYCLE_KEYS).all(|key| parse_cycle(&cycle_text(key)) == Some(key)));
        assert!((0..CONTEXTS).all(|context| parse_context(&context_text(context)) == Some(context)));
        assert_eq!([parse_cycle("0"), parse_cycle("501"), parse_cycle("AC")], [None; 3]);
        assert_eq!([parse_context("A"), parse_context("ACG"), parse_context("AN")], [None; 3]);
    }
}
