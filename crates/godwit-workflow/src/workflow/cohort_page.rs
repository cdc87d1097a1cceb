//! The cohort page of a workflow, `cohort.html`: a row for each sample with values of its metrics files, which a script
//! searches and sorts. The page makes no network requests.

use std::path::Path;

use godwit_pipeline::report_page::html::{escape_html, format_thousands};
use godwit_pipeline::report_page::{MetricsTable, PageScript, scripted_document_html};

use super::WorkflowReport;

/// The script that searches and sorts. The checksum must be changed with it.
const SCRIPT: PageScript =
    PageScript { text: include_str!("cohort_page.js"), sha256: "WTENkU7dC8qonScRcqZH1g1WLnN/d3HtgWNIok9bcZ4=" };

/// A column of the page: a value of a metrics file.
struct CohortColumn {
    /// Suffix of the file, after the name of the sample.
    suffix: &'static str,
    /// Name of the value in the file.
    name: &'static str,
    /// Heading on the page.
    heading: &'static str,
    /// True if the value is a fraction that is shown in percent.
    is_fraction: bool,
}

const fn column(suffix: &'static str, name: &'static str, heading: &'static str, is_fraction: bool) -> CohortColumn {
    CohortColumn { suffix, name, heading, is_fraction }
}

/// All columns. Those without a value in any sample are left out.
const COLUMNS: [CohortColumn; 20] = [
    column(".alignment_summary.txt", "TOTAL_READS", "Reads", false),
    column(".alignment_summary.txt", "PCT_PF_READS_ALIGNED", "Mapped, %", true),
    column(".alignment_summary.txt", "PF_MISMATCH_RATE", "Mismatches, %", true),
    column(".alignment_summary.txt", "PCT_CHIMERAS", "Chimeras, %", true),
    column(".alignment_summary.txt", "PCT_ADAPTER", "Adapters, %", true),
    column(".duplicates.txt", "PERCENT_DUPLICATION", "Duplicates, %", true),
    column(".duplicates.txt", "ESTIMATED_LIBRARY_SIZE", "Library size", false),
    column(".insert_size.txt", "MEDIAN_INSERT_SIZE", "Median insert, bp", false),
    column(".wgs_metrics", "MEAN_COVERAGE", "Mean coverage", false),
    column(".wgs_metrics", "PCT_10X", "Genome at 10×, %", true),
    column(".wgs_metrics", "PCT_20X", "Genome at 20×, %", true),
    column(".wgs_metrics", "PCT_30X", "Genome at 30×, %", true),
    column(".wgs_metrics", "FOLD_80_BASE_PENALTY", "Fold 80 (genome)", false),
    column(".gc_bias.summary_metrics", "AT_DROPOUT", "AT dropout", false),
    column(".gc_bias.summary_metrics", "GC_DROPOUT", "GC dropout", false),
    column(".hs_metrics", "MEAN_TARGET_COVERAGE", "Target coverage", false),
    column(".hs_metrics", "PCT_SELECTED_BASES", "On or near bait, %", true),
    column(".hs_metrics", "PCT_TARGET_BASES_20X", "Targets at 20×, %", true),
    column(".targeted_pcr_metrics", "MEAN_TARGET_COVERAGE", "Amplicon coverage", false),
    column(".targeted_pcr_metrics", "PCT_AMPLIFIED_BASES", "On or near amplicon, %", true),
];

/// A sample of the page.
struct CohortRow<'r> {
    sample: &'r str,
    is_failed: bool,
    /// A value for each of [`COLUMNS`]; `None` if the file or the value does not exist.
    values: Vec<Option<f64>>,
}

impl<'r> CohortRow<'r> {
    /// Reads the metrics files of a sample. Files that do not exist, as those of a failed sample, have no values.
    fn read(out: &Path, sample: &'r str, is_failed: bool) -> Self {
        let directory = out.join(sample);
        let mut last = ("", Vec::new());
        let mut values = Vec::new();
        for column in &COLUMNS {
            if last.0 != column.suffix {
                let text = std::fs::read_to_string(directory.join(format!("{sample}{}", column.suffix)));
                last = (column.suffix, MetricsTable::parse_all(&text.unwrap_or_default()));
            }
            values.push(last.1.first().and_then(|table| column.value(table)));
        }
        Self { sample, is_failed, values }
    }

    fn to_html(&self, columns: &[usize]) -> String {
        let cell = |at: &usize| {
            let text = self.values[*at].map_or_else(|| "–".to_owned(), |value| COLUMNS[*at].format_value(value));
            format!("<td>{text}</td>")
        };
        let failed = if self.is_failed { " (failed)" } else { "" };
        let cells: String = columns.iter().map(cell).collect();
        format!("<tr><th scope=\"row\">{}{failed}</th>{cells}</tr>\n", escape_html(self.sample))
    }
}

impl CohortColumn {
    /// Returns the value of a table. Of the rows of an alignment summary, that of all reads of pairs counts, or that of
    /// unpaired reads; of other tables, the first.
    fn value(&self, table: &MetricsTable) -> Option<f64> {
        let is_summary = table.columns.first().is_some_and(|name| name == "CATEGORY");
        let text = match is_summary {
            true => table.value(self.name, |category| category == "PAIR").or_else(|| table.value(self.name, |_| true)),
            false => table.value(self.name, |_| true),
        };
        text?.parse().ok().filter(|value: &f64| value.is_finite())
    }

    fn format_value(&self, value: f64) -> String {
        let value = if self.is_fraction { value * 100.0 } else { value };
        let text = format!("{value:.3}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

/// Returns the cohort page of a workflow whose samples are in directories of `out`. Returns `None` if no sample has metrics.
pub(super) fn cohort_page(report: &WorkflowReport, out: &Path) -> Option<String> {
    let samples = report.samples.iter();
    let rows: Vec<CohortRow> =
        samples.map(|outcome| CohortRow::read(out, &outcome.sample, outcome.error.is_some())).collect();
    page_html(&rows, &report.godwit)
}

fn page_html(rows: &[CohortRow], version: &str) -> Option<String> {
    let has_value = |at: &usize| rows.iter().any(|row| row.values[*at].is_some());
    let columns: Vec<usize> = (0..COLUMNS.len()).filter(has_value).collect();
    if columns.is_empty() {
        return None;
    }
    let headings = ["Sample"].into_iter().chain(columns.iter().map(|at| COLUMNS[*at].heading));
    let headings = headings.map(|name| format!("<th scope=\"col\"><button type=\"button\">{name}</button></th>"));
    let mut content = String::from(
        "<section>\n<h2>Samples</h2>\n<p class=\"search\"><label>Search names <input id=\"search\" type=\"search\"></label> \
         <span id=\"count\" role=\"status\"></span></p>\n<div class=\"scroll\"><table id=\"samples\">\n<thead><tr>",
    );
    content.extend(headings);
    content += "</tr></thead>\n<tbody>\n";
    content.extend(rows.iter().map(|row| row.to_html(&columns)));
    content += "</tbody>\n</table></div>\n</section>\n";
    let count = format_thousands(rows.len() as u64);
    let lead = format!("Metrics of {count} samples. A click on a heading sorts by its column.");
    Some(scripted_document_html("Cohort", "Cohort metrics", &lead, &content, version, Some(SCRIPT)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_thousand_samples_are_on_one_page_of_less_than_four_megabytes() {
        let names: Vec<String> = (0..10_000).map(|number| format!("sample-{number:05}")).collect();
        let row = |name: &'static str| CohortRow { sample: name, is_failed: false, values: vec![Some(0.987_654); 20] };
        let rows: Vec<CohortRow> = names.iter().map(|name| row(String::leak(name.clone()))).collect();
        let page = page_html(&rows, "1").expect("there are values");
        assert_eq!(page.matches("<tr>").count(), 10_001);
        assert_eq!(page.matches("</td>").count(), 200_000);
        assert!(page.contains("<th scope=\"row\">sample-09999</th>"));
        assert!(page.len() < 4_000_000, "{} bytes", page.len());
    }

    #[test]
    fn values_come_from_the_tables_of_each_sample() {
        let summary = "## METRICS CLASS\tx\nCATEGORY\tTOTAL_READS\tPCT_PF_READS_ALIGNED\nFIRST_OF_PAIR\t5\t1\n\
            PAIR\t10\t0.75\n\n";
        let out = tempfile::tempdir().expect("a temporary directory can be created");
        let directory = out.path().join("a<b");
        std::fs::create_dir(&directory).expect("it can be created");
        std::fs::write(directory.join("a<b.alignment_summary.txt"), summary).expect("it can be written to");
        let rows = [CohortRow::read(out.path(), "a<b", false), CohortRow::read(out.path(), "none", true)];
        let page = page_html(&rows, "1").expect("there are values");
        assert!(page.contains("<tr><th scope=\"row\">a&lt;b</th><td>10</td><td>75</td></tr>"), "{page}");
        assert!(page.contains("<tr><th scope=\"row\">none (failed)</th><td>–</td><td>–</td></tr>"), "{page}");
        assert!(page_html(&rows[1..], "1").is_none());
    }
}
