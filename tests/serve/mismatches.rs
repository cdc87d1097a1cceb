//! The SQL function `mismatches` against `samtools mpileup` with a reference.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use godwit_tests::binary::godwit;
use godwit_tests::sam_records::random_sam;
use godwit_tests::tool::Tool;
use godwit_tests::{needs, scratch};

use super::query_rows::{rows, run_query};
use super::regions::random_regions;
use crate::run::formats::{aligned_sample, assert_same_lines, to_lines};

/// Returns the rows at positions where the reference has A, C, G or T. Elsewhere bwa writes a random base into MD.
fn known_rows(directory: &Path, reference: &Path, sql: &str) -> Vec<String> {
    let fasta = fs::read_to_string(reference).expect("the reference is there");
    let contigs = fasta.split('>').skip(1).map(|contig| {
        let (title, bases) = contig.split_once('\n').unwrap_or((contig, ""));
        let name = title.split_ascii_whitespace().next().unwrap_or_default();
        (name, bases.bytes().filter(|base| !base.is_ascii_whitespace()).collect::<Vec<u8>>())
    });
    let contigs: HashMap<&str, Vec<u8>> = contigs.collect();
    let is_known = |line: &String| {
        let fields: Vec<&str> = line.split('\t').collect();
        let position: usize = fields[1].parse().expect("a position");
        b"ACGT".contains(&contigs[fields[0]][position].to_ascii_uppercase())
    };
    rows(directory, sql).into_iter().filter(is_known).collect()
}

/// Returns the counts of one line of `samtools mpileup -f`, in the columns of `mismatches`; `None` without mismatches.
fn counts_of_line(line: &str) -> Option<String> {
    let fields: Vec<&str> = line.split('\t').collect();
    let (mut depth, mut bases, mut reverse) = (0, [0; 5], 0);
    let mut letters = fields[4].chars();
    while let Some(letter) = letters.next() {
        match letter {
            '^' => drop(letters.next()),
            '$' | '>' | '<' | '*' | '#' => {}
            '+' | '-' => {
                let digits: String = letters.as_str().chars().take_while(char::is_ascii_digit).collect();
                let length: usize = digits.parse().expect("a length follows");
                letters = letters.as_str()[digits.len() + length..].chars();
            }
            '.' | ',' => depth += 1,
            base => {
                depth += 1;
                bases["ACGT".find(base.to_ascii_uppercase()).unwrap_or(4)] += 1;
                reverse += i32::from(base.is_ascii_lowercase());
            }
        }
    }
    let [a, c, g, t, n] = bases;
    let mismatches = a + c + g + t + n;
    let position: i32 = fields[1].parse().expect("a position");
    let (contig, reference) = (fields[0], fields[2].to_ascii_uppercase());
    let counts = format!("{depth}\t{mismatches}\t{a}\t{c}\t{g}\t{t}\t{n}\t{reverse}");
    let is_known = ["A", "C", "G", "T"].contains(&reference.as_str());
    (mismatches > 0 && is_known).then(|| format!("{contig}\t{}\t{position}\t{reference}\t{counts}", position - 1))
}

fn samtools_counts(bam: &Path, reference: &Path, words: &[&str]) -> Vec<String> {
    let options = ["mpileup", "-x", "-A", "-B", "-Q", "0", "-d", "0", "-f"];
    let options = options.iter().map(|word| std::ffi::OsStr::new(*word).to_owned());
    let words = words.iter().map(|word| std::ffi::OsStr::new(*word).to_owned());
    let files = [reference.as_os_str().to_owned()].into_iter().chain(words).chain([bam.as_os_str().to_owned()]);
    let output = Tool::require("samtools").run(options.chain(files));
    String::from_utf8(output.stdout).expect("samtools prints text").lines().filter_map(counts_of_line).collect()
}

#[test]
fn mismatches_are_those_of_samtools() {
    needs!("bwa", "samtools");
    let (sample, out) = aligned_sample();
    let (bam, reference) = (out.join("sample.bam"), &sample.reference);
    let whole = samtools_counts(&bam, reference, &[]);
    assert!(whole.len() > 1000, "{}", whole.len());
    for name in ["sample.bam", "sample.parquet"] {
        let sql = format!("SELECT * FROM mismatches('{name}')");
        assert_same_lines(&known_rows(&out, reference, &sql), &whole, name);
    }
    for region in random_regions(9501, 10) {
        let expected = samtools_counts(&bam, reference, &["-r", &region]);
        let called = format!("SELECT * FROM mismatches('sample.bam', '{region}')");
        assert_same_lines(&known_rows(&out, reference, &called), &expected, &region);
        let conditioned = format!("SELECT * FROM mismatches('sample.bam') WHERE region('{region}')");
        assert_same_lines(&known_rows(&out, reference, &conditioned), &expected, &region);
    }
    let depths = "SELECT count(*) FROM mismatches('sample.bam') m JOIN pileup('sample.bam') p \
        ON m.contig = p.contig AND m.position = p.position WHERE m.depth <> p.depth OR m.A > p.A OR m.T > p.T";
    assert_eq!(rows(&out, depths), ["0"]);
}

/// A SAM file with one read for each CIGAR and tag.
fn small_sam(reads: &[(&str, &str, &str)]) -> String {
    let header = "@HD\tVN:1.6\tSO:coordinate\n@SQ\tSN:chr1\tLN:1000\n".to_owned();
    let lines = reads.iter().enumerate().map(|(at, (cigar, bases, tags))| {
        let qualities = "I".repeat(bases.len());
        format!("r{at}\t0\tchr1\t{}\t60\t{cigar}\t*\t0\t0\t{bases}\t{qualities}{tags}\n", 11 + at)
    });
    header + &lines.collect::<String>()
}

#[test]
fn tags_with_deletions_and_clips_are_read() {
    let directory = scratch::directory("small-mismatches");
    let reads = [
        ("2S3M2D3M", "TTACGACG", "\tMD:Z:1G1^TT0A2"),
        ("1H4M1I2M", "ACGTAAC", "\tMD:Z:6"),
        ("3M10N2M", "NCGTA", "\tMD:Z:0a3T0"),
    ];
    fs::write(directory.join("s.sam"), small_sam(&reads)).expect("it can be written");
    let found = rows(&directory, "SELECT position, reference, depth, mismatches, A, C, N FROM mismatches('s.sam')");
    assert_eq!(found, ["11\tG\t2\t1\t0\t1\t0", "12\tA\t3\t1\t0\t0\t1", "15\tA\t2\t1\t1\t0\t0", "26\tT\t1\t1\t1\t0\t0"]);
}

#[test]
fn calls_that_are_not_valid_are_rejected() {
    let directory = scratch::directory("wrong-mismatches");
    fs::write(directory.join("u.sam"), random_sam(9601, 50)).expect("it can be written");
    for (name, tag) in [
        ("none.sam", ""),
        ("short.sam", "\tMD:Z:3"),
        ("long.sam", "\tMD:Z:9"),
        ("letters.sam", "\tMD:Z:2?2"),
        ("deletion.sam", "\tMD:Z:2^AC3"),
        ("huge.sam", "\tMD:Z:99999999999999999999999"),
    ] {
        fs::write(directory.join(name), small_sam(&[("5M", "ACGTA", tag)])).expect("it can be written");
        let word = if tag.is_empty() { "samtools calmd" } else { "MD" };
        run_query(&directory, &format!("SELECT * FROM mismatches('{name}')")).assert_rejected(&[3], &[name, word]);
    }
    for (call, word) in [
        ("mismatches()", "mismatches()"),
        ("mismatches('none')", "none"),
        ("mismatches('../u.sam')", "../u.sam"),
        ("mismatches('u.sam')", "samtools sort"),
        ("mismatches('none.sam', 'chr9')", "chr9"),
        ("insert_sizes()", "insert_sizes()"),
        ("insert_sizes('u.sam', 'chr1')", "insert_sizes()"),
        ("insert_sizes('/etc/passwd')", "/etc/passwd"),
    ] {
        run_query(&directory, &format!("SELECT * FROM {call}")).assert_rejected(&[2], &[word]);
    }
}

#[test]
fn rules_apply_to_mismatches_and_insert_sizes() {
    needs!("bwa", "samtools");
    let (_, out) = aligned_sample();
    let policy = scratch::directory("mismatch-rules").join("policy.toml");
    let ask = |rule: &str, sql: &str| {
        let text = format!("[[rule]]\nname = 'r'\nwho = ['bob']\ndatasets = ['sample.bam']\n{rule}\n");
        fs::write(&policy, text).expect("it can be written");
        let words = ["--policy", policy.to_str().expect("scratch paths are text"), "--as", "bob", "--format", "tsv"];
        godwit().arg("query").arg(sql).arg("--data").arg(&out).args(words).run()
    };
    let mismatches = "SELECT count(*) AS n FROM mismatches('sample.bam')";
    let of_region = rows(&out, &format!("{mismatches} WHERE region('chr1:1-20000')"));
    let restricted = ask("regions = ['chr1:1-20000']", &format!("{mismatches} WHERE region('chr1:1-20000')"));
    assert_eq!(to_lines(&restricted.stdout)[1..], of_region[..], "{}", restricted.describe());
    let elsewhere = ask("regions = ['chr1:1-20000']", &format!("{mismatches} WHERE region('chr2')"));
    assert_eq!(elsewhere.stdout, "n\n0\n", "{}", elsewhere.describe());
    ask("mask = { bases = 'drop' }", mismatches).assert_rejected(&[2, 3], &["bases"]);
    ask("mask = { tag_MD = 'drop' }", mismatches).assert_rejected(&[2, 3], &["tag_MD"]);
    let sizes = "SELECT sum(pairs) AS n FROM insert_sizes('sample.bam')";
    assert!(ask("", sizes).status.success());
    ask("mask = { template_length = 'drop' }", sizes).assert_rejected(&[2, 3], &["template_length"]);
    ask("deny = true", sizes).assert_rejected(&[2], &["sample.bam"]);
}
