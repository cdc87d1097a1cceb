//! Rows of regions against `samtools view` and `bcftools view -r`, on regions drawn from seeds.

use std::path::Path;

use godwit_tests::binary::godwit;
use godwit_tests::random::Random;
use godwit_tests::tool::Tool;
use godwit_tests::{needs, scratch};

use crate::run::formats::{aligned_sample, assert_same_lines, to_lines};

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
