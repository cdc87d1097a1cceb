//! Picard metrics files, and the differences between two of them.
//!
//! Values are compared as text: a number that is rounded differently from Picard is a difference. Comment lines (command
//! line, start time) are not compared.

use std::path::Path;

/// The content of a metrics file, without its comments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricsFile {
    /// The class named after `## METRICS CLASS`.
    pub class: String,
    /// The names of the columns.
    pub columns: Vec<String>,
    /// The cells, one list per library.
    pub rows: Vec<Vec<String>>,
    /// The class named after `## HISTOGRAM`, if there is one.
    pub histogram_class: Option<String>,
    /// The lines of the histogram, the names of its columns first.
    pub histogram: Vec<String>,
}

impl MetricsFile {
    /// Reads a file.
    ///
    /// # Panics
    /// When it cannot be read.
    pub fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path);
        Self::parse(&text.unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display())))
    }

    /// Parses the text of a metrics file. Sections that are missing in the text are empty in the result.
    pub fn parse(text: &str) -> Self {
        let mut parsed = Self::default();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if let Some(class) = line.strip_prefix("## METRICS CLASS") {
                parsed.class = class.trim().to_owned();
                parsed.columns = cells(lines.next().unwrap_or(""));
                parsed.rows = lines.by_ref().take_while(|line| !line.is_empty()).map(cells).collect();
            } else if let Some(class) = line.strip_prefix("## HISTOGRAM") {
                parsed.histogram_class = Some(class.trim().to_owned());
                parsed.histogram = lines.by_ref().take_while(|line| !line.is_empty()).map(str::to_owned).collect();
            }
        }
        parsed
    }

    /// Returns the sum of a column of whole numbers over all libraries.
    ///
    /// # Panics
    /// When there is no such column, or a value is not a whole number.
    pub fn column_sum(&self, column: &str) -> u64 {
        let place = self.columns.iter().position(|name| name == column);
        let place = place.unwrap_or_else(|| panic!("no column {column} in {:?}", self.columns));
        let number = |row: &Vec<String>| row[place].parse::<u64>().unwrap_or_else(|_| panic!("{column}: {row:?}"));
        self.rows.iter().map(number).sum()
    }
}

fn cells(line: &str) -> Vec<String> {
    line.split('\t').map(str::to_owned).collect()
}

/// Returns the differences between `found` and `expected`, one line each. The list is empty if they are equal.
pub fn differences(expected: &MetricsFile, found: &MetricsFile) -> Vec<String> {
    let mut list = Vec::new();
    if expected.class != found.class {
        list.push(format!("class {:?} expected, {:?} found", expected.class, found.class));
    }
    if expected.columns != found.columns {
        list.push(format!("columns {:?} expected, {:?} found", expected.columns, found.columns));
    }
    if expected.rows.len() != found.rows.len() {
        list.push(format!("{} libraries expected, {} found", expected.rows.len(), found.rows.len()));
    }
    for (one, other) in expected.rows.iter().zip(&found.rows) {
        let library = one.first().map_or("", String::as_str);
        for place in 0..one.len().max(other.len()) {
            if one.get(place) != other.get(place) {
                let column = expected.columns.get(place).map_or("?", String::as_str);
                list.push(format!("{library} {column}: {:?} expected, {:?} found", one.get(place), other.get(place)));
            }
        }
    }
    if expected.histogram_class != found.histogram_class {
        list.push(format!("histogram {:?} expected, {:?} found", expected.histogram_class, found.histogram_class));
    }
    if expected.histogram != found.histogram {
        let (one, other) = (&expected.histogram, &found.histogram);
        let place = one.iter().zip(other).position(|(a, b)| a != b).unwrap_or(one.len().min(other.len()));
        list.push(format!("histogram line {place}: {:?} expected, {:?} found", one.get(place), other.get(place)));
    }
    list
}

/// Checks that two metrics files contain the same values.
///
/// # Panics
/// When they differ, or hold none.
pub fn assert_same(expected: &Path, found: &Path) {
    let (one, other) = (MetricsFile::read(expected), MetricsFile::read(found));
    assert!(!one.columns.is_empty(), "{} is no metrics file", expected.display());
    let list = differences(&one, &other);
    assert!(list.is_empty(), "{} differs from {}:\n  {}", found.display(), expected.display(), list.join("\n  "));
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "## htsjdk.samtools.metrics.StringHeader\n# MarkDuplicates --INPUT a\n\n## METRICS CLASS\t\
        picard.sam.DuplicationMetrics\nLIBRARY\tA\nlib\t0.5\n\n## HISTOGRAM\tjava.lang.Double\nBIN\tx\n1.0\t1.2\n\n";

    #[test]
    fn comments_are_no_difference_and_every_value_is() {
        let expected = MetricsFile::parse(TEXT);
        assert_eq!(expected.rows, [["lib", "0.5"]]);
        assert_eq!(expected.histogram, ["BIN\tx", "1.0\t1.2"]);
        assert!(differences(&expected, &MetricsFile::parse(&TEXT.replace("--INPUT a", "b"))).is_empty());
        for (from, to) in
            [("0.5", "0.50"), ("1.2", "1.20"), ("LIBRARY", "LIB"), ("sam.Dup", "sam.dup"), ("Double", "D")]
        {
            assert_eq!(differences(&expected, &MetricsFile::parse(&TEXT.replace(from, to))).len(), 1, "{from}");
        }
    }
}
