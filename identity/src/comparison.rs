//! The comparison of two streams of SAM records, in order and in every field and tag.
//!
//! In: two sorted files as lines of `samtools view`, the expected one and the found one. Out: the number of records that
//! differ, the templates they belong to, and the fields in which they differ.
//!
//! Equal streams are read once and not stored. From the first line that differs on, every line is counted by a hash, so
//! that a moved record does not make its neighbours count as different. A second reading fetches the lines whose counts
//! are not equal.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hasher};

use crate::error::Result;

/// The maximum number of differing records whose lines are stored.
const MAX_KEPT: usize = 20_000;

/// Names of the mandatory fields. SAMv1 §1.4 (2023-05-24).
const FIELDS: [&str; 11] = ["QNAME", "FLAG", "RNAME", "POS", "MAPQ", "CIGAR", "RNEXT", "PNEXT", "TLEN", "SEQ", "QUAL"];

/// Lines of a SAM stream without header.
pub trait LineSource {
    /// Reads the next line into `line`, without its line feed. Returns false at the end.
    ///
    /// # Errors
    /// When the stream cannot be read to its end.
    fn next_line(&mut self, line: &mut Vec<u8>) -> Result<bool>;
}

/// The differences between two streams.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// The number of records of the expected stream.
    pub records: u64,
    /// The number of expected records that were not found, or of found records that were not expected, whichever is more.
    /// Where only the order differs, the number of records at another position.
    pub differing: u64,
    /// True if the records are the same and only their order differs.
    pub only_order: bool,
    /// The templates of the differing records, by name; incomplete where there are very many.
    pub templates: Vec<DifferingTemplate>,
}

/// The differing records of a template.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DifferingTemplate {
    /// The QNAME.
    pub name: String,
    /// Lines of the expected stream.
    pub expected: Vec<String>,
    /// Lines of the found stream.
    pub found: Vec<String>,
}

impl DifferingTemplate {
    /// Returns the names of the fields and tags that differ if both files have the same number of records of the
    /// template; otherwise `record`.
    pub fn fields(&self) -> Vec<String> {
        if self.expected.len() != self.found.len() {
            return vec!["record".to_owned()];
        }
        let mut names = Vec::new();
        for (expected, found) in self.expected.iter().zip(&self.found) {
            for name in differing_fields(expected, found) {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
        }
        names
    }
}

impl Comparison {
    /// Returns the number of templates that differ in each field or tag, as `MAPQ 3, XA 1`.
    pub fn field_counts(&self) -> String {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for name in self.templates.iter().flat_map(DifferingTemplate::fields) {
            *counts.entry(name).or_default() += 1;
        }
        let texts: Vec<String> = counts.into_iter().map(|(name, count)| format!("{name} {count}")).collect();
        if self.only_order { "order".to_owned() } else { texts.join(", ") }
    }
}

/// Returns the names of the fields in which two lines differ. A tag is named by its two letters; `tags` means that only
/// the order of the tags differs.
fn differing_fields(expected: &str, found: &str) -> Vec<String> {
    let (one, other): (Vec<&str>, Vec<&str>) = (expected.split('\t').collect(), found.split('\t').collect());
    let mut names: Vec<String> = FIELDS
        .iter()
        .enumerate()
        .filter(|(place, _)| one.get(*place) != other.get(*place))
        .map(|(_, name)| (*name).to_owned())
        .collect();
    let (tags, others) = (one.get(FIELDS.len()..).unwrap_or(&[]), other.get(FIELDS.len()..).unwrap_or(&[]));
    let lacking = |from: &[&str], list: &[&str]| -> Vec<String> {
        from.iter().filter(|tag| !list.contains(tag)).map(|tag| tag.chars().take(2).collect()).collect()
    };
    for name in [lacking(tags, others), lacking(others, tags)].concat() {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if names.is_empty() && tags != others {
        names.push("tags".to_owned());
    }
    names
}

/// Compares two streams. `open` opens the expected stream (false) or the found stream (true) from its start, and may be called twice for
/// each.
///
/// # Errors
/// Those of `open` and of the streams.
pub fn compare(mut open: impl FnMut(bool) -> Result<Box<dyn LineSource>>) -> Result<Comparison> {
    let (mut expected, mut found) = (open(false)?, open(true)?);
    let (mut one, mut other) = (Vec::new(), Vec::new());
    let mut comparison = Comparison::default();
    // For the hash of each line, the number of expected lines minus the number of found lines.
    let mut counts: HashMap<u64, i64> = HashMap::new();
    let mut displaced = Vec::new();
    loop {
        let (has_expected, has_found) = (expected.next_line(&mut one)?, found.next_line(&mut other)?);
        if !has_expected && !has_found {
            break;
        }
        comparison.records += u64::from(has_expected);
        if has_expected && has_found && one == other {
            continue;
        }
        comparison.differing += 1;
        for (is_there, line, count) in [(has_expected, &one, 1), (has_found, &other, -1)] {
            if is_there {
                *counts.entry(hash(line)).or_default() += count;
                if displaced.len() < MAX_KEPT {
                    displaced.push(name_of(line));
                }
            }
        }
    }
    if comparison.differing == 0 {
        return Ok(comparison);
    }
    counts.retain(|_, count| *count != 0);
    comparison.only_order = counts.is_empty();
    if comparison.only_order {
        displaced.sort();
        displaced.dedup();
        let template = |name| DifferingTemplate { name, ..DifferingTemplate::default() };
        comparison.templates = displaced.into_iter().map(template).collect();
        return Ok(comparison);
    }
    let lacking: i64 = counts.values().filter(|count| **count > 0).sum();
    let surplus: i64 = -counts.values().filter(|count| **count < 0).sum::<i64>();
    comparison.differing = lacking.max(surplus).unsigned_abs();
    let mut templates: BTreeMap<String, DifferingTemplate> = BTreeMap::new();
    for is_found in [false, true] {
        for line in lines_with_count(open(is_found)?, &counts, if is_found { -1 } else { 1 })? {
            let name = name_of(&line);
            let template = templates.entry(name.clone()).or_default();
            template.name = name;
            let list = if is_found { &mut template.found } else { &mut template.expected };
            list.push(String::from_utf8_lossy(&line).into_owned());
        }
    }
    comparison.templates = templates.into_values().collect();
    Ok(comparison)
}

/// Returns the lines whose count is positive or negative, as `sign` requests.
fn lines_with_count(mut source: Box<dyn LineSource>, counts: &HashMap<u64, i64>, sign: i64) -> Result<Vec<Vec<u8>>> {
    let (mut lines, mut line) = (Vec::new(), Vec::new());
    while source.next_line(&mut line)? {
        let count = counts.get(&hash(&line)).copied().unwrap_or(0);
        if count * sign > 0 && lines.len() < MAX_KEPT {
            lines.push(line.clone());
        }
    }
    Ok(lines)
}

fn hash(line: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(line);
    hasher.finish()
}

fn name_of(line: &[u8]) -> String {
    let name = line.split(|byte| *byte == b'\t').next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // A test may panic.

    use super::*;

    struct Text(Vec<String>);

    impl LineSource for Text {
        fn next_line(&mut self, line: &mut Vec<u8>) -> Result<bool> {
            line.clear();
            if self.0.is_empty() {
                return Ok(false);
            }
            line.extend(self.0.remove(0).bytes());
            Ok(true)
        }
    }

    fn record(name: &str, flag: u16, position: u32, tags: &str) -> String {
        format!("{name}\t{flag}\tchr1\t{position}\t60\t4M\t=\t200\t100\tACGT\tIIII\t{tags}")
    }

    fn records() -> Vec<String> {
        (0..50).map(|index| record(&format!("r{index}"), 99, 100 + index, "NM:i:0\tAS:i:4")).collect()
    }

    fn compared(expected: &[String], found: &[String]) -> Comparison {
        let sides = [expected.to_vec(), found.to_vec()];
        compare(|is_found| Ok(Box::new(Text(sides[usize::from(is_found)].clone())))).unwrap()
    }

    #[test]
    fn equal_streams_have_no_differences() {
        let comparison = compared(&records(), &records());
        assert_eq!(comparison, Comparison { records: 50, ..Comparison::default() });
    }

    #[test]
    fn every_changed_field_and_tag_is_found_and_named() {
        for place in 1..13 {
            let mut found = records();
            let mut fields: Vec<String> = found[7].split('\t').map(str::to_owned).collect();
            fields[place] += "1";
            found[7] = fields.join("\t");
            let comparison = compared(&records(), &found);
            assert_eq!((comparison.differing, comparison.only_order), (1, false));
            assert_eq!(comparison.templates.len(), 1);
            assert_eq!(comparison.templates[0].name, "r7");
            let name = [&FIELDS[..], &["NM", "AS"]].concat()[place];
            assert_eq!(comparison.templates[0].fields(), [name]);
            assert_eq!(comparison.field_counts(), format!("{name} 1"));
        }
    }

    #[test]
    fn a_record_that_moved_does_not_make_its_neighbours_differ() {
        let mut found = records();
        let moved = found.remove(3).replace("\t103\t", "\t140\t");
        found.insert(40, moved);
        let comparison = compared(&records(), &found);
        assert_eq!((comparison.differing, comparison.templates.len()), (1, 1));
        assert_eq!(comparison.templates[0].fields(), ["POS"]);
    }

    #[test]
    fn another_order_of_the_same_records_is_a_difference() {
        let mut found = records();
        found.swap(5, 6);
        let comparison = compared(&records(), &found);
        assert_eq!((comparison.differing, comparison.only_order), (2, true));
        assert_eq!(comparison.field_counts(), "order");
        let names: Vec<&str> = comparison.templates.iter().map(|template| template.name.as_str()).collect();
        assert_eq!(names, ["r5", "r6"]);
    }

    #[test]
    fn another_order_of_tags_is_a_difference() {
        let found: Vec<String> =
            records().iter().map(|line| line.replace("NM:i:0\tAS:i:4", "AS:i:4\tNM:i:0")).collect();
        let comparison = compared(&records(), &found);
        assert_eq!(comparison.differing, 50);
        assert_eq!(comparison.templates[0].fields(), ["tags"]);
    }

    #[test]
    fn a_record_that_is_missing_or_doubled_is_found() {
        let (mut shorter, mut longer) = (records(), records());
        shorter.pop();
        longer.insert(1, longer[0].clone());
        for (found, name) in [(shorter, "r49"), (longer, "r0")] {
            let comparison = compared(&records(), &found);
            assert_eq!(comparison.differing, 1);
            assert_eq!(comparison.templates[0].name, name);
            assert_eq!(comparison.field_counts(), "record 1");
        }
    }
}
