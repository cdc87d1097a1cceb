//! The section of the report page with the metrics of Picard, and the tables of their files.

use super::ReportPage;
use super::html::escape_html;
use super::plot::{Plot, Series, Shape};
use super::report_tables::{Row, figure, table};

/// Maximum number of rows that are shown with a row for each column.
const MAX_TRANSPOSED_ROWS: usize = 4;
/// Suffix of the file whose coverage by GC content is drawn.
const GC_DETAIL_SUFFIX: &str = ".gc_bias.detail_metrics";

/// A table of a metrics file of Picard.
///
/// # Examples
///
/// ```
/// use godwit_pipeline::report_page::MetricsTable;
///
/// let text = "## htsjdk.samtools.metrics.StringHeader\n# a\n\n## METRICS CLASS\tpicard.X\nA\tB\n1\t2\n\n";
/// let tables = MetricsTable::parse_all(text);
/// assert_eq!(tables[0].value("B", |_| true), Some("2"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricsTable {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Cells of each row.
    pub rows: Vec<Vec<String>>,
}

impl MetricsTable {
    /// Returns the tables of a metrics file: metrics, and the histogram.
    pub fn parse_all(text: &str) -> Vec<Self> {
        let mut tables = Vec::new();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if !(line.starts_with("## METRICS CLASS") || line.starts_with("## HISTOGRAM")) {
                continue;
            }
            let cells = |line: &str| line.split('\t').map(str::to_owned).collect::<Vec<_>>();
            let columns = lines.next().map(cells).unwrap_or_default();
            let rows = lines.by_ref().take_while(|line| !line.is_empty()).map(cells).collect();
            tables.push(Self { columns, rows });
        }
        tables
    }

    /// Returns the value of a column in the first row that passes `test`, which receives the first cell of the row.
    pub fn value(&self, column: &str, test: impl Fn(&str) -> bool) -> Option<&str> {
        let at = self.columns.iter().position(|name| name == column)?;
        let row = self.rows.iter().find(|row| row.first().is_some_and(|first| test(first)))?;
        row.get(at).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn to_html(&self) -> String {
        let escaped = |cells: &[String]| cells.iter().map(|cell| escape_html(cell)).collect::<Vec<_>>();
        let columns = escaped(&self.columns);
        let row = |cells: Vec<String>| Row { cells, bar: 0.0 };
        if self.rows.len() <= MAX_TRANSPOSED_ROWS {
            let transposed = columns.iter().enumerate().map(|(at, name)| {
                let values =
                    self.rows.iter().map(|cells| cells.get(at).map_or_else(String::new, |cell| escape_html(cell)));
                row([name.clone()].into_iter().chain(values).collect())
            });
            let headings: Vec<&str> = ["Metric"].into_iter().chain(self.rows.iter().map(|_| "Value")).collect();
            return table(&headings, &transposed.collect::<Vec<_>>());
        }
        let rows: Vec<Row> = self.rows.iter().map(|cells| row(escaped(cells))).collect();
        let headings: Vec<&str> = columns.iter().map(String::as_str).collect();
        format!("<details><summary>{} rows</summary>\n{}</details>\n", rows.len(), table(&headings, &rows))
    }
}

impl ReportPage<'_> {
    /// Returns a figure for each file of Picard's metrics.
    pub(super) fn picard_figures(&self) -> Vec<String> {
        let mut figures = Vec::new();
        for file in &self.qc.picard_files {
            let tables = MetricsTable::parse_all(&file.text);
            if file.suffix == GC_DETAIL_SUFFIX {
                figures.extend(tables.first().map(gc_plot));
            }
            let content: String = tables.iter().map(MetricsTable::to_html).collect();
            let note = format!("<code>{}</code>", escape_html(file.suffix));
            figures.push(figure(file.metric.program(), &note, &content));
        }
        figures
    }
}

/// Draws the normalized coverage by GC content.
fn gc_plot(table: &MetricsTable) -> String {
    let column = |name: &str| table.columns.iter().position(|column| column == name);
    let points = match (column("GC"), column("NORMALIZED_COVERAGE")) {
        (Some(gc), Some(coverage)) => {
            let number = |row: &[String], at: usize| row.get(at).and_then(|cell| cell.parse::<f64>().ok());
            let point = |row: &Vec<String>| Some((number(row, gc)?, number(row, coverage).filter(|y| y.is_finite())?));
            table.rows.iter().filter_map(point).collect()
        }
        _ => Vec::new(),
    };
    Plot {
        title: "Coverage by GC content",
        note: "Reads that start in windows of 100 bases, relative to the mean; 1 is expected everywhere.".into(),
        x_title: "G and C of the reference, %",
        y_title: "Normalized coverage",
        x_unit: " %",
        y_unit: "",
        shape: Shape::Line,
        y_range: None,
        series: vec![Series { name: "Coverage".into(), points }],
    }
    .to_figure()
}
