//! Options of `godwit metrics`.

use std::path::PathBuf;

use clap::Args;
use godwit_metrics::Metric;

use super::CommonArgs;
use crate::config::THIS_RUN_HEADING;

/// The value of `--metrics` that stands for all metrics.
const ALL_METRICS: &str = "all";

#[derive(Args)]
pub struct MetricsArgs {
    /// BAM; - is stdin. Metrics of coverage and OxoG require the order of coordinates
    #[arg(value_name = "BAM")]
    pub input: PathBuf,
    /// The reference, FASTA
    #[arg(long, value_name = "REF.fa")]
    pub reference: PathBuf,
    /// Directory of the metrics files
    #[arg(long, value_name = "DIR", help_heading = THIS_RUN_HEADING)]
    pub out: PathBuf,
    /// Metrics to compute: all, or AlignmentSummary, InsertSize, QualityByCycle, QualityDistribution, GcBias,
    /// BaseDistributionByCycle, WgsMetrics, HsMetrics, TargetedPcr, OxoG; all includes HsMetrics with --baits, and
    /// TargetedPcr with --amplicons
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "all|NAMES",
        default_value = ALL_METRICS,
        value_parser = parse_metrics,
        help_heading = THIS_RUN_HEADING
    )]
    pub metrics: Vec<RequestedMetrics>,
    /// Regions to be covered, as interval list of Picard; for HsMetrics and TargetedPcr
    #[arg(long, value_name = "INTERVAL_LIST")]
    pub targets: Option<PathBuf>,
    /// Baits of the hybrid selection, as interval list of Picard; for HsMetrics
    #[arg(long, value_name = "INTERVAL_LIST", requires = "targets")]
    pub baits: Option<PathBuf>,
    /// Amplicons, as interval list of Picard; for TargetedPcr
    #[arg(long, value_name = "INTERVAL_LIST", requires = "targets")]
    pub amplicons: Option<PathBuf>,
    #[command(flatten)]
    pub common: CommonArgs,
}

/// One value of `--metrics`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestedMetrics {
    /// All metrics whose interval lists are given.
    All,
    /// One metric.
    One(Metric),
}

impl MetricsArgs {
    /// Returns the requested metrics, each once.
    pub fn requested(&self) -> Vec<Metric> {
        let has_lists = |metric: &Metric| match metric {
            Metric::HsMetrics => self.baits.is_some() && self.targets.is_some(),
            Metric::TargetedPcr => self.amplicons.is_some() && self.targets.is_some(),
            _ => true,
        };
        let all = self.metrics.contains(&RequestedMetrics::All);
        let is_named = |metric: &Metric| self.metrics.contains(&RequestedMetrics::One(*metric));
        Metric::ALL.into_iter().filter(|metric| is_named(metric) || (all && has_lists(metric))).collect()
    }
}

fn parse_metrics(name: &str) -> Result<RequestedMetrics, String> {
    if name.eq_ignore_ascii_case(ALL_METRICS) {
        return Ok(RequestedMetrics::All);
    }
    let known = || Metric::ALL.map(|metric| metric.to_string()).join(", ");
    let metric = Metric::from_name(name).ok_or_else(|| format!("not a metric of godwit; there are: all, {}", known()));
    metric.map(RequestedMetrics::One)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_metric_is_rejected_with_the_list_of_all() {
        assert_eq!(parse_metrics("wgs"), Ok(RequestedMetrics::One(Metric::WgsMetrics)));
        let message = parse_metrics("RnaSeq").expect_err("RnaSeq is not computed");
        assert!(message.contains("AlignmentSummary, InsertSize"), "{message}");
    }
}
