//! The part of the outputs that a segment adds: text of each file, and points of the tables.

mod annotate;
mod combine;
mod ga4gh;
mod headers;
mod info_fields;
mod local_match;
mod merged_alleles;
mod split;

use crate::comparison_options::OutputMode;
use crate::evaluation::{Contig, ContigEvaluation, ContigSummary, EvaluationError, EvaluationRules, SegmentVerdicts};
use crate::outcome::{CallOutcome, TruthOutcome, VariantCursor};
use crate::roc::{CallPoint, TruthPoint};
use crate::search::{CALLS, TRUTH};
use crate::stratum_counts::{StrataSums, count_by_stratum};
use crate::subsets::subset_bits;

pub(crate) use headers::{VcfHeader, output_headers};

/// The outputs and counts of one segment of a contig.
#[derive(Debug, Default)]
pub(crate) struct SegmentOutput {
    /// Text of each file of [`file_names`].
    pub(crate) files: Vec<Vec<u8>>,
    pub(crate) calls: Vec<CallPoint>,
    pub(crate) truth: Vec<TruthPoint>,
    /// Sums by stratum; none if a side has no genotypes.
    pub(crate) strata: StrataSums,
    /// Counts of each side; the index is [`CALLS`] or [`TRUTH`].
    pub(crate) counts: [SideCounts; 2],
}

/// Counts of the records of one file.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SideCounts {
    pub(crate) records: u64,
    /// Records with a variant that took part in the search.
    pub(crate) variants: u64,
    /// Records that were skipped because they are invalid.
    pub(crate) skipped: u64,
    /// Variants whose REF differs from the bases of the reference.
    pub(crate) other_reference: u64,
    /// Variants in intervals that were too complex.
    pub(crate) too_complex: u64,
    /// Variants that do not count because they are outside of the confident regions.
    pub(crate) outside: u64,
}

/// Returns the names of the VCF files of an output mode.
pub(crate) fn file_names(output: OutputMode, has_allele_pass: bool) -> &'static [&'static str] {
    match output {
        OutputMode::Split if has_allele_pass => {
            &["tp.vcf", "tp-baseline.vcf", "fp.vcf", "fn.vcf", "fp-ca.vcf", "fn-ca.vcf"]
        }
        OutputMode::Split => &["tp.vcf", "tp-baseline.vcf", "fp.vcf", "fn.vcf"],
        OutputMode::Annotate => &["baseline.vcf", "calls.vcf"],
        OutputMode::Combine | OutputMode::Ga4gh => &["output.vcf"],
        OutputMode::RocOnly => &[],
    }
}

/// Compares one contig, and calls `receive` with the outputs and counts of each segment in order. `has_files` is false
/// if no files are written.
pub(crate) fn compare_contig(
    contig: &Contig,
    rules: &EvaluationRules,
    has_files: bool,
    receive: &mut dyn FnMut(SegmentOutput),
) -> Result<ContigSummary, EvaluationError> {
    let mut evaluation = ContigEvaluation::new(contig, rules)?;
    while let Some(verdicts) = evaluation.next_segment()? {
        let mut output = SegmentOutput::default();
        output.add_points(contig, &verdicts, rules)?;
        output.strata = count_by_stratum(contig, &verdicts, rules)?;
        if has_files {
            output.files = match rules.options.output {
                OutputMode::Split => split::write(contig, &verdicts, rules.options.has_allele_pass()),
                OutputMode::Annotate => annotate::write(contig, &verdicts),
                OutputMode::Combine => combine::write(contig, &verdicts, rules)?,
                OutputMode::Ga4gh => ga4gh::write(contig, &verdicts, rules)?,
                OutputMode::RocOnly => Vec::new(),
            };
            output.files.iter_mut().for_each(Vec::shrink_to_fit);
        }
        receive(output);
    }
    Ok(evaluation.finish())
}

impl SegmentOutput {
    /// Adds the points of the tables, in the order of the records.
    fn add_points(
        &mut self,
        contig: &Contig,
        verdicts: &SegmentVerdicts,
        rules: &EvaluationRules,
    ) -> Result<(), EvaluationError> {
        for side in [CALLS, TRUTH] {
            let set = &verdicts.sides[side].set;
            let counts = &mut self.counts[side];
            counts.records = verdicts.records[side].len() as u64;
            (counts.variants, counts.skipped) = (set.variants.len() as u64, set.skipped_records);
            for (index, variant) in set.variants.iter().enumerate() {
                let record = contig.records[side].record(variant.record as usize);
                let failed =
                    |problem| EvaluationError::Record { side, pos_1based: i64::from(record.start) + 1, problem };
                let subsets = || subset_bits(&record, rules.samples[side], rules.subsets).map_err(failed);
                counts.other_reference += u64::from(!contig.template.has_bases(record.start, record.reference));
                if side == TRUTH {
                    let outcome = verdicts.truth_outcome(index);
                    counts.too_complex += u64::from(outcome == TruthOutcome::TooComplex);
                    counts.outside += u64::from(outcome == TruthOutcome::Outside);
                    let (is_found, is_allele_match) = match outcome {
                        TruthOutcome::TooComplex | TruthOutcome::Outside => continue,
                        TruthOutcome::GenotypeMatch => (true, false),
                        TruthOutcome::AlleleMatch => (false, true),
                        TruthOutcome::Missed => (false, false),
                    };
                    self.truth.push(TruthPoint { is_found, is_allele_match, subsets: subsets()? });
                    continue;
                }
                let outcome = verdicts.call_outcome(index);
                counts.too_complex += u64::from(outcome == CallOutcome::TooComplex);
                let Some((weight, is_allele_match)) = counted_weight(outcome) else {
                    counts.outside += u64::from(outcome != CallOutcome::TooComplex);
                    continue;
                };
                let score = match rules.score {
                    Some(field) => field.of_record(&record, rules.samples[CALLS]).map_err(failed)?,
                    None => 0.0,
                };
                self.calls.push(CallPoint { score, weight, is_allele_match, subsets: subsets()? });
            }
        }
        Ok(())
    }
}

/// Returns the weight of a call, and whether it matches an allele only; `None` if the call does not count. The weight
/// of a false call is `None`.
fn counted_weight(outcome: CallOutcome) -> Option<(Option<f64>, bool)> {
    match outcome {
        CallOutcome::GenotypeMatch { weight } if weight > 0.0 => Some((Some(weight), false)),
        CallOutcome::AlleleMatch { weight } if weight > 0.0 => Some((Some(weight), true)),
        CallOutcome::False => Some((None, false)),
        _ => None,
    }
}

/// Numbers of a record of the calls and a record of the truth that are written together, or of only one of them.
#[derive(Clone, Copy, Debug)]
struct RecordPair {
    /// Record number and index of the variant, by side.
    sides: [Option<(usize, Option<usize>)>; 2],
}

/// Returns the records of both sides by start and end. Records of equal start and end are joined one to one.
fn merge_records<'c>(contig: &'c Contig, verdicts: &'c SegmentVerdicts) -> impl Iterator<Item = RecordPair> + 'c {
    let mut next = verdicts.records.each_ref().map(|records| records.start);
    let mut cursors = [CALLS, TRUTH].map(|side| VariantCursor::new(&verdicts.sides[side]));
    std::iter::from_fn(move || {
        let span = |side: usize| {
            let is_inside = next[side] < verdicts.records[side].end;
            is_inside.then(|| contig.records[side].record(next[side])).map(|record| (record.start, record.end()))
        };
        let spans = [span(CALLS), span(TRUTH)];
        let first = spans.iter().flatten().min().copied()?;
        let sides = [CALLS, TRUTH].map(|side| {
            (spans[side] == Some(first)).then(|| {
                next[side] += 1;
                (next[side] - 1, cursors[side].variant_of(next[side] - 1))
            })
        });
        Some(RecordPair { sides })
    })
}
