//! The report of a comparison: counts, rates, and intervals that were too complex.

use serde::Serialize;

use crate::comparison_options::{ScoreField, Subset};
use crate::evaluation::{ContigSummary, EvaluationRules};
use crate::number_format::fixed;
use crate::output::{SegmentOutput, SideCounts};
use crate::phasing::PhasingCounts;
use crate::regions::Regions;
use crate::roc::{RocTables, ScoreOrder, TypeCounts};
use crate::roc_curve::RocCurve;
use crate::search::{CALLS, TRUTH};
use crate::stratum_counts::{StrataSums, StratumReport, add_strata, strata_report, summary_csv};
use crate::summary::{SummaryRow, summary_rows, summary_text};

/// The result of a comparison by haplotypes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HaplotypeComparison {
    /// Substitutions of one base; null if a side has no genotypes.
    pub snps: Option<TypeCounts>,
    /// Insertions, deletions, and both together.
    pub indels: Option<TypeCounts>,
    /// Substitutions of several bases.
    pub mnps: Option<TypeCounts>,
    /// All variants that are not substitutions of one base.
    pub non_snps: Option<TypeCounts>,
    /// All variants.
    pub all: TypeCounts,
    /// Counts by stratum; the first stratum contains all variants. Empty if a side has no genotypes.
    pub strata: Vec<StratumReport>,
    /// Counts at the best score, and without a threshold; empty if the truth has no variants.
    pub summary: Vec<SummaryRow>,
    /// Curves of the ROC tables: of all variants, then of subsets. Empty if calls have no score.
    pub roc: Vec<RocCurve>,
    /// Records of the call set.
    pub calls: ComparedRecords,
    /// Records of the truth set.
    pub truth: ComparedRecords,
    /// Phase of the calls compared with the truth.
    pub phasing: PhasingCounts,
    /// Intervals in which the number of possible paths exceeded the limit; their variants do not count.
    pub too_complex: Vec<TooComplexInterval>,
    /// The largest number of paths that the search stored at a time.
    pub most_paths: usize,
    /// Number of bases in the confident regions; overlaps count once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confident_bases: Option<u64>,
}

/// Headings of [`HaplotypeComparison::accuracy_rows`].
pub const ACCURACY_HEADINGS: [&str; 8] = [
    "Variant type",
    "Truth total",
    "True positives",
    "False negatives",
    "False positives",
    "Recall",
    "Precision",
    "F1-Score",
];

impl HaplotypeComparison {
    /// Returns the table of accuracy as publications have it: a row each for indels and SNPs, with rates of six decimals.
    /// Empty if a side has no genotypes.
    pub fn accuracy_rows(&self) -> Vec<[String; 8]> {
        let rate = |rate: Option<f64>| rate.map_or_else(|| "-".to_owned(), |rate| fixed(rate, 6));
        let row = |(name, counts): (&str, TypeCounts)| {
            let numbers = [counts.truth, counts.found, counts.missed, counts.false_calls];
            let [truth, found, missed, wrong] = numbers.map(|number| number.to_string());
            let [recall, precision, f1] = [counts.recall, counts.precision, counts.f1].map(rate);
            [name.to_owned(), truth, found, missed, wrong, recall, precision, f1]
        };
        let types = [("INDEL", self.indels), ("SNP", self.snps)];
        types.into_iter().filter_map(|(name, counts)| Some(row((name, counts?)))).collect()
    }
}

/// Counts of the records of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ComparedRecords {
    /// Records on contigs of the reference, in the target regions.
    pub records: u64,
    /// Records on contigs that the reference does not have, in the target regions. They are not compared.
    pub unknown_contigs: u64,
    /// Records with a variant that was compared.
    pub compared: u64,
    /// Invalid records: an allele is too long or has letters that are not bases, or the ploidy is not supported.
    pub skipped: u64,
    /// Variants whose REF differs from the bases of the reference; many of them suggest another reference.
    pub other_reference: u64,
    /// Variants in intervals that were too complex.
    pub too_complex: u64,
    /// Variants that do not count because they are outside of the confident regions.
    pub outside: u64,
}

impl ComparedRecords {
    fn add(&mut self, counts: &SideCounts) {
        self.records += counts.records;
        self.compared += counts.variants;
        self.skipped += counts.skipped;
        self.other_reference += counts.other_reference;
        self.too_complex += counts.too_complex;
        self.outside += counts.outside;
    }
}

/// An interval in which the number of possible paths exceeded the limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TooComplexInterval {
    /// Name of the contig.
    pub contig: String,
    /// 1-based first position, as vcfeval reports it.
    pub start: i32,
    /// 1-based last position, as vcfeval reports it.
    pub end: i32,
    /// Number of paths in play when the search stopped.
    pub paths: usize,
    /// Number of steps since the last position with only one path.
    pub iterations: u64,
}

/// Texts of the files that contain no records.
#[derive(Debug)]
pub(crate) struct ReportTexts {
    pub(crate) summary: String,
    /// Counts by type and stratum; `None` if a side has no genotypes.
    pub(crate) summary_csv: Option<String>,
    /// Names and texts of the tables.
    pub(crate) tables: Vec<(String, String)>,
    pub(crate) phasing: PhasingCounts,
}

/// The sums over all contigs.
#[derive(Debug)]
pub(crate) struct ReportBuilder {
    genotypes: RocTables,
    alleles: Option<RocTables>,
    /// True if calls have a score, so that the tables of genotypes are written.
    has_score: bool,
    records: [ComparedRecords; 2],
    strata: StrataSums,
    phasing: PhasingCounts,
    too_complex: Vec<TooComplexInterval>,
    most_paths: usize,
}

impl ReportBuilder {
    pub(crate) fn new(rules: &EvaluationRules, written_subsets: usize) -> Self {
        let order = ScoreOrder {
            label: rules.score.map_or_else(|| "NONE".to_owned(), ScoreField::label),
            is_ascending: rules.score.is_none() || rules.options.ascending_scores,
        };
        let tables = |is_for_alleles: bool| {
            RocTables::new(order.clone(), is_for_alleles, rules.subsets.to_vec(), written_subsets)
        };
        // Without a sample, a score from a FORMAT field cannot be read. vcfeval then writes no tables of alleles
        // either.
        let is_score_lost = rules.score.is_none() && rules.options.score.is_some();
        let has_allele_tables = rules.options.has_allele_pass() && !is_score_lost;
        Self {
            genotypes: tables(false),
            alleles: has_allele_tables.then(|| tables(true)),
            has_score: rules.score.is_some(),
            records: [ComparedRecords::default(); 2],
            strata: StrataSums::new(),
            phasing: PhasingCounts::default(),
            too_complex: Vec::new(),
            most_paths: 0,
        }
    }

    /// Adds the results of a segment.
    pub(crate) fn add(&mut self, output: &SegmentOutput) {
        for tables in [Some(&mut self.genotypes), self.alleles.as_mut()].into_iter().flatten() {
            output.calls.iter().for_each(|call| tables.add_call(call));
            output.truth.iter().for_each(|truth| tables.add_truth(truth));
        }
        self.records.iter_mut().zip(&output.counts).for_each(|(records, counts)| records.add(counts));
        add_strata(&mut self.strata, &output.strata);
    }

    /// Adds the results of the searches of a contig.
    pub(crate) fn end_contig(&mut self, contig: &str, summary: ContigSummary) {
        self.phasing.add(summary.phasing);
        for search in summary.searches {
            self.most_paths = self.most_paths.max(search.most_paths);
            self.too_complex.extend(search.too_complex.into_iter().map(|found| TooComplexInterval {
                contig: contig.to_owned(),
                start: found.start_1based,
                end: found.end_1based,
                paths: found.paths,
                iterations: found.iterations,
            }));
        }
    }

    /// Sets the numbers of records on contigs that the reference does not have.
    pub(crate) fn set_unknown_contigs(&mut self, records: [u64; 2]) {
        self.records.iter_mut().zip(records).for_each(|(side, records)| side.unknown_contigs = records);
    }

    /// Returns the report and the texts of the files.
    pub(crate) fn finish(mut self, rules: &EvaluationRules) -> (HaplotypeComparison, ReportTexts) {
        self.genotypes.sort();
        let mut tables = Vec::new();
        if let Some(alleles) = &mut self.alleles {
            alleles.sort();
            tables.extend(alleles.texts().0);
        }
        let (texts, best) = self.genotypes.texts();
        if self.has_score {
            tables.extend(texts);
        }
        let summary = summary_rows(&self.genotypes, best.filter(|_| self.has_score));
        let strata = strata_report(&self.strata, rules);
        let summary_csv = (!strata.is_empty()).then(|| summary_csv(&strata, rules.options.all_records));
        let texts = ReportTexts { summary: summary_text(&summary), summary_csv, tables, phasing: self.phasing };
        let counts = |subset| self.genotypes.counts(Some(subset));
        let report = HaplotypeComparison {
            snps: counts(Subset::Snp),
            indels: counts(Subset::Indel),
            mnps: counts(Subset::Mnp),
            non_snps: counts(Subset::NonSnp),
            all: self.genotypes.counts(None).unwrap_or_default(),
            strata,
            summary,
            roc: if self.has_score { self.genotypes.curves() } else { Vec::new() },
            calls: self.records[CALLS],
            truth: self.records[TRUTH],
            phasing: self.phasing,
            too_complex: self.too_complex,
            most_paths: self.most_paths,
            confident_bases: rules.confident.map(Regions::base_count),
        };
        (report, texts)
    }
}
