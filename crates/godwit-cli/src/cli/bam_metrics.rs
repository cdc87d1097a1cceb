//! Options of `godwit metrics`, and those of the jobs that compute metrics of the files that they write.

use std::path::PathBuf;

use clap::Args;
use godwit_metrics::Metric;
use godwit_model::ErrorKind;
use godwit_pipeline::reduce::PicardMetricsRequest;

use super::CommonArgs;
use crate::config::THIS_RUN_HEADING;
use crate::failure::Failure;

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
    ///
    /// # Errors
    /// A failure of kind [`ErrorKind::Usage`] if an interval list is given that no requested metric uses.
    pub fn request(&self, metrics: &[RequestedMetrics]) -> Result<Option<PicardMetricsRequest>, Failure> {
        let has_lists = |metric: &Metric| match metric {
            Metric::HsMetrics => self.baits.is_some() && self.targets.is_some(),
            Metric::TargetedPcr => self.amplicons.is_some() && self.targets.is_some(),
            _ => true,
        };
        let all = metrics.contains(&RequestedMetrics::All);
        let is_named = |metric: &Metric| metrics.contains(&RequestedMetrics::One(*metric));
        let requested = Metric::ALL.into_iter().filter(|metric| is_named(metric) || (all && has_lists(metric)));
        let metrics: Vec<Metric> = requested.collect();
        self.check_use(&metrics)?;
        let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
        let request = PicardMetricsRequest {
            targets: self.targets.as_ref().map(absolute),
            baits: self.baits.as_ref().map(absolute),
            amplicons: self.amplicons.as_ref().map(absolute),
            is_oxog_optional: all && !is_named(&Metric::OxoG),
            metrics,
        };
        Ok((!request.metrics.is_empty()).then_some(request))
    }

    /// Rejects interval lists that no requested metric uses.
    fn check_use(&self, requested: &[Metric]) -> Result<(), Failure> {
        let (hybrid, amplicon) = (Metric::HsMetrics, Metric::TargetedPcr);
        for (list, option, users, remedy) in [
            (&self.baits, "--baits", &[hybrid][..], "add --metrics all, or name it"),
            (&self.amplicons, "--amplicons", &[amplicon], "add --metrics all, or name it"),
            (
                &self.targets,
                "--targets",
                &[hybrid, amplicon],
                "add --metrics all with --baits or --amplicons, or name them",
            ),
        ] {
            if list.is_some() && !users.iter().any(|metric| requested.contains(metric)) {
                let users = users.iter().map(Metric::to_string).collect::<Vec<_>>().join(" and ");
                return Err(Failure::new(ErrorKind::Usage, format!("{option} is used by {users} only: {remedy}")));
            }
        }
        Ok(())
    }
}

/// Metrics of a job that writes the BAM of each sample, with their interval lists.
#[derive(Args)]
pub struct JobMetricsArgs {
    /// Metrics of each BAM and its report.html: on, off, or with metrics of Picard as for `godwit metrics`: all, or names such as
    /// GcBias,WgsMetrics
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "on",
        value_name = "on|off|all|NAMES",
        value_parser = parse_job_metrics
    )]
    pub metrics: Vec<MetricsValue>,
    #[command(flatten, next_help_heading = "Interval lists, with --metrics")]
    pub lists: TargetListArgs,
}

impl JobMetricsArgs {
    /// Returns the selected metrics.
    ///
    /// # Errors
    /// As [`JobMetrics::new`].
    pub fn job_metrics(&self) -> Result<JobMetrics, Failure> {
        JobMetrics::new(&self.metrics, &self.lists)
    }
}

/// The metrics of a job, and their interval lists.
#[derive(Debug)]
pub struct JobMetrics {
    /// True to compute any metrics.
    pub is_on: bool,
    /// The requested metrics of Picard; `None`: none.
    pub picard: Option<PicardMetricsRequest>,
}

impl JobMetrics {
    /// Returns the metrics that the values of `--metrics` select.
    ///
    /// # Errors
    /// A failure of kind [`ErrorKind::Usage`] if `off` is not the only value, or for an interval list that no metric uses.
    pub fn new(values: &[MetricsValue], lists: &TargetListArgs) -> Result<Self, Failure> {
        let is_off = values.contains(&MetricsValue::Off);
        if is_off && values.len() > 1 {
            let message = "--metrics off excludes other values: leave out off, or the other values";
            return Err(Failure::new(ErrorKind::Usage, message.to_owned()));
        }
        let named = values.iter().filter_map(|value| match value {
            MetricsValue::Picard(metrics) => Some(*metrics),
            MetricsValue::On | MetricsValue::Off => None,
        });
        let named: Vec<RequestedMetrics> = named.collect();
        Ok(Self { is_on: !is_off && !values.is_empty(), picard: lists.request(&named)? })
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
pub(crate) fn parse_job_metrics(name: &str) -> Result<MetricsValue, String> {
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
    fn the_help_lists_every_metric() {
        let command = MetricsArgs::augment_args(clap::Command::new("metrics"));
        let option = command.get_arguments().find(|argument| argument.get_id() == "metrics");
        let help = option.and_then(|option| option.get_help()).expect("the option has help").to_string();
        let words: Vec<&str> = help.split([' ', ',', ';']).collect();
        let unlisted =
            Metric::ALL.map(|metric| metric.to_string()).into_iter().filter(|name| !words.contains(&name.as_str()));
        assert_eq!(unlisted.collect::<Vec<_>>(), [""; 0]);
    }

    fn job_metrics(text: &str, lists: &TargetListArgs) -> Result<JobMetrics, Failure> {
        let values = text.split(',').map(|name| parse_job_metrics(name).expect("it is a value"));
        JobMetrics::new(&values.collect::<Vec<_>>(), lists)
    }

    #[test]
    fn metrics_of_a_job_are_switched_or_named() {
        let none = TargetListArgs { targets: None, baits: None, amplicons: None };
        let parse = |text: &str| {
            let JobMetrics { is_on, picard } = job_metrics(text, &none).expect("the values agree");
            (is_on, picard.map_or(0, |request| request.metrics.len()))
        };
        assert_eq!([parse("on"), parse("off"), parse("true")], [(true, 0), (false, 0), (true, 0)]);
        assert_eq!([parse("all"), parse("OxoG,gcbias")], [(true, Metric::ALL.len() - 2), (true, 2)]);
        assert!(parse_job_metrics("RnaSeq").expect_err("RnaSeq is not computed").contains("on, off, all"));
        for text in ["off,GcBias", "on,off"] {
            let error = job_metrics(text, &none).expect_err("off excludes others");
            assert_eq!(error.kind, ErrorKind::Usage);
        }
    }

    #[test]
    fn interval_lists_that_no_metric_uses_are_rejected() {
        let path = || Some(PathBuf::from("a.interval_list"));
        let all = TargetListArgs { targets: path(), baits: path(), amplicons: path() };
        let baits = TargetListArgs { targets: path(), baits: path(), amplicons: None };
        let targets = TargetListArgs { targets: path(), baits: None, amplicons: None };
        assert!(job_metrics("all", &all).is_ok() && job_metrics("GcBias,HsMetrics", &baits).is_ok());
        for (text, lists, option) in [
            ("on", &all, "--baits"),
            ("HsMetrics", &all, "--amplicons"),
            ("off", &baits, "--baits"),
            ("all", &targets, "--targets"),
            ("GcBias", &targets, "--targets"),
        ] {
            let error = job_metrics(text, lists).expect_err("a list is not used");
            assert!(error.message.starts_with(option), "{text}: {}", error.message);
        }
    }

    #[test]
    fn oxog_is_optional_unless_it_is_named() {
        let none = TargetListArgs { targets: None, baits: None, amplicons: None };
        let is_optional =
            |text| job_metrics(text, &none).expect("it is valid").picard.map(|request| request.is_oxog_optional);
        assert_eq!(
            [is_optional("all"), is_optional("all,OxoG"), is_optional("OxoG")],
            [Some(true), Some(false), Some(false)]
        );
    }
}
