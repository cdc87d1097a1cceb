//! The metrics that can be computed, and their names and files.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A metric of Picard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Metric {
    /// Numbers of reads, mismatches and lengths of first, second and unpaired reads.
    AlignmentSummary,
    /// Insert sizes of pairs by orientation.
    InsertSize,
    /// Mean quality of each cycle.
    QualityByCycle,
    /// Number of bases by quality.
    QualityDistribution,
    /// Coverage by GC content of the reference.
    GcBias,
    /// Fractions of the bases in each cycle.
    BaseDistributionByCycle,
    /// Depth of coverage along the genome.
    WgsMetrics,
    /// Coverage of targets after hybrid selection.
    HsMetrics,
    /// Coverage of targets by amplicons.
    TargetedPcr,
    /// Errors by oxidation of guanine.
    OxoG,
}

/// Names of a metric: its own, further names by which it can be requested, and the suffixes of its files.
struct MetricNames {
    name: &'static str,
    /// Name of the tool of Picard, which the header of the file has.
    program: &'static str,
    aliases: &'static [&'static str],
    suffixes: &'static [&'static str],
}

impl Metric {
    /// All metrics.
    pub const ALL: [Self; 10] = [
        Self::AlignmentSummary,
        Self::InsertSize,
        Self::QualityByCycle,
        Self::QualityDistribution,
        Self::GcBias,
        Self::BaseDistributionByCycle,
        Self::WgsMetrics,
        Self::HsMetrics,
        Self::TargetedPcr,
        Self::OxoG,
    ];

    fn names(self) -> MetricNames {
        let names = |name, program, aliases, suffixes| MetricNames { name, program, aliases, suffixes };
        match self {
            Self::AlignmentSummary => {
                names("AlignmentSummary", "CollectAlignmentSummaryMetrics", &[], &[".alignment_summary_metrics"])
            }
            Self::InsertSize => names("InsertSize", "CollectInsertSizeMetrics", &[], &[".insert_size_metrics"]),
            Self::QualityByCycle => names("QualityByCycle", "MeanQualityByCycle", &[], &[".quality_by_cycle_metrics"]),
            Self::QualityDistribution => {
                names("QualityDistribution", "QualityScoreDistribution", &[], &[".quality_distribution_metrics"])
            }
            Self::GcBias => {
                names("GcBias", "CollectGcBiasMetrics", &[], &[".gc_bias.detail_metrics", ".gc_bias.summary_metrics"])
            }
            Self::BaseDistributionByCycle => names(
                "BaseDistributionByCycle",
                "CollectBaseDistributionByCycle",
                &[],
                &[".base_distribution_by_cycle_metrics"],
            ),
            Self::WgsMetrics => names("WgsMetrics", "CollectWgsMetrics", &["Wgs"], &[".wgs_metrics"]),
            Self::HsMetrics => names("HsMetrics", "CollectHsMetrics", &["Hs"], &[".hs_metrics"]),
            // MultiQC recognizes the file only by the name with the package.
            Self::TargetedPcr => names(
                "TargetedPcr",
                "picard.analysis.directed.CollectTargetedPcrMetrics",
                &["CollectTargetedPcrMetrics"],
                &[".targeted_pcr_metrics"],
            ),
            Self::OxoG => names("OxoG", "CollectOxoGMetrics", &[], &[".oxog_metrics"]),
        }
    }

    /// Returns the metric of a name: its own name or that of Picard's tool, in upper or lower case.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_metrics::Metric;
    ///
    /// assert_eq!(Metric::from_name("gcbias"), Some(Metric::GcBias));
    /// assert_eq!(Metric::from_name("MeanQualityByCycle"), Some(Metric::QualityByCycle));
    /// assert_eq!(Metric::from_name("RnaSeq"), None);
    /// ```
    pub fn from_name(name: &str) -> Option<Self> {
        let is_named = |metric: &Self| {
            let names = metric.names();
            let all = [names.name, names.program];
            all.iter().chain(names.aliases).any(|known| known.eq_ignore_ascii_case(name))
        };
        Self::ALL.into_iter().find(is_named)
    }

    /// Returns the suffixes of the metric's files, which follow the name of the BAM without its extension.
    pub fn suffixes(self) -> &'static [&'static str] {
        self.names().suffixes
    }

    /// Returns true if records must come in the order of their coordinates.
    pub fn needs_order(self) -> bool {
        matches!(self, Self::WgsMetrics | Self::HsMetrics | Self::TargetedPcr | Self::OxoG)
    }

    /// Returns the name of Picard's tool.
    pub fn program(self) -> &'static str {
        self.names().program
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.names().name)
    }
}
