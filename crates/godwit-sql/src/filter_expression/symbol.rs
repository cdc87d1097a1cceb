//! The symbols of filter expressions: fields of a read, and tags.

use godwit_model::flags;

use crate::read_sweep::cigar_operations;

/// A field or a tag of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Symbol {
    Bases,
    Cigar,
    Cigars(CigarLength),
    ContigId,
    ContigName,
    EndPosition,
    /// The bits of FLAG in this mask.
    Flags(u16),
    Library,
    MappingQuality,
    MateContigId,
    MateContigName,
    MatePosition,
    Name,
    Position,
    Qualities,
    Tag([u8; 2]),
    TemplateLength,
}

/// A length that is computed from the CIGAR of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CigarLength {
    /// Number of hard-clipped bases.
    HardClips,
    /// Number of operations.
    Operations,
    /// Number of bases of the read without hard clips.
    Query,
    /// Number of reference bases.
    Reference,
    /// Number of soft-clipped bases.
    SoftClips,
}

/// The symbols in the order in which htslib compares them with the text; the first that is a prefix is taken.
const SYMBOLS: [(&str, Symbol); 22] = [
    ("cigar", Symbol::Cigar),
    ("endpos", Symbol::EndPosition),
    ("flag", Symbol::Flags(u16::MAX)),
    ("hclen", Symbol::Cigars(CigarLength::HardClips)),
    ("library", Symbol::Library),
    ("mapq", Symbol::MappingQuality),
    ("mpos", Symbol::MatePosition),
    ("mrname", Symbol::MateContigName),
    ("mrefid", Symbol::MateContigId),
    ("ncigar", Symbol::Cigars(CigarLength::Operations)),
    ("pos", Symbol::Position),
    ("pnext", Symbol::MatePosition),
    ("qlen", Symbol::Cigars(CigarLength::Query)),
    ("qname", Symbol::Name),
    ("qual", Symbol::Qualities),
    ("rlen", Symbol::Cigars(CigarLength::Reference)),
    ("rname", Symbol::ContigName),
    ("rnext", Symbol::MateContigName),
    ("refid", Symbol::ContigId),
    ("seq", Symbol::Bases),
    ("sclen", Symbol::Cigars(CigarLength::SoftClips)),
    ("tlen", Symbol::TemplateLength),
];

/// The bits of FLAG that can follow `flag.`.
const FLAG_BITS: [(&str, u16); 12] = [
    ("paired", flags::PAIRED),
    ("proper_pair", flags::PROPER_PAIR),
    ("unmap", flags::UNMAPPED),
    ("munmap", flags::MATE_UNMAPPED),
    ("reverse", flags::REVERSE),
    ("mreverse", flags::MATE_REVERSE),
    ("read1", flags::FIRST),
    ("read2", flags::LAST),
    ("secondary", flags::SECONDARY),
    ("qcfail", flags::QC_FAIL),
    ("dup", flags::DUPLICATE),
    ("supplementary", flags::SUPPLEMENTARY),
];

impl Symbol {
    /// Parses the symbol with which a text begins. Returns the symbol and its length in bytes.
    pub(super) fn parse(text: &[u8]) -> Option<(Self, usize)> {
        if let [b'[', first, second, b']', ..] = *text {
            return Some((Self::Tag([first, second]), 4));
        }
        let (name, symbol) = SYMBOLS.into_iter().find(|(name, _)| text.starts_with(name.as_bytes()))?;
        if matches!(symbol, Self::Flags(_)) && text.get(name.len()) == Some(&b'.') {
            let start = name.len() + 1;
            let (bit, mask) = FLAG_BITS.into_iter().find(|(bit, _)| text[start..].starts_with(bit.as_bytes()))?;
            return Some((Self::Flags(mask), start + bit.len()));
        }
        Some((symbol, name.len()))
    }
}

impl CigarLength {
    /// Computes the length from the text of a CIGAR, as htslib does (1.19, `sam.c`); 0 without a CIGAR.
    pub(crate) fn of_cigar(self, cigar: &str) -> i64 {
        let operations: Vec<(i64, u8)> = cigar_operations(cigar).collect();
        let sum = |letters: &[u8]| {
            operations.iter().filter(|(_, letter)| letters.contains(letter)).map(|(length, _)| length).sum::<i64>()
        };
        match self {
            Self::Operations => operations.len() as i64,
            Self::Query => sum(b"MIS=X"),
            Self::Reference => sum(b"MDN=X"),
            Self::HardClips => match operations[..] {
                [] => 0,
                [only] => hard_clip(only),
                [first, .., last] => hard_clip(first) + hard_clip(last),
            },
            Self::SoftClips => soft_clips(&operations),
        }
    }
}

fn hard_clip((length, letter): (i64, u8)) -> i64 {
    if letter == b'H' { length } else { 0 }
}

/// Returns the number of soft-clipped bases at both ends, within hard clips.
fn soft_clips(operations: &[(i64, u8)]) -> i64 {
    let (mut left, mut bases) = (0, 0);
    match *operations {
        [(length, b'S'), ..] => bases += length,
        [(_, b'H'), (length, b'S'), ..] => (left, bases) = (1, length),
        _ => {}
    }
    let count = operations.len();
    match *operations {
        [.., (length, b'S')] if count > left + 1 => bases += length,
        [.., (length, b'S'), (_, b'H')] if count > left + 2 => bases += length,
        _ => {}
    }
    bases
}
