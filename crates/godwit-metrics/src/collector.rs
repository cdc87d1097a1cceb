//! The accumulators of the requested metrics, and their files.

use godwit_formats::sam::ReadGroup;
use godwit_kernels::qc::{Alignment, AlignmentSummary, InsertSizeCounts, RecordCounts, ReferenceBases};
use godwit_model::{Genome, RawRecord, flags};
use serde::{Deserialize, Serialize};

use crate::count_scope::CountScope;
use crate::cycle_totals::CycleTotals;
use crate::error::MetricsError;
use crate::gc_bias::GcBias;
use crate::interval_list::IntervalList;
use crate::metric::Metric;
use crate::oxidation::{LibraryCounts, Oxidation};
use crate::quality_distribution::QualityDistribution;
use crate::reference_scan::ReferenceCounts;
use crate::target_text::TargetReport;
use crate::targets::{AMPLICON_RULES, HYBRID_SELECTION_RULES, TargetCoverage, TargetTotals};
use crate::wgs::{WgsCounts, WgsDepth};

/// Counts of the requested metrics that do not depend on the order of records. Each thread has one, and they are merged
/// by addition.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecordMetrics {
    metrics: Vec<Metric>,
    #[serde(skip)]
    contig_lengths: Vec<u32>,
    /// True to leave out the counts that [`RecordCounts`] has too.
    #[serde(skip)]
    omits_record_counts: bool,
    summary: AlignmentSummary,
    insert_sizes: InsertSizeCounts,
    cycles: CycleTotals,
    qualities: QualityDistribution,
    gc_bias: GcBias,
}

impl RecordMetrics {
    /// Returns counts of no records. Metrics that need the order of the records are ignored.
    pub fn new(metrics: &[Metric], genome: &Genome) -> Self {
        Self {
            metrics: metrics.iter().copied().filter(|metric| !metric.needs_order()).collect(),
            contig_lengths: genome.contigs().iter().map(|contig| contig.length).collect(),
            omits_record_counts: false,
            summary: AlignmentSummary::default(),
            insert_sizes: InsertSizeCounts::default(),
            cycles: CycleTotals::default(),
            qualities: QualityDistribution::default(),
            gc_bias: GcBias::default(),
        }
    }

    /// Returns true if no requested metric is counted here.
    pub fn is_empty(&self) -> bool {
        self.metrics.is_empty()
    }

    fn has(&self, metric: Metric) -> bool {
        self.metrics.contains(&metric)
    }

    /// Leaves out the counts that a [`RecordCounts`] of the same records has too. [`RecordMetrics::set_record_counts`] sets
    /// them when all records are counted.
    #[must_use]
    pub fn without_record_counts(self) -> Self {
        Self { omits_record_counts: true, ..self }
    }

    /// Sets the counts that were left out.
    pub fn set_record_counts(&mut self, counts: &RecordCounts) {
        self.summary.clone_from(&counts.summary);
        self.insert_sizes.clone_from(&counts.insert_sizes);
    }

    /// Counts a record.
    ///
    /// # Errors
    /// [`MetricsError::Reference`] if the reference cannot be read.
    pub fn add<R: ReferenceBases>(
        &mut self,
        record: RawRecord,
        alignment: &Alignment,
        reference: &mut R,
    ) -> Result<(), MetricsError> {
        let flag = alignment.flag;
        let (cycles, qualities, gc_bias) = (
            self.has(Metric::QualityByCycle) || self.has(Metric::BaseDistributionByCycle),
            self.has(Metric::QualityDistribution),
            self.has(Metric::GcBias),
        );
        let is_counted = |metric| !self.omits_record_counts && self.has(metric);
        let (summary, insert_sizes) = (is_counted(Metric::AlignmentSummary), is_counted(Metric::InsertSize));
        if summary {
            self.summary.add(record, alignment, Some(&mut *reference))?;
        }
        if insert_sizes {
            self.insert_sizes.add(record, flag, alignment.reference_bases);
        }
        if flag & flags::NOT_PRIMARY == 0 {
            if cycles {
                self.cycles.add(record, alignment);
            }
            if qualities {
                self.qualities.add(record, alignment);
            }
        }
        if gc_bias {
            let contig = usize::try_from(record.contig()).ok();
            let length = contig.and_then(|contig| self.contig_lengths.get(contig)).copied().unwrap_or(0);
            self.gc_bias.add(record, alignment, length, reference)?;
        }
        Ok(())
    }

    /// Adds the counts of other records of the same file.
    pub fn merge(&mut self, mut other: Self) {
        self.summary.merge(&other.summary);
        self.insert_sizes.merge(&other.insert_sizes);
        self.cycles.flush();
        other.cycles.flush();
        self.cycles.merge(&other.cycles);
        self.qualities.merge(&other.qualities);
        self.gc_bias.merge(&other.gc_bias);
    }

    /// Returns the files of the metrics: suffix and text. A file without content, as that of insert sizes without pairs,
    /// is left out, as in Picard. `input`: the name of the BAM for the header lines.
    pub fn into_files(mut self, reference: &ReferenceCounts, input: &str) -> Vec<MetricsFile> {
        self.cycles.flush();
        let mut files = Vec::new();
        for metric in &self.metrics {
            let comment = comment(*metric, input);
            let texts = match metric {
                Metric::AlignmentSummary => vec![self.summary.to_text(&comment)],
                Metric::InsertSize => self.insert_sizes.to_text(&comment).into_iter().collect(),
                Metric::QualityByCycle => vec![self.cycles.to_quality_text(&comment)],
                Metric::BaseDistributionByCycle => vec![self.cycles.to_base_text(&comment)],
                Metric::QualityDistribution => vec![self.qualities.to_text(&comment)],
                Metric::GcBias => {
                    vec![
                        self.gc_bias.to_detail_text(reference, &comment),
                        self.gc_bias.to_summary_text(reference, &comment),
                    ]
                }
                Metric::WgsMetrics | Metric::HsMetrics | Metric::TargetedPcr | Metric::OxoG => Vec::new(),
            };
            files.extend(metric_files(*metric, texts));
        }
        files
    }
}

/// A metrics file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsFile {
    /// The metric.
    pub metric: Metric,
    /// Suffix of its name, which follows the name of the BAM without its extension.
    pub suffix: &'static str,
    /// Its text.
    pub text: String,
}

fn metric_files(metric: Metric, texts: Vec<String>) -> impl Iterator<Item = MetricsFile> {
    metric.suffixes().iter().zip(texts).map(move |(suffix, text)| MetricsFile { metric, suffix, text })
}

/// Returns the comment in the header of a file. MultiQC recognizes the file by the first word, and takes the name of the
/// sample from the name of the BAM.
fn comment(metric: Metric, input: &str) -> String {
    // MultiQC would read only the first word of a name that contains spaces, so such a name is omitted.
    let input = if input.contains(char::is_whitespace) { String::new() } else { format!(" --INPUT {input}") };
    format!("{} by godwit {}{input}", metric.program(), env!("CARGO_PKG_VERSION"))
}

/// The interval lists of targeted sequencing.
#[derive(Clone, Debug, Default)]
pub struct TargetLists {
    /// Regions to be covered, for both metrics of targets.
    pub targets: Option<IntervalList>,
    /// Baits of a hybrid selection, for [`Metric::HsMetrics`].
    pub baits: Option<IntervalList>,
    /// Amplicons, for [`Metric::TargetedPcr`].
    pub amplicons: Option<IntervalList>,
}

/// Counts of the requested metrics for which records must come in the order of their coordinates.
#[derive(Clone, Debug)]
pub struct OrderedMetrics {
    wgs: Option<WgsDepth>,
    hybrid_selection: Option<TargetCoverage>,
    amplicons: Option<TargetCoverage>,
    /// `None` if OxoG is not requested, or optional and a read has no read group.
    oxidation: Option<Oxidation>,
    is_oxog_optional: bool,
}

/// The counts of [`OrderedMetrics`] over finished positions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct OrderedCounts {
    wgs: Option<WgsCounts>,
    hybrid_selection: Option<TargetTotals>,
    amplicons: Option<TargetTotals>,
    oxidation: Option<Vec<LibraryCounts>>,
}

impl OrderedMetrics {
    /// Returns counts of no records. Metrics of targets without their interval lists are not counted. If
    /// `is_oxog_optional`, OxoG is left out if the read groups do not suffice for it; otherwise this is an error.
    ///
    /// # Errors
    /// [`MetricsError::ReadGroups`] if the read groups do not suffice for a metric.
    pub fn new(
        metrics: &[Metric],
        genome: &Genome,
        read_groups: &[ReadGroup],
        lists: TargetLists,
        is_oxog_optional: bool,
    ) -> Result<Self, MetricsError> {
        let has = |metric| metrics.contains(&metric);
        let coverage = |probes: Option<IntervalList>, rules| {
            Some(TargetCoverage::new(rules, probes?, lists.targets.clone()?, genome))
        };
        let hybrid_selection = coverage(lists.baits, HYBRID_SELECTION_RULES).filter(|_| has(Metric::HsMetrics));
        let amplicons = coverage(lists.amplicons, AMPLICON_RULES).filter(|_| has(Metric::TargetedPcr));
        let oxidation = match has(Metric::OxoG).then(|| Oxidation::new(read_groups)).transpose() {
            Err(MetricsError::ReadGroups { .. }) if is_oxog_optional => None,
            oxidation => oxidation?,
        };
        Ok(Self {
            wgs: has(Metric::WgsMetrics).then(WgsDepth::default),
            hybrid_selection,
            amplicons,
            oxidation,
            is_oxog_optional,
        })
    }

    /// Returns true if no requested metric is counted here.
    pub fn is_empty(&self) -> bool {
        self.wgs.is_none() && self.hybrid_selection.is_none() && self.amplicons.is_none() && self.oxidation.is_none()
    }

    /// Counts a record.
    ///
    /// # Errors
    /// [`MetricsError::Reference`] if the reference cannot be read; [`MetricsError::NoReadGroup`] if a metric needs the
    /// read group of a record that has none.
    pub fn add<R: ReferenceBases>(
        &mut self,
        record: RawRecord,
        alignment: &Alignment,
        reference: &mut R,
    ) -> Result<(), MetricsError> {
        self.add_within(record, alignment, CountScope::ALL, reference)
    }

    /// As [`OrderedMetrics::add`], but counts only what is in `scope`.
    pub(crate) fn add_within<R: ReferenceBases>(
        &mut self,
        record: RawRecord,
        alignment: &Alignment,
        scope: CountScope,
        reference: &mut R,
    ) -> Result<(), MetricsError> {
        if let Some(wgs) = &mut self.wgs {
            wgs.add(record, alignment, scope, reference)?;
        }
        for coverage in [&mut self.hybrid_selection, &mut self.amplicons].into_iter().flatten() {
            coverage.add(record, alignment, scope);
        }
        if let Some(oxidation) = &mut self.oxidation {
            match oxidation.add(record, alignment, scope, reference) {
                Err(MetricsError::NoReadGroup { .. }) if self.is_oxog_optional => self.oxidation = None,
                added => added?,
            }
        }
        Ok(())
    }

    /// Returns counts of no records for the same metrics, which take only bases from the position `start` to before the
    /// position `end`. A position is the index of a contig and a 0-based position in it.
    pub(crate) fn for_bounds(&self, start: (u32, u32), end: (u32, u32)) -> Self {
        let coverage = |coverage: &Option<TargetCoverage>| coverage.as_ref().map(|all| all.for_bounds(start, end));
        Self {
            wgs: self.wgs.as_ref().map(|_| WgsDepth::default()),
            hybrid_selection: coverage(&self.hybrid_selection),
            amplicons: coverage(&self.amplicons),
            oxidation: self.oxidation.as_ref().map(Oxidation::without_counts),
            is_oxog_optional: self.is_oxog_optional,
        }
    }

    /// Finishes all positions. The next record may have any position.
    pub(crate) fn finish_contig(&mut self) {
        self.wgs.iter_mut().for_each(WgsDepth::finish_contig);
        self.oxidation.iter_mut().for_each(Oxidation::finish_contig);
    }

    /// Finishes all positions and returns the counts.
    pub(crate) fn into_counts(mut self) -> OrderedCounts {
        self.finish_contig();
        OrderedCounts {
            wgs: self.wgs.map(WgsDepth::into_counts),
            hybrid_selection: self.hybrid_selection.map(|coverage| coverage.totals),
            amplicons: self.amplicons.map(|coverage| coverage.totals),
            oxidation: self.oxidation.map(Oxidation::into_counts),
        }
    }

    /// Adds the counts of other positions and records for the same metrics.
    pub(crate) fn add_counts(&mut self, other: &OrderedCounts) {
        if let (Some(mine), Some(theirs)) = (&mut self.wgs, &other.wgs) {
            mine.add_counts(theirs);
        }
        for (mine, theirs) in
            [(&mut self.hybrid_selection, &other.hybrid_selection), (&mut self.amplicons, &other.amplicons)]
        {
            if let (Some(mine), Some(theirs)) = (mine, theirs) {
                mine.add_totals(theirs);
            }
        }
        match (&mut self.oxidation, &other.oxidation) {
            (Some(mine), Some(theirs)) => mine.add_counts(theirs),
            // OxoG is left out of the other counts, because a read has no read group.
            _ => self.oxidation = None,
        }
    }

    /// Returns the files of the metrics, as [`RecordMetrics::into_files`].
    ///
    /// # Errors
    /// [`MetricsError::Reference`] if the reference cannot be read.
    pub fn into_files<R: ReferenceBases>(
        self,
        counts: &ReferenceCounts,
        reference: &mut R,
        input: &str,
    ) -> Result<Vec<MetricsFile>, MetricsError> {
        let mut files = Vec::new();
        if let Some(wgs) = self.wgs {
            let text = wgs.into_text(counts.called_bases, &comment(Metric::WgsMetrics, input));
            files.extend(metric_files(Metric::WgsMetrics, vec![text]));
        }
        if let Some(coverage) = self.hybrid_selection {
            let gc = coverage.gc_by_target(reference)?;
            let text = TargetReport::new(&coverage, &gc).to_hybrid_selection_text(&comment(Metric::HsMetrics, input));
            files.extend(metric_files(Metric::HsMetrics, vec![text]));
        }
        if let Some(coverage) = self.amplicons {
            let gc = coverage.gc_by_target(reference)?;
            let text = TargetReport::new(&coverage, &gc).to_amplicon_text(&comment(Metric::TargetedPcr, input));
            files.extend(metric_files(Metric::TargetedPcr, vec![text]));
        }
        if let Some(oxidation) = self.oxidation {
            files.extend(metric_files(Metric::OxoG, vec![oxidation.to_text(&comment(Metric::OxoG, input))]));
        }
        Ok(files)
    }
}
