//! The alternate alleles of one sample in a VCF, each with its number of copies in the genotype.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use godwit_formats::vcf::{Genotype, Reader, Record};
use godwit_pipeline::PipelineError;
use serde::Serialize;

use super::{CompareOptions, ComparedFile, ContigNames};

/// Records read between two checks of the cancel flag.
const CANCEL_CHECK_RECORDS: u64 = 4096;

/// Counts of the records of a file, and of alleles that are not compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct VcfRecordCounts {
    /// Number of records in the file.
    pub records: u64,
    /// Records that were skipped because they failed a filter.
    pub filtered: u64,
    /// Records that were skipped because the sample has no genotype in them.
    pub without_genotype: u64,
    /// Alleles that were skipped because they have no base sequence: symbolic alleles, breakends, and ambiguous bases.
    pub not_in_bases: u64,
    /// Alleles that were skipped because an earlier record has an allele with the same position and bases.
    pub repeated: u64,
}

/// An alternate allele of the sample. It takes only 32 bytes, because the call sets of whole genomes are kept in
/// memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allele {
    pub(super) contig: u32,
    /// 0-based position of the first base of `REF`.
    pub(super) position: i32,
    /// Offset of the allele's bases in `allele_bases` of the set: first the reference bases, then the alternate bases.
    bases_offset: usize,
    reference_bases: u32,
    alternate_bases: u32,
    /// 1-based number of the record in the file.
    record: u32,
    /// Number of copies of the allele in the genotype of the sample.
    pub(super) copies: u16,
    /// Number of all alleles in the genotype.
    pub(super) ploidy: u16,
}

impl Allele {
    /// Returns the 0-based position after the last reference base that the allele replaces.
    pub(super) fn end(&self) -> i64 {
        i64::from(self.position) + i64::from(self.reference_bases)
    }

    /// Returns whether the allele replaces one base by another base.
    pub(super) fn is_snp(&self) -> bool {
        self.reference_bases == 1 && self.alternate_bases == 1
    }

    /// Returns whether an allele has the same fraction of copies in two genotypes. One of two copies is another
    /// genotype than two of two, but one of one is the same as two of two.
    pub(super) fn same_genotype(&self, other: &Self) -> bool {
        u32::from(self.copies) * u32::from(other.ploidy) == u32::from(other.copies) * u32::from(self.ploidy)
    }
}

/// The identity of an allele in any file: contig, position, reference bases and alternate bases.
pub(super) type AlleleKey<'s> = (u32, i32, &'s [u8], &'s [u8]);

/// The alleles of one file.
#[derive(Debug)]
pub(super) struct CallSet {
    path: PathBuf,
    sample: Option<String>,
    /// True if genotypes are ignored: every allele then has one copy and ploidy 1.
    ignore_genotypes: bool,
    records: VcfRecordCounts,
    alleles: Vec<Allele>,
    allele_bases: Vec<u8>,
}

impl CallSet {
    /// Reads the alleles of the sample from a VCF, sorted and without repetition.
    pub(super) fn read(
        path: &Path,
        options: &CompareOptions,
        contigs: &mut ContigNames,
        cancelled: &AtomicBool,
    ) -> Result<Self, PipelineError> {
        let mut reader = Reader::open(path, options.threads)?;
        let (index, sample) = select_sample(&reader, options)?.unzip();
        let ignore_genotypes = options.ignore_genotypes;
        let (path, records) = (path.to_owned(), VcfRecordCounts::default());
        let mut set = Self { path, sample, ignore_genotypes, records, alleles: Vec::new(), allele_bases: Vec::new() };
        while let Some(record) = reader.next_record()? {
            if set.records.records.is_multiple_of(CANCEL_CHECK_RECORDS) && cancelled.load(Ordering::Relaxed) {
                return Err(PipelineError::Interrupted);
            }
            set.records.records += 1;
            if !options.all_records && !record.passes_filters() {
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
        set.remove_repeated();
        Ok(set)
    }

    /// Returns a call set of the same file with the same counts, but without alleles.
    pub(super) fn without_alleles(&self) -> Self {
        Self {
            path: self.path.clone(),
            sample: self.sample.clone(),
            alleles: Vec::new(),
            allele_bases: Vec::new(),
            ..*self
        }
    }

    /// Appends the alleles in `genotype`, or all alternate alleles of the record if there is no genotype.
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
            // The allele `*` represents a deletion of an earlier record, in which the deletion is counted.
            if copies == 0 || alternate == "*" {
                continue;
            }
            if !is_acgt(record.reference) || !is_acgt(alternate) {
                self.records.not_in_bases += 1;
            } else if !record.reference.eq_ignore_ascii_case(alternate) {
                if self.ignore_genotypes {
                    (copies, ploidy) = (1, 1);
                }
                let place = Allele {
                    contig,
                    position: record.position,
                    bases_offset: 0,
                    reference_bases: 0,
                    alternate_bases: 0,
                    // This number does not overflow, because 4 billion records exceed the memory of a host.
                    record: self.records.records as u32,
                    copies,
                    ploidy,
                };
                self.push_allele(&place, record.reference, alternate);
            }
        }
        Ok(())
    }

    /// Appends an allele with the given bases; all other fields are those of `like`.
    pub(super) fn push_allele(&mut self, like: &Allele, reference: &str, alternate: &str) {
        let bases_offset = self.allele_bases.len();
        self.allele_bases.extend(reference.bytes().chain(alternate.bytes()).map(|base| base.to_ascii_uppercase()));
        let (reference_bases, alternate_bases) = (reference.len() as u32, alternate.len() as u32);
        self.alleles.push(Allele { bases_offset, reference_bases, alternate_bases, ..*like });
    }

    /// Returns the reference bases and the alternate bases of an allele.
    pub(super) fn bases(&self, allele: &Allele) -> (&[u8], &[u8]) {
        let bases =
            &self.allele_bases[allele.bases_offset..][..(allele.reference_bases + allele.alternate_bases) as usize];
        bases.split_at(allele.reference_bases as usize)
    }

    /// Returns the key of an allele of this set.
    pub(super) fn allele_key(&self, allele: &Allele) -> AlleleKey<'_> {
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

    /// Returns the contigs that have alleles.
    pub(super) fn contigs(&self) -> Vec<u32> {
        let contigs: BTreeSet<u32> = self.alleles.iter().map(|allele| allele.contig).collect();
        contigs.into_iter().collect()
    }

    fn sort(&mut self) {
        let mut alleles = std::mem::take(&mut self.alleles);
        alleles.sort_by(|a, b| self.allele_key(a).cmp(&self.allele_key(b)).then(a.record.cmp(&b.record)));
        self.alleles = alleles;
    }

    /// Removes all but the first of equal alleles: two regions of a calling job may have called the same allele.
    fn remove_repeated(&mut self) {
        let mut alleles = std::mem::take(&mut self.alleles);
        let before = alleles.len();
        alleles
            .dedup_by(|later, first| later.record != first.record && self.allele_key(later) == self.allele_key(first));
        self.records.repeated += (before - alleles.len()) as u64;
        self.alleles = alleles;
    }

    /// Sorts the alleles. Merges alleles that normalization has made equal, and adds up their copies.
    pub(super) fn merge(&mut self) {
        self.sort();
        let mut alleles = std::mem::take(&mut self.alleles);
        alleles.dedup_by(|later, first| {
            let same = self.allele_key(later) == self.allele_key(first);
            if same {
                first.copies = (first.copies + later.copies).min(first.ploidy);
            }
            same
        });
        self.alleles = alleles;
    }

    /// Keeps the alleles for which `keep` returns true.
    pub(super) fn retain(&mut self, keep: impl Fn(&Allele) -> bool) {
        self.alleles.retain(keep);
    }

    /// Returns the description of the file for reports.
    pub(super) fn into_source(self) -> ComparedFile {
        ComparedFile { file: self.path, sample: self.sample, records: self.records }
    }
}

fn is_acgt(allele: &str) -> bool {
    allele.bytes().all(|base| matches!(base, b'A' | b'C' | b'G' | b'T' | b'a' | b'c' | b'g' | b't'))
}

/// Returns index and name of the sample to compare; `None` if genotypes are ignored and the file has no samples.
fn select_sample(reader: &Reader, options: &CompareOptions) -> Result<Option<(usize, String)>, PipelineError> {
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
            const MAX_LISTED_SAMPLES: usize = 5;
            let names = samples.iter().take(MAX_LISTED_SAMPLES).map(String::as_str).collect::<Vec<_>>().join(", ");
            let more = if samples.len() > MAX_LISTED_SAMPLES { ", ..." } else { "" };
            let problem =
                format!("{path} has {} samples ({names}{more}); choose one of them with --sample", samples.len());
            Err(PipelineError::Options { problem })
        }
    }
}
