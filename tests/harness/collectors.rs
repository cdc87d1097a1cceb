//! Picard's collectors of metrics, each with the suffixes of its files, and interval lists for them.

use std::path::{Path, PathBuf};

use crate::picard;
use crate::random::Random;
use crate::scratch;

/// Names of all metrics but OxoG, which needs a read group for every read: a value of `--metrics`.
pub const METRICS_WITHOUT_OXOG: &str = "AlignmentSummary,InsertSize,QualityByCycle,QualityDistribution,GcBias,\
    BaseDistributionByCycle,WgsMetrics,HsMetrics,TargetedPcr";
/// Suffixes of the files of all metrics, in alphabetical order.
pub const METRICS_SUFFIXES: [&str; 11] = [
    "alignment_summary_metrics",
    "base_distribution_by_cycle_metrics",
    "gc_bias.detail_metrics",
    "gc_bias.summary_metrics",
    "hs_metrics",
    "insert_size_metrics",
    "oxog_metrics",
    "quality_by_cycle_metrics",
    "quality_distribution_metrics",
    "targeted_pcr_metrics",
    "wgs_metrics",
];
/// Length of the longest target, bases.
const MAX_TARGET_BASES: usize = 400;

/// The interval lists of targeted sequencing.
#[derive(Clone, Debug)]
pub struct TargetFiles {
    /// Regions to be covered.
    pub targets: PathBuf,
    /// Baits of a hybrid selection.
    pub baits: PathBuf,
    /// Amplicons.
    pub amplicons: PathBuf,
}

impl TargetFiles {
    /// Returns the paths of the lists in a directory.
    pub fn in_directory(directory: &Path) -> Self {
        let path = |name: &str| directory.join(name).with_extension("interval_list");
        Self { targets: path("targets"), baits: path("baits"), amplicons: path("amplicons") }
    }
}

/// Writes interval lists with random intervals on each contig of a dictionary. Some overlap, some touch.
///
/// # Panics
/// When the dictionary cannot be read.
pub fn write_interval_lists(dictionary: &Path, directory: &Path, seed: u64) -> TargetFiles {
    let header = std::fs::read_to_string(dictionary).expect("the dictionary has been written");
    let lists = TargetFiles::in_directory(directory);
    for (number, path) in [&lists.targets, &lists.baits, &lists.amplicons].into_iter().enumerate() {
        let mut random = Random::new(seed * 3 + number as u64);
        let mut text = header.clone();
        for line in header.lines().filter(|line| line.starts_with("@SQ")) {
            let field = |tag: &str| line.split('\t').find_map(|field| field.strip_prefix(tag)).unwrap_or_default();
            let length: usize = field("LN:").parse().expect("LN is a number");
            let mut last_end = 0;
            for interval in 0..12 {
                let start = if interval % 5 == 4 && last_end < length { last_end } else { random.below(length) };
                let end = length.min(start + 1 + random.below(MAX_TARGET_BASES));
                text += &format!("{}\t{}\t{end}\t+\tinterval_{interval}\n", field("SN:"), start + 1);
                last_end = end;
            }
        }
        std::fs::write(path, text).expect("the scratch directory can be written to");
    }
    lists
}

/// Computes all metrics of a BAM with Picard. Returns the path of each file with its suffix; `None` if Picard rejects the
/// BAM. A file that Picard does not write, because there is nothing to report, does not exist.
pub fn picard_files(bam: &Path, reference: &Path, lists: &TargetFiles) -> Vec<(&'static str, Option<PathBuf>)> {
    let directory = scratch::directory("picard-files");
    let path = |suffix: &str| directory.join(format!("expected.{suffix}"));
    let text = |path: &Path| path.to_str().expect("scratch paths are UTF-8").to_owned();
    let collect = |tool: &str, output: &str, further: &[(&str, &Path)]| {
        let (bam, output, reference) = (text(bam), text(&path(output)), text(reference));
        let mut words = vec![tool, "--INPUT", &bam, "--OUTPUT", &output, "--REFERENCE_SEQUENCE", &reference];
        words.extend(["--VALIDATION_STRINGENCY", "SILENT", "--VERBOSITY", "ERROR", "--QUIET", "true"]);
        let further: Vec<[String; 2]> = further.iter().map(|(name, path)| [(*name).to_owned(), text(path)]).collect();
        words.extend(further.iter().flatten().map(String::as_str));
        picard::run(&words).is_ok()
    };
    let chart = path("pdf");
    let (detail, summary) = ("gc_bias.detail_metrics", "gc_bias.summary_metrics");
    let mut files = Vec::new();
    for (tool, suffix, chart_option) in [
        ("CollectAlignmentSummaryMetrics", "alignment_summary_metrics", None),
        ("CollectInsertSizeMetrics", "insert_size_metrics", Some("--Histogram_FILE")),
        ("MeanQualityByCycle", "quality_by_cycle_metrics", Some("--CHART_OUTPUT")),
        ("QualityScoreDistribution", "quality_distribution_metrics", Some("--CHART_OUTPUT")),
        ("CollectBaseDistributionByCycle", "base_distribution_by_cycle_metrics", Some("--CHART_OUTPUT")),
        ("CollectWgsMetrics", "wgs_metrics", None),
        ("CollectOxoGMetrics", "oxog_metrics", None),
    ] {
        let further: Vec<(&str, &Path)> = chart_option.iter().map(|option| (*option, chart.as_path())).collect();
        files.push((suffix, collect(tool, suffix, &further).then(|| path(suffix))));
    }
    let gc_options = [("--SUMMARY_OUTPUT", path(summary)), ("--CHART_OUTPUT", chart.clone())];
    let has_gc =
        collect("CollectGcBiasMetrics", detail, &gc_options.each_ref().map(|(name, path)| (*name, path.as_path())));
    files.extend([detail, summary].map(|suffix| (suffix, has_gc.then(|| path(suffix)))));
    let targets = ("--TARGET_INTERVALS", lists.targets.as_path());
    let hs = collect("CollectHsMetrics", "hs_metrics", &[targets, ("--BAIT_INTERVALS", &lists.baits)]);
    files.push(("hs_metrics", hs.then(|| path("hs_metrics"))));
    let amplicons = [targets, ("--AMPLICON_INTERVALS", lists.amplicons.as_path())];
    let pcr = collect("CollectTargetedPcrMetrics", "targeted_pcr_metrics", &amplicons);
    files.push(("targeted_pcr_metrics", pcr.then(|| path("targeted_pcr_metrics"))));
    files
}
