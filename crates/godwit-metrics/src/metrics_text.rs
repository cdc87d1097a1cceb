//! The text of a metrics file (htsjdk 4.2.0 `MetricsFile.write`).

use godwit_kernels::picard_text::{format_double, picard_header};

/// The text of a metrics file while it is written: header, rows, histogram.
#[derive(Clone, Debug)]
pub(crate) struct MetricsText {
    text: String,
}

/// A column of a histogram: its name, and a value for each bin that it has.
#[derive(Clone, Debug)]
pub(crate) struct HistogramColumn {
    /// Name of the column.
    pub(crate) name: &'static str,
    /// Bins in ascending order, each with its value.
    pub(crate) bins: Vec<(u64, f64)>,
}

impl MetricsText {
    /// Starts a file. `comment` becomes a header line (`# ...`).
    pub(crate) fn new(comment: &str) -> Self {
        Self { text: picard_header([comment]) }
    }

    /// Appends the rows of a metrics class. Appends nothing if there are no rows, as htsjdk does. `columns`: the names of
    /// the columns, separated by tabs.
    pub(crate) fn with_rows(mut self, class: &str, columns: &str, rows: &[String]) -> Self {
        if !rows.is_empty() {
            self.text += &format!("## METRICS CLASS\t{class}\n{columns}\n");
            rows.iter().for_each(|row| {
                self.text += row;
                self.text.push('\n');
            });
        }
        self
    }

    /// Returns the text of a file without a histogram.
    pub(crate) fn finish_without_histogram(self) -> String {
        self.text + "\n\n"
    }

    /// Appends the histogram and returns the text. `key_class`: the Java class of the bins. Columns without bins are
    /// omitted; without any column, there is no histogram. A bin that a column lacks has the value 0.
    pub(crate) fn finish(mut self, key_class: &str, bin_name: &str, columns: &[HistogramColumn]) -> String {
        self.text.push('\n');
        let columns: Vec<&HistogramColumn> = columns.iter().filter(|column| !column.bins.is_empty()).collect();
        if !columns.is_empty() {
            self.text += &format!("## HISTOGRAM\t{key_class}\n{bin_name}");
            columns.iter().for_each(|column| self.text += &format!("\t{}", column.name));
            self.text.push('\n');
            let mut keys: Vec<u64> = columns.iter().flat_map(|column| column.bins.iter().map(|bin| bin.0)).collect();
            keys.sort_unstable();
            keys.dedup();
            for key in keys {
                self.text += &key.to_string();
                for column in &columns {
                    let found = column.bins.binary_search_by_key(&key, |bin| bin.0);
                    let value = found.map_or(0.0, |at| column.bins[at].1);
                    self.text += &format!("\t{}", format_double(value));
                }
                self.text.push('\n');
            }
        }
        self.text + "\n"
    }
}

/// Joins the cells of a row of numbers.
pub(crate) fn join_numbers(values: &[f64]) -> String {
    values.iter().map(|value| format_double(*value)).collect::<Vec<_>>().join("\t")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_share_the_bins_of_all() {
        let one = HistogramColumn { name: "A", bins: vec![(1, 2.0), (3, 0.5)] };
        let other = HistogramColumn { name: "B", bins: vec![(2, 7.0)] };
        let none = HistogramColumn { name: "C", bins: vec![] };
        let text = MetricsText::new("Tool").finish("java.lang.Integer", "bin", &[one, none, other]);
        let header = "## htsjdk.samtools.metrics.StringHeader\n# Tool\n\n\n";
        assert_eq!(
            text,
            format!("{header}## HISTOGRAM\tjava.lang.Integer\nbin\tA\tB\n1\t2\t0\n2\t0\t7\n3\t0.5\t0\n\n")
        );
        assert_eq!(
            MetricsText::new("Tool").with_rows("class", "A", &[]).finish("k", "b", &[]),
            header.to_owned() + "\n"
        );
        assert_eq!(MetricsText::new("Tool").finish_without_histogram(), header.to_owned() + "\n");
    }
}
