//! The report page of a workflow: samples, steps, hours of each step and genomes per day.

use godwit_pipeline::observer::WorkflowStep;
use godwit_pipeline::report_page::html::{escape_html, format_thousands};
use godwit_pipeline::report_page::plot::{Plot, Series, Shape};
use godwit_pipeline::report_page::report_tables::{Row, figure, table};
use godwit_pipeline::report_page::{document_html, section_html};

use super::{SampleOutcome, StepHours, StepTime, StoragePoolMember, StorageSnapshot, WorkflowReport};

/// The data of the report page.
pub(super) struct WorkflowPage<'p> {
    /// The report of the workflow.
    pub(super) report: &'p WorkflowReport,
    /// Path of the reference.
    pub(super) reference: &'p str,
    /// True if `cohort.html` exists.
    pub(super) has_cohort_page: bool,
}

impl WorkflowPage<'_> {
    /// Returns the report page as HTML.
    pub(super) fn to_html(&self) -> String {
        let report = self.report;
        let failed = report.samples.iter().filter(|sample| sample.error.is_some()).count();
        let hours = if report.hosts > 0 { report.wall_seconds } else { report.seconds } / 3600.0;
        let lead = format!(
            "Workflow <b>{}</b> against <b>{}</b>: {} of {} samples done, {:.2} hours.",
            escape_html(report.workflow),
            escape_html(self.reference.rsplit('/').next().unwrap_or(self.reference)),
            report.samples.len() - failed,
            report.samples.len(),
            hours
        );
        let numbers = [
            ("Samples done", format_thousands((report.samples.len() - failed) as u64)),
            ("Samples failed", format_thousands(failed as u64)),
            ("Hours", format!("{hours:.2}")),
            ("Genomes per day", format!("{:.1}", report.genomes_per_day)),
        ];
        let cells = numbers.map(|(label, value)| format!("<div><dt>{label}</dt><dd>{value}</dd></div>\n"));
        let mut content = format!("<dl class=\"numbers\" aria-label=\"Key numbers\">\n{}</dl>\n", cells.concat());
        if self.has_cohort_page {
            content += "<p class=\"search\"><a href=\"cohort.html\">Metrics of all samples</a></p>\n";
        }
        content += &section_html("Samples", &[self.samples()]);
        content += &section_html("Steps", &[self.hours(), self.cohort(), self.notes()]);
        if !report.storage.is_empty() {
            content += &section_html("Storage", &[self.throughput(), self.connections()]);
        }
        document_html("Samples", "Workflow report", &lead, &content, &report.godwit)
    }

    /// Returns all steps that at least one sample has finished, in the order of their first appearance.
    fn steps(&self) -> Vec<WorkflowStep> {
        let mut steps: Vec<WorkflowStep> = Vec::new();
        for step in self.report.samples.iter().flat_map(|sample| &sample.steps) {
            if !steps.contains(&step.step) {
                steps.push(step.step);
            }
        }
        steps
    }

    fn samples(&self) -> String {
        let steps = self.steps();
        let total = |sample: &SampleOutcome| sample.steps.iter().map(|step| step.seconds).sum::<f64>();
        let longest = self.report.samples.iter().map(total).fold(1e-9, f64::max);
        let on_nodes = self.report.hosts > 0;
        let row = |sample: &SampleOutcome| {
            let cell = |wanted: &WorkflowStep| match sample.steps.iter().find(|step| step.step == *wanted) {
                Some(step) => format!("{:.1}{}", step.seconds, if step.is_resumed { " *" } else { "" }),
                None => "–".to_owned(),
            };
            let outcome = match (&sample.error, sample.failed_attempts.len()) {
                (Some(_), tries) if tries > 1 => format!("failed {tries} times"),
                (Some(_), _) => "failed".to_owned(),
                (None, 0) => "done".to_owned(),
                (None, tries) => format!("done at attempt {}", tries + 1),
            };
            let mut cells = vec![escape_html(&sample.sample), sample.lanes.to_string()];
            cells.extend(steps.iter().map(cell));
            cells.extend(on_nodes.then(|| escape_html(sample.host.as_deref().unwrap_or("–"))));
            cells.push(outcome);
            Row { cells, bar: total(sample) / longest }
        };
        let headings = steps.iter().map(|step| format!("{}, s", step.name()));
        let headings: Vec<String> = ["Sample".to_owned(), "Lanes".to_owned()]
            .into_iter()
            .chain(headings)
            .chain(on_nodes.then(|| "Host".to_owned()))
            .chain(["Outcome".to_owned()])
            .collect();
        let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
        let rows: Vec<Row> = self.report.samples.iter().map(row).collect();
        figure(
            "Samples",
            "Seconds of each step; bars: all steps; *: finished by an earlier start.",
            &table(&headings, &rows),
        )
    }

    fn hours(&self) -> String {
        let longest = self.report.step_hours.iter().map(|step| step.hours).fold(1e-9, f64::max);
        let row = |step: &StepHours| Row {
            cells: vec![escape_html(step.step.name()), format!("{:.4}", step.hours)],
            bar: step.hours / longest,
        };
        let rows: Vec<Row> = self.report.step_hours.iter().map(row).collect();
        let at_a_time = match self.report.hosts * self.report.samples_per_host {
            0 => "steps run one after the other".to_owned(),
            samples => {
                format!("up to {samples} samples run at the same time, and the steps of a sample one after the other")
            }
        };
        let about = format!(
            "Over all samples; {at_a_time}. Genomes per day: {}.",
            escape_html(self.report.genomes_per_day_formula)
        );
        figure("Hours by step", &about, &table(&["Step", "Hours"], &rows))
    }

    /// Returns a series of values over time for each member of the storage pool. `value`: the value to plot.
    fn storage_series(&self, value: impl Fn(&StoragePoolMember) -> f64) -> Vec<Series> {
        let moments = &self.report.storage;
        let nodes = moments.last().map(|moment| moment.members.as_slice()).unwrap_or_default();
        let series = |(at, node): (usize, &StoragePoolMember)| {
            let point = |moment: &StorageSnapshot| Some((moment.seconds, value(moment.members.get(at)?)));
            let name = node.location.split_once("://").map_or(&*node.location, |(_, place)| place);
            Series { name: escape_html(name), points: moments.iter().filter_map(point).collect() }
        };
        nodes.iter().enumerate().map(series).collect()
    }

    fn throughput(&self) -> String {
        Plot {
            title: "Storage throughput",
            note: "Data sent or received by each storage server, whichever is higher.".into(),
            x_title: "Seconds",
            y_title: "MB/s",
            x_unit: " s",
            y_unit: " MB/s",
            shape: Shape::Line,
            y_range: None,
            series: self.storage_series(|node| node.bytes_per_s / 1e6),
        }
        .to_figure()
    }

    fn connections(&self) -> String {
        Plot {
            title: "Connections to storage",
            note: "Number of connections that transfer data, for each server; 0 if the server does not respond.".into(),
            x_title: "Seconds",
            y_title: "Connections",
            x_unit: " s",
            y_unit: "",
            shape: Shape::Line,
            y_range: None,
            series: self.storage_series(|node| if node.is_healthy { node.connections as f64 } else { 0.0 }),
        }
        .to_figure()
    }

    fn cohort(&self) -> String {
        if self.report.cohort.is_empty() {
            return String::new();
        }
        let row = |step: &StepTime| Row {
            cells: vec![escape_html(step.step.name()), format!("{:.1}", step.seconds), format_thousands(step.records)],
            bar: 0.0,
        };
        let rows: Vec<Row> = self.report.cohort.iter().map(row).collect();
        figure("All samples together", "", &table(&["Step", "Seconds", "Records"], &rows))
    }

    fn notes(&self) -> String {
        let failed = self.report.samples.iter().filter_map(|sample| Some((&sample.sample, sample.error.as_deref()?)));
        let failed = failed.map(|(name, error)| format!("<b>{}</b> failed: {}", escape_html(name), escape_html(error)));
        let mut notes: Vec<String> = failed.collect();
        notes.extend(self.report.skipped_steps.iter().map(|note| escape_html(note)));
        notes.extend(self.report.cohort_error.iter().map(|error| format!("The cohort failed: {}", escape_html(error))));
        notes.extend(
            self.report.filter_method.iter().map(|how| format!("Variants were filtered by {}.", escape_html(how))),
        );
        if notes.is_empty() {
            return String::new();
        }
        let notes: String = notes.iter().map(|note| format!("<li>{note}</li>\n")).collect();
        figure("Notes", "Failures, skipped steps and other deviations.", &format!("<ul>\n{notes}</ul>\n"))
    }
}
