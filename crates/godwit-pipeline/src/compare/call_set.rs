//! The alternate alleles of one sample, each with its copies.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use godwit_formats::vcf::{Genotype, Reader, Record};
use serde::Serialize;

use super::{CompareOptions, ContigNames, Source};
use crate::error::PipelineError;

/// Records read between looks at whether to go on.
const CANCEL_EVERY: u64 = 4096;

/// Records of a file by what became of them, and alleles that are not compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Records {
    /// All of them.
    pub records: u64,
    /// Left out because a filter failed them.
    pub filtered: u64,
    /// Left out because the sample has no genotype there.
    pub without_genotype: u64,
    /// Alleles of the sample that are not written in bases: symbolic ones, breakends, ambiguous bases.
    pub not_in_bases: u64,
    /// Alleles that a record before has already, in the same words.
    pub repeated: u64,
}

/// An alternate allele that the sample has. 32 bytes: call sets of whole genomes are held in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allele {
    pub(super) contig: u32,
    /// 0-based position of the first base of `REF`.
    pub(super) position: i32,
    /// Where its bases start in the set's text: those of the reference, then its own.
    start: usize,
    reference_bases: u32,
    alternate_bases: u32,
    /// Which record of the file it is of.
    record: u32,
    /// How many copies the sample has.
    pub(super) copies: u16,
    /// Of how many.
    pub(super) ploidy: u16,
}

impl Allele {
    /// One past the last base of the reference that it replaces.
    pub(super) fn end(&self) -> i64 {
        i64::from(self.position) + i64::from(self.reference_bases)
    }

    /// Whether one base is replaced by another.
    pub(super) fn is_snp(&self) -> bool {
        self.reference_bases == 1 && self.alternate_bases == 1
    }

    /// Whether two genotypes have the same share of it: one of two, or all of one and all of two.
    pub(super) fn same_genotype(&self, other: &Self) -> bool {
        u32::from(self.copies) * u32::from(other.ploidy) == u32::from(other.copies) * u32::from(self.ploidy)
    }
}

/// What tells alleles apart, whatever file they are of: contig, position, bases of the reference and their own.
pub(super) type Key<'s> = (u32, i32, &'s [u8], &'s [u8]);

/// The alleles of one file.
#[derive(Debug)]
pub(super) struct CallSet {
    path: PathBuf,
    sample: Option<String>,
    /// Every allele is taken as the only one.
    ignore_genotypes: bool,
    records: Records,
    alleles: Vec<Allele>,
    text: Vec<u8>,
}

impl CallSet {
    /// Reads the alleles of the sample, sorted, each once.
    pub(super) fn read(
        path: &Path,
        options: &CompareOptions,
        contigs: &mut ContigNames,
        cancelled: &AtomicBool,
    ) -> Result<Self, PipelineError> {
        let mut reader = Reader::open(path, options.threads)?;
        let (index, sample) = sample(&reader, options)?.unzip();
        let ignore_genotypes = options.ignore_genotypes;
        let (path, records) = (path.to_owned(), Records::default());
        let mut set = Self { path, sample, ignore_genotypes, records, alleles: Vec::new(), text: Vec::new() };
        while let Some(record) = reader.next_record()? {
            if set.records.records.is_multiple_of(CANCEL_EVERY) && cancelled.load(Ordering::Relaxed) {
                return Err(PipelineError::Interrupted);
            }
            set.records.records += 1;
            if !options.all_records && !record.passes() {
                set.records.filtered += 1;
                continue;
            }
            let genotype = index.and_then(|index| record.genotype(index));
            let genotype = genotype.filter(|genotype| genotype.alleles().any(|allele| allele.is_some()));
            if index.is_some() && genotype.is_none() {
                set.records.without_genotype += 1;
                continue;
            }
            let contig = contigs.id(record.contig);
            let pushed = set.push_record(contig, &record, genotype.as_ref());
            pushed.map_err(|problem| reader.record_error(problem))?;
        }
        set.sort();
        set.forget_repeated();
        Ok(set)
    }

    /// A set of the same file, without alleles.
    pub(super) fn emptied(&self) -> Self {
        Self { path: self.path.clone(), sample: self.sample.clone(), alleles: Vec::new(), text: Vec::new(), ..*self }
    }

    /// Appends what a genotype has, or every alternate where there are no samples.
    fn push_record(&mut self, contig: u32, record: &Record, genotype: Option<&Genotype>) -> Result<(), String> {
        let alternates: Vec<&str> = record.alternates().collect();
        let mut copies = vec![u16::from(genotype.is_none()); alternates.len()];
        let mut ploidy = u16::from(genotype.is_none());
        for allele in genotype.into_iter().flat_map(Genotype::alleles) {
            ploidy += 1;
            let Some(allele) = allele.filter(|allele| *allele > 0) else { continue };
            let known = alternates.len();
            let counted = copies.get_mut(allele as usize - 1);
            *counted.ok_or_else(|| format!("its genotype has allele {allele}, but it has {known} alternates"))? += 1;
        }
        for (alternate, mut copies) in alternates.into_iter().zip(copies) {
            // What a deletion before it took away is counted there.
            if copies == 0 || alternate == "*" {
                continue;
            }
            if !in_bases(record.reference) || !in_bases(alternate) {
                self.records.not_in_bases += 1;
            } else if !record.reference.eq_ignore_ascii_case(alternate) {
                if self.ignore_genotypes {
                    (copies, ploidy) = (1, 1);
                }
                let place = Allele {
                    contig,
                    position: record.position,
                    start: 0,
                    reference_bases: 0,
                    alternate_bases: 0,
                    // 4 billion records take more memory than machines have.
                    record: self.records.records as u32,
                    copies,
                    ploidy,
                };
                self.push(&place, record.reference, alternate);
            }
        }
        Ok(())
    }

    /// Appends an allele that is like another one but for its bases.
    pub(super) fn push(&mut self, like: &Allele, reference: &str, alternate: &str) {
        let start = self.text.len();
        self.text.extend(reference.bytes().chain(alternate.bytes()).map(|base| base.to_ascii_uppercase()));
        let (reference_bases, alternate_bases) = (reference.len() as u32, alternate.len() as u32);
        self.alleles.push(Allele { start, reference_bases, alternate_bases, ..*like });
    }

    /// Bases of the reference and of the allele.
    pub(super) fn bases(&self, allele: &Allele) -> (&[u8], &[u8]) {
        let bases = &self.text[allele.start..][..(allele.reference_bases + allele.alternate_bases) as usize];
        bases.split_at(allele.reference_bases as usize)
    }

    /// The key of one of its alleles.
    pub(super) fn key(&self, allele: &Allele) -> Key<'_> {
        let (reference, alternate) = self.bases(allele);
        (allele.contig, allele.position, reference, alternate)
    }

    pub(super) fn alleles(&self) -> &[Allele] {
        &self.alleles
    }

    pub(super) fn is_empty(&self) -> bool {
        self.alleles.is_empty()
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Contigs that alleles are on.
    pub(super) fn contigs(&self) -> Vec<u32> {
        let contigs: BTreeSet<u32> = self.alleles.iter().map(|allele| allele.contig).collect();
        contigs.into_iter().collect()
    }

    fn sort(&mut self) {
        let mut alleles = std::mem::take(&mut self.alleles);
        alleles.sort_by(|a, b| self.key(a).cmp(&self.key(b)).then(a.record.cmp(&b.record)));
        self.alleles = alleles;
    }

    /// Of alleles in the same words, the first stays: two regions of a run may have called it.
    fn forget_repeated(&mut self) {
        let mut alleles = std::mem::take(&mut self.alleles);
        let before = alleles.len();
        alleles.dedup_by(|later, first| later.record != first.record && self.key(later) == self.key(first));
        self.records.repeated += (before - alleles.len()) as u64;
        self.alleles = alleles;
    }

    /// Sorts, and adds up copies of alleles that came to be written in the same way.
    pub(super) fn merge(&mut self) {
        self.sort();
        let mut alleles = std::mem::take(&mut self.alleles);
        alleles.dedup_by(|later, first| {
            let same = self.key(later) == self.key(first);
            if same {
                first.copies = (first.copies + later.copies).min(first.ploidy);
            }
            same
        });
        self.alleles = alleles;
    }

    /// Keeps what is told.
    pub(super) fn keep(&mut self, keep: impl Fn(&Allele) -> bool) {
        self.alleles.retain(keep);
    }

    /// What reports say of it.
    pub(super) fn into_source(self) -> Source {
        Source { file: self.path, sample: self.sample, records: self.records }
    }
}

fn in_bases(allele: &str) -> bool {
    allele.bytes().all(|base| matches!(base, b'A' | b'C' | b'G' | b'T' | b'a' | b'c' | b'g' | b't'))
}

/// Index and name of the sample to look at; none where genotypes are ignored and there is none.
fn sample(reader: &Reader, options: &CompareOptions) -> Result<Option<(usize, String)>, PipelineError> {
    let (samples, path) = (reader.header().samples(), reader.path().display());
    let chosen = match (samples, options.sample.as_deref()) {
        ([], _) if options.ignore_genotypes => return Ok(None),
        ([], _) => {
            let problem = format!("{path} has no samples, but genotypes are compared; pass --ignore-genotypes");
            return Err(PipelineError::Incomparable { problem });
        }
        ([_], _) => Some(0),
        (_, Some(name)) => samples.iter().position(|sample| sample == name),
        (_, None) => None,
    };
    match chosen {
        Some(index) => Ok(Some((index, samples[index].clone()))),
        None => {
            const SHOWN: usize = 5;
            let names = samples.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
            let more = if samples.len() > SHOWN { ", ..." } else { "" };
            let problem =
                format!("{path} has {} samples ({names}{more}); name one of them with --sample", samples.len());
            Err(PipelineError::Options { problem })
        }
    }
}
