//! The variants of one side on one contig, loaded from records by the rules of vcfeval.

use crate::alleles::{Allele, MISSING_BASE, base_code};
use crate::genotype::{AlleleTexts, Genotype, MISSING_ALLELE, VariantType, has_padding_base};
use crate::record::Record;
use crate::regions::Regions;

/// A record that takes part in the search.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Variant {
    /// Number of the record among all records of the contig, from 0.
    pub(crate) record: u32,
    /// 0-based, half-open interval of its alleles; empty for an insertion.
    pub(crate) start: i32,
    pub(crate) end: i32,
    /// Index of the slot of the missing allele; the slots of REF and of the alternates follow.
    pub(crate) first_slot: u32,
    /// Number of alleles without the missing one: REF and alternates.
    pub(crate) allele_count: u32,
    /// Index of the first allele number of the genotype.
    pub(crate) first_genotype: u32,
    /// Number of alleles of the genotype; 0 if the genotype is not used.
    pub(crate) ploidy: u32,
    pub(crate) is_phased: bool,
    /// True if the variant is outside of the confident regions.
    pub(crate) is_outside: bool,
}

impl Variant {
    /// Returns the slot of an allele number.
    pub(crate) fn slot(&self, allele: i32) -> usize {
        (self.first_slot as i32 + 1 + allele) as usize
    }

    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        other.start < self.end && other.end > self.start
    }
}

/// The variants of one side on one contig, in the order of their records.
#[derive(Debug, Default)]
pub(crate) struct VariantSet {
    pub(crate) variants: Vec<Variant>,
    /// Alleles by slot; `None` where nothing replaces the reference.
    pub(crate) slots: Vec<Option<Allele>>,
    /// Allele numbers of the genotypes.
    pub(crate) genotypes: Vec<i32>,
    /// Codes of the bases of all alleles.
    pub(crate) bases: Vec<u8>,
    /// Number of records that were left out because of a problem.
    pub(crate) skipped_records: u64,
}

/// Rules that decide which records become variants.
#[derive(Debug)]
pub(crate) struct LoadRules<'r> {
    /// Index of the sample; `None` to use all alternate alleles instead of a genotype.
    pub(crate) sample: Option<usize>,
    pub(crate) ploidy: usize,
    pub(crate) all_records: bool,
    pub(crate) max_allele_bases: usize,
    pub(crate) explicit_unknown_alleles: bool,
    pub(crate) confident: Option<&'r Regions>,
    pub(crate) contig: &'r str,
    pub(crate) contig_bases: i32,
}

/// Why a record is not a variant.
enum Rejection {
    /// The record has no variant that the comparison uses.
    Unused,
    /// The record has a problem; it is counted.
    Skipped,
    /// The record is invalid, which ends the comparison.
    Invalid(&'static str),
}

impl From<&'static str> for Rejection {
    fn from(problem: &'static str) -> Self {
        Self::Invalid(problem)
    }
}

impl VariantSet {
    /// Loads the next record.
    ///
    /// # Errors
    /// The problem of a record that ends a comparison.
    pub(crate) fn load(&mut self, number: u32, record: &Record, rules: &LoadRules) -> Result<(), &'static str> {
        let lengths = (self.slots.len(), self.genotypes.len(), self.bases.len());
        match self.add(number, record, rules) {
            Ok(()) => return Ok(()),
            Err(Rejection::Invalid(problem)) => return Err(problem),
            Err(Rejection::Unused) => {}
            Err(Rejection::Skipped) => self.skipped_records += 1,
        }
        self.slots.truncate(lengths.0);
        self.genotypes.truncate(lengths.1);
        self.bases.truncate(lengths.2);
        Ok(())
    }

    fn add(&mut self, number: u32, record: &Record, rules: &LoadRules) -> Result<(), Rejection> {
        let longest = record.alternates().map(<[u8]>::len).fold(record.reference.len(), usize::max);
        if longest > rules.max_allele_bases || record.end() > rules.contig_bases {
            return Err(Rejection::Skipped);
        }
        if !rules.all_records && record.is_filtered() {
            return Err(Rejection::Unused);
        }
        let (first_slot, first_genotype) = (self.slots.len() as u32, self.genotypes.len() as u32);
        let mut is_phased = false;
        if let Some(sample) = rules.sample {
            if !rules.all_records && record.is_sample_filtered(sample) {
                return Err(Rejection::Unused);
            }
            let (genotype, is_padded) = used_genotype(record, sample, rules.ploidy)?;
            is_phased = genotype.is_phased;
            let is_called = |allele: i32| allele == 0 || genotype.alleles.contains(&allele);
            self.push_alleles(record, is_padded, is_called, rules.explicit_unknown_alleles)?;
            self.genotypes.extend_from_slice(&genotype.alleles);
        } else {
            self.push_all_alternates(record, first_slot as usize, rules)?;
        }
        let ploidy = self.genotypes.len() as u32 - first_genotype;
        let allele_count = self.slots.len() as u32 - first_slot - 1;
        let (start, end) = self.bounds(first_slot, allele_count);
        let is_outside = rules.confident.is_some_and(|regions| !regions.overlaps(rules.contig, start, end));
        self.variants.push(Variant {
            record: number,
            start,
            end,
            first_slot,
            allele_count,
            first_genotype,
            ploidy,
            is_phased,
            is_outside,
        });
        Ok(())
    }

    /// Appends the slots of the alleles that are called, and empty slots for the others.
    fn push_alleles(
        &mut self,
        record: &Record,
        is_padded: bool,
        is_called: impl Fn(i32) -> bool,
        explicit_unknown_alleles: bool,
    ) -> Result<(), Rejection> {
        let (start, end) = (record.start + i32::from(is_padded), record.end());
        let unknown = |set: &mut Self| {
            let first_base = set.bases.len() as u32;
            let allele = Allele { start, end, first_base, base_count: 1 };
            explicit_unknown_alleles.then(|| {
                set.bases.push(MISSING_BASE);
                allele
            })
        };
        let missing = if is_called(MISSING_ALLELE) { unknown(self) } else { None };
        self.slots.push(missing);
        for (number, allele) in [record.reference].into_iter().chain(record.alternates()).enumerate() {
            let slot = if !is_called(number as i32) {
                None
            } else if VariantType::of_symbol(allele).is_some() {
                unknown(self)
            } else {
                let letters = &allele[usize::from(is_padded)..];
                let first_base = self.bases.len() as u32;
                for letter in letters {
                    self.bases.push(base_code(*letter).ok_or(Rejection::Skipped)?);
                }
                Some(Allele { start, end, first_base, base_count: letters.len() as u32 })
            };
            self.slots.push(slot);
        }
        Ok(())
    }

    /// Appends the slots of all alleles, without the alternates that are not written in bases.
    fn push_all_alternates(&mut self, record: &Record, first: usize, rules: &LoadRules) -> Result<(), Rejection> {
        if record.alternates().next().is_none() {
            return Err(Rejection::Unused);
        }
        self.push_alleles(record, has_padding_base(record), |_| true, rules.explicit_unknown_alleles)?;
        let alternates: Vec<Allele> =
            self.slots[first + 2..].iter().flatten().filter(|allele| !self.is_unknown(allele)).copied().collect();
        if alternates.is_empty() {
            return Err(Rejection::Unused);
        }
        self.slots.truncate(first + 2);
        self.slots.extend(alternates.into_iter().map(Some));
        Ok(())
    }

    /// Returns whether an allele is the explicit form of a missing allele.
    pub(crate) fn is_unknown(&self, allele: &Allele) -> bool {
        allele.bases(&self.bases) == [MISSING_BASE]
    }

    /// Returns the interval of all alleles of a variant.
    pub(crate) fn bounds(&self, first_slot: u32, allele_count: u32) -> (i32, i32) {
        let slots = &self.slots[first_slot as usize..][..allele_count as usize + 1];
        let bounds = slots
            .iter()
            .flatten()
            .fold((i32::MAX, i32::MIN), |(start, end), allele| (start.min(allele.start), end.max(allele.end)));
        if bounds.0 > bounds.1 { (0, 0) } else { bounds }
    }

    /// Returns the allele numbers of a genotype.
    pub(crate) fn genotype(&self, variant: &Variant) -> &[i32] {
        &self.genotypes[variant.first_genotype as usize..][..variant.ploidy as usize]
    }
}

/// Returns the genotype of a sample with an allele that the comparison uses, and whether the alleles are padded.
fn used_genotype(record: &Record, sample: usize, ploidy: usize) -> Result<(Genotype, bool), Rejection> {
    let mut genotype = Genotype::of_sample(record, sample)?.ok_or(Rejection::Unused)?;
    if ploidy == 2 && genotype.alleles.len() == 1 {
        genotype.alleles.push(genotype.alleles[0]);
    }
    if genotype.alleles.len() != ploidy {
        return Err(Rejection::Skipped);
    }
    let texts = AlleleTexts::new(record)?;
    let is_used = genotype.alleles.iter().any(|allele| *allele > 0 && texts.type_of(*allele).is_in_bases());
    if is_used { Ok((genotype, texts.is_padded)) } else { Err(Rejection::Unused) }
}
