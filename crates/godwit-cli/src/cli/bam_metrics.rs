//! Options of `godwit metrics`, and those of the jobs that compute metrics of the files that they write.

use std::path::PathBuf;

use clap::Args;
use godwit_metrics::Metric;
use godwit_pipeline::reduce::PicardMetricsRequest;

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
    #[command(flatten)]
    pub lists: TargetListArgs,
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Interval lists of targeted sequencing.
#[derive(Args)]
pub struct TargetListArgs {
    /// Regions to be covered, as interval list of Picard; for HsMetrics and TargetedPcr
    #[arg(long, value_name = "INTERVAL_LIST")]
    pub targets: Option<PathBuf>,
    /// Baits of the hybrid selection, as interval list of Picard; for HsMetrics
    #[arg(long, value_name = "INTERVAL_LIST", requires = "targets")]
    pub baits: Option<PathBuf>,
    /// Amplicons, as interval list of Picard; for TargetedPcr
    #[arg(long, value_name = "INTERVAL_LIST", requires = "targets")]
    pub amplicons: Option<PathBuf>,
}

impl TargetListArgs {
    /// Returns the request for these metrics, each once; `None` if there are none. The paths are absolute, because workers
    /// of a cluster run may have other working directories.
    pub fn request(&self, metrics: &[RequestedMetrics]) -> Option<PicardMetricsRequest> {
        let has_lists = |metric: &Metric| match metric {
            Metric::HsMetrics => self.baits.is_some() && self.targets.is_some(),
            Metric::TargetedPcr => self.amplicons.is_some() && self.targets.is_some(),
            _ => true,
        };
        let all = metrics.contains(&RequestedMetrics::All);
        let is_named = |metric: &Metric| metrics.contains(&RequestedMetrics::One(*metric));
        let requested = Metric::ALL.into_iter().filter(|metric| is_named(metric) || (all && has_lists(metric)));
        let metrics: Vec<Metric> = requested.collect();
        let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
        (!metrics.is_empty()).then(|| PicardMetricsRequest {
            metrics,
            targets: self.targets.as_ref().map(absolute),
            baits: self.baits.as_ref().map(absolute),
            amplicons: self.amplicons.as_ref().map(absolute),
        })
    }
}

/// The metrics of a job, and their interval lists.
pub struct JobMetrics {
    /// True to compute any metrics.
    pub is_on: bool,
    /// The requested metrics of Picard; `None`: none.
    pub picard: Option<PicardMetricsRequest>,
}

impl JobMetrics {
    /// Returns the metrics that the values of `--metrics` select.
    pub fn new(values: &[MetricsValue], lists: &TargetListArgs) -> Self {
        let named = values.iter().filter_map(|value| match value {
            MetricsValue::Picard(metrics) => Some(*metrics),
            MetricsValue::On | MetricsValue::Off => None,
        });
        let named: Vec<RequestedMetrics> = named.collect();
        Self { is_on: values.iter().any(|value| *value != MetricsValue::Off), picard: lists.request(&named) }
    }
}

/// One value of `--metrics` of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsValue {
    /// No metrics.
    Off,
    /// The metrics of the report.
    On,
    /// The metrics of the report, and metrics of Picard.
    Picard(RequestedMetrics),
}

/// Parses a value of `--metrics` of a job. Configuration files and variables may have the other words of a switch.
pub fn parse_job_metrics(name: &str) -> Result<MetricsValue, String> {
    match name {
        "on" | "true" | "yes" | "1" => Ok(MetricsValue::On),
        "off" | "false" | "no" | "0" => Ok(MetricsValue::Off),
        name => {
            let metrics = parse_metrics(name);
            metrics.map(MetricsValue::Picard).map_err(|error| error.replacen("all,", "on, off, all,", 1))
        }
    }
}

/// One value of `--metrics`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestedMetrics {
    /// All metrics whose interval lists are given.
    All,
    /// One metric.
    One(Metric),
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

    #[test]
    fn metrics_of_a_job_are_switched_or_named() {
        let none = TargetListArgs { targets: None, baits: None, amplicons: None };
        let parse = |text: &str| {
            let values: Vec<MetricsValue> =
                text.split(',').map(|name| parse_job_metrics(name).expect("it is a value")).collect();
            let JobMetrics { is_on, picard } = JobMetrics::new(&values, &none);
            (is_on, picard.map_or(0, |request| request.metrics.len()))
        };
        assert_eq!([parse("on"), parse("off"), parse("true")], [(true, 0), (false, 0), (true, 0)]);
        assert_eq!([parse("all"), parse("OxoG,gcbias")], [(true, 8), (true, 2)]);
        assert!(parse_job_metrics("RnaSeq").expect_err("RnaSeq is not computed").contains("on, off, all"));
    }
}
