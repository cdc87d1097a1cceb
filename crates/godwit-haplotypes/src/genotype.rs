//! Genotypes (the GT field), and the type of the variant that a genotype contains.

use crate::record::Record;

/// Allele number of a missing allele (`.`).
pub(crate) const MISSING_ALLELE: i32 = -1;

/// The problem of a GT value that is not a list of allele numbers.
const MALFORMED: &str = "its GT is malformed";

/// A GT value: allele numbers in their order, and whether they are phased.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Genotype {
    pub(crate) alleles: Vec<i32>,
    pub(crate) is_phased: bool,
}

impl Genotype {
    /// Parses a GT value. A value such as `1|` is haploid, as in vcfeval.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, &'static str> {
        let is_phased = text.contains(&b'|');
        let mut alleles = Vec::with_capacity(2);
        let mut parts = text.split(|byte| matches!(byte, b'|' | b'/')).peekable();
        while let Some(part) = parts.next() {
            if part.is_empty() && parts.peek().is_none() && !alleles.is_empty() {
                break;
            }
            alleles.push(parse_allele(part)?);
        }
        Ok(Self { alleles, is_phased })
    }

    /// Parses the GT of a sample, and checks that the record has its alleles. `None` if the record has no GT.
    pub(crate) fn of_sample(record: &Record, sample: usize) -> Result<Option<Self>, &'static str> {
        let Some(text) = record.sample_value(b"GT", sample) else { return Ok(None) };
        let genotype = Self::parse(text)?;
        let count = record.alternates().count() as i32;
        if genotype.alleles.iter().any(|allele| *allele < MISSING_ALLELE || *allele > count) {
            return Err("its GT has an allele number that the record does not have");
        }
        Ok(Some(genotype))
    }

    /// Appends the GT value to `out`.
    pub(crate) fn write_to(&self, out: &mut Vec<u8>) {
        if self.alleles.is_empty() {
            out.push(b'.');
        }
        for (index, allele) in self.alleles.iter().enumerate() {
            if index > 0 {
                out.push(if self.is_phased { b'|' } else { b'/' });
            }
            match *allele {
                MISSING_ALLELE => out.push(b'.'),
                allele => out.extend_from_slice(allele.to_string().as_bytes()),
            }
        }
    }

    pub(crate) fn is_heterozygous(&self) -> bool {
        matches!(self.alleles[..], [first, second] if first != second)
    }

    pub(crate) fn is_homozygous_alternate(&self) -> bool {
        let is_homozygous = match self.alleles[..] {
            [first, second, ..] => first == second,
            _ => true,
        };
        is_homozygous && self.alleles.iter().any(|allele| *allele != 0)
    }
}

fn parse_allele(text: &[u8]) -> Result<i32, &'static str> {
    match text {
        b"." => Ok(MISSING_ALLELE),
        [digit] if digit.is_ascii_digit() => Ok(i32::from(digit - b'0')),
        [_] => Err(MALFORMED),
        text => std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(MALFORMED),
    }
}

/// The type of a variant. If the alleles of a genotype have different types, the type that is listed last applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum VariantType {
    NoCall,
    Unchanged,
    Snp,
    Mnp,
    Deletion,
    Insertion,
    Indel,
    Breakend,
    Symbolic,
    SpanningDeletion,
}

impl VariantType {
    pub(crate) fn is_indel(self) -> bool {
        matches!(self, Self::Deletion | Self::Insertion | Self::Indel)
    }

    /// Returns whether the allele is written in bases and differs from the reference.
    pub(crate) fn is_in_bases(self) -> bool {
        matches!(self, Self::Snp | Self::Mnp | Self::Deletion | Self::Insertion | Self::Indel)
    }

    /// Returns the type of an allele that is not written in bases: `<X>`, a breakend, `*`, `*A` or `A*`.
    pub(crate) fn of_symbol(allele: &[u8]) -> Option<Self> {
        let (first, last) = (*allele.first()?, *allele.last()?);
        if first == b'<' || last == b'>' {
            Some(Self::Symbolic)
        } else if first == b'*' || last == b'*' {
            Some(Self::SpanningDeletion)
        } else if [first, last].iter().any(|byte| matches!(byte, b'[' | b']')) {
            Some(Self::Breakend)
        } else {
            None
        }
    }

    fn of_allele(reference: &[u8], allele: &[u8]) -> Self {
        if reference == allele {
            return Self::Unchanged;
        }
        if reference.len() == 1 && allele.len() == 1 && allele != b"*" {
            return Self::Snp;
        }
        if let Some(symbol) = Self::of_symbol(allele) {
            return symbol;
        }
        let (shorter, longer) = if reference.len() < allele.len() { (reference, allele) } else { (allele, reference) };
        if shorter.len() == longer.len() {
            Self::Mnp
        } else if !is_part(shorter, longer) {
            Self::Indel
        } else if reference.len() < allele.len() {
            Self::Insertion
        } else {
            Self::Deletion
        }
    }

    fn with(self, other: Self) -> Self {
        if self != other && self.is_indel() && other.is_indel() { Self::Indel } else { self.max(other) }
    }
}

/// Returns whether `longer` is `shorter` with one insertion.
fn is_part(shorter: &[u8], longer: &[u8]) -> bool {
    let left = shorter.iter().zip(longer).take_while(|(a, b)| a == b).count();
    let right = shorter.iter().rev().zip(longer.iter().rev()).take_while(|(a, b)| a == b).count();
    left + right >= shorter.len()
}

/// The alleles of a record as text. A padding base that all alleles share is removed.
#[derive(Debug)]
pub(crate) struct AlleleTexts<'l> {
    /// True if the first base of all alleles was removed.
    pub(crate) is_padded: bool,
    reference: &'l [u8],
    alternates: Vec<&'l [u8]>,
}

impl<'l> AlleleTexts<'l> {
    /// Returns the alleles of a record.
    ///
    /// # Errors
    /// An alternate allele that equals the reference.
    pub(crate) fn new(record: &Record<'l>) -> Result<Self, &'static str> {
        let is_padded = has_padding_base(record);
        let reference = &record.reference[usize::from(is_padded)..];
        let without_padding = |allele: &'l [u8]| match is_padded && allele[0] != b'*' {
            true => &allele[1..],
            false => allele,
        };
        let alternates: Vec<&[u8]> = record.alternates().map(without_padding).collect();
        if alternates.contains(&reference) {
            return Err("an alternate allele equals REF");
        }
        Ok(Self { is_padded, reference, alternates })
    }

    /// Returns the type of an alternate allele, numbered from 1.
    pub(crate) fn type_of(&self, allele: i32) -> VariantType {
        VariantType::of_allele(self.reference, self.alternates[allele as usize - 1])
    }

    /// Returns the type of a genotype.
    pub(crate) fn genotype_type(&self, genotype: &Genotype) -> VariantType {
        let alleles = &genotype.alleles;
        if alleles.iter().all(|allele| *allele == MISSING_ALLELE) {
            return VariantType::NoCall;
        }
        let mut alternates = alleles.iter().copied().filter(|allele| *allele > 0);
        let Some(first) = alternates.next() else { return VariantType::Unchanged };
        let others = alternates.filter(|allele| *allele != first);
        others.fold(self.type_of(first), |found, allele| found.with(self.type_of(allele)))
    }
}

/// Returns whether the first base of REF is the first base of every alternate allele that does not start with `*`.
pub(crate) fn has_padding_base(record: &Record) -> bool {
    let mut alternates = record.alternates().filter(|allele| allele[0] != b'*').peekable();
    alternates.peek().is_some() && alternates.all(|allele| allele[0] == record.reference[0])
}
