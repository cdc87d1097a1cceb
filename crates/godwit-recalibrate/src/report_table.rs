//! Tables of a GATK report, version 1.1 (GATK 4.6.2.0, `utils/report`).

use std::fmt::Write;

/// Texts that are right-aligned as numbers are.
const RIGHT_ALIGNED_TEXTS: [&str; 5] = ["null", "NA", "Infinity", "-Infinity", "NaN"];

/// A table that is written to a report.
pub(crate) struct ReportTable {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    /// Names of the columns and their formats.
    pub(crate) columns: &'static [(&'static str, &'static str)],
    pub(crate) rows: Vec<Vec<String>>,
}

impl ReportTable {
    /// Appends the table to the text of a report. A column is as wide as its longest cell; it is right-aligned if all
    /// its cells are numbers.
    pub(crate) fn write(&self, text: &mut String) {
        let width = |cell: &str| cell.encode_utf16().count();
        let cells = |at: usize| self.rows.iter().map(move |row| row[at].as_str());
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|at| cells(at).map(width).max().unwrap_or(0).max(self.columns[at].0.len()))
            .collect();
        let right_aligned: Vec<bool> =
            (0..self.columns.len()).map(|at| cells(at).filter(|cell| !cell.is_empty()).all(is_right_aligned)).collect();
        let formats: Vec<&str> = self.columns.iter().map(|(_, format)| *format).collect();
        // Writing to a string in memory cannot fail.
        let (count, rows, name) = (self.columns.len(), self.rows.len(), self.name);
        let _ = writeln!(text, "#:GATKTable:{count}:{rows}:{}:;", formats.join(":"));
        let _ = writeln!(text, "#:GATKTable:{name}:{}", self.description);
        let mut write_row = |row: &mut dyn Iterator<Item = (&str, bool)>| {
            for (at, (cell, is_right)) in row.enumerate() {
                text.push_str(if at > 0 { "  " } else { "" });
                let padding = " ".repeat(widths[at].saturating_sub(width(cell)));
                let _ = if is_right { write!(text, "{padding}{cell}") } else { write!(text, "{cell}{padding}") };
            }
            text.push('\n');
        };
        write_row(&mut self.columns.iter().map(|(name, _)| (*name, false)));
        for row in &self.rows {
            write_row(&mut row.iter().map(String::as_str).zip(right_aligned.iter().copied()));
        }
        text.push('\n');
    }
}

fn is_right_aligned(cell: &str) -> bool {
    RIGHT_ALIGNED_TEXTS.contains(&cell) || is_java_number(cell.trim())
}

/// Returns whether a text is a number in the sense of `NumberUtils.isCreatable` of Apache Commons Lang 3: decimal with
/// an optional fraction, exponent and type letter, hexadecimal after `0x`, or octal after `0`.
fn is_java_number(text: &str) -> bool {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if !digits.contains('.') {
        if let Some(hexadecimal) = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
            return !hexadecimal.is_empty() && hexadecimal.bytes().all(|digit| digit.is_ascii_hexdigit());
        }
        if digits.len() > 1 && digits.starts_with('0') && digits.as_bytes()[1].is_ascii_digit() {
            return digits.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
        }
    }
    let (number, type_letter) = match digits.char_indices().next_back() {
        Some((at, letter @ ('d' | 'D' | 'f' | 'F' | 'l' | 'L'))) => (&digits[..at], Some(letter)),
        _ => (digits, None),
    };
    let (mantissa, exponent) =
        number.split_once(['e', 'E']).map_or((number, None), |(mantissa, exponent)| (mantissa, Some(exponent)));
    let (whole, fraction) =
        mantissa.split_once('.').map_or((mantissa, None), |(whole, fraction)| (whole, Some(fraction)));
    let is_digits = |text: &str| text.bytes().all(|digit| digit.is_ascii_digit());
    let fraction_digits = fraction.unwrap_or_default();
    if !is_digits(whole) || !is_digits(fraction_digits) || whole.is_empty() && fraction_digits.is_empty() {
        return false;
    }
    let has_valid_exponent = exponent.is_none_or(|exponent| {
        let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !digits.is_empty() && is_digits(digits)
    });
    let is_long = matches!(type_letter, Some('l' | 'L'));
    has_valid_exponent && !(is_long && (exponent.is_some() || fraction.is_some()))
}

/// A table of a report that was read.
pub(crate) struct ParsedTable<'t> {
    /// Names of the columns, with the numbers of characters before them.
    columns: Vec<(usize, &'t str)>,
    pub(crate) rows: Vec<Vec<char>>,
}

impl<'t> ParsedTable<'t> {
    /// Finds a table by its name; `None` if the report does not contain it.
    pub(crate) fn find(report: &'t str, name: &str) -> Option<Self> {
        let mut lines = report.lines();
        let prefix = format!("#:GATKTable:{name}:");
        lines.by_ref().find(|line| line.starts_with(&prefix))?;
        let names = lines.next()?;
        let columns =
            names.split_whitespace().map(|word| (word.as_ptr() as usize - names.as_ptr() as usize, word)).collect();
        let rows = lines.take_while(|line| !line.is_empty()).map(|line| line.chars().collect()).collect();
        Some(Self { columns, rows })
    }

    /// Returns the index of a column.
    pub(crate) fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|(_, column)| *column == name)
    }

    /// Returns the value of a cell without its padding. A cell starts below the name of its column.
    pub(crate) fn cell(&self, row: &[char], column: usize) -> String {
        let start = self.columns[column].0.min(row.len());
        let end = self.columns.get(column + 1).map_or(row.len(), |(next, _)| *next).clamp(start, row.len());
        row[start..end].iter().collect::<String>().trim().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_java() {
        for number in ["1", "-1", "+1", "1.5", "1.", ".5", "1e5", "1E-5", "12L", "1.5f", "0x1F", "017", "0", "0.8"] {
            assert!(is_java_number(number), "{number}");
        }
        for text in ["", "-", ".", "AC", "1e", "08", "1.5L", "FC1.1", "1.2.3", "0x", "1 2", "12-", "e5"] {
            assert!(!is_java_number(text), "{text}");
        }
    }

    #[test]
    fn a_written_table_is_read_again() {
        let rows = [["lane 1", "30"], ["länge", "5"]].map(|row| row.map(str::to_owned).to_vec());
        let columns = &[("ReadGroup", "%s"), ("QualityScore", "%d")];
        let table = ReportTable { name: "RecalTable1", description: "", columns, rows: rows.to_vec() };
        let mut text = String::new();
        table.write(&mut text);
        let expected = "#:GATKTable:2:2:%s:%d:;\n#:GATKTable:RecalTable1:\nReadGroup  QualityScore\n\
                        lane 1               30\nlänge                 5\n\n";
        assert_eq!(text, expected);
        let parsed = ParsedTable::find(&text, "RecalTable1").unwrap();
        assert_eq!((parsed.column("QualityScore"), parsed.column("Errors")), (Some(1), None));
        let cells = parsed.rows.iter().map(|row| [parsed.cell(row, 0), parsed.cell(row, 1)]);
        assert!(cells.eq(rows.map(|row| [row[0].clone(), row[1].clone()])));
        assert!(ParsedTable::find(&text, "RecalTable2").is_none());
    }
}
