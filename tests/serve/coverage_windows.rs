//! The SQL function `coverage_windows` against `samtools bedcov`.

use std::fs;
use std::path::Path;

use godwit_tests::tool::Tool;
use godwit_tests::{needs, scratch};

use super::query_rows::{rows, run_query};
use crate::run::formats::{aligned_sample, assert_same_lines, to_lines};

fn samtools(words: &[&str]) -> Vec<String> {
    let output = Tool::require("samtools").run(words);
    to_lines(&String::from_utf8(output.stdout).expect("samtools prints text"))
}

/// Writes the windows of all contigs of a BAM file as BED.
fn write_windows(bam: &str, size: u64, bed: &Path) {
    let mut text = String::new();
    for line in samtools(&["idxstats", bam]) {
        let fields: Vec<&str> = line.split('\t').collect();
        let length: u64 = fields[1].parse().expect("a length");
        for start in (0..length).step_by(size as usize) {
            text += &format!("{}\t{start}\t{}\n", fields[0], (start + size).min(length));
        }
    }
    fs::write(bed, text).expect("it can be written");
}

#[test]
fn sums_are_those_of_bedcov() {
    needs!("bwa", "samtools");
    let (_, out) = aligned_sample();
    let bam = out.join("sample.bam");
    let bam = bam.to_str().expect("scratch paths are text");
    let bed = scratch::directory("windows").join("windows.bed");
    for size in [1000, 77, 100_000_000] {
        write_windows(bam, size, &bed);
        let expected = samtools(&["bedcov", "-j", bed.to_str().expect("scratch paths are text"), bam]);
        for name in ["sample.bam", "sample.parquet"] {
            let sql =
                format!("SELECT contig, position, end_position, depth_sum FROM coverage_windows('{name}', {size})");
            assert_same_lines(&rows(&out, &sql), &expected, name);
        }
        let of_contig: Vec<String> = expected.iter().filter(|line| line.starts_with("chr2\t")).cloned().collect();
        let sql = format!(
            "SELECT contig, position, end_position, depth_sum FROM coverage_windows('sample.bam', {size}) \
             WHERE region('chr2')"
        );
        assert_same_lines(&rows(&out, &sql), &of_contig, "one contig");
    }
    let totals = "SELECT sum(covered) - (SELECT sum(end_position - position) FROM coverage('sample.bam')), \
        sum(depth_sum) - (SELECT sum(depth * (end_position - position)) FROM coverage('sample.bam')), \
        min(mean_depth * (end_position - position) - depth_sum) > -0.001 FROM coverage_windows('sample.bam', 500)";
    assert_eq!(rows(&out, totals), ["0\t0\ttrue"]);
}

#[test]
fn calls_that_are_not_valid_are_rejected() {
    let directory = scratch::directory("wrong-windows");
    let header = "@HD\tVN:1.6\tSO:coordinate\n@SQ\tSN:a\tLN:100\n@SQ\tSN:b\tLN:100\n";
    let read = |name: &str, contig: &str| format!("{name}\t0\t{contig}\t98\t9\t5M\t*\t0\t0\tACGTA\tIIIII\n");
    fs::write(directory.join("s.sam"), format!("{header}{}{}", read("1", "a"), read("2", "b")))
        .expect("it can be written");
    fs::write(directory.join("other.sam"), format!("{header}{}{}", read("1", "b"), read("2", "a")))
        .expect("it can be written");
    // Bases beyond the end of a contig are in no window.
    let sql = "SELECT contig, position, end_position, covered, depth_sum FROM coverage_windows('s.sam', 60)";
    let expected = ["a\t0\t60\t0\t0", "a\t60\t100\t3\t3", "b\t0\t60\t0\t0", "b\t60\t100\t3\t3"];
    assert_eq!(rows(&directory, sql), expected);
    for (call, codes, word) in [
        ("coverage_windows()", [2], "coverage_windows()"),
        ("coverage_windows('s.sam')", [2], "size of a window"),
        ("coverage_windows('s.sam', 0)", [2], "at least 1"),
        ("coverage_windows('s.sam', 3000000000)", [2], "at most"),
        ("coverage_windows('s.sam', '5')", [2], "size of a window"),
        ("coverage_windows('none.bam', 5)", [2], "none.bam"),
        ("coverage_windows('../s.sam', 5)", [2], "../s.sam"),
        ("coverage_windows('other.sam', 5)", [3], "order of its header"),
    ] {
        run_query(&directory, &format!("SELECT * FROM {call}")).assert_rejected(&codes, &[word]);
    }
}
