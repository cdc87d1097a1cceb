//! The page about a workflow: samples, steps, hours of each step, genomes a day.

use super::html::{escaped, grouped};
use super::plot::{Plot, Series, Shape};
use super::tables::{Row, figure, table};
use super::{document, section};
use crate::observer::WorkflowStep;
use crate::workflow::{SampleOutcome, StepTime, StorageMoment, StorageNode, WorkflowReport};

/// What the page is about.
pub(crate) struct WorkflowPage<'p> {
    /// The run.
    pub(crate) report: &'p WorkflowReport,
    /// Path of the reference.
    pub(crate) reference: &'p str,
}

impl WorkflowPage<'_> {
    /// The page.
    pub(crate) fn to_html(&self) -> String {
        let report = self.report;
        let failed = report.samples.iter().filter(|sample| sample.error.is_some()).count();
        let hours = if report.nodes > 0 { report.wall_seconds } else { report.seconds } / 3600.0;
        let lead = format!(
            "Workflow <b>{}</b> against <b>{}</b>: {} of {} samples done, {:.2} hours.",
            escaped(report.workflow),
            escaped(self.reference.rsplit('/').next().unwrap_or(self.reference)),
            report.samples.len() - failed,
            report.samples.len(),
            hours
        );
        let numbers = [
            ("Samples done", grouped((report.samples.len() - failed) as u64)),
            ("Samples failed", grouped(failed as u64)),
            ("Hours", format!("{hours:.2}")),
            ("Genomes a day", format!("{:.1}", report.genomes_per_day)),
        ];
        let cells = numbers.map(|(label, value)| format!("<div><dt>{label}</dt><dd>{value}</dd></div>\n"));
        let mut content = format!("<dl class=\"numbers\" aria-label=\"Key numbers\">\n{}</dl>\n", cells.concat());
        content += &section("Samples", &[self.samples()]);
        content += &section("Steps", &[self.hours(), self.cohort(), self.notes()]);
        if !report.storage.is_empty() {
            content += &section("Storage", &[self.throughput(), self.connections()]);
        }
        document("Samples", "Run of many samples", &lead, &content, &report.godwit)
    }

    /// Steps that any sample went through, in their order.
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
        let on_nodes = self.report.nodes > 0;
        let row = |sample: &SampleOutcome| {
            let cell = |wanted: &WorkflowStep| match sample.steps.iter().find(|step| step.step == *wanted) {
                Some(step) => format!("{:.1}{}", step.seconds, if step.done_before { " *" } else { "" }),
                None => "–".to_owned(),
            };
            let outcome = match (&sample.error, sample.tries.len()) {
                (Some(_), tries) if tries > 1 => format!("failed {tries} times"),
                (Some(_), _) => "failed".to_owned(),
                (None, 0) => "done".to_owned(),
                (None, tries) => format!("done at try {}", tries + 1),
            };
            let mut cells = vec![escaped(&sample.sample), sample.lanes.to_string()];
            cells.extend(steps.iter().map(cell));
            cells.extend(on_nodes.then(|| escaped(sample.node.as_deref().unwrap_or("–"))));
            cells.push(outcome);
            Row { cells, bar: total(sample) / longest }
        };
        let headings = steps.iter().map(|step| format!("{}, s", step.name()));
        let headings: Vec<String> = ["Sample".to_owned(), "Lanes".to_owned()]
            .into_iter()
            .chain(headings)
            .chain(on_nodes.then(|| "Node".to_owned()))
            .chain(["Outcome".to_owned()])
            .collect();
        let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
        let rows: Vec<Row> = self.report.samples.iter().map(row).collect();
        figure(
            "Samples",
            "Seconds of each step, bars of all of them; * was done by an earlier start.",
            &table(&headings, &rows),
        )
    }

    fn hours(&self) -> String {
        let longest = self.report.hours.iter().map(|step| step.hours).fold(1e-9, f64::max);
        let row = |step: &crate::workflow::StepHours| Row {
            cells: vec![escaped(step.step.name()), format!("{:.4}", step.hours)],
            bar: step.hours / longest,
        };
        let rows: Vec<Row> = self.report.hours.iter().map(row).collect();
        let at_a_time = match self.report.nodes * self.report.per_node {
            0 => "steps run one after the other".to_owned(),
            samples => format!("up to {samples} samples at a time, steps of each one after the other"),
        };
        let about =
            format!("Over all samples; {at_a_time}. Genomes a day: {}.", escaped(self.report.genomes_per_day_is));
        figure("Hours by step", &about, &table(&["Step", "Hours"], &rows))
    }

    /// A line for each storage node.
    fn of_storage(&self, value: impl Fn(&StorageNode) -> f64) -> Vec<Series> {
        let moments = &self.report.storage;
        let nodes = moments.last().map(|moment| moment.nodes.as_slice()).unwrap_or_default();
        let series = |(at, node): (usize, &StorageNode)| {
            let point = |moment: &StorageMoment| Some((moment.seconds, value(moment.nodes.get(at)?)));
            let name = node.location.split_once("://").map_or(&*node.location, |(_, place)| place);
            Series { name: escaped(name), points: moments.iter().filter_map(point).collect() }
        };
        nodes.iter().enumerate().map(series).collect()
    }

    fn throughput(&self) -> String {
        Plot {
            title: "Storage throughput",
            note: "What each storage node sent or received, whichever was more.".into(),
            x_title: "Seconds",
            y_title: "MB/s",
            x_unit: " s",
            y_unit: " MB/s",
            shape: Shape::Line,
            y_max: None,
            series: self.of_storage(|node| node.bytes_per_s / 1e6),
        }
        .to_figure()
    }

    fn connections(&self) -> String {
        Plot {
            title: "Connections to storage",
            note: "Over which data went. A node that is lost has none.".into(),
            x_title: "Seconds",
            y_title: "Connections",
            x_unit: " s",
            y_unit: "",
            shape: Shape::Line,
            y_max: None,
            series: self.of_storage(|node| if node.healthy { node.connections as f64 } else { 0.0 }),
        }
        .to_figure()
    }

    fn cohort(&self) -> String {
        if self.report.cohort.is_empty() {
            return String::new();
        }
        let row = |step: &StepTime| Row {
            cells: vec![escaped(step.step.name()), format!("{:.1}", step.seconds), grouped(step.records)],
            bar: 0.0,
        };
        let rows: Vec<Row> = self.report.cohort.iter().map(row).collect();
        figure("All samples together", "", &table(&["Step", "Seconds", "Records"], &rows))
    }

    fn notes(&self) -> String {
        let failed = self.report.samples.iter().filter_map(|sample| Some((&sample.sample, sample.error.as_deref()?)));
        let failed = failed.map(|(name, error)| format!("<b>{}</b> failed: {}", escaped(name), escaped(error)));
        let mut notes: Vec<String> = failed.collect();
        notes.extend(self.report.left_out.iter().map(|note| escaped(note)));
        notes.extend(self.report.cohort_error.iter().map(|error| format!("The cohort failed: {}", escaped(error))));
        notes.extend(self.report.filters.iter().map(|how| format!("Variants were judged by {}.", escaped(how))));
        if notes.is_empty() {
            return String::new();
        }
        let notes: String = notes.iter().map(|note| format!("<li>{note}</li>\n")).collect();
        figure("Notes", "What failed, was left out, or was done otherwise.", &format!("<ul>\n{notes}</ul>\n"))
    }
}
