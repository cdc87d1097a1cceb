//! SAM text, and the differences between two files.
//!
//! Records are compared in order and field by field. Not compared are: `@PG` lines, because they hold the command lines
//! of different programs; the order of a record's tags, because Picard's differs from bwa's; `DT` of `@RG`, because
//! Picard's library writes the same instant in UTC. Of `@HD` only `SO` is compared: samtools, Picard and godwit write
//! different `VN`.

use std::path::Path;

use crate::tool::Tool;

/// The maximum number of differences that are listed.
const MAX_SHOWN_DIFFERENCES: usize = 8;

/// Names of the mandatory fields. SAMv1 §1.4 (2023-05-24).
const FIELD_NAMES: [&str; 11] =
    ["QNAME", "FLAG", "RNAME", "POS", "MAPQ", "CIGAR", "RNEXT", "PNEXT", "TLEN", "SEQ", "QUAL"];

/// The FLAG bit of a PCR or optical duplicate.
pub const DUPLICATE_FLAG: u16 = 0x400;

/// A SAM file in memory, line by line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SamText {
    /// The lines that start with `@`.
    pub header: Vec<String>,
    /// The lines of the records.
    pub records: Vec<String>,
}

impl SamText {
    /// Splits `text`.
    pub fn parse(text: &str) -> Self {
        let (header, records) = text.lines().map(str::to_owned).partition(|line| line.starts_with('@'));
        Self { header, records }
    }

    /// Reads `path`: directly when its name ends in `.sam`, else through `samtools view`.
    ///
    /// # Panics
    /// When it cannot be read.
    pub fn read(path: &Path) -> Self {
        if path.extension().is_some_and(|extension| extension == "sam") {
            let text = std::fs::read_to_string(path);
            return Self::parse(&text.unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display())));
        }
        let shown =
            Tool::require("samtools").run(["view".as_ref(), "--no-PG".as_ref(), "-h".as_ref(), path.as_os_str()]);
        Self::parse(&String::from_utf8(shown.stdout).expect("SAM text is ASCII"))
    }

    /// Returns the text of the file, each line with its line feed.
    pub fn to_text(&self) -> String {
        self.header.iter().chain(&self.records).flat_map(|line| [line.as_str(), "\n"]).collect()
    }

    /// Returns the header lines of a type (`@SQ`), their fields as a sorted list, without the date of read groups.
    fn header_lines(&self, kind: &str) -> Vec<Vec<&str>> {
        let mut lines = Vec::new();
        for line in self.header.iter().filter(|line| line.split('\t').next() == Some(kind)) {
            let mut fields: Vec<&str> = line.split('\t').skip(1).collect();
            fields.retain(|field| kind != "@RG" || !field.starts_with("DT:"));
            fields.sort_unstable();
            lines.push(fields);
        }
        lines
    }

    /// Returns the `SO` of `@HD`.
    fn sort_order(&self) -> Option<&str> {
        let head = self.header.iter().find(|line| line.starts_with("@HD"))?;
        head.split('\t').find_map(|field| field.strip_prefix("SO:"))
    }

    /// Returns the FLAG of each record, in order.
    ///
    /// # Panics
    /// When a record has none.
    pub fn flags(&self) -> Vec<u16> {
        self.records.iter().map(|record| flag(record)).collect()
    }
}

/// Returns the FLAG of a record line.
///
/// # Panics
/// When it has none.
pub fn flag(record: &str) -> u16 {
    let field = record.split('\t').nth(1).and_then(|field| field.parse().ok());
    field.unwrap_or_else(|| panic!("no FLAG in {record:?}"))
}

/// Returns the first differences between `found` and `expected`, one line each. The list is empty if they are equal.
pub fn differences(expected: &SamText, found: &SamText) -> Vec<String> {
    let mut list = header_differences(expected, found);
    if expected.records.len() != found.records.len() {
        list.push(format!("{} records expected, {} found", expected.records.len(), found.records.len()));
    }
    let mut differing = 0;
    for (index, (one, other)) in expected.records.iter().zip(&found.records).enumerate() {
        if one != other
            && let Some(difference) = record_difference(one, other)
        {
            differing += 1;
            if differing <= MAX_SHOWN_DIFFERENCES {
                list.push(format!("record {index} ({}): {difference}", one.split('\t').next().unwrap_or("")));
            }
        }
    }
    if differing > MAX_SHOWN_DIFFERENCES {
        list.push(format!("and {} more records", differing - MAX_SHOWN_DIFFERENCES));
    }
    list
}

fn header_differences(expected: &SamText, found: &SamText) -> Vec<String> {
    let mut list = Vec::new();
    if expected.sort_order() != found.sort_order() {
        list.push(format!("@HD SO: {:?} expected, {:?} found", expected.sort_order(), found.sort_order()));
    }
    for kind in ["@SQ", "@RG"] {
        let (one, other) = (expected.header_lines(kind), found.header_lines(kind));
        if one != other {
            let place = one.iter().zip(&other).position(|(a, b)| a != b).unwrap_or(one.len().min(other.len()));
            list.push(format!(
                "{kind} line {place}: {:?} expected, {:?} found ({} and {} lines)",
                one.get(place),
                other.get(place),
                one.len(),
                other.len()
            ));
        }
    }
    list
}

fn record_difference(expected: &str, found: &str) -> Option<String> {
    let (one, other): (Vec<&str>, Vec<&str>) = (expected.split('\t').collect(), found.split('\t').collect());
    let mut parts = Vec::new();
    for (place, name) in FIELD_NAMES.iter().enumerate() {
        if one.get(place) != other.get(place) {
            let value = |fields: &[&str]| fields.get(place).map_or("nothing".to_owned(), |text| shorten(text));
            parts.push(format!("{name} {} expected, {} found", value(&one), value(&other)));
        }
    }
    let (mut tags, mut others) = (one.get(11..).unwrap_or(&[]).to_vec(), other.get(11..).unwrap_or(&[]).to_vec());
    tags.sort_unstable();
    others.sort_unstable();
    if tags != others {
        let missing: Vec<_> = tags.iter().filter(|tag| !others.contains(tag)).collect();
        let added: Vec<_> = others.iter().filter(|tag| !tags.contains(tag)).collect();
        parts.push(format!("tags {missing:?} missing, {added:?} added"));
    }
    (!parts.is_empty()).then(|| format!("{} [expected at {}:{}]", parts.join("; "), one[2], one[3]))
}

fn shorten(text: &str) -> String {
    if text.len() > 60 { format!("{}...", &text[..57]) } else { text.to_owned() }
}

/// Checks that two files contain the same records and header.
///
/// # Panics
/// When they differ, or hold no records at all.
pub fn assert_same(expected: &Path, found: &Path) {
    let (one, other) = (SamText::read(expected), SamText::read(found));
    assert!(!one.records.is_empty(), "{} has no records: it can prove nothing", expected.display());
    let list = differences(&one, &other);
    assert!(list.is_empty(), "{} differs from {}:\n  {}", found.display(), expected.display(), list.join("\n  "));
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "@HD\tVN:1.6\tSO:coordinate\n@SQ\tSN:c\tLN:9\n@RG\tID:a\tSM:s\n@PG\tID:x\n";

    fn sam(records: &str) -> SamText {
        SamText::parse(&format!("{HEADER}{records}"))
    }

    #[test]
    fn order_of_tags_and_program_lines_are_no_difference() {
        let one = sam("r\t0\tc\t1\t9\t1M\t*\t0\t0\tA\tI\tNM:i:0\tRG:Z:a\n");
        let mut other = sam("r\t0\tc\t1\t9\t1M\t*\t0\t0\tA\tI\tRG:Z:a\tNM:i:0\n");
        other.header.retain(|line| !line.starts_with("@PG"));
        assert_eq!(differences(&one, &other), Vec::<String>::new());
    }

    #[test]
    fn every_field_tag_and_header_line_is_a_difference() {
        let one = sam("r\t0\tc\t1\t9\t1M\t=\t5\t7\tA\tI\tNM:i:0\n");
        for place in 0..12 {
            let mut fields: Vec<&str> = one.records[0].split('\t').collect();
            fields[place] = "1";
            let other = SamText { header: one.header.clone(), records: vec![fields.join("\t")] };
            let expected = usize::from(one.records != other.records);
            assert_eq!(differences(&one, &other).len(), expected, "field {place}");
        }
        for (line, changed) in [(0, "@HD\tVN:1.6\tSO:unknown"), (1, "@SQ\tSN:c\tLN:8"), (2, "@RG\tID:a\tSM:t")] {
            let mut other = one.clone();
            other.header[line] = changed.to_owned();
            assert_eq!(differences(&one, &other).len(), 1, "{changed}");
        }
    }

    #[test]
    fn a_swap_a_missing_record_and_a_repeated_tag_are_differences() {
        let (a, b) = ("a\t0\tc\t1\t9\t1M\t*\t0\t0\tA\tI\n", "b\t0\tc\t1\t9\t1M\t*\t0\t0\tA\tI\n");
        assert_eq!(differences(&sam(&format!("{a}{b}")), &sam(&format!("{b}{a}"))).len(), 2);
        assert_eq!(differences(&sam(&format!("{a}{b}")), &sam(a)).len(), 1);
        let once = "a\t0\tc\t1\t9\t1M\t*\t0\t0\tA\tI\tNM:i:0\n";
        let twice = "a\t0\tc\t1\t9\t1M\t*\t0\t0\tA\tI\tNM:i:0\tNM:i:0\n";
        assert_eq!(differences(&sam(once), &sam(twice)).len(), 1);
    }
}
