//! The plots of the report page.

use super::ReportPage;
use super::html::format_thousands;
use super::plot::{Plot, Series, Shape};

/// Maximum number of bins of the insert size plot.
const MAX_INSERT_BINS: u64 = 200;
/// Number of pairs from which on all duplicate sets share one bar.
const LARGE_SET_PAIRS: u64 = 10;
/// Labels for the first and the second read of a pair.
const READ_LABELS: [&str; 2] = ["First reads", "Last reads"];
/// Maximum number of sequencing cycles in a plot. For longer reads, only some cycles are drawn.
const MAX_CYCLES: usize = 300;

impl ReportPage<'_> {
    fn by_cycle(&self, values: impl Fn(usize) -> Vec<f64>) -> Vec<Series> {
        let series = |(end, name): (usize, &&str)| {
            let values = values(end);
            let step = values.len().div_ceil(MAX_CYCLES).max(1);
            let points = values.iter().enumerate().step_by(step).map(|(cycle, value)| ((cycle + 1) as f64, *value));
            Series { name: (*name).into(), points: points.collect() }
        };
        READ_LABELS.iter().enumerate().map(series).collect()
    }

    pub(super) fn qualities(&self) -> String {
        let series = self.by_cycle(|end| self.qc.counts.cycles.mean_qualities(end));
        let best = series.iter().flat_map(|series| &series.points).map(|point| point.1).fold(40.0, f64::max);
        Plot {
            title: "Base quality by cycle",
            note: "Mean Phred quality at each cycle of the sequencer.".into(),
            x_title: "Cycle",
            y_title: "Mean quality",
            x_unit: "",
            y_unit: "",
            shape: Shape::Line,
            y_range: Some((0.0, (best / 10.0).ceil() * 10.0)),
            series,
        }
        .to_figure()
    }

    pub(super) fn gc_by_cycle(&self) -> String {
        let percent = |end| self.qc.counts.cycles.gc_fractions(end).into_iter().map(|share| share * 100.0).collect();
        Plot {
            title: "GC by cycle",
            note: "Fraction of G and C at each cycle; a flat line is expected after the first bases.".into(),
            x_title: "Cycle",
            y_title: "G and C, %",
            x_unit: "",
            y_unit: " %",
            shape: Shape::Line,
            y_range: Some((0.0, 100.0)),
            series: self.by_cycle(percent),
        }
        .to_figure()
    }

    pub(super) fn gc_content(&self) -> String {
        let series = |(end, name): (usize, &&str)| {
            let bins = self.qc.counts.stats.gc_content(end);
            let total: u64 = bins.iter().map(|(_, reads)| reads).sum();
            let points = bins.iter().map(|(percent, reads)| (*percent, *reads as f64 * 100.0 / total.max(1) as f64));
            Series { name: (*name).into(), points: points.collect() }
        };
        Plot {
            title: "GC content of reads",
            note: "Reads by their fraction of G and C; a second peak may indicate contamination.".into(),
            x_title: "G and C, %",
            y_title: "Reads, %",
            x_unit: " %",
            y_unit: " %",
            shape: Shape::Line,
            y_range: None,
            series: READ_LABELS.iter().enumerate().map(series).collect(),
        }
        .to_figure()
    }

    pub(super) fn insert_sizes(&self) -> String {
        let rows = self.qc.counts.insert_sizes.rows();
        let last = rows.iter().map(|row| row.sizes.max()).max().unwrap_or(0);
        let bin = last.div_ceil(MAX_INSERT_BINS).max(1);
        let series = rows.iter().map(|row| {
            let mut counts = vec![0u64; (last / bin + 1) as usize];
            row.sizes.iter().for_each(|(size, pairs)| counts[(size / bin) as usize] += pairs);
            let points = counts.iter().enumerate().map(|(at, pairs)| ((at as u64 * bin) as f64, *pairs as f64));
            Series { name: row.orientation.into(), points: points.collect() }
        });
        let note = rows.iter().map(|row| {
            let deviation = row.median_absolute_deviation;
            format!(
                "{}: {} pairs, median {} bp, MAD {deviation} bp. ",
                row.orientation,
                format_thousands(row.pairs),
                row.median
            )
        });
        Plot {
            title: "Insert size",
            note: format!("Pairs that are not duplicates. {}", note.collect::<String>().trim_end()),
            x_title: "Insert size, bp",
            y_title: "Pairs",
            x_unit: "",
            y_unit: " pairs",
            shape: Shape::Area,
            y_range: None,
            series: series.collect(),
        }
        .to_figure()
    }

    pub(super) fn mapping_qualities(&self) -> String {
        let qualities = &self.qc.counts.mapping_qualities;
        let total = qualities.count().max(1) as f64;
        let points = qualities.iter().map(|(quality, reads)| (quality as f64, reads as f64 * 100.0 / total));
        Plot {
            title: "Mapping quality",
            note: "Mapped reads; quality 0 means that another position fits equally well.".into(),
            x_title: "Mapping quality",
            y_title: "Reads, %",
            x_unit: "",
            y_unit: " %",
            shape: Shape::Bars,
            y_range: None,
            series: vec![Series { name: "Reads".into(), points: points.collect() }],
        }
        .to_figure()
    }

    pub(super) fn coverage(&self) -> String {
        let Some(mosdepth) = &self.qc.coverage.mosdepth else { return String::new() };
        let total = mosdepth.total_positions_by_depth();
        let genome: u64 = mosdepth.contigs.iter().map(|contig| contig.length).sum();
        let mut covered: u64 = total.iter().filter(|(depth, _)| *depth > 0).map(|(_, positions)| positions).sum();
        let mut points = vec![(0.0, 100.0)];
        let most = total.max();
        for depth in 1..=most {
            let percent = covered as f64 * 100.0 / genome.max(1) as f64;
            points.push((depth as f64, percent));
            if percent < 0.5 && depth >= 30 {
                break;
            }
            covered -= total.get(depth);
        }
        let step = points.len().div_ceil(MAX_CYCLES).max(1);
        Plot {
            title: "Coverage, cumulative",
            note: "Fraction of the genome with at least this depth. Duplicates are excluded; overlapping mates count \
                   once."
                .into(),
            x_title: "Depth",
            y_title: "Genome, %",
            x_unit: "×",
            y_unit: " %",
            shape: Shape::Area,
            y_range: Some((0.0, 100.0)),
            series: vec![Series { name: "Genome".into(), points: points.into_iter().step_by(step).collect() }],
        }
        .to_figure()
    }

    pub(super) fn duplicate_sets(&self) -> String {
        let Some(found) = self.duplicate_metrics else { return String::new() };
        let mut sets = [0u64; LARGE_SET_PAIRS as usize];
        for (pairs, count) in found.sets_by_pairs() {
            sets[((*pairs).clamp(1, LARGE_SET_PAIRS) - 1) as usize] += count;
        }
        let total: u64 = sets.iter().sum();
        if total == 0 {
            return String::new();
        }
        let points = sets.iter().enumerate();
        let points = points.map(|(at, count)| ((at + 1) as f64, *count as f64 * 100.0 / total as f64)).collect();
        Plot {
            title: "Copies of a molecule",
            note: format!("Sets of pairs with equal ends, by number of pairs; {LARGE_SET_PAIRS} includes larger sets."),
            x_title: "Pairs in the set",
            y_title: "Sets, %",
            x_unit: "",
            y_unit: " %",
            shape: Shape::Bars,
            y_range: None,
            series: vec![Series { name: "Sets".into(), points }],
        }
        .to_figure()
    }
}
