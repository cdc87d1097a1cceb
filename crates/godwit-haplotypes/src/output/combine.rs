//! The combined file: one record for records of equal span, with a sample for each side.

use super::info_fields::InfoFields;
use super::merge_records;
use super::merged_alleles::MergedAlleles;
use crate::evaluation::{Contig, EvaluationError, EvaluationRules, SegmentVerdicts};
use crate::search::{CALLS, TRUTH};

/// Returns the text of the file.
pub(super) fn write(
    contig: &Contig,
    verdicts: &SegmentVerdicts,
    rules: &EvaluationRules,
) -> Result<Vec<Vec<u8>>, EvaluationError> {
    let mut text = Vec::new();
    for pair in merge_records(contig, verdicts) {
        let numbers = pair.sides.map(|side| side.map(|(number, _)| number));
        let mut alleles = MergedAlleles::new(contig, rules, numbers, TRUTH)?;
        if rules.samples.iter().all(Option::is_some) {
            alleles.remove_unused_alternates();
        }
        let mut fields = InfoFields::default();
        if let Some((_, variant)) = pair.sides[TRUTH] {
            fields.add_truth(verdicts, variant);
        }
        if let Some((_, variant)) = pair.sides[CALLS] {
            fields.add_call(verdicts, variant);
        }
        let start = numbers
            .iter()
            .enumerate()
            .find_map(|(side, number)| number.map(|number| contig.records[side].record(number).start));
        alleles.write_columns(contig, start.unwrap_or(0), &mut text);
        text.extend_from_slice(b"\t.\t.\t");
        let pairs: Vec<String> = fields.pairs().iter().map(|(key, value)| format!("{key}={value}")).collect();
        text.extend_from_slice(pairs.join(";").as_bytes());
        text.extend_from_slice(b"\tGT");
        for side in [TRUTH, CALLS] {
            text.push(b'\t');
            text.extend_from_slice(&alleles.genotypes[side]);
        }
        text.push(b'\n');
    }
    Ok(vec![text])
}
