//! The intermediate form of the GA4GH benchmarking tools: one record for records of equal span, with the decision (BD)
//! and the kind of match (BK) of each side.

use super::local_match::{JudgedRecord, LocalMatches};
use super::merge_records;
use super::merged_alleles::MergedAlleles;
use crate::evaluation::{Contig, EvaluationError, EvaluationRules, SegmentVerdicts};
use crate::number_format::shortest;
use crate::outcome::{CallOutcome, TruthOutcome};
use crate::record::write_filter;
use crate::search::{CALLS, TRUTH};

/// The value of a match kind without a match, and of a missing field.
const NONE: &str = ".";

/// Returns the text of the file.
pub(super) fn write(
    contig: &Contig,
    verdicts: &SegmentVerdicts,
    rules: &EvaluationRules,
) -> Result<Vec<Vec<u8>>, EvaluationError> {
    let mut text = Vec::new();
    let mut matches = LocalMatches::new(rules.options.rules.local_match_bases);
    for pair in merge_records(contig, verdicts) {
        let numbers = pair.sides.map(|side| side.map(|(number, _)| number));
        let mut alleles = MergedAlleles::new(contig, rules, numbers, CALLS)?;
        alleles.remove_unused_alternates();
        let mut record = JudgedRecord::default();
        for (side, number) in numbers.iter().enumerate() {
            if let Some(number) = number {
                let found = contig.records[side].record(*number);
                (record.start, record.end) = (found.start, found.end());
            }
        }
        alleles.write_columns(contig, record.start, &mut record.columns);
        record.columns.extend_from_slice(b"\t.\t");
        let filter = numbers[CALLS].map(|number| contig.records[CALLS].record(number).filter);
        write_filter(filter.unwrap_or(b"."), &mut record.columns);
        for side in [CALLS, TRUTH] {
            record.set("GT", side, &String::from_utf8_lossy(&alleles.genotypes[side]));
        }
        let mut sections = Vec::new();
        if let Some((_, variant)) = pair.sides[TRUTH] {
            sections.extend(judge_truth(&mut record, verdicts, variant));
        }
        if let Some((number, variant)) = pair.sides[CALLS] {
            let score = score_text(contig, rules, number)?;
            sections.extend(judge_call(&mut record, verdicts, variant, score));
        }
        sections.dedup();
        record.sections = sections;
        matches.push(record, &mut text);
    }
    matches.finish(&mut text);
    Ok(vec![text])
}

fn score_text(contig: &Contig, rules: &EvaluationRules, number: usize) -> Result<Option<String>, EvaluationError> {
    let record = contig.records[CALLS].record(number);
    let failed = |problem| EvaluationError::Record { side: CALLS, pos_1based: i64::from(record.start) + 1, problem };
    let Some(field) = rules.score else { return Ok(Some(shortest(0.0))) };
    let score = field.of_record(&record, rules.samples[CALLS]).map_err(failed)?;
    Ok((!score.is_nan()).then(|| shortest(score)))
}

/// Returns whether a genotype has two different alternates.
fn has_two_alternates(verdicts: &SegmentVerdicts, side: usize, index: usize) -> bool {
    let set = &verdicts.sides[side].set;
    matches!(*set.genotype(&set.variants[index]), [first, second, ..] if first > 0 && second > 0 && first != second)
}

fn judge_truth(record: &mut JudgedRecord, verdicts: &SegmentVerdicts, variant: Option<usize>) -> Option<i32> {
    let Some(index) = variant else {
        record.set("BD", TRUTH, "N");
        return None;
    };
    match verdicts.truth_outcome(index) {
        TruthOutcome::TooComplex => {
            record.set_extra(TRUTH, "too-hard");
            None
        }
        TruthOutcome::Outside => {
            record.set_extra(TRUTH, "non-confident");
            None
        }
        TruthOutcome::GenotypeMatch => {
            record.set_decision(TRUTH, "TP", "gm");
            Some(verdicts.genotype_section(TRUTH, index))
        }
        TruthOutcome::AlleleMatch => {
            record.set_decision(TRUTH, "FN", "am");
            if has_two_alternates(verdicts, TRUTH, index) {
                record.set("BI", TRUTH, "multi");
            }
            Some(verdicts.allele_section(TRUTH, index))
        }
        TruthOutcome::Missed => {
            record.set_decision(TRUTH, "FN", NONE);
            Some(verdicts.last_section(TRUTH, index))
        }
    }
}

fn judge_call(
    record: &mut JudgedRecord,
    verdicts: &SegmentVerdicts,
    variant: Option<usize>,
    score: Option<String>,
) -> Option<i32> {
    let Some(index) = variant else {
        record.set("BD", CALLS, "N");
        return None;
    };
    let outcome = verdicts.call_outcome(index);
    let is_judged = !matches!(outcome, CallOutcome::TooComplex | CallOutcome::Outside);
    if let Some(score) = score.filter(|_| is_judged) {
        record.set("QQ", CALLS, &score);
    }
    match outcome {
        CallOutcome::TooComplex => {
            record.set_extra(CALLS, "too-hard");
            None
        }
        CallOutcome::Outside => {
            record.set_extra(CALLS, "non-confident");
            None
        }
        CallOutcome::GenotypeMatch { .. } => {
            record.set_decision(CALLS, "TP", "gm");
            Some(verdicts.genotype_section(CALLS, index))
        }
        CallOutcome::AlleleMatch { .. } => {
            record.set_decision(CALLS, "FP", "am");
            if has_two_alternates(verdicts, CALLS, index) {
                record.set("BI", CALLS, "multi");
            }
            Some(verdicts.allele_section(CALLS, index))
        }
        CallOutcome::False => {
            record.set_decision(CALLS, "FP", NONE);
            Some(verdicts.last_section(CALLS, index))
        }
    }
}
