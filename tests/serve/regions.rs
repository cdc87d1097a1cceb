//! Rows of regions against `samtools view` and `bcftools view -r`, on regions drawn from seeds.

use std::path::Path;

use godwit_tests::binary::godwit;
use godwit_tests::data_server::DataServer;
use godwit_tests::random::Random;
use godwit_tests::tool::Tool;
use godwit_tests::{needs, scratch};

use crate::run::formats::{aligned_sample, assert_same_lines, run_python, to_lines};

/// The contigs of the sample's genome and their numbers of bases.
const CONTIGS: [(&str, i64); 5] =
    [("chr1", 150_000), ("chr2", 80_000), ("chr3", 30_000), ("chrM", 6_000), ("tiny", 64)];
const RANDOM_REGIONS: usize = 40;

/// Draws regions of one base up to whole contigs, at their borders and at those of the windows of an index.
pub(super) fn random_regions(seed: u64, count: usize) -> Vec<String> {
    let mut random = Random::new(seed);
    let mut regions: Vec<String> =
        ["chr1", "tiny", "chr1:1-1", "chr1:16384-16385", "chr1:150000-150000", "chr2:-500", "chr3:29000-"]
            .map(str::to_owned)
            .into();
    while regions.len() < count {
        let (contig, bases) = *random.pick(&CONTIGS);
        let first = random.between(1, bases);
        let width = *random.pick(&[1, 2, 50, 300, 5000, 100_000]);
        regions.push(format!("{contig}:{first}-{}", (first + random.between(0, width)).min(bases)));
    }
    regions
}

fn rows(data: &Path, sql: &str) -> Vec<String> {
    // Use one thread to get the rows in the order of the file. Several threads return the rows of parts in any order.
    let words = ["--format", "tsv", "--threads", "1"];
    let told = godwit().arg("query").arg(sql).arg("--data").arg(data).args(words).run_ok().stdout;
    to_lines(&told).split_off(1)
}

pub(super) fn samtools(file: &Path, regions: &[&str]) -> Vec<String> {
    let words = ["view".as_ref(), file.as_os_str()].into_iter().chain(regions.iter().map(AsRef::as_ref));
    let text = String::from_utf8(Tool::require("samtools").run(words).stdout).expect("samtools prints text");
    text.lines().map(|line| line.split('\t').take(11).collect::<Vec<_>>().join("\t")).collect()
}

/// The first eleven fields of SAM, as `samtools view` prints them.
pub(super) const SAM_FIELDS: &str = "name, flags, coalesce(contig, '*') AS rname, position + 1 AS pos, mapping_quality, \
    coalesce(cigar, '*') AS cigar, \
    CASE WHEN mate_contig IS NULL THEN '*' WHEN mate_contig = contig THEN '=' ELSE mate_contig END AS rnext, \
    mate_position + 1 AS pnext, template_length, coalesce(bases, '*') AS seq, qualities";

/// Returns the fields before the qualities: qualities are bytes in columns, and letters in SAM.
pub(super) fn without_qualities(line: &str) -> String {
    let fields: Vec<&str> = line.split('\t').collect();
    fields[..10].join("\t")
}

#[test]
fn reads_of_regions_are_those_of_samtools_in_its_order() {
    needs!("bwa", "samtools");
    let (_, out) = aligned_sample();
    let bam = out.join("sample.bam");
    for region in random_regions(7001, RANDOM_REGIONS) {
        let sql = format!("SELECT {SAM_FIELDS} FROM reads('sample.bam') WHERE region('{region}')");
        let found: Vec<String> = rows(&out, &sql).iter().map(|line| without_qualities(line)).collect();
        let expected: Vec<String> = samtools(&bam, &[&region]).iter().map(|line| without_qualities(line)).collect();
        assert_same_lines(&found, &expected, &region);
    }
}

#[test]
fn all_records_come_once_and_in_order_however_many_parts_there_are() {
    needs!("bwa", "samtools");
    let (_, out) = aligned_sample();
    let expected: Vec<String> =
        samtools(&out.join("sample.bam"), &[]).iter().map(|line| without_qualities(line)).collect();
    let sql = format!("SELECT {SAM_FIELDS} FROM reads('sample.bam') ORDER BY contig_id NULLS LAST, position");
    let one =
        godwit().arg("query").arg(&sql).arg("--data").arg(&out).args(["--format", "tsv", "--threads", "1"]).run_ok();
    let found: Vec<String> = to_lines(&one.stdout).split_off(1).iter().map(|line| without_qualities(line)).collect();
    assert_same_lines(&found, &expected, "one part");
    let mut sorted = expected.clone();
    sorted.sort_unstable();
    let plain = format!("SELECT {SAM_FIELDS} FROM reads('sample.bam')");
    let many =
        godwit().arg("query").arg(&plain).arg("--data").arg(&out).args(["--format", "tsv", "--threads", "7"]).run_ok();
    let mut found: Vec<String> =
        to_lines(&many.stdout).split_off(1).iter().map(|line| without_qualities(line)).collect();
    found.sort_unstable();
    assert_same_lines(&found, &sorted, "seven parts");
}

#[test]
fn a_file_without_an_index_gives_the_same_rows() {
    needs!("bwa", "samtools");
    let (_, out) = aligned_sample();
    let directory = scratch::directory("no-index");
    std::fs::copy(out.join("sample.bam"), directory.join("sample.bam")).expect("it can be copied");
    for region in random_regions(7002, 12) {
        let sql = format!("SELECT {SAM_FIELDS} FROM reads('sample.bam') WHERE region('{region}')");
        assert_same_lines(&rows(&directory, &sql), &rows(&out, &sql), &region);
    }
}

#[test]
fn unplaced_reads_are_those_of_samtools_in_every_format() {
    needs!("samtools", "bcftools", "python3");
    let directory = scratch::directory("unplaced-reads");
    let mut sam = "@HD\tVN:1.6\tSO:coordinate\n@SQ\tSN:chr1\tLN:9000\n@SQ\tSN:chr2\tLN:9000\n".to_owned();
    // An unmapped read that is placed at its mate is not unplaced.
    for (contig, count) in [("chr1", 300), ("chr2", 300)] {
        for at in 0..count {
            let flags = if at % 7 == 0 { 4 } else { 0 };
            let cigar = if flags == 4 { "*" } else { "4M" };
            sam += &format!("{contig}-{at}\t{flags}\t{contig}\t{}\t0\t{cigar}\t*\t0\t0\tACGT\tIIII\n", at + 1);
        }
    }
    for at in 0..500 {
        sam += &format!("none-{at}\t4\t*\t0\t0\t*\t*\t0\t0\tACGT\tIIII\n");
    }
    let path = |name: &str| directory.join(name).to_str().expect("scratch paths are text").to_owned();
    std::fs::write(path("a.sam"), &sam).expect("it can be written");
    let placed: String =
        sam.lines().filter(|line| !line.starts_with("none-")).map(|line| format!("{line}\n")).collect();
    std::fs::write(path("placed.sam"), placed).expect("it can be written");
    let tool = Tool::require("samtools");
    for (from, name) in [("a.sam", "a.bam"), ("a.sam", "bare.bam"), ("placed.sam", "placed.bam")] {
        tool.run(["view", "-b", "-o", &path(name), &path(from)]);
    }
    tool.run(["view", "-C", "--output-fmt-option", "no_ref", "-o", &path("a.cram"), &path("a.sam")]);
    for name in ["a.bam", "placed.bam"] {
        tool.run(["index", &path(name)]);
    }
    let names = |lines: Vec<String>| -> Vec<String> {
        lines.iter().map(|line| line.split('\t').next().unwrap_or_default().to_owned()).collect()
    };
    let expected = names(samtools(&directory.join("a.bam"), &["*"]));
    assert_eq!(expected.len(), 500);
    for table in ["a.bam", "bare.bam", "a.sam", "a.cram"] {
        for condition in ["region('*')", "contig IS NULL", "region('*') AND length(bases) = 4"] {
            let found = rows(&directory, &format!("SELECT name FROM reads('{table}') WHERE {condition}"));
            assert_same_lines(&found, &expected, &format!("{table} {condition}"));
        }
        let count = rows(&directory, &format!("SELECT count(*) FROM reads('{table}') WHERE region('*')"));
        assert_eq!(count, ["500"], "{table}");
    }
    let both = rows(&directory, "SELECT name FROM reads('a.bam') WHERE region('*') OR region('chr2:1-100')");
    assert_same_lines(&both, &names(samtools(&directory.join("a.bam"), &["chr2:1-100", "*"])), "two regions");
    assert_eq!(rows(&directory, "SELECT name FROM reads('placed.bam') WHERE region('*')"), [""; 0]);
    assert_eq!(rows(&directory, "SELECT contig FROM coverage('a.bam') WHERE contig IS NULL"), [""; 0]);
    let served = DataServer::start(&directory, &[]);
    let command = "{\"dataset\":\"a.bam\",\"regions\":[\"*\",\"chr2:1-100\"],\"parts\":3,\"columns\":[\"name\"]}";
    let fetched = run_python("flight_clients.py", Path::new("-"), &[&served.address, "fetch_dataset", command]);
    assert!(fetched.starts_with(&format!("{} ", both.len())), "{fetched}");
}

#[test]
fn the_region_of_unplaced_reads_is_rejected_where_there_are_none() {
    needs!("bwa", "samtools");
    let (_, out) = aligned_sample();
    let directory = scratch::directory("no-unplaced-reads");
    let contigs = "##contig=<ID=chr1,length=9>\n";
    for (name, contigs) in [("listed.vcf", contigs), ("bare.vcf", "")] {
        let columns = "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO";
        let text = format!("##fileformat=VCFv4.2\n{contigs}{columns}\nchr1\t4\t.\tA\tC\t.\t.\t.\n");
        std::fs::write(directory.join(name), text).expect("it can be written");
    }
    std::fs::write(directory.join("a.bed"), "chr1\t3\t5\n").expect("it can be written");
    for table in ["\"listed.vcf\"", "\"bare.vcf\"", "\"a.bed\"", "genotypes('bare.vcf')"] {
        let sql = format!("SELECT count(*) FROM {table} WHERE region('*')");
        let told = godwit().arg("query").arg(sql).arg("--data").arg(&directory).run();
        told.assert_rejected(&[2], &["unplaced reads", "there are none"]);
    }
    let rejected = |call: &str, words: &[&str]| {
        let sql = format!("SELECT count(*) FROM {call}");
        godwit().args(["query", &sql, "--data"]).arg(&out).run().assert_rejected(&[2], words);
    };
    for function in ["coverage", "pileup", "mismatches"] {
        rejected(&format!("{function}('sample.bam', '*')"), &["unplaced reads", "no position", "chr20:1-1000"]);
        rejected(&format!("{function}('sample.bam', 'chr9')"), &["sample.bam", "no contig \"chr9\""]);
        rejected(&format!("{function}('sample.bam', 5)"), &["optionally a region", "chr20:1-1000"]);
    }
    for call in ["reads('sample.bam', '*')", "coverage_windows('sample.bam', '*')", "overlaps('sample.bam', 'a', '*')"]
    {
        rejected(call, &["single quotes", "WHERE region('chr20:1-1000')"]);
    }
}

#[test]
fn variants_of_regions_are_those_of_bcftools() {
    needs!("bcftools", "tabix");
    let directory = scratch::directory("variant-regions");
    let mut random = Random::new(7003);
    let mut text = "##fileformat=VCFv4.2\n##INFO=<ID=END,Number=1,Type=Integer,Description=\"x\">\n##INFO=<ID=DP,Number=1,Type=Integer,Description=\"x\">\n".to_owned();
    for (contig, bases) in CONTIGS {
        text += &format!("##contig=<ID={contig},length={bases}>\n");
    }
    text += "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n";
    for (contig, bases) in CONTIGS.iter().filter(|(contig, _)| *contig != "chrM") {
        let mut position = 1;
        loop {
            position += random.between(1, 60);
            if position + 30 > *bases {
                break;
            }
            let reference = "A".repeat(1 + if random.chance(0.2) { random.below(20) } else { 0 });
            let end = if random.chance(0.02) {
                format!("END={};", position + random.between(1, 3000))
            } else {
                String::new()
            };
            let alternate = if end.is_empty() { "C" } else { "<DEL>" };
            text += &format!(
                "{contig}\t{position}\t.\t{reference}\t{alternate}\t50\tPASS\t{end}DP={}\n",
                random.below(100)
            );
        }
    }
    let plain = directory.join("v.vcf");
    std::fs::write(&plain, text).expect("it can be written");
    let bcftools = Tool::require("bcftools");
    let gz = directory.join("v.vcf.gz");
    bcftools.run(["view".as_ref(), "-Oz".as_ref(), "-o".as_ref(), gz.as_os_str(), plain.as_os_str()]);
    let other = directory.join("c.vcf.gz");
    std::fs::copy(&gz, &other).expect("it can be copied");
    bcftools.run(["index".as_ref(), "-t".as_ref(), gz.as_os_str()]);
    bcftools.run(["index".as_ref(), "-c".as_ref(), other.as_os_str()]);
    // bcftools 1.16 fails on a region that begins with a dash.
    for region in random_regions(7004, RANDOM_REGIONS).into_iter().filter(|region| !region.contains(":-")) {
        let query = "%CHROM\t%POS\t%REF\t%INFO/DP\n";
        let words = ["query", "-f", query, "-r", &region].map(AsRef::as_ref);
        let output = bcftools.run(words.into_iter().chain([gz.as_os_str()]));
        let expected = to_lines(&String::from_utf8(output.stdout).expect("bcftools prints text"));
        for name in ["v.vcf.gz", "c.vcf.gz", "v.vcf"] {
            let sql = format!(
                "SELECT contig, position + 1, reference, info_DP FROM variants('{name}') WHERE region('{region}')"
            );
            assert_same_lines(&rows(&directory, &sql), &expected, &format!("{name} {region}"));
        }
    }
}
