//! Sequences with two bits per base, which are compared 32 bases at a time.
//!
//! The codes are A 0, C 1, T 2, G 3, which are bits 1 and 2 of the ASCII letter. So letters become codes without a
//! table, and the complement is an XOR with 2. Base `i` is in bits `2 * (i % 32)` of word `i / 32`.

use xxhash_rust::xxh3::Xxh3;

/// Number of bases in a word.
pub(super) const WORD_BASES: usize = 32;
/// The upper bit of each code in a word. An XOR with this mask complements all 32 bases.
const COMPLEMENT_MASK: u64 = 0xAAAA_AAAA_AAAA_AAAA;
/// The lower bit of each code in a word.
const LOW_BIT_MASK: u64 = 0x5555_5555_5555_5555;
/// The letter of each code, 0 to 3.
pub(super) const LETTERS: [u8; 4] = *b"ACTG";

/// For each byte, the letters of its four codes, lowest bits first.
const LETTERS_BY_BYTE: [[u8; 4]; 256] = {
    let mut table = [[0; 4]; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut at = 0;
        while at < 4 {
            table[byte][at] = LETTERS[(byte >> (2 * at)) & 3];
            at += 1;
        }
        byte += 1;
    }
    table
};

/// Returns the code of A, C, G or T in either case. The code of any other letter is meaningless.
pub(super) fn base_code(letter: u8) -> u8 {
    (letter >> 1) & 3
}

/// Returns the complement, in upper case, of a letter of ACGT.
pub(super) fn complement_letter(letter: u8) -> u8 {
    LETTERS[usize::from(base_code(letter) ^ 2)]
}

/// Returns the reverse complement of the 32 bases of a word.
pub(super) fn reverse_complement(word: u64) -> u64 {
    let word = word.swap_bytes();
    let word = ((word >> 4) & 0x0F0F_0F0F_0F0F_0F0F) | ((word & 0x0F0F_0F0F_0F0F_0F0F) << 4);
    let word = ((word >> 2) & 0x3333_3333_3333_3333) | ((word & 0x3333_3333_3333_3333) << 2);
    word ^ COMPLEMENT_MASK
}

/// Compares 32 bases; returns the lower bit of the code of each base that differs.
pub(super) fn difference_bits(one: u64, other: u64) -> u64 {
    let different = one ^ other;
    (different | different >> 1) & LOW_BIT_MASK
}

/// Returns the letters of the 32 bases of a word.
pub(super) fn decode_letters(word: u64) -> [u8; WORD_BASES] {
    let mut letters = [0; WORD_BASES];
    for (four, byte) in letters.chunks_exact_mut(4).zip(word.to_le_bytes()) {
        four.copy_from_slice(&LETTERS_BY_BYTE[usize::from(byte)]);
    }
    letters
}

/// A sequence with two bits per base.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bases {
    /// Two bits for each base, followed by two words of padding, because [`Bases::window`] reads after the last base.
    words: Vec<u64>,
    count: usize,
}

impl Bases {
    /// Creates a sequence from the words that [`Bases::words`] returned; `None` if their number does not match `count`.
    pub(super) fn from_words(words: Vec<u64>, count: usize) -> Option<Self> {
        (words.len() == Self::word_count(count)).then_some(Self { words, count })
    }

    /// Returns the number of words of a sequence of `count` bases.
    pub(super) fn word_count(count: usize) -> usize {
        count.div_ceil(WORD_BASES) + 2
    }

    /// Returns all words, including the padding.
    pub(super) fn words(&self) -> &[u64] {
        &self.words
    }

    /// Returns the number of bases of the sequence.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the code of the base at the 0-based position `at`.
    pub(super) fn get(&self, at: usize) -> u8 {
        (self.words[at / WORD_BASES] >> (2 * (at % WORD_BASES))) as u8 & 3
    }

    /// Replaces the base at the 0-based position `at`.
    pub(super) fn set(&mut self, at: usize, code: u8) {
        let (word, shift) = (at / WORD_BASES, 2 * (at % WORD_BASES));
        self.words[word] = self.words[word] & !(3 << shift) | u64::from(code) << shift;
    }

    /// Returns the 32 bases from the 0-based position `at` on. Bases beyond the end of the sequence are arbitrary.
    pub(super) fn window(&self, at: usize) -> u64 {
        let (word, shift) = (at / WORD_BASES, 2 * (at % WORD_BASES));
        self.words[word] >> shift | (self.words[word + 1] << 1) << (63 - shift)
    }

    /// Returns the 32 bases before `end`, the last one in the highest bits. Bases before the start of the sequence are
    /// arbitrary.
    pub(super) fn window_before(&self, end: usize) -> u64 {
        match end.checked_sub(WORD_BASES) {
            Some(start) => self.window(start),
            None if end == 0 => 0,
            None => self.window(0) << (2 * (WORD_BASES - end)),
        }
    }
}

/// A vector with one bit for each base of a sequence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct BitVector {
    /// The bits, followed by one word of padding, because [`BitVector::window`] reads after the last bit.
    words: Vec<u64>,
    count: usize,
}

impl BitVector {
    /// Returns a vector of `count` zeros.
    pub(super) fn zeros(count: usize) -> Self {
        Self { words: vec![0; Self::word_count(count)], count }
    }

    /// Creates a vector from the words that [`BitVector::words`] returned; `None` if their number does not match
    /// `count`.
    pub(super) fn from_words(words: Vec<u64>, count: usize) -> Option<Self> {
        (words.len() == Self::word_count(count)).then_some(Self { words, count })
    }

    /// Returns the number of words of a vector of `count` bits.
    pub(super) fn word_count(count: usize) -> usize {
        count.div_ceil(64) + 1
    }

    /// Returns all words, including the padding.
    pub(super) fn words(&self) -> &[u64] {
        &self.words
    }

    /// Returns the bit at the 0-based position `at`.
    pub(super) fn get(&self, at: usize) -> bool {
        self.words[at / 64] >> (at % 64) & 1 == 1
    }

    /// Returns the 64 bits from the 0-based position `at` on; zeros beyond the end of the vector.
    pub(super) fn window(&self, at: usize) -> u64 {
        let (word, shift) = (at / 64, at % 64);
        self.words[word] >> shift | (self.words[word + 1] << 1) << (63 - shift)
    }

    /// Returns the 64 bits before `end` in reverse order; zeros before the start of the vector.
    pub(super) fn window_reversed(&self, end: usize) -> u64 {
        match end.checked_sub(64) {
            Some(start) => self.window(start).reverse_bits(),
            None if end == 0 => 0,
            None => (self.window(0) << (64 - end)).reverse_bits(),
        }
    }

    /// Writes the lowest `bits` bits of `value` from position `at` on, where the vector must have zeros.
    pub(super) fn write_bits(&mut self, at: usize, value: u64, bits: usize) {
        let value = if bits < 64 { value & ((1 << bits) - 1) } else { value };
        let (word, shift) = (at / 64, at % 64);
        self.words[word] |= value << shift;
        self.words[word + 1] |= (value >> 1) >> (63 - shift);
    }

    /// Sets the bits at positions `[start, end)`.
    pub(super) fn set_range(&mut self, start: usize, end: usize) {
        let mut at = start;
        while at < end {
            let bits = (64 - at % 64).min(end - at);
            self.words[at / 64] |= (u64::MAX >> (64 - bits)) << (at % 64);
            at += bits;
        }
    }

    /// Returns an XXH3 checksum of the bits `[start, end)`, whatever their alignment to words; 0 if none of the bits is
    /// set.
    pub(super) fn checksum(&self, start: usize, end: usize) -> u64 {
        let (mut hash, mut any) = (Xxh3::new(), 0);
        let mut at = start;
        while at < end {
            let bits = (end - at).min(64);
            let word = self.window(at) & (u64::MAX >> (64 - bits));
            any |= word;
            hash.update(&word.to_le_bytes());
            at += bits;
        }
        if any == 0 { 0 } else { hash.digest().max(1) }
    }

    /// Replaces each bit by its XOR with the bit of another vector, which must have the same length.
    pub(super) fn xor(&mut self, other: &Self) {
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word ^= other;
        }
    }

    /// Returns the positions whose bit differs from the preceding bit. The first bit is compared with 0.
    pub(super) fn change_positions(&self) -> impl Iterator<Item = usize> {
        let mut last = 0;
        let words = self.words.iter().enumerate().map(move |(at, word)| {
            let changes = word ^ (word << 1 | last);
            last = word >> 63;
            (at * 64, changes)
        });
        let count = self.count;
        words.flat_map(|(base, changes)| SetBits(changes).map(move |bit| base + bit)).filter(move |at| *at < count)
    }
}

/// An iterator over the positions of the set bits of a word, lowest first.
struct SetBits(u64);

impl Iterator for SetBits {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let bit = self.0.trailing_zeros() as usize;
        self.0 &= self.0.wrapping_sub(1);
        (bit < 64).then_some(bit)
    }
}

/// An interval `[start, end)` in which all letters are the same letter other than ACGT, in either case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NonAcgtInterval {
    pub(super) start: usize,
    pub(super) end: usize,
    /// The letter in upper case; a byte that is not a letter is unchanged.
    pub(super) letter: u8,
}

/// A splitter that separates the letters of a sequence into two-bit codes, case, and letters other than ACGT.
#[derive(Debug, Default)]
pub(super) struct LetterSplitter {
    words: Vec<u64>,
    soft_mask: Vec<u64>,
    non_acgt: Vec<NonAcgtInterval>,
    count: usize,
    has_lower_case: bool,
}

const ONE_IN_EACH_BYTE: u64 = 0x0101_0101_0101_0101;

impl LetterSplitter {
    /// Returns a splitter with memory for `count` letters.
    pub(super) fn with_capacity(count: usize) -> Self {
        let words = Vec::with_capacity(Bases::word_count(count));
        Self { words, soft_mask: Vec::with_capacity(BitVector::word_count(count)), ..Self::default() }
    }

    /// Returns the number of letters that were split so far.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the intervals of letters other than ACGT that were found so far.
    pub(super) fn non_acgt(&self) -> &[NonAcgtInterval] {
        &self.non_acgt
    }

    /// Splits further letters of the sequence.
    pub(super) fn push_letters(&mut self, letters: &[u8]) {
        let head = letters.len().min(self.count.wrapping_neg() % 8);
        let (head, rest) = letters.split_at(head);
        self.push_single_letters(head);
        let (eights, tail) = rest.as_chunks::<8>();
        for eight in eights {
            let word = u64::from_le_bytes(*eight);
            let code = (word >> 1) & (ONE_IN_EACH_BYTE * 3);
            let (low, high) = (code & ONE_IN_EACH_BYTE, code >> 1 & ONE_IN_EACH_BYTE);
            // The upper-case letter of each code: A is 0x41, C is A + 2, T is A + 0x13, and G is A + 6.
            let expected = ONE_IN_EACH_BYTE * 0x41 + low * 2 + (low & high) * 4 + (high & !low) * 0x13;
            if word & (ONE_IN_EACH_BYTE * 0xDF) != expected {
                // Fast path for long runs of N, which most genomes have.
                match word == ONE_IN_EACH_BYTE * u64::from(eight[0]) {
                    true => self.push_non_acgt(eight[0], 8),
                    false => self.push_single_letters(eight),
                }
                continue;
            }
            let pairs = code | code >> 6;
            let pairs = pairs & 0x000F_000F_000F_000F;
            let fours = (pairs | pairs >> 12) & 0x0000_00FF_0000_00FF;
            let codes = (fours | fours >> 24) & 0xFFFF;
            let lower = (word >> 5 & ONE_IN_EACH_BYTE).wrapping_mul(0x0102_0408_1020_4080) >> 56;
            self.append_codes(codes, lower, 8);
        }
        self.push_single_letters(tail);
    }

    fn push_single_letters(&mut self, letters: &[u8]) {
        for letter in letters {
            let upper = letter.to_ascii_uppercase();
            match LETTERS.contains(&upper) {
                true => self.append_codes(base_code(upper).into(), letter.is_ascii_lowercase().into(), 1),
                false => self.push_non_acgt(*letter, 1),
            }
        }
    }

    /// Appends up to 8 equal letters other than ACGT.
    fn push_non_acgt(&mut self, letter: u8, count: usize) {
        let (at, byte) = (self.count, letter.to_ascii_uppercase());
        match self.non_acgt.last_mut() {
            Some(run) if run.end == at && run.letter == byte => run.end += count,
            _ => self.non_acgt.push(NonAcgtInterval { start: at, end: at + count, letter: byte }),
        }
        let lower = if letter.is_ascii_lowercase() { 0xFF >> (8 - count) } else { 0 };
        self.append_codes(0, lower, count);
    }

    /// Appends up to 8 codes, which must not cross a multiple of 8 bases.
    fn append_codes(&mut self, codes: u64, lower: u64, count: usize) {
        if self.count.is_multiple_of(WORD_BASES) {
            self.words.push(0);
        }
        if self.count.is_multiple_of(64) {
            self.soft_mask.push(0);
        }
        if let Some(word) = self.words.last_mut() {
            *word |= codes << (2 * (self.count % WORD_BASES));
        }
        if let Some(word) = self.soft_mask.last_mut() {
            *word |= lower << (self.count % 64);
        }
        self.has_lower_case |= lower != 0;
        self.count += count;
    }

    /// Returns the codes (0 for letters other than ACGT), the case of each letter (bit set for lower case; `None` if
    /// all letters are upper case), and the intervals of letters other than ACGT.
    pub(super) fn finish(mut self) -> (Bases, Option<BitVector>, Vec<NonAcgtInterval>) {
        self.words.resize(Bases::word_count(self.count), 0);
        self.soft_mask.resize(BitVector::word_count(self.count), 0);
        let lower = BitVector { words: self.soft_mask, count: self.count };
        (Bases { words: self.words, count: self.count }, self.has_lower_case.then_some(lower), self.non_acgt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &[u8], cut: usize) -> (Bases, Option<BitVector>, Vec<NonAcgtInterval>) {
        let mut splitter = LetterSplitter::default();
        text.chunks(cut).for_each(|piece| splitter.push_letters(piece));
        splitter.finish()
    }

    #[test]
    fn letters_are_split_equally_in_pieces_of_any_length() {
        let text: Vec<u8> = (0..1000_u32)
            .map(|at| b"ACGTacgtNnRyAC*TGGTT"[(at * at / 7 % 20) as usize])
            .chain([b'N'; 50])
            .chain([b'n'; 50])
            .collect();
        let whole = split(&text, text.len());
        for cut in [1, 3, 7, 8, 60, 61] {
            assert_eq!(split(&text, cut), whole, "pieces of {cut}");
        }
        let (bases, lower, others) = whole;
        let lower = lower.expect("some are lower case");
        let mut back: Vec<u8> = (0..text.len()).map(|at| LETTERS[usize::from(bases.get(at))]).collect();
        others.iter().for_each(|run| back[run.start..run.end].fill(run.letter));
        (0..text.len()).filter(|at| lower.get(*at)).for_each(|at| back[at].make_ascii_lowercase());
        assert_eq!(back, text);
        let mut again = BitVector::zeros(text.len());
        let toggles: Vec<usize> = lower.change_positions().chain([text.len()]).collect();
        toggles.chunks(2).filter(|pair| pair.len() == 2).for_each(|pair| again.set_range(pair[0], pair[1]));
        assert_eq!(again, lower);
    }

    #[test]
    fn windows_show_what_single_bases_are() {
        let text: Vec<u8> = (0..200_u32).map(|at| b"ACGT"[(at * at * 31 / 5 % 4) as usize]).collect();
        let (bases, ..) = split(&text, 200);
        for at in 0..160 {
            assert_eq!(decode_letters(bases.window(at)), text[at..at + 32]);
            let complement: Vec<u8> = text[at..at + 32].iter().rev().map(|letter| complement_letter(*letter)).collect();
            assert_eq!(decode_letters(reverse_complement(bases.window(at))), complement[..]);
        }
        for end in 1..32 {
            assert_eq!(decode_letters(bases.window_before(end))[32 - end..], text[..end]);
        }
    }
}
