//! Sequences at two bits a base, compared 32 bases at a time.
//!
//! Codes are A 0, C 1, T 2, G 3: bits 1 and 2 of the ASCII letter, so that letters become codes without a table, and the
//! complement is an XOR with 2. Base `i` is in bits `2 * (i % 32)` of word `i / 32`.

use xxhash_rust::xxh3::Xxh3;

/// Bases in a word.
pub(super) const WORD_BASES: usize = 32;
/// The upper bit of each code: XOR with it complements a word.
const COMPLEMENT: u64 = 0xAAAA_AAAA_AAAA_AAAA;
/// The lower bit of each code.
const LOWER: u64 = 0x5555_5555_5555_5555;
/// Letter of each code.
pub(super) const LETTERS: [u8; 4] = *b"ACTG";

/// Letters of all four codes in a byte.
const FOUR_LETTERS: [[u8; 4]; 256] = {
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

/// Code of a letter, of either case; any of the four for what is no base.
pub(super) fn code_of(letter: u8) -> u8 {
    (letter >> 1) & 3
}

/// The complement of a letter out of ACGT.
pub(super) fn complement_letter(letter: u8) -> u8 {
    LETTERS[usize::from(code_of(letter) ^ 2)]
}

/// The reverse complement of 32 bases.
pub(super) fn reverse_complement(word: u64) -> u64 {
    let word = word.swap_bytes();
    let word = ((word >> 4) & 0x0F0F_0F0F_0F0F_0F0F) | ((word & 0x0F0F_0F0F_0F0F_0F0F) << 4);
    let word = ((word >> 2) & 0x3333_3333_3333_3333) | ((word & 0x3333_3333_3333_3333) << 2);
    word ^ COMPLEMENT
}

/// A bit for each of 32 bases that differ, at the place of the lower bit of its code.
pub(super) fn differences(one: u64, other: u64) -> u64 {
    let different = one ^ other;
    (different | different >> 1) & LOWER
}

/// Letters of 32 bases.
pub(super) fn letters_of(word: u64) -> [u8; WORD_BASES] {
    let mut letters = [0; WORD_BASES];
    for (four, byte) in letters.chunks_exact_mut(4).zip(word.to_le_bytes()) {
        four.copy_from_slice(&FOUR_LETTERS[usize::from(byte)]);
    }
    letters
}

/// A sequence at two bits a base.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bases {
    /// Two more words than bases need, so that windows never end early.
    words: Vec<u64>,
    count: usize,
}

impl Bases {
    /// Takes over words that [`Bases::words`] showed; `None` where their number is another.
    pub(super) fn from_words(words: Vec<u64>, count: usize) -> Option<Self> {
        (words.len() == Self::words_for(count)).then_some(Self { words, count })
    }

    /// Words that hold that many bases.
    pub(super) fn words_for(count: usize) -> usize {
        count.div_ceil(WORD_BASES) + 2
    }

    /// All words.
    pub(super) fn words(&self) -> &[u64] {
        &self.words
    }

    /// Bases.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The code of a base.
    pub(super) fn get(&self, at: usize) -> u8 {
        (self.words[at / WORD_BASES] >> (2 * (at % WORD_BASES))) as u8 & 3
    }

    /// Changes a base.
    pub(super) fn set(&mut self, at: usize, code: u8) {
        let (word, shift) = (at / WORD_BASES, 2 * (at % WORD_BASES));
        self.words[word] = self.words[word] & !(3 << shift) | u64::from(code) << shift;
    }

    /// The 32 bases from there on; beyond the end anything.
    pub(super) fn window(&self, at: usize) -> u64 {
        let (word, shift) = (at / WORD_BASES, 2 * (at % WORD_BASES));
        self.words[word] >> shift | (self.words[word + 1] << 1) << (63 - shift)
    }

    /// The 32 bases before `end`, the last one of them uppermost; before the start anything.
    pub(super) fn window_before(&self, end: usize) -> u64 {
        match end.checked_sub(WORD_BASES) {
            Some(start) => self.window(start),
            None if end == 0 => 0,
            None => self.window(0) << (2 * (WORD_BASES - end)),
        }
    }
}

/// A bit for each base.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bits {
    /// One more word than bits need.
    words: Vec<u64>,
    count: usize,
}

impl Bits {
    /// That many zeros.
    pub(super) fn zeros(count: usize) -> Self {
        Self { words: vec![0; Self::words_for(count)], count }
    }

    /// Takes over words that [`Bits::words`] showed; `None` where their number is another.
    pub(super) fn from_words(words: Vec<u64>, count: usize) -> Option<Self> {
        (words.len() == Self::words_for(count)).then_some(Self { words, count })
    }

    /// Words that hold that many bits.
    pub(super) fn words_for(count: usize) -> usize {
        count.div_ceil(64) + 1
    }

    /// All words.
    pub(super) fn words(&self) -> &[u64] {
        &self.words
    }

    /// The bit of a base.
    pub(super) fn get(&self, at: usize) -> bool {
        self.words[at / 64] >> (at % 64) & 1 == 1
    }

    /// The 64 bits from there on; beyond the end zeros.
    pub(super) fn window(&self, at: usize) -> u64 {
        let (word, shift) = (at / 64, at % 64);
        self.words[word] >> shift | (self.words[word + 1] << 1) << (63 - shift)
    }

    /// The 64 bits before `end` in reverse order; before the start zeros.
    pub(super) fn window_reversed(&self, end: usize) -> u64 {
        match end.checked_sub(64) {
            Some(start) => self.window(start).reverse_bits(),
            None if end == 0 => 0,
            None => (self.window(0) << (64 - end)).reverse_bits(),
        }
    }

    /// Writes the lowest `bits` of `value` at a place where zeros are.
    pub(super) fn put(&mut self, at: usize, value: u64, bits: usize) {
        let value = if bits < 64 { value & ((1 << bits) - 1) } else { value };
        let (word, shift) = (at / 64, at % 64);
        self.words[word] |= value << shift;
        self.words[word + 1] |= (value >> 1) >> (63 - shift);
    }

    /// Sets all of a stretch, `[start, end)`.
    pub(super) fn fill(&mut self, start: usize, end: usize) {
        let mut at = start;
        while at < end {
            let bits = (64 - at % 64).min(end - at);
            self.words[at / 64] |= (u64::MAX >> (64 - bits)) << (at % 64);
            at += bits;
        }
    }

    /// XXH3 of the bits of a stretch, `[start, end)`, wherever it lies; 0 where none is set.
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

    /// Bits that differ from those of another of the same length are set.
    pub(super) fn xor(&mut self, other: &Self) {
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word ^= other;
        }
    }

    /// Places where the bit is another than the one before, the first one compared with 0.
    pub(super) fn toggles(&self) -> impl Iterator<Item = usize> {
        let mut last = 0;
        let words = self.words.iter().enumerate().map(move |(at, word)| {
            let changes = word ^ (word << 1 | last);
            last = word >> 63;
            (at * 64, changes)
        });
        let count = self.count;
        words.flat_map(|(base, changes)| OnesOf(changes).map(move |bit| base + bit)).filter(move |at| *at < count)
    }
}

/// Places of the set bits of a word, lowest first.
struct OnesOf(u64);

impl Iterator for OnesOf {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let bit = self.0.trailing_zeros() as usize;
        self.0 &= self.0.wrapping_sub(1);
        (bit < 64).then_some(bit)
    }
}

/// A run of a letter that is none of ACGT, of either case: `[start, end)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OtherRun {
    pub(super) start: usize,
    pub(super) end: usize,
    /// The letter, upper case; or another byte as it is.
    pub(super) byte: u8,
}

/// Letters taken apart, as they come: codes, case, and what is no base.
#[derive(Debug, Default)]
pub(super) struct Splitter {
    words: Vec<u64>,
    lower: Vec<u64>,
    others: Vec<OtherRun>,
    count: usize,
    any_lower: bool,
}

const ONES: u64 = 0x0101_0101_0101_0101;

impl Splitter {
    /// Room for that many.
    pub(super) fn with_capacity(count: usize) -> Self {
        let words = Vec::with_capacity(Bases::words_for(count));
        Self { words, lower: Vec::with_capacity(Bits::words_for(count)), ..Self::default() }
    }

    /// Letters so far.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Runs of others so far.
    pub(super) fn others(&self) -> &[OtherRun] {
        &self.others
    }

    /// Takes the next letters.
    pub(super) fn push(&mut self, letters: &[u8]) {
        let head = letters.len().min(self.count.wrapping_neg() % 8);
        let (head, rest) = letters.split_at(head);
        self.push_slowly(head);
        let (eights, tail) = rest.as_chunks::<8>();
        for eight in eights {
            let word = u64::from_le_bytes(*eight);
            let code = (word >> 1) & (ONES * 3);
            let (low, high) = (code & ONES, code >> 1 & ONES);
            // The letter that has this code: A, and 2, 0x13 or 6 more.
            let expected = ONES * 0x41 + low * 2 + (low & high) * 4 + (high & !low) * 0x13;
            if word & (ONES * 0xDF) != expected {
                // Long runs of N are a part of most genomes.
                match word == ONES * u64::from(eight[0]) {
                    true => self.push_others(eight[0], 8),
                    false => self.push_slowly(eight),
                }
                continue;
            }
            let pairs = code | code >> 6;
            let pairs = pairs & 0x000F_000F_000F_000F;
            let fours = (pairs | pairs >> 12) & 0x0000_00FF_0000_00FF;
            let codes = (fours | fours >> 24) & 0xFFFF;
            let lower = (word >> 5 & ONES).wrapping_mul(0x0102_0408_1020_4080) >> 56;
            self.append(codes, lower, 8);
        }
        self.push_slowly(tail);
    }

    fn push_slowly(&mut self, letters: &[u8]) {
        for letter in letters {
            let upper = letter.to_ascii_uppercase();
            match LETTERS.contains(&upper) {
                true => self.append(code_of(upper).into(), letter.is_ascii_lowercase().into(), 1),
                false => self.push_others(*letter, 1),
            }
        }
    }

    /// Takes up to 8 of a letter that is no base.
    fn push_others(&mut self, letter: u8, count: usize) {
        let (at, byte) = (self.count, letter.to_ascii_uppercase());
        match self.others.last_mut() {
            Some(run) if run.end == at && run.byte == byte => run.end += count,
            _ => self.others.push(OtherRun { start: at, end: at + count, byte }),
        }
        let lower = if letter.is_ascii_lowercase() { 0xFF >> (8 - count) } else { 0 };
        self.append(0, lower, count);
    }

    /// Appends up to 8 that do not cross a multiple of 8.
    fn append(&mut self, codes: u64, lower: u64, count: usize) {
        if self.count.is_multiple_of(WORD_BASES) {
            self.words.push(0);
        }
        if self.count.is_multiple_of(64) {
            self.lower.push(0);
        }
        if let Some(word) = self.words.last_mut() {
            *word |= codes << (2 * (self.count % WORD_BASES));
        }
        if let Some(word) = self.lower.last_mut() {
            *word |= lower << (self.count % 64);
        }
        self.any_lower |= lower != 0;
        self.count += count;
    }

    /// The codes (0 where there is no base), the case (set where lower; `None` where all is upper), and the rest.
    pub(super) fn finish(mut self) -> (Bases, Option<Bits>, Vec<OtherRun>) {
        self.words.resize(Bases::words_for(self.count), 0);
        self.lower.resize(Bits::words_for(self.count), 0);
        let lower = Bits { words: self.lower, count: self.count };
        (Bases { words: self.words, count: self.count }, self.any_lower.then_some(lower), self.others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &[u8], cut: usize) -> (Bases, Option<Bits>, Vec<OtherRun>) {
        let mut splitter = Splitter::default();
        text.chunks(cut).for_each(|piece| splitter.push(piece));
        splitter.finish()
    }

    #[test]
    fn letters_are_taken_apart_the_same_in_any_pieces() {
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
        others.iter().for_each(|run| back[run.start..run.end].fill(run.byte));
        (0..text.len()).filter(|at| lower.get(*at)).for_each(|at| back[at].make_ascii_lowercase());
        assert_eq!(back, text);
        let mut again = Bits::zeros(text.len());
        let toggles: Vec<usize> = lower.toggles().chain([text.len()]).collect();
        toggles.chunks(2).filter(|pair| pair.len() == 2).for_each(|pair| again.fill(pair[0], pair[1]));
        assert_eq!(again, lower);
    }

    #[test]
    fn windows_show_what_single_bases_are() {
        let text: Vec<u8> = (0..200_u32).map(|at| b"ACGT"[(at * at * 31 / 5 % 4) as usize]).collect();
        let (bases, ..) = split(&text, 200);
        for at in 0..160 {
            assert_eq!(letters_of(bases.window(at)), text[at..at + 32]);
            let complement: Vec<u8> = text[at..at + 32].iter().rev().map(|letter| complement_letter(*letter)).collect();
            assert_eq!(letters_of(reverse_complement(bases.window(at))), complement[..]);
        }
        for end in 1..32 {
            assert_eq!(letters_of(bases.window_before(end))[32 - end..], text[..end]);
        }
    }
}
