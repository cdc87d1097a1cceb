//! Reads the table of Picard's unit test cases. `golden/picard_cases/README.md` describes the format and the source of
//! the table.

use std::path::PathBuf;

use crate::sam::{DUPLICATE_FLAG, SamText, flag};

/// The tag of a record that states whether the record is expected to be a duplicate. samtools, Picard and godwit
/// preserve it.
const EXPECTED_DUPLICATE_TAG: &str = "xd:i:";

/// A case of the table.
#[derive(Clone, Debug)]
pub struct PicardCase {
    /// The name of the case in the table.
    pub name: String,
    /// The records. A tag of each record states whether it is expected to be a duplicate.
    pub sam: SamText,
    /// The number of pairs expected to be optical duplicates.
    pub optical_pairs: u64,
}

/// Returns all cases of the table.
///
/// # Panics
/// When the table is malformed.
pub fn picard_cases() -> Vec<PicardCase> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden/picard_cases/cases.txt");
    let text = std::fs::read_to_string(&path);
    parse(&text.unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display())))
}

fn parse(text: &str) -> Vec<PicardCase> {
    let mut cases: Vec<PicardCase> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["case", name, "optical", optical, "from", _source] => cases.push(PicardCase {
                name: name.to_owned(),
                sam: SamText { header: header(), records: Vec::new() },
                optical_pairs: optical.parse().unwrap_or_else(|_| panic!("{line:?}: {optical} is no number")),
            }),
            [name, flag, contig, pos, cigar, mate_contig, mate_pos, quality, verdict] => {
                let (sequence, qualities) = bases_and_qualities(cigar, quality);
                let expected = u8::from(verdict == "duplicate");
                let fields = [name, flag, contig, pos, "0", cigar, mate_contig, mate_pos, "0", &sequence, &qualities];
                let case = cases.last_mut().unwrap_or_else(|| panic!("{line:?} stands before the first case"));
                case.sam.records.push(format!("{}\tRG:Z:1\t{EXPECTED_DUPLICATE_TAG}{expected}", fields.join("\t")));
            }
            _ => panic!("{line:?} is neither a case nor a record"),
        }
    }
    cases
}

fn header() -> Vec<String> {
    let mut lines = vec!["@HD\tVN:1.6\tSO:unsorted".to_owned()];
    lines.extend((1..=3).map(|number| format!("@SQ\tSN:chr{number}\tLN:200000000")));
    lines.push("@RG\tID:1\tSM:FREE_SAMPLE\tPL:ILLUMINA".to_owned());
    lines
}

/// Returns bases and qualities for a CIGAR: only A; aligned bases have `quality`, others a quality that no score counts.
/// Unmapped reads get none, as in the source.
fn bases_and_qualities(cigar: &str, quality: &str) -> (String, String) {
    let quality: u8 = quality.parse().unwrap_or_else(|_| panic!("quality {quality} is no number"));
    let (aligned, other) = (char::from(33 + quality), char::from(33 + 2));
    let mut qualities = String::new();
    let mut number = 0;
    for character in cigar.chars() {
        match character.to_digit(10) {
            Some(digit) => number = number * 10 + digit as usize,
            None => {
                match character {
                    'M' | '=' | 'X' => qualities.extend(std::iter::repeat_n(aligned, number)),
                    'I' | 'S' => qualities.extend(std::iter::repeat_n(other, number)),
                    _ => {}
                }
                number = 0;
            }
        }
    }
    if qualities.is_empty() { ("*".to_owned(), "*".to_owned()) } else { ("A".repeat(qualities.len()), qualities) }
}

/// Returns the records of a marked file whose duplicate bit differs from the expected one, one line each.
pub fn wrong_duplicate_flags(marked: &SamText) -> Vec<String> {
    let mut list = Vec::new();
    for record in &marked.records {
        let expected = record.contains(&format!("\t{EXPECTED_DUPLICATE_TAG}1"));
        assert!(
            expected || record.contains(&format!("\t{EXPECTED_DUPLICATE_TAG}0")),
            "{record:?} lost its expectation"
        );
        if (flag(record) & DUPLICATE_FLAG != 0) != expected {
            let fields: Vec<&str> = record.split('\t').take(6).collect();
            list.push(format!("{} should{} be a duplicate", fields.join(" "), if expected { "" } else { " not" }));
        }
    }
    list
}
