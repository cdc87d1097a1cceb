//! Messages about rejected statements and missing datasets.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use godwit_tests::binary::{GodwitOutput, godwit};
use godwit_tests::{needs, scratch};

use crate::run::formats::aligned_sample;

fn run_query(data: &Path, sql: &str) -> GodwitOutput {
    godwit().arg("query").arg(sql).arg("--data").arg(data).run()
}

fn copy_data(out: &Path) -> PathBuf {
    let directory = scratch::directory("refusals");
    for name in ["sample.bam", "sample.bam.bai"] {
        std::fs::copy(out.join(name), directory.join(name)).expect("it can be copied");
    }
    directory
}

#[test]
fn nothing_but_queries_is_run() {
    let directory = scratch::directory("refused-statements");
    std::fs::write(directory.join("secret.txt"), "a\n1\n").expect("it can be written");
    for (sql, word) in [
        ("CREATE EXTERNAL TABLE t STORED AS CSV LOCATION 'secret.txt'", "CREATE EXTERNAL"),
        ("COPY (SELECT 1) TO 'out.csv'", "COPY"),
        ("SET datafusion.execution.batch_size = 1", "SET"),
        ("INSERT INTO t VALUES (1)", "INSERT"),
        ("CREATE TABLE t AS SELECT 1", "CREATE TABLE"),
        ("CREATE VIEW v AS SELECT 1", "CREATE VIEW"),
        ("DROP TABLE t", "DROP"),
        ("SELECT 1; SELECT 2", "more than one"),
        ("", "empty"),
        ("SELECT FROM WHERE", ""),
        ("SELECT * FROM 'secret.txt'", ""),
        ("SELECT * FROM read_csv('secret.txt')", "read_csv"),
        ("SELECT nothing FROM nowhere", "nowhere"),
        ("SELECT * FROM reads('../x.bam')", "../x.bam"),
        ("SELECT * FROM reads('/etc/x.bam')", "/etc/x.bam"),
        ("SELECT * FROM reads('missing.bam')", "missing.bam"),
        ("PREPARE p AS SELECT 1", "PREPARE"),
        ("BEGIN", "BEGIN"),
        ("SHOW ALL", "SHOW"),
    ] {
        run_query(&directory, sql).assert_rejected(&[2], &[word]);
    }
    assert_eq!(scratch::entry_names(&directory), ["secret.txt"]);
}

#[test]
fn regions_that_are_none_are_told() {
    needs!("bwa", "samtools");
    let (_, out) = aligned_sample();
    for (region, words) in [("chr1:5-2", &["chr1:5-2", "is after"][..]), ("chrX:1-5", &["chrX"]), ("", &["contig"])] {
        run_query(&out, &format!("SELECT * FROM reads('sample.bam') WHERE region('{region}')"))
            .assert_rejected(&[2], words);
    }
    run_query(&out, "SELECT 1 WHERE region('chr1')").assert_rejected(&[2], &["region()"]);
}

#[test]
fn an_index_older_than_its_file_is_not_trusted() {
    needs!("bwa", "samtools");
    let (_, out) = aligned_sample();
    let directory = copy_data(&out);
    let index = directory.join("sample.bam.bai");
    let file = std::fs::File::options().write(true).open(&index).expect("it is there");
    file.set_modified(SystemTime::now() - Duration::from_secs(3600)).expect("its time can be set");
    let sql = "SELECT count(*) FROM reads('sample.bam') WHERE region('chr1:1-1000')";
    run_query(&directory, sql).assert_rejected(&[2], &["sample.bam.bai", "older", "samtools index"]);
    // Reading the whole file requires no index.
    assert!(run_query(&directory, "SELECT count(*) FROM reads('sample.bam')").status.success());
    std::fs::write(&index, b"BAI\x01\xff\xff\xff\xff").expect("it can be written");
    run_query(&directory, sql).assert_rejected(&[2], &["sample.bam.bai", "samtools index"]);
}

#[test]
fn damaged_files_are_told_by_name() {
    needs!("bwa", "samtools");
    let (_, out) = aligned_sample();
    let directory = copy_data(&out);
    let bam = directory.join("sample.bam");
    let bytes = std::fs::read(&bam).expect("it is there");
    std::fs::remove_file(directory.join("sample.bam.bai")).expect("it is there");
    std::fs::write(&bam, &bytes[..bytes.len() / 2]).expect("it can be written");
    run_query(&directory, "SELECT count(position) FROM reads('sample.bam')")
        .assert_rejected(&[3], &["sample.bam", "truncated"]);
    // Remove only the end-of-file block.
    std::fs::write(&bam, &bytes[..bytes.len() - 28]).expect("it can be written");
    run_query(&directory, "SELECT count(position) FROM reads('sample.bam')")
        .assert_rejected(&[3], &["sample.bam", "truncated"]);
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 2] ^= 0xff;
    std::fs::write(&bam, &flipped).expect("it can be written");
    run_query(&directory, "SELECT count(position) FROM reads('sample.bam')").assert_rejected(&[3], &["sample.bam"]);
    std::fs::write(directory.join("x.vcf"), "no vcf").expect("it can be written");
    run_query(&directory, "SELECT * FROM variants('x.vcf')").assert_rejected(&[3], &["x.vcf"]);
    std::fs::write(directory.join("x.parquet"), "PAR1 no parquet PAR1").expect("it can be written");
    run_query(&directory, "SELECT * FROM x").assert_rejected(&[2, 3], &["x"]);
    godwit().args(["query", "SELECT 1", "--data", "/nowhere"]).run().assert_rejected(&[4], &["/nowhere"]);
}
