//! The SQL function `genotypes` against bcftools, on data drawn from seeds, and under access rules.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use godwit_tests::binary::run_query;
use godwit_tests::random::Random;
use godwit_tests::tool::Tool;
use godwit_tests::{needs, scratch};

use super::query_rows;
use crate::run::formats::{aligned_sample, assert_same_lines, to_lines};

const HEADER: &str = "##fileformat=VCFv4.2\n##contig=<ID=chr1,length=100000>\n##contig=<ID=chr2,length=100000>\n\
    ##FORMAT=<ID=GT,Number=1,Type=String,Description=\"x\">\n##FORMAT=<ID=DP,Number=1,Type=Integer,Description=\"x\">\n\
    ##FORMAT=<ID=AD,Number=R,Type=Integer,Description=\"x\">\n##FORMAT=<ID=GQ,Number=1,Type=Integer,Description=\"x\">\n\
    ##FORMAT=<ID=PS,Number=1,Type=String,Description=\"x\">\n";
const FIELDS: &str = "contig, position, end_position, reference, array_to_string(alternates, ','), sample, \
    coalesce(GT, '.'), coalesce(CAST(DP AS VARCHAR), '.'), coalesce(array_to_string(AD, ',', '.'), '.'), \
    coalesce(CAST(GQ AS VARCHAR), '.'), coalesce(PS, '.')";
const FORMAT: &str = "[%CHROM\t%POS0\t%END\t%REF\t%ALT\t%SAMPLE\t%GT\t%DP\t%AD\t%GQ\t%PS\n]";

/// Returns the rows of a statement in the order of their text.
fn rows(data: &Path, sql: &str) -> Vec<String> {
    let mut lines = query_rows::rows(data, sql);
    lines.sort_unstable();
    lines
}

fn path_text(path: &Path) -> &str {
    path.to_str().expect("scratch paths are text")
}

/// Returns the sorted lines of `bcftools query`.
fn bcftools(words: &[&str]) -> Vec<String> {
    let output = Tool::require("bcftools").run([&["query"], words].concat());
    let mut lines = to_lines(&String::from_utf8(output.stdout).expect("bcftools prints text"));
    lines.sort_unstable();
    lines
}

fn random_genotype(random: &mut Random, alternates: i64) -> String {
    let ploidy = *random.pick(&[1, 2, 2, 2, 2, 3]);
    let separator = *random.pick(&["/", "|"]);
    let mut allele = || match random.chance(0.1) {
        true => ".".to_owned(),
        false => random.between(0, alternates).to_string(),
    };
    let alleles: Vec<String> = (0..ploidy).map(|_| allele()).collect();
    alleles.join(separator)
}

/// Returns a random VCF: several alternate alleles, genotypes of any ploidy, missing values, and fields that some
/// records do not have.
fn random_vcf(seed: u64, samples: usize, records: usize) -> String {
    let mut random = Random::new(seed);
    let mut text = HEADER.to_owned() + "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT";
    (0..samples).for_each(|at| write!(text, "\tS{at}").expect("memory takes it"));
    for at in 0..records {
        let alternates = random.between(1, 3);
        let contig = if at * 2 < records { "chr1" } else { "chr2" };
        let bases = ["C", "GT", "TAC"][..alternates as usize].join(",");
        let keys = *random.pick(&["GT:DP:AD:GQ", "GT", "GT:GQ", "DP:AD", "GT:AD:PS:DP"]);
        write!(text, "\n{contig}\t{}\t.\tA\t{bases}\t.\tPASS\t.\t{keys}", 10 + at * 7).expect("memory takes it");
        for _ in 0..samples {
            let value = |key: &str, random: &mut Random| match key {
                "GT" => random_genotype(random, alternates),
                "PS" => random.pick(&["x", "block 1", "7"]).to_string(),
                "AD" => (0..=alternates).map(|_| random.between(0, 40).to_string()).collect::<Vec<_>>().join(","),
                _ => random.between(0, 99).to_string(),
            };
            let is_short = random.chance(0.1);
            let kept = if is_short { 1 } else { keys.split(':').count() };
            let values = keys.split(':').take(kept).map(|key| match key != "GT" && random.chance(0.1) {
                true => ".".to_owned(),
                false => value(key, &mut random),
            });
            text += "\t";
            text += &values.collect::<Vec<_>>().join(":");
        }
    }
    text + "\n"
}

/// Writes a VCF in all formats: text, indexed BGZF, and indexed BCF.
fn write_formats(directory: &Path, seed: u64, samples: usize, records: usize) -> PathBuf {
    let plain = directory.join("plain.vcf");
    fs::write(&plain, random_vcf(seed, samples, records)).expect("it can be written");
    let bcftools = Tool::require("bcftools");
    for (name, format) in [("packed.vcf.gz", "-Oz"), ("binary.bcf", "-Ob")] {
        let packed = directory.join(name);
        bcftools.run(["view", "--no-version", format, "-o", path_text(&packed), path_text(&plain)]);
        bcftools.run(["index", path_text(&packed)]);
    }
    plain
}

#[test]
fn genotypes_are_those_of_bcftools() {
    needs!("bcftools");
    for (seed, samples, records) in [(8101, 7, 900), (8102, 1, 300), (8103, 90, 700)] {
        let directory = scratch::directory("genotypes");
        write_formats(&directory, seed, samples, records);
        for name in ["plain.vcf", "packed.vcf.gz", "binary.bcf"] {
            let file = directory.join(name);
            let expected = bcftools(&["-f", FORMAT, path_text(&file)]);
            assert_eq!(expected.len(), samples * records);
            let all = format!("SELECT {FIELDS} FROM genotypes('{name}')");
            assert_same_lines(&rows(&directory, &all), &expected, name);
            let of_sample = format!("{all} WHERE sample = 'S0'");
            let expected = bcftools(&["-f", FORMAT, "-s", "S0", path_text(&file)]);
            assert_same_lines(&rows(&directory, &of_sample), &expected, name);
        }
        let packed = directory.join("packed.vcf.gz");
        for region in ["chr1", "chr2:3000-4000", "chr1:500-501", "chr2:1-10"] {
            let expected = bcftools(&["-f", FORMAT, "-r", region, path_text(&packed)]);
            let sql = format!("SELECT {FIELDS} FROM genotypes('packed.vcf.gz') WHERE region('{region}')");
            assert_same_lines(&rows(&directory, &sql), &expected, region);
        }
    }
}

/// Returns alleles, phasing and dosage of a genotype in the form of the query below, derived from its text.
fn derived_columns(genotype: &str) -> String {
    let alleles: Vec<&str> = genotype.split(['/', '|']).collect();
    let is_phased = genotype.contains('|') && !genotype.contains('/');
    let dosage = match alleles.contains(&".") {
        true => ".".to_owned(),
        false => alleles.iter().filter(|allele| **allele != "0").count().to_string(),
    };
    // A genotype `.` is missing as a whole.
    let phased = if genotype == "." { ".".to_owned() } else { is_phased.to_string() };
    format!("{genotype}\t{}\t{phased}\t{dosage}", alleles.join(","))
}

#[test]
fn alleles_phasing_and_dosage_follow_from_the_genotype() {
    needs!("bcftools");
    let directory = scratch::directory("dosages");
    let plain = write_formats(&directory, 8201, 20, 600);
    let mut expected: Vec<String> =
        bcftools(&["-f", "[%GT\n]", path_text(&plain)]).iter().map(|genotype| derived_columns(genotype)).collect();
    expected.sort_unstable();
    let columns = "coalesce(GT, '.'), coalesce(array_to_string(alleles, ',', '.'), '.'), \
        coalesce(CAST(phased AS VARCHAR), '.'), coalesce(CAST(dosage AS VARCHAR), '.')";
    assert_same_lines(&rows(&directory, &format!("SELECT {columns} FROM genotypes('plain.vcf')")), &expected, "all");
    // The same values from the lists of variants, of which other columns are not read.
    let dosages = "SELECT sample, sum(dosage) FROM genotypes('packed.vcf.gz') GROUP BY sample";
    let with_fields =
        "SELECT sample, sum(dosage) FROM genotypes('plain.vcf') WHERE coalesce(DP, 0) >= 0 GROUP BY sample";
    assert_same_lines(&rows(&directory, dosages), &rows(&directory, with_fields), "dosages");
    assert_eq!(rows(&directory, "SELECT count(*) FROM genotypes('packed.vcf.gz')"), ["12000"]);
    assert_eq!(rows(&directory, "SELECT count(DISTINCT sample) FROM genotypes('binary.bcf')"), ["20"]);
}

#[test]
fn only_named_lists_samples_and_regions_are_read() {
    needs!("bcftools");
    let directory = scratch::directory("genotype-plans");
    write_formats(&directory, 8301, 30, 200);
    let sql = "EXPLAIN SELECT dosage FROM genotypes('packed.vcf.gz') \
        WHERE sample IN ('S3', 'S4') AND region('chr2:900-1000')";
    let plan = run_query(&directory, sql, &["--format", "tsv"]).stdout;
    assert!(plan.contains("DatasetExec: genotypes(packed.vcf.gz)"), "{plan}");
    assert!(plan.contains("regions=[chr2:900-1000]") && !plan.contains("quality"), "{plan}");
    // The count of a selection is computed from its rows.
    let count =
        "SELECT count(*) FROM genotypes('packed.vcf.gz') WHERE sample IN ('S3', 'S4', 'S99') AND sample <> 'S4'";
    assert_eq!(rows(&directory, count), ["200"]);
    assert_eq!(rows(&directory, "SELECT count(*) FROM genotypes('plain.vcf') WHERE sample = 'none'"), ["0"]);
    let limited = "SELECT sample FROM genotypes('plain.vcf') LIMIT 5";
    assert_eq!(rows(&directory, limited).len(), 5);
}

#[test]
fn several_files_are_one_table() {
    let directory = scratch::directory("genotype-unions");
    for (name, seed, samples) in [("a.vcf", 8401, 2), ("b.vcf", 8402, 3)] {
        fs::write(directory.join(name), random_vcf(seed, samples, 50)).expect("it can be written");
    }
    let sql = "SELECT sample, count(*) FROM genotypes('*.vcf') GROUP BY sample";
    assert_eq!(rows(&directory, sql), ["S0\t100", "S1\t100", "S2\t50"]);
    let sql = "SELECT count(*) FROM genotypes('*.vcf') WHERE sample = 'S2' AND region('chr1')";
    assert_eq!(rows(&directory, sql), ["25"]);
    let sites = "##fileformat=VCFv4.2\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\nchr1\t5\t.\tA\tC\t.\t.\t.\n";
    fs::write(directory.join("sites.vcf"), sites).expect("it can be written");
    assert_eq!(rows(&directory, "SELECT count(*) FROM genotypes('sites.vcf')"), ["0"]);
    assert_eq!(rows(&directory, "SELECT count(*) FROM genotypes('*.vcf')"), ["250"]);
}

#[test]
fn calls_that_are_not_valid_are_rejected() {
    let directory = scratch::directory("genotype-errors");
    fs::write(directory.join("a.vcf"), random_vcf(8501, 2, 5)).expect("it can be written");
    fs::write(directory.join("t.csv"), "sample\nx\n").expect("it can be written");
    for (call, word) in [
        ("genotypes()", "genotypes()"),
        ("genotypes('a.vcf', 'b.vcf')", "genotypes()"),
        ("genotypes(5)", "genotypes()"),
        ("genotypes('t.csv')", "t.csv is not a dataset of variants"),
        ("genotypes('*.csv')", "no dataset of variants"),
        ("genotypes('none.vcf')", "none.vcf"),
        ("genotypes('../a.vcf')", "../a.vcf"),
        ("genotypes('/etc/passwd')", "/etc/passwd"),
        ("genotypes('a.vcf') WHERE region('chr9:5-2')", "chr9:5-2"),
        ("genotypes('a.vcf') WHERE none = 1", "none"),
    ] {
        run_query(&directory, &format!("SELECT * FROM {call}"), &[]).assert_rejected(&[2], &[word]);
    }
    let damaged = random_vcf(8502, 2, 5).replace("\tS1", "\tS1\tS2");
    fs::write(directory.join("damaged.vcf"), damaged).expect("it can be written");
    run_query(&directory, "SELECT * FROM genotypes('damaged.vcf')", &[]).assert_rejected(&[3], &["damaged.vcf"]);
}

#[test]
fn reads_have_no_genotypes() {
    needs!("bwa", "samtools");
    let (_, out) = aligned_sample();
    run_query(&out, "SELECT * FROM genotypes('sample.bam')", &[]).assert_rejected(&[2], &["not a dataset of variants"]);
}

#[test]
fn rules_apply_to_genotypes() {
    let directory = scratch::directory("genotype-rules");
    let root = directory.join("root");
    fs::create_dir(&root).expect("it can be made");
    fs::write(root.join("a.vcf"), random_vcf(8601, 4, 60)).expect("it can be written");
    fs::write(directory.join("key"), "0123456789abcdef0123456789abcdef").expect("it can be written");
    let policy = directory.join("policy.toml");
    let ask = |rule: &str, sql: &str| {
        let text = format!("key = \"key\"\n[[rule]]\nname = 'r'\nwho = ['bob']\ndatasets = ['a.vcf']\n{rule}\n");
        fs::write(&policy, text).expect("it can be written");
        run_query(&root, sql, &["--policy", path_text(&policy), "--as", "bob", "--format", "tsv"])
    };
    let answered = |rule: &str, sql: &str| {
        let output = ask(rule, sql);
        assert!(output.status.success(), "{rule} {sql}: {}", output.describe());
        let mut lines = to_lines(&output.stdout).split_off(1);
        lines.sort_unstable();
        lines
    };
    let samples = "SELECT DISTINCT sample FROM genotypes('a.vcf')";
    assert_eq!(answered("", samples), ["S0", "S1", "S2", "S3"]);
    assert_eq!(answered("samples = ['S1', 'S3']", samples), ["S1", "S3"]);
    let of_s3 = "SELECT position, GT, DP, dosage FROM genotypes('a.vcf') WHERE sample = 'S3'";
    assert_eq!(answered("without_samples = ['S0', 'S2']", of_s3), answered("", of_s3));
    // A hidden sample is not distinguishable from an absent one.
    let count = "SELECT count(*) FROM genotypes('a.vcf') WHERE sample = 'S0'";
    assert_eq!(answered("samples = ['S1']", count), ["0"]);
    assert_eq!(
        answered("samples = ['S1']\nregions = ['chr1:1-80']", "SELECT count(*) FROM genotypes('a.vcf')"),
        ["11"]
    );
    let pseudonyms = answered("mask = { sample = 'hash' }", samples);
    assert!(pseudonyms.len() == 4 && pseudonyms.iter().all(|name| name.len() == 32), "{pseudonyms:?}");
    assert_eq!(answered("mask = { format_DP = 'redact' }", "SELECT count(DP) FROM genotypes('a.vcf')"), ["0"]);
    ask("mask = { format_DP = 'drop' }", "SELECT DP FROM genotypes('a.vcf')").assert_rejected(&[2], &["DP"]);
    ask("mask = { sample = 'drop' }", samples).assert_rejected(&[2], &["a.vcf", "hidden"]);
    ask("show = ['position', 'format_DP']", samples).assert_rejected(&[2], &["a.vcf", "hidden"]);
    ask("groups = { by = ['contig'], at_least = 2 }", samples).assert_rejected(&[2], &["a.vcf"]);
    ask("deny = true", samples).assert_rejected(&[2], &["a.vcf"]);
}
