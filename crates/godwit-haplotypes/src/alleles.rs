//! Alleles as base codes, and their ranks: equal alleles of both sides have one rank, and ranks have the order in which
//! vcfeval compares alleles.

use std::cmp::Ordering;

/// Code of a base that is not A, C, G or T.
pub(crate) const UNKNOWN_BASE: u8 = 0;
/// Code of the base of an allele that is missing; it equals no base of the reference.
pub(crate) const MISSING_BASE: u8 = 5;

/// Returns the code of a base of an allele: N is 0, then A, C, G, T. `None` for other letters.
pub(crate) fn base_code(letter: u8) -> Option<u8> {
    match letter.to_ascii_uppercase() {
        b'A' => Some(1),
        b'C' => Some(2),
        b'G' => Some(3),
        b'T' => Some(4),
        b'N' => Some(UNKNOWN_BASE),
        _ => None,
    }
}

/// The bases of a contig, as codes of four bits.
#[derive(Debug, Default)]
pub(crate) struct Template {
    packed: Vec<u8>,
    base_count: usize,
}

/// Codes of the bases by their 4-bit codes in SAM (SAMv1 §4.2.3). Codes of several bases are unknown.
const CODES_OF_SAM: [u8; 16] = {
    let mut codes = [UNKNOWN_BASE; 16];
    (codes[1], codes[2], codes[4], codes[8]) = (1, 2, 3, 4);
    codes
};

impl Template {
    /// Returns an empty template with space for a number of bases.
    pub(crate) fn with_capacity(base_count: u64) -> Self {
        let bytes = usize::try_from(base_count.div_ceil(2)).unwrap_or(0);
        Self { packed: Vec::with_capacity(bytes), base_count: 0 }
    }

    /// Appends bases, given as 4-bit codes of SAM. Each call except the last must append an even number of bases.
    pub(crate) fn extend(&mut self, codes: &[u8]) {
        let code = |sam: u8| CODES_OF_SAM[usize::from(sam & 15)];
        let (pairs, rest) = codes.as_chunks::<2>();
        self.packed.extend(pairs.iter().map(|[low, high]| code(*low) | code(*high) << 4));
        self.packed.extend(rest.iter().map(|last| code(*last)));
        self.base_count += codes.len();
    }

    /// Returns the number of bases.
    pub(crate) fn base_count(&self) -> i32 {
        i32::try_from(self.base_count).unwrap_or(i32::MAX)
    }

    /// Returns the code of the base at a position; unknown before the first and after the last base.
    pub(crate) fn base(&self, position: i32) -> u8 {
        let Ok(position) = usize::try_from(position) else { return UNKNOWN_BASE };
        if position >= self.base_count {
            return UNKNOWN_BASE;
        }
        (self.packed[position / 2] >> (position % 2 * 4)) & 15
    }

    /// Returns whether the bases from a position on are those of an allele. Unknown bases equal all bases.
    pub(crate) fn has_bases(&self, position: i32, letters: &[u8]) -> bool {
        let is_equal = |(position, letter): (i32, &u8)| {
            let codes = [self.base(position), base_code(*letter).unwrap_or(UNKNOWN_BASE)];
            codes.contains(&UNKNOWN_BASE) || codes[0] == codes[1]
        };
        (position..).zip(letters).all(is_equal)
    }
}

/// An allele: the interval of the reference that it replaces, and the range of its bases in a buffer of codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allele {
    pub(crate) start: i32,
    pub(crate) end: i32,
    pub(crate) first_base: u32,
    pub(crate) base_count: u32,
}

impl Allele {
    /// Returns the bases of the allele in the buffer that it refers to.
    pub(crate) fn bases<'b>(&self, buffer: &'b [u8]) -> &'b [u8] {
        &buffer[self.first_base as usize..][..self.base_count as usize]
    }
}

/// Compares two alleles by start, end, number of bases, and bases in descending order of their codes.
fn compare(a: &Allele, a_bases: &[u8], b: &Allele, b_bases: &[u8]) -> Ordering {
    let key = |allele: &Allele| (allele.start, allele.end, allele.base_count);
    key(a).cmp(&key(b)).then_with(|| b_bases.cmp(a_bases))
}

/// Number of an allele in an [`AlleleTable`], from 1; [`NO_ALLELE`] for none.
pub(crate) type AlleleRank = u32;

/// The rank of no allele: nothing replaces the reference.
pub(crate) const NO_ALLELE: AlleleRank = 0;

/// The distinct alleles of the calls and the truth, sorted. The rank of an allele is its index.
#[derive(Debug, Default)]
pub(crate) struct AlleleTable {
    alleles: Vec<Allele>,
    bases: Vec<u8>,
}

impl AlleleTable {
    /// Returns the table of the alleles of two sides, and the rank of each allele slot of each side. Each side has its
    /// slots, and the codes of the bases of all its alleles.
    pub(crate) fn new(sides: [(&[Option<Allele>], &[u8]); 2]) -> (Self, [Vec<AlleleRank>; 2]) {
        let mut ranks = sides.map(|(slots, _)| vec![NO_ALLELE; slots.len()]);
        let mut order: Vec<(u32, Allele, u32)> = Vec::new();
        for (number, (slots, _)) in sides.iter().enumerate() {
            let present = slots.iter().enumerate().filter_map(|(slot, allele)| allele.map(|found| (slot, found)));
            order.extend(present.map(|(slot, allele)| (number as u32, allele, slot as u32)));
        }
        let bases_of = |entry: &(u32, Allele, u32)| entry.1.bases(sides[entry.0 as usize].1);
        order.sort_unstable_by(|a, b| compare(&a.1, bases_of(a), &b.1, bases_of(b)));
        let mut table = Self::default();
        for (index, entry) in order.iter().enumerate() {
            let is_new = index == 0 || {
                let before = &order[index - 1];
                compare(&before.1, bases_of(before), &entry.1, bases_of(entry)).is_ne()
            };
            if is_new {
                let first_base = table.bases.len() as u32;
                table.bases.extend_from_slice(bases_of(entry));
                table.alleles.push(Allele { first_base, ..entry.1 });
            }
            ranks[entry.0 as usize][entry.2 as usize] = table.alleles.len() as AlleleRank;
        }
        (table, ranks)
    }

    /// Returns the allele of a rank that is not [`NO_ALLELE`].
    pub(crate) fn allele(&self, rank: AlleleRank) -> &Allele {
        &self.alleles[rank as usize - 1]
    }

    /// Returns the base of an allele at a place.
    pub(crate) fn base(&self, rank: AlleleRank, place: i32) -> u8 {
        self.allele(rank).bases(&self.bases)[place as usize]
    }
}
