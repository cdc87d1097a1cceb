//! The metrics files of Picard 3.4.0 `CollectHsMetrics` and `CollectTargetedPcrMetrics`.

use godwit_kernels::markdup::{estimate_library_size, expected_unique_ratio};

use crate::bin_statistics::BinStatistics;
use crate::het_sensitivity::het_snp_sensitivity;
use crate::metrics_text::{HistogramColumn, MetricsText, join_numbers};
use crate::reference_scan::GC_BINS;
use crate::targets::{MAX_SENSITIVITY_DEPTH, TargetCoverage};

/// Depths for which the fraction of target bases with at least this depth is reported.
const REPORTED_DEPTHS: [u64; 17] =
    [1, 2, 10, 20, 30, 40, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000];
/// Depths for which the penalty of hybrid selection is reported.
const PENALTY_DEPTHS: [f64; 6] = [10.0, 20.0, 30.0, 40.0, 50.0, 100.0];
/// Maximum steps of the search for a penalty.
const MAX_PENALTY_STEPS: u32 = 10_000;
/// GC content (percent) up to which a dropout counts as AT dropout, and from which as GC dropout.
const DROPOUT_LIMIT: usize = 50;

const PANEL_COLUMNS: &str = "TARGET_TERRITORY\tGENOME_SIZE\tTOTAL_READS\tPF_READS\tPF_BASES\tPF_UNIQUE_READS\t\
    PF_UQ_READS_ALIGNED\tPF_BASES_ALIGNED\tPF_UQ_BASES_ALIGNED\tON_TARGET_BASES\tPCT_PF_READS\tPCT_PF_UQ_READS\t\
    PCT_PF_UQ_READS_ALIGNED\tMEAN_TARGET_COVERAGE\tMEDIAN_TARGET_COVERAGE\tMAX_TARGET_COVERAGE\tMIN_TARGET_COVERAGE\t\
    ZERO_CVG_TARGETS_PCT\tPCT_EXC_DUPE\tPCT_EXC_ADAPTER\tPCT_EXC_MAPQ\tPCT_EXC_BASEQ\tPCT_EXC_OVERLAP\t\
    PCT_EXC_OFF_TARGET\tFOLD_80_BASE_PENALTY\tPCT_TARGET_BASES_1X\tPCT_TARGET_BASES_2X\tPCT_TARGET_BASES_10X\t\
    PCT_TARGET_BASES_20X\tPCT_TARGET_BASES_30X\tPCT_TARGET_BASES_40X\tPCT_TARGET_BASES_50X\tPCT_TARGET_BASES_100X\t\
    PCT_TARGET_BASES_250X\tPCT_TARGET_BASES_500X\tPCT_TARGET_BASES_1000X\tPCT_TARGET_BASES_2500X\t\
    PCT_TARGET_BASES_5000X\tPCT_TARGET_BASES_10000X\tPCT_TARGET_BASES_25000X\tPCT_TARGET_BASES_50000X\t\
    PCT_TARGET_BASES_100000X\tAT_DROPOUT\tGC_DROPOUT\tHET_SNP_SENSITIVITY\tHET_SNP_Q\tSAMPLE\tLIBRARY\tREAD_GROUP";
const HYBRID_SELECTION_COLUMNS: &str = "BAIT_SET\tBAIT_TERRITORY\tBAIT_DESIGN_EFFICIENCY\tON_BAIT_BASES\t\
    NEAR_BAIT_BASES\tOFF_BAIT_BASES\tPCT_SELECTED_BASES\tPCT_OFF_BAIT\tON_BAIT_VS_SELECTED\tMEAN_BAIT_COVERAGE\t\
    PCT_USABLE_BASES_ON_BAIT\tPCT_USABLE_BASES_ON_TARGET\tFOLD_ENRICHMENT\tHS_LIBRARY_SIZE\tHS_PENALTY_10X\t\
    HS_PENALTY_20X\tHS_PENALTY_30X\tHS_PENALTY_40X\tHS_PENALTY_50X\tHS_PENALTY_100X\t";
const AMPLICON_COLUMNS: &str = "CUSTOM_AMPLICON_SET\tAMPLICON_TERRITORY\tON_AMPLICON_BASES\tNEAR_AMPLICON_BASES\t\
    OFF_AMPLICON_BASES\tPCT_AMPLIFIED_BASES\tPCT_OFF_AMPLICON\tON_AMPLICON_VS_SELECTED\tMEAN_AMPLICON_COVERAGE\t\
    FOLD_ENRICHMENT\tPF_SELECTED_PAIRS\tPF_SELECTED_UNIQUE_PAIRS\tON_TARGET_FROM_PAIR_BASES\t";

/// The values that follow from the coverage of targets.
pub(crate) struct TargetReport<'c> {
    coverage: &'c TargetCoverage,
    /// Number of target bases by depth, from 0 to the highest depth.
    by_depth: Vec<u64>,
    fold_80: f64,
    mean_coverage: f64,
    /// Percentages of bases that are missing at low and at high GC content.
    dropouts: [f64; 2],
}

fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

impl<'c> TargetReport<'c> {
    /// `gc`: the fraction of G and C of each target.
    pub(crate) fn new(coverage: &'c TargetCoverage, gc: &[f64]) -> Self {
        let by_depth = count_by_depth(coverage.totals.depths.iter().copied());
        let statistics = BinStatistics(&by_depth);
        let mean_coverage = ratio(statistics.sum(), coverage.targets().territory());
        let fold_80 = mean_coverage / statistics.percentile(0.2);
        let dropouts = dropouts(coverage, gc);
        Self { coverage, by_depth, fold_80, mean_coverage, dropouts }
    }

    /// Returns the text of the file of `CollectHsMetrics`.
    pub(crate) fn to_hybrid_selection_text(&self, comment: &str) -> String {
        let counts = &self.coverage.totals.counts;
        let (territory, target_territory) = (self.coverage.probes().territory(), self.coverage.targets().territory());
        let library_size = estimate_library_size(counts.selected_pairs, counts.selected_unique_pairs);
        let mut first = vec![territory as f64, ratio(target_territory, territory)];
        first.extend(self.probe_values());
        first.extend([ratio(counts.on_probe, counts.pf_bases), ratio(counts.on_target, counts.pf_bases)]);
        first.push(self.fold_enrichment());
        let size = library_size.map_or_else(String::new, |size| size.to_string());
        let penalties = PENALTY_DEPTHS.map(|depth| library_size.map_or(0.0, |size| self.penalty(size, depth)));
        let row = format!(
            "{}\t{}\t{size}\t{}\t{}",
            self.coverage.probes().name,
            join_numbers(&first),
            join_numbers(&penalties),
            self.panel_cells()
        );
        self.to_text("HsMetrics", HYBRID_SELECTION_COLUMNS, row, comment)
    }

    /// Returns the text of the file of `CollectTargetedPcrMetrics`.
    pub(crate) fn to_amplicon_text(&self, comment: &str) -> String {
        let counts = &self.coverage.totals.counts;
        let mut first = vec![self.coverage.probes().territory() as f64];
        first.extend(self.probe_values());
        first.push(self.fold_enrichment());
        let pairs = [counts.selected_pairs, counts.selected_unique_pairs, counts.on_target_from_pair];
        first.extend(pairs.map(|count| count as f64));
        let row = format!("{}\t{}\t{}", self.coverage.probes().name, join_numbers(&first), self.panel_cells());
        self.to_text("TargetedPcrMetrics", AMPLICON_COLUMNS, row, comment)
    }

    fn to_text(&self, class: &str, columns: &str, row: String, comment: &str) -> String {
        let bins = |counts: &[u64]| counts.iter().enumerate().map(|(bin, count)| (bin as u64, *count as f64)).collect();
        let histogram = [
            HistogramColumn { name: "high_quality_coverage_count", bins: bins(&self.by_depth) },
            HistogramColumn { name: "unfiltered_baseq_count", bins: bins(&self.coverage.totals.qualities) },
        ];
        MetricsText::new(comment)
            .with_rows(&format!("picard.analysis.directed.{class}"), &format!("{columns}{PANEL_COLUMNS}"), &[row])
            .finish("java.lang.Integer", "coverage_or_base_quality", &histogram)
    }

    /// Returns the numbers of bases on, near and off the probes, and the values that follow from them.
    fn probe_values(&self) -> [f64; 7] {
        let counts = &self.coverage.totals.counts;
        let all = counts.on_probe + counts.near_probe + counts.off_probe;
        let selected = counts.on_probe + counts.near_probe;
        [
            counts.on_probe as f64,
            counts.near_probe as f64,
            counts.off_probe as f64,
            ratio(selected, all),
            ratio(counts.off_probe, all),
            ratio(counts.on_probe, selected),
            ratio(counts.on_probe, self.coverage.probes().territory()),
        ]
    }

    fn fold_enrichment(&self) -> f64 {
        let counts = &self.coverage.totals.counts;
        let all = counts.on_probe + counts.near_probe + counts.off_probe;
        let genome_share = ratio(self.coverage.probes().territory(), self.coverage.genome_bases());
        ratio(counts.on_probe, all) / genome_share
    }

    /// Returns the cells that both tools have.
    fn panel_cells(&self) -> String {
        let (counts, targets) = (&self.coverage.totals.counts, self.coverage.targets());
        let numbers = [
            targets.territory(),
            self.coverage.genome_bases(),
            counts.reads,
            counts.pf_reads,
            counts.pf_bases,
            counts.pf_unique_reads,
            counts.pf_unique_reads_aligned,
            counts.pf_bases_aligned,
            counts.pf_unique_bases_aligned,
            counts.on_target,
        ];
        let mut values: Vec<f64> = numbers.into_iter().map(|number| number as f64).collect();
        values.extend([
            ratio(counts.pf_reads, counts.reads),
            ratio(counts.pf_unique_reads, counts.reads),
            ratio(counts.pf_unique_reads_aligned, counts.pf_unique_reads),
        ]);
        let uncovered =
            self.coverage.depths_by_target().filter(|depths| depths.iter().all(|depth| *depth == 0)).count();
        let lowest = self.by_depth.iter().position(|count| *count > 0).unwrap_or(0);
        values.extend([
            self.mean_coverage,
            BinStatistics(&self.by_depth).median(),
            (self.by_depth.len() - 1) as f64,
            lowest as f64,
            ratio(uncovered as u64, targets.interval_count),
        ]);
        let excluded = [
            counts.duplicate,
            counts.adapter,
            counts.low_mapping_quality,
            counts.low_base_quality,
            counts.overlap,
            counts.off_target,
        ];
        values.extend(excluded.map(|bases| ratio(bases, counts.pf_bases_aligned)));
        values.push(self.fold_80);
        let statistics = BinStatistics(&self.by_depth);
        let bases = statistics.count();
        values.extend(REPORTED_DEPTHS.map(|depth| ratio(statistics.count_from(depth as usize), bases)));
        values.extend(self.dropouts);
        let (sensitivity, quality) = self.sensitivity();
        values.extend([sensitivity, f64::from(quality)]);
        join_numbers(&values) + "\t\t\t"
    }

    fn sensitivity(&self) -> (f64, i32) {
        let capped = self.coverage.totals.unfiltered_depths.iter().map(|depth| *depth.min(&MAX_SENSITIVITY_DEPTH));
        let mut by_depth = count_by_depth(capped);
        // As in Picard, the bin of the highest depth exists only if there is such a base. The simulation depends on the
        // number of bins.
        by_depth.resize(by_depth.len().max(MAX_SENSITIVITY_DEPTH as usize), 0);
        het_snp_sensitivity(&by_depth, &self.coverage.totals.capped_qualities)
    }

    /// Returns how much sequencing is needed for a mean depth at 80 % of the target bases, as a multiple of an ideal
    /// selection (`HsMetricCollector.calculateHsPenalty`); -1 if the search does not end.
    fn penalty(&self, library_size: u64, goal: f64) -> f64 {
        let counts = &self.coverage.totals.counts;
        let mean = ratio(counts.on_target_from_pair, self.coverage.targets().territory());
        let (pairs, unique) = (counts.selected_pairs, counts.selected_unique_pairs);
        let on_target = ratio(counts.on_target, counts.pf_unique_bases_aligned);
        let unique_goal = (goal / mean) * self.fold_80;
        let (mut multiple, mut increment, mut upwards) = (unique_goal, 1.0, unique_goal >= 1.0);
        for _ in 0..MAX_PENALTY_STEPS {
            let found = expected_unique_ratio(library_size, multiple, pairs, unique);
            if (found - unique_goal).abs() / unique_goal <= 0.001 {
                let unique_share = (unique as f64 * unique_goal) / (pairs as f64 * multiple);
                return (1.0 / unique_share) * self.fold_80 * (1.0 / on_target);
            }
            if (found > unique_goal && upwards) || (found < unique_goal && !upwards) {
                increment /= 2.0;
                upwards = !upwards;
            }
            multiple += if upwards { increment } else { -increment };
        }
        -1.0
    }
}

/// Returns the number of bases for each depth from 0 to the highest.
fn count_by_depth(depths: impl Iterator<Item = u32>) -> Vec<u64> {
    let mut counts = vec![0];
    for depth in depths {
        if counts.len() <= depth as usize {
            counts.resize(depth as usize + 1, 0);
        }
        counts[depth as usize] += 1;
    }
    counts
}

/// Returns the percentages of bases that are missing on targets with low and with high GC content.
fn dropouts(coverage: &TargetCoverage, gc: &[f64]) -> [f64; 2] {
    let (mut target_bases, mut aligned_bases) = ([0u64; GC_BINS], [0u64; GC_BINS]);
    for (depths, fraction) in coverage.depths_by_target().zip(gc) {
        let bin = (fraction * 100.0 + 0.5).floor() as usize;
        target_bases[bin] += depths.len() as u64;
        aligned_bases[bin] += depths.iter().map(|depth| u64::from(*depth)).sum::<u64>();
    }
    let (all_targets, all_aligned) = (target_bases.iter().sum(), aligned_bases.iter().sum());
    let mut dropouts = [0.0, 0.0];
    for bin in 0..GC_BINS {
        let dropout = (ratio(aligned_bases[bin], all_aligned) - ratio(target_bases[bin], all_targets)) * 100.0;
        if dropout < 0.0 {
            dropouts[0] += if bin <= DROPOUT_LIMIT { dropout.abs() } else { 0.0 };
            dropouts[1] += if bin >= DROPOUT_LIMIT { dropout.abs() } else { 0.0 };
        }
    }
    dropouts
}
