//! The report page of a comparison by haplotypes: the accuracy table, ROC plots, and what was compared.

use std::path::Path;

use godwit_haplotypes::{
    ACCURACY_HEADINGS, ComparedRecords, HaplotypeComparison, HaplotypeOptions, RocCurve, RocPoint, StratumReport,
};
use godwit_pipeline::report_page::html::{escape_html, format_thousands};
use godwit_pipeline::report_page::plot::{Plot, Series, Shape};
use godwit_pipeline::report_page::report_tables::{Row, figure, table};
use godwit_pipeline::report_page::{document_html, section_html};

/// The data of the report page.
pub(super) struct AccuracyPage<'p> {
    pub(super) options: &'p HaplotypeOptions,
    pub(super) comparison: &'p HaplotypeComparison,
}

impl AccuracyPage<'_> {
    /// Returns the report page as HTML.
    pub(super) fn to_html(&self) -> String {
        let (calls, truth) = (file_name(&self.options.calls), file_name(&self.options.truth));
        let lead = format!(
            "Calls against <b>{}</b> on <b>{}</b>, by haplotypes.",
            escape_html(&truth),
            escape_html(&file_name(&self.options.reference))
        );
        let mut content = self.key_numbers();
        content += &section_html("Accuracy", &[self.accuracy(), self.strata()]);
        content += &section_html("Scores", &[self.true_by_false_calls(), self.precision_by_recall()]);
        content += &section_html("Comparison", &[self.records()]);
        document_html(&calls, "Accuracy report", &lead, &content, env!("CARGO_PKG_VERSION"))
    }

    fn key_numbers(&self) -> String {
        let all = &self.comparison.all;
        let rate = |rate: Option<f64>| rate.map_or_else(|| "–".to_owned(), |rate| format!("{rate:.4}"));
        let numbers = [
            ("Recall", rate(all.recall)),
            ("Precision", rate(all.precision)),
            ("F1", rate(all.f1)),
            ("Variants found", format_thousands(all.found)),
            ("Variants missed", format_thousands(all.missed)),
            ("False calls", format_thousands(all.false_calls)),
        ];
        let cells = numbers.map(|(label, value)| format!("<div><dt>{label}</dt><dd>{value}</dd></div>\n"));
        format!("<dl class=\"numbers\" aria-label=\"Key numbers\">\n{}</dl>\n", cells.concat())
    }

    fn accuracy(&self) -> String {
        let rows = self.comparison.accuracy_rows();
        let rows: Vec<Row> = rows.into_iter().map(|cells| Row { cells: cells.to_vec(), bar: 0.0 }).collect();
        if rows.is_empty() {
            return String::new();
        }
        let note = "Precision is the share of the calls that the truth explains.";
        figure("Accuracy by type", note, &table(&ACCURACY_HEADINGS, &rows))
    }

    /// Returns a table with a row for each stratum and type; nothing without strata.
    fn strata(&self) -> String {
        // The first stratum contains all variants, which have rows above.
        let strata = self.comparison.strata.get(1..).unwrap_or_default();
        if strata.is_empty() {
            return String::new();
        }
        let rows: Vec<Row> = strata.iter().flat_map(stratum_rows).collect();
        let headings = ["Stratum", "Variant type", "Truth total", "False positives", "Recall", "Precision", "F1-Score"];
        figure("Accuracy by stratum", "Strata may overlap.", &table(&headings, &rows))
    }

    fn true_by_false_calls(&self) -> String {
        Plot {
            title: "ROC",
            note: "Variants of the truth that the calls with a score or a better one explain, by the number of false \
                   calls among them."
                .into(),
            x_title: "False calls",
            y_title: "Variants found",
            x_unit: "",
            y_unit: " found",
            shape: Shape::Line,
            y_range: None,
            series: self.series(|point| Some((point.false_calls, point.found))),
        }
        .to_figure()
    }

    fn precision_by_recall(&self) -> String {
        let series = self.series(|point| Some((point.recall? * 100.0, point.precision? * 100.0)));
        let lowest = series.iter().flat_map(|series| &series.points).map(|point| point.1).fold(100.0, f64::min);
        Plot {
            title: "Precision and recall",
            note: "For the calls with a score or a better one.".into(),
            x_title: "Recall, %",
            y_title: "Precision, %",
            x_unit: " %",
            y_unit: " %",
            shape: Shape::Line,
            y_range: Some((((lowest - 1.0).max(0.0) / 5.0).floor() * 5.0, 100.0)),
            series,
        }
        .to_figure()
    }

    fn series(&self, value: impl Fn(&RocPoint) -> Option<(f64, f64)>) -> Vec<Series> {
        let series = |curve: &RocCurve| Series {
            name: subset_name(curve.subset).to_owned(),
            points: curve.points.iter().filter_map(&value).collect(),
        };
        self.comparison.roc.iter().map(series).collect()
    }

    fn records(&self) -> String {
        let row = |name: &str, path: &Path, records: &ComparedRecords| {
            let ComparedRecords { unknown_contigs, skipped, outside, too_complex, .. } = *records;
            let numbers = [records.records, records.compared, unknown_contigs, skipped, outside, too_complex];
            let names = [escape_html(name), escape_html(&file_name(path))];
            Row { cells: names.into_iter().chain(numbers.map(format_thousands)).collect(), bar: 0.0 }
        };
        let rows = [
            row("Calls", &self.options.calls, &self.comparison.calls),
            row("Truth", &self.options.truth, &self.comparison.truth),
        ];
        let headings = [
            "",
            "File",
            "Records",
            "Compared",
            "On contigs that the reference does not have",
            "With a problem",
            "Outside of the confident regions",
            "Too complex",
        ];
        let bases =
            self.comparison.confident_bases.map(|bases| format!("{} confident bases. ", format_thousands(bases)));
        let note = format!(
            "{}Variants in intervals that were too complex ({}) do not count.",
            bases.unwrap_or_default(),
            format_thousands(self.comparison.too_complex.len() as u64)
        );
        figure("Records", &note, &table(&headings, &rows))
    }
}

fn stratum_rows(stratum: &StratumReport) -> [Row; 2] {
    [("INDEL", &stratum.indels), ("SNP", &stratum.snps)].map(|(name, found)| {
        let counts = &found.counts;
        let rates = [counts.recall, counts.precision, counts.f1];
        let rates = rates.map(|rate| rate.map_or_else(|| "–".to_owned(), |rate| format!("{rate:.6}")));
        let texts = [escape_html(&stratum.name), name.to_owned()];
        let numbers = [counts.truth, counts.false_calls].map(format_thousands);
        Row { cells: texts.into_iter().chain(numbers).chain(rates).collect(), bar: 0.0 }
    })
}

/// Returns the name of a subset of the ROC tables for the legend.
fn subset_name(subset: &str) -> &str {
    match subset {
        "ALL" => "All variants",
        "SNP" => "SNPs",
        "NON_SNP" => "Other variants",
        other => other,
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}
