//! The split files: true and false calls, found and missed variants of the truth.

use crate::evaluation::{Contig, SegmentVerdicts};
use crate::outcome::{CallOutcome, TruthOutcome};
use crate::search::{CALLS, TRUTH};

const TRUE_CALLS: usize = 0;
const FOUND_TRUTH: usize = 1;
const FALSE_CALLS: usize = 2;
const MISSED_TRUTH: usize = 3;
const FALSE_CALLS_WITH_ALLELE: usize = 4;
const MISSED_TRUTH_WITH_ALLELE: usize = 5;

/// Returns the text of the files, in the order of [`super::file_names`].
pub(super) fn write(contig: &Contig, verdicts: &SegmentVerdicts, has_allele_pass: bool) -> Vec<Vec<u8>> {
    let mut files = vec![Vec::new(); if has_allele_pass { 6 } else { 4 }];
    for (index, variant) in verdicts.sides[CALLS].set.variants.iter().enumerate() {
        let file = match verdicts.call_outcome(index) {
            CallOutcome::GenotypeMatch { weight } if weight > 0.0 => TRUE_CALLS,
            CallOutcome::AlleleMatch { weight } if weight > 0.0 => FALSE_CALLS_WITH_ALLELE,
            CallOutcome::False => FALSE_CALLS,
            _ => continue,
        };
        contig.records[CALLS].record(variant.record as usize).write_to(&mut files[file], &[], &[]);
    }
    for (index, variant) in verdicts.sides[TRUTH].set.variants.iter().enumerate() {
        let file = match verdicts.truth_outcome(index) {
            TruthOutcome::GenotypeMatch => FOUND_TRUTH,
            TruthOutcome::AlleleMatch => MISSED_TRUTH_WITH_ALLELE,
            TruthOutcome::Missed => MISSED_TRUTH,
            TruthOutcome::TooComplex | TruthOutcome::Outside => continue,
        };
        contig.records[TRUTH].record(variant.record as usize).write_to(&mut files[file], &[], &[]);
    }
    files
}
