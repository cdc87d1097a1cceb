//! The SQL function `pileup` against `samtools mpileup`, on aligned and on random reads.

use std::fs;
use std::path::{Path, PathBuf};

use godwit_tests::sam_records::random_sam;
use godwit_tests::tool::Tool;
use godwit_tests::{needs, scratch};

use super::query_rows::{rows, run_query};
use super::regions::random_regions;
use crate::run::formats::{aligned_sample, assert_same_lines};

/// Returns the counts of one line of `samtools mpileup`, in the columns of the query below; `None` without bases and
/// deletions.
fn counts_of_line(line: &str) -> Option<String> {
    let fields: Vec<&str> = line.split('\t').collect();
    let (mut bases, mut deletions, mut insertions, mut reverse) = ([0; 5], 0, 0, 0);
    let mut letters = fields[4].chars();
    while let Some(letter) = letters.next() {
        match letter {
            '^' => drop(letters.next()),
            '$' | '>' | '<' => {}
            '*' | '#' => deletions += 1,
            '+' | '-' => {
                insertions += i32::from(letter == '+');
                let digits: String = letters.as_str().chars().take_while(char::is_ascii_digit).collect();
                let length: usize = digits.parse().expect("a length follows");
                letters = letters.as_str()[digits.len() + length..].chars();
            }
            base => {
                bases["ACGT".find(base.to_ascii_uppercase()).unwrap_or(4)] += 1;
                reverse += i32::from(base.is_ascii_lowercase());
            }
        }
    }
    let [a, c, g, t, n] = bases;
    let depth = a + c + g + t + n;
    let position: i32 = fields[1].parse().expect("a position");
    let line = format!(
        "{}\t{}\t{position}\t{depth}\t{a}\t{c}\t{g}\t{t}\t{n}\t{deletions}\t{insertions}\t{reverse}",
        fields[0],
        position - 1
    );
    (depth + deletions > 0).then_some(line)
}

fn samtools_counts(bam: &Path, words: &[&str]) -> Vec<String> {
    let options = ["mpileup", "-x", "-A", "-B", "-Q", "0", "-d", "0"];
    let words = options.iter().chain(words).map(|word| std::ffi::OsStr::new(*word).to_owned());
    let output = Tool::require("samtools").run(words.chain([bam.as_os_str().to_owned()]));
    let text = String::from_utf8(output.stdout).expect("samtools prints text");
    text.lines().filter_map(counts_of_line).collect()
}

#[test]
fn counts_are_those_of_samtools() {
    needs!("bwa", "samtools");
    let (_, out) = aligned_sample();
    let whole = samtools_counts(&out.join("sample.bam"), &[]);
    assert!(whole.len() > 100_000, "{}", whole.len());
    for name in ["sample.bam", "sample.parquet"] {
        assert_same_lines(&rows(&out, &format!("SELECT * FROM pileup('{name}')")), &whole, name);
    }
    for region in random_regions(9101, 14) {
        let expected = samtools_counts(&out.join("sample.bam"), &["-r", &region]);
        let called = format!("SELECT * FROM pileup('sample.bam', '{region}')");
        assert_same_lines(&rows(&out, &called), &expected, &region);
        let conditioned = format!("SELECT * FROM pileup('sample.bam') WHERE region('{region}')");
        assert_same_lines(&rows(&out, &conditioned), &expected, &region);
    }
    let depths = "SELECT sum(p.depth) - (SELECT sum(depth * (end_position - position)) FROM coverage('sample.bam')) AS d \
        FROM pileup('sample.bam') p";
    assert_eq!(rows(&out, depths), ["0"]);
}

/// Writes random reads that have bases, sorted by position. Leaves out two kinds that `samtools mpileup` cannot tell: it
/// shows the strand of a base by its case, which a base `=` does not have, and after a CIGAR operation of length 0 it
/// shows a base where the read has a deletion.
fn write_random_bam(directory: &Path, seed: u64) -> PathBuf {
    let (sam, bam) = (directory.join("unsorted.sam"), directory.join("random.bam"));
    let has_letters = |bases: &str| bases != "*" && !bases.contains('=');
    let has_empty_operation =
        |cigar: &str| cigar.split(|c: char| !c.is_ascii_digit()).any(|length| length.parse() == Ok(0));
    let has_bases = |line: &&str| {
        let fields: Vec<&str> = line.split('\t').collect();
        line.starts_with('@') || (has_letters(fields[9]) && !has_empty_operation(fields[5]))
    };
    let lines: Vec<String> = random_sam(seed, 3000).lines().filter(has_bases).map(str::to_owned).collect();
    fs::write(&sam, lines.join("\n") + "\n").expect("it can be written");
    let words = ["sort".as_ref(), "-o".as_ref(), bam.as_os_str(), sam.as_os_str()];
    Tool::require("samtools").run(words);
    Tool::require("samtools").run(["index".as_ref(), bam.as_os_str()]);
    bam
}

#[test]
fn counts_of_random_reads_are_those_of_samtools() {
    needs!("samtools");
    for seed in [9201, 9202, 9203] {
        let directory = scratch::directory("random-pileups");
        let bam = write_random_bam(&directory, seed);
        let expected = samtools_counts(&bam, &[]);
        assert!(expected.len() > 1000, "{}", expected.len());
        assert_same_lines(&rows(&directory, "SELECT * FROM pileup('random.bam')"), &expected, "random reads");
    }
}

#[test]
fn calls_that_are_not_valid_are_rejected() {
    let directory = scratch::directory("wrong-pileups");
    fs::write(directory.join("u.sam"), random_sam(9301, 50)).expect("it can be written");
    fs::write(directory.join("t.csv"), "a\n1\n").expect("it can be written");
    let lying = random_sam(9301, 50).replace("@HD\tVN:1.6", "@HD\tVN:1.6\tSO:coordinate");
    fs::write(directory.join("lying.sam"), lying).expect("it can be written");
    for (call, codes, word) in [
        ("pileup()", [2], "pileup()"),
        ("pileup(1)", [2], "pileup()"),
        ("pileup('t.csv')", [2], "not a dataset of reads"),
        ("pileup('none.bam')", [2], "none.bam"),
        ("pileup('../u.sam')", [2], "../u.sam"),
        ("pileup('u.sam')", [2], "samtools sort"),
        ("pileup('lying.sam')", [3], "not sorted"),
        ("pileup('lying.sam', 'chr1:5-2')", [2], "chr1:5-2"),
        ("pileup('lying.sam', 'chr9')", [2], "chr9"),
    ] {
        run_query(&directory, &format!("SELECT * FROM {call}")).assert_rejected(&codes, &[word]);
    }
}
