//! Alternate alleles and genotypes of records that are written together.

use crate::evaluation::{Contig, EvaluationError, EvaluationRules};
use crate::genotype::{Genotype, MISSING_ALLELE};
use crate::search::{CALLS, TRUTH};

/// REF, alternate alleles, and the genotypes of both files, as columns of one merged record.
#[derive(Debug)]
pub(super) struct MergedAlleles {
    pub(super) reference: Vec<u8>,
    pub(super) alternates: Vec<Vec<u8>>,
    /// GT by side; `.` where a side has no record.
    pub(super) genotypes: [Vec<u8>; 2],
}

impl MergedAlleles {
    /// Merges the alleles of the records of both sides; `first` is the side whose alternates come first.
    pub(super) fn new(
        contig: &Contig,
        rules: &EvaluationRules,
        numbers: [Option<usize>; 2],
        first: usize,
    ) -> Result<Self, EvaluationError> {
        let record = |side: usize| numbers[side].map(|number| contig.records[side].record(number));
        let genotype = |side: usize| {
            let value = rules.samples[side].and_then(|sample| record(side)?.sample_value(b"GT", sample));
            value.unwrap_or(b".").to_vec()
        };
        let genotypes = [genotype(CALLS), genotype(TRUTH)];
        let records = [record(CALLS), record(TRUTH)];
        let only = match records {
            [Some(calls), Some(_)] => {
                let mut merged =
                    Self { reference: upper_case_bases(calls.reference), alternates: Vec::new(), genotypes };
                for side in [first, 1 - first] {
                    merged.add_alternates(contig, numbers[side].unwrap_or(0), side)?;
                }
                return Ok(merged);
            }
            [Some(record), None] | [None, Some(record)] => record,
            [None, None] => return Ok(Self { reference: Vec::new(), alternates: Vec::new(), genotypes }),
        };
        let alternates = only.alternates().map(<[u8]>::to_vec).collect();
        Ok(Self { reference: only.reference.to_vec(), alternates, genotypes })
    }

    /// Adds the alternate alleles of a record that the merged record lacks, and renumbers its genotype.
    fn add_alternates(&mut self, contig: &Contig, number: usize, side: usize) -> Result<(), EvaluationError> {
        let record = contig.records[side].record(number);
        let failed = |problem| EvaluationError::Record { side, pos_1based: i64::from(record.start) + 1, problem };
        if !record.reference.eq_ignore_ascii_case(&self.reference) {
            return Err(failed("its REF differs from the REF of the record in the other file"));
        }
        let mut numbers = vec![0];
        for alternate in record.alternates() {
            let alternate = upper_case_bases(alternate);
            let index = match self.alternates.iter().position(|other| *other == alternate) {
                _ if alternate == self.reference => 0,
                Some(index) => index + 1,
                None => {
                    self.alternates.push(alternate);
                    self.alternates.len()
                }
            };
            numbers.push(index as i32);
        }
        self.renumber(side, &numbers).map_err(failed)
    }

    fn renumber(&mut self, side: usize, numbers: &[i32]) -> Result<(), &'static str> {
        let mut genotype = Genotype::parse(&self.genotypes[side])?;
        for allele in genotype.alleles.iter_mut().filter(|allele| **allele != MISSING_ALLELE) {
            let number = usize::try_from(*allele).ok().and_then(|allele| numbers.get(allele));
            *allele = *number.ok_or("its GT has an allele number that the record does not have")?;
        }
        self.genotypes[side].clear();
        genotype.write_to(&mut self.genotypes[side]);
        Ok(())
    }

    /// Removes the alternates that no genotype uses.
    pub(super) fn remove_unused_alternates(&mut self) {
        let mut is_used = vec![false; self.alternates.len()];
        for genotype in self.genotypes.iter().flat_map(|text| Genotype::parse(text)) {
            let used = genotype.alleles.iter().filter_map(|allele| usize::try_from(*allele - 1).ok());
            used.filter(|index| *index < self.alternates.len()).for_each(|index| is_used[index] = true);
        }
        if is_used.iter().all(|is_used| *is_used) {
            return;
        }
        let mut numbers = vec![0];
        let mut count = 0;
        for is_used in &is_used {
            count += i32::from(*is_used);
            numbers.push(if *is_used { count } else { 0 });
        }
        let mut is_used = is_used.into_iter();
        self.alternates.retain(|_| is_used.next().unwrap_or(false));
        for side in [CALLS, TRUTH] {
            // Ignore the error: a genotype that cannot be parsed is written unchanged.
            let _ = self.renumber(side, &numbers);
        }
    }

    /// Appends the columns from the contig to ALT.
    pub(super) fn write_columns(&self, contig: &Contig, start: i32, out: &mut Vec<u8>) {
        out.extend_from_slice(contig.name.as_bytes());
        out.extend_from_slice(format!("\t{}\t.\t", i64::from(start) + 1).as_bytes());
        out.extend_from_slice(&self.reference);
        out.push(b'\t');
        match self.alternates.is_empty() {
            true => out.push(b'.'),
            false => out.extend_from_slice(&self.alternates.join(&b',')),
        }
    }
}

/// Returns an allele with its bases in upper case. The names in symbols and breakends stay as they are.
fn upper_case_bases(allele: &[u8]) -> Vec<u8> {
    let (mut symbol, mut breakend) = (false, false);
    let convert = |letter: &u8| {
        let is_plain = !symbol && !breakend;
        match letter {
            b'<' if is_plain => symbol = true,
            b'>' if symbol => symbol = false,
            b'[' | b']' if !symbol => breakend = !breakend,
            b'a' | b'c' | b'g' | b't' | b'n' if is_plain => return letter.to_ascii_uppercase(),
            _ => {}
        }
        *letter
    };
    allele.iter().map(convert).collect()
}
