//! `godwit query`: the statements that it supports, and the formats of rows.

use std::path::Path;

use godwit_tests::binary::{GodwitOutput, godwit};
use godwit_tests::tool::Tool;
use godwit_tests::{needs, scratch};

use crate::run::formats::{aligned_sample, to_lines};

fn run_query(data: &Path, sql: &str, more: &[&str]) -> GodwitOutput {
    godwit().arg("query").arg(sql).arg("--data").arg(data).args(more).run_ok()
}

/// Returns the one value of a statement.
fn query_value(data: &Path, sql: &str) -> String {
    to_lines(&run_query(data, sql, &["--format", "csv"]).stdout).split_off(1).join(";")
}

fn count(bam: &Path, words: &[&str]) -> String {
    let words = ["view", "-c"].iter().chain(words).map(AsRef::as_ref).chain([bam.as_os_str()]);
    String::from_utf8(Tool::require("samtools").run(words).stdout).expect("samtools prints text").trim().to_owned()
}

#[test]
fn counts_are_those_of_samtools() {
    needs!("bwa", "samtools");
    let (_, out) = aligned_sample();
    let bam = out.join("sample.bam");
    assert_eq!(query_value(&out, "SELECT count(*) FROM reads('sample.bam')"), count(&bam, &[]));
    for (test, flag) in [
        ("is_duplicate(flags)", "0x400"),
        ("is_unmapped()", "0x4"),
        ("is_reverse(flags)", "0x10"),
        ("is_proper_pair(flags)", "0x2"),
        ("is_supplementary(flags)", "0x800"),
        ("is_first(flags) AND is_duplicate(flags)", "0x440"),
    ] {
        let sql = format!("SELECT count(*) FROM \"sample.bam\" WHERE {test}");
        assert_eq!(query_value(&out, &sql), count(&bam, &["-f", flag]), "{test}");
    }
    let quality = "SELECT count(*) FROM sample.data WHERE mapping_quality >= 30";
    godwit().args(["query", quality]).arg("--data").arg(&out).run().assert_rejected(&[2], &["sample.data"]);
    let sql = "SELECT count(*) FROM reads('sample.bam') WHERE mapping_quality >= 30";
    assert_eq!(query_value(&out, sql), count(&bam, &["-q", "30"]));
    // Run the same query on Parquet, which DataFusion's own reader reads.
    let parquet = "SELECT count(*) FROM reads('sample.parquet') WHERE region('chr1:60000-60700') AND is_duplicate()";
    assert_eq!(query_value(&out, parquet), query_value(&out, &parquet.replace(".parquet", ".bam")));
}

#[test]
fn tags_are_columns_or_asked_for_by_name() {
    needs!("bwa", "samtools");
    let (_, out) = aligned_sample();
    let output = Tool::require("samtools").run(["view".as_ref(), out.join("sample.bam").as_os_str()]).stdout;
    let text = String::from_utf8(output).expect("samtools prints text");
    let edits: i64 = text
        .lines()
        .flat_map(|line| line.split('\t').filter_map(|tag| tag.strip_prefix("NM:i:")))
        .map(|n| n.parse::<i64>().expect("NM is a number"))
        .sum();
    assert_eq!(query_value(&out, "SELECT sum(tag_NM) FROM reads('sample.bam')"), edits.to_string());
    let with_pa = text.lines().filter(|line| line.contains("\tpa:f:")).count();
    let sql = "SELECT count(tag_float(other_tags, 'pa')), count(tag_text(other_tags, 'zz')) FROM reads('sample.bam')";
    assert_eq!(query_value(&out, sql), format!("{with_pa},0"));
}

#[test]
fn several_files_are_one_table_with_their_samples() {
    needs!("bcftools");
    let directory = scratch::directory("cohort");
    for (sample, extra) in [("ann", ""), ("bob", "##INFO=<ID=AF,Number=1,Type=Float,Description=\"x\">\n")] {
        let text = format!(
            "##fileformat=VCFv4.2\n##contig=<ID=a,length=1000>\n##INFO=<ID=DP,Number=1,Type=Integer,Description=\"x\">\n{extra}#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\t{sample}\na\t10\t.\tA\tC\t50\tPASS\tDP={}\tGT\t0/1\n",
            sample.len()
        );
        std::fs::write(directory.join(format!("{sample}.vcf")), text).expect("it can be written");
    }
    let sql = "SELECT sample, position, info_DP, info_AF FROM variants('*.vcf') ORDER BY sample";
    assert_eq!(
        run_query(&directory, sql, &["--format", "csv"]).stdout,
        "sample,position,info_DP,info_AF\nann,9,3,\nbob,9,3,\n"
    );
    godwit()
        .args(["query", "SELECT * FROM variants('x*.vcf')"])
        .arg("--data")
        .arg(&directory)
        .run()
        .assert_rejected(&[2], &["x*.vcf"]);
}

#[test]
fn rows_are_printed_in_every_format() {
    let directory = scratch::directory("row-formats");
    let sql = "SELECT 1 AS n, 'a,b' AS t, NULL AS z UNION ALL SELECT 2, 'c', NULL ORDER BY n";
    let printed = |format: &str| run_query(&directory, sql, &["--format", format]).stdout;
    assert_eq!(printed("csv"), "n,t,z\n1,\"a,b\",\n2,c,\n");
    assert_eq!(printed("tsv"), "n\tt\tz\n1\ta,b\t\n2\tc\t\n");
    assert_eq!(printed("json"), "{\"n\":1,\"t\":\"a,b\"}\n{\"n\":2,\"t\":\"c\"}\n");
    assert!(printed("table").contains("| 1 | a,b |   |") && printed("table").ends_with("2 rows\n"));
    let file = directory.join("rows.parquet");
    run_query(&directory, sql, &["--format", "parquet", "--out", file.to_str().expect("a text")]);
    assert_eq!(query_value(&directory, "SELECT sum(n) FROM rows"), "3");
    let none = run_query(&directory, "SELECT n FROM rows WHERE n > 7", &["--format", "csv"]).stdout;
    assert_eq!(none, "n\n");
    assert_eq!(scratch::entry_names(&directory), ["rows.parquet"]);
}
