//! The SQL function `insert_sizes` against Picard CollectInsertSizeMetrics, and against the flags of the reads.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use godwit_tests::sam_records::random_sam;
use godwit_tests::tool::Tool;
use godwit_tests::{needs, needs_picard, picard, scratch};

use super::query_rows::rows;
use crate::run::formats::{aligned_sample, assert_same_lines};

const SQL: &str = "SELECT insert_size, orientation, pairs FROM insert_sizes('NAME') ORDER BY insert_size, orientation";

/// Returns the histogram of Picard in the form of the query above.
fn picard_rows(bam: &Path) -> Vec<String> {
    let directory = scratch::directory("insert-sizes");
    let text = |path: &Path| path.to_str().expect("scratch paths are text").to_owned();
    let (input, output, chart) = (text(bam), directory.join("sizes.txt"), text(&directory.join("chart.pdf")));
    let written = text(&output);
    let words = ["CollectInsertSizeMetrics", "--INPUT", &input, "--OUTPUT", &written, "--Histogram_FILE", &chart];
    let options = ["--MINIMUM_PCT", "0", "--HISTOGRAM_WIDTH", "1000000", "--VALIDATION_STRINGENCY", "SILENT"];
    picard::run(&[&words[..], &options[..]].concat()).expect("Picard runs");
    let file = fs::read_to_string(output).expect("Picard wrote it");
    let mut lines = file.lines().skip_while(|line| !line.starts_with("insert_size")).filter(|line| !line.is_empty());
    let names: Vec<String> = lines
        .next()
        .expect("there is a histogram")
        .split('\t')
        .map(|name| name.trim_start_matches("All_Reads.").trim_end_matches("_count").to_ascii_uppercase())
        .collect();
    let mut found = Vec::new();
    for line in lines {
        let fields: Vec<&str> = line.split('\t').collect();
        let counts: BTreeMap<&str, &str> =
            names.iter().map(String::as_str).zip(fields.iter().copied()).skip(1).collect();
        let present = counts.iter().filter(|(_, count)| **count != "0");
        found.extend(present.map(|(orientation, count)| format!("{}\t{orientation}\t{count}", fields[0])));
    }
    found
}

#[test]
fn counts_are_those_of_picard() {
    needs!("bwa", "samtools");
    needs_picard!();
    let (_, out) = aligned_sample();
    let expected = picard_rows(&out.join("sample.bam"));
    assert!(expected.len() > 100, "{}", expected.len());
    for name in ["sample.bam", "sample.parquet"] {
        assert_same_lines(&rows(&out, &SQL.replace("NAME", name)), &expected, name);
    }
}

/// Returns the counts that follow from the fields of the lines of samtools.
fn counted_rows(file: &Path) -> Vec<String> {
    let words = ["view".as_ref(), "-f".as_ref(), "1".as_ref(), "-F".as_ref(), "3404".as_ref(), file.as_os_str()];
    let text = String::from_utf8(Tool::require("samtools").run(words).stdout).expect("samtools prints text");
    let mut counts: BTreeMap<(i64, &str), usize> = BTreeMap::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let number = |at: usize| fields[at].parse::<i64>().expect("a number");
        let (flags, start, mate_start, size) = (number(1), number(3), number(7), number(8));
        if size == 0 {
            continue;
        }
        let mut span = 0;
        let mut length = 0;
        for letter in fields[5].bytes() {
            match letter {
                b'0'..=b'9' => length = length * 10 + i64::from(letter - b'0'),
                other => {
                    span += if b"MDN=X".contains(&other) { length } else { 0 };
                    length = 0;
                }
            }
        }
        let is_reverse = flags & 16 != 0;
        let (forward, reverse) = if is_reverse { (mate_start, start + span.max(1) - 1) } else { (start, start + size) };
        let orientation = match is_reverse == (flags & 32 != 0) {
            true => "TANDEM",
            false if forward < reverse => "FR",
            false => "RF",
        };
        *counts.entry((size.abs(), orientation)).or_default() += 1;
    }
    counts.iter().map(|((size, orientation), count)| format!("{size}\t{orientation}\t{count}")).collect()
}

#[test]
fn counts_of_random_reads_follow_from_their_fields() {
    needs!("samtools");
    let directory = scratch::directory("random-insert-sizes");
    fs::write(directory.join("r.sam"), random_sam(9701, 4000)).expect("it can be written");
    let expected = counted_rows(&directory.join("r.sam"));
    assert!(expected.len() > 50, "{}", expected.len());
    assert_same_lines(&rows(&directory, &SQL.replace("NAME", "r.sam")), &expected, "random reads");
}
