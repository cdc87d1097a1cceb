//! The SQL function `filter` on variants against `bcftools view -i`, with fixed and random expressions on random variants.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use godwit_tests::binary::godwit;
use godwit_tests::random::Random;
use godwit_tests::tool::Tool;
use godwit_tests::{needs, scratch};

use super::query_rows::{rows, run_query};
use super::random_variants::{HEADER, random_vcf};
use crate::run::formats::to_lines;

/// Number of expressions in one statement.
const EXPRESSIONS_PER_STATEMENT: usize = 25;

/// Returns the position of each variant that bcftools selects.
fn bcftools_positions(file: &Path, expression: &str) -> Vec<String> {
    let words = ["view".as_ref(), "-H".as_ref(), "-i".as_ref(), expression.as_ref()];
    let output = Tool::require("bcftools").run(words.into_iter().chain([file.as_os_str()]));
    let lines = to_lines(&String::from_utf8(output.stdout).expect("bcftools prints text"));
    lines.iter().map(|line| line.split('\t').nth(1).expect("a position").to_owned()).collect()
}

/// Checks that each expression selects the variants that bcftools selects. Returns the number of expressions that are
/// true for some variants only.
fn assert_same_variants(directory: &Path, name: &str, expressions: &[String]) -> usize {
    let mut selective = 0;
    for some in expressions.chunks(EXPRESSIONS_PER_STATEMENT) {
        let columns = some.iter().enumerate().map(|(at, expression)| format!("filter('{expression}') AS e{at}"));
        let columns: Vec<String> = columns.collect();
        let sql = format!("SELECT position + 1, {} FROM variants('{name}')", columns.join(", "));
        let lines = rows(directory, &sql);
        let mut found: Vec<Vec<&str>> = lines.iter().map(|line| line.split('\t').collect()).collect();
        found.sort_by_key(|row| row[0].parse::<u32>().expect("positions are numbers"));
        for (at, expression) in some.iter().enumerate() {
            let passing: Vec<&str> = found.iter().filter(|row| row[at + 1] == "true").map(|row| row[0]).collect();
            let expected = bcftools_positions(&directory.join(name), expression);
            let differs = |position: &&&str| expected.iter().any(|other| other == **position);
            let wrong: Vec<_> = passing.iter().filter(|position| !differs(position)).take(5).collect();
            let missing: Vec<_> =
                expected.iter().filter(|position| !passing.contains(&position.as_str())).take(5).collect();
            assert!(wrong.is_empty() && missing.is_empty(), "{name}: {expression}: {wrong:?} {missing:?}");
            selective += usize::from(!passing.is_empty() && passing.len() < found.len());
        }
    }
    selective
}

const EXPRESSIONS: [&str; 127] = [
    "QUAL>30",
    "QUAL>=29.5 && QUAL<59.2",
    "QUAL=59.2",
    "QUAL!=59.2",
    "QUAL=\".\"",
    "QUAL!=\".\"",
    "QUAL",
    "Q>30",
    "POS=20 || POS>500",
    "CHROM=\"chr1\"",
    "CHROM!=\"chr1\"",
    "FILTER=\"PASS\"",
    "FILTER!=\"PASS\"",
    "FILTER=\".\"",
    "FILTER!=\".\"",
    "FILTER=\"q10;s50\"",
    "FILTER~\"q10\"",
    "FILTER!~\"q10;s50\"",
    "FILTER~\".\"",
    "\"q10\"=FILTER",
    "ID=\"rs1\"",
    "ID!=\".\"",
    "ID~\"^rs[0-9]*$\"",
    "ID!~\"x\"",
    "REF=\"A\"",
    "REF~\"C\"",
    "REF~\"c/i\"",
    "REF!~\"^A\\+$\"",
    "ALT=\"C\"",
    "ALT!=\"C\"",
    "ALT=\".\"",
    "ALT[0]=\"G\"",
    "ALT[1]!=\"G\"",
    "ALT[*]~\"^[CG]$\"",
    "ALT=\"*\"",
    "N_ALT=2",
    "N_ALT>N_SAMPLES-2",
    "TYPE=\"snp\"",
    "TYPE!=\"snp\"",
    "TYPE~\"snp\"",
    "TYPE!~\"indel\"",
    "TYPE=\"indel\"",
    "TYPE=\"mnp\"",
    "TYPE=\"other\"",
    "TYPE~\"bnd\"",
    "TYPE=\"overlap\"",
    "TYPE=\"ref\"",
    "TYPE~\"ref\"",
    "ILEN>0",
    "%ILEN<0",
    "ILEN=1",
    "abs(ILEN)=2",
    "INFO/DP>10",
    "INFO/DP=\".\"",
    "INFO/DP!=\".\"",
    "INFO/DP!=5",
    "INFO/DP%3=1",
    "INFO/DP-10-5>2",
    "INFO/DP/2*3>20",
    "-INFO/DP>-3",
    "INFO/DP+QUAL>40",
    "XF=0.1",
    "XF>0.1",
    "XF<=3.5e-3",
    "XF*2=0.5",
    "XS=\"abc\"",
    "XS!=\"abc\"",
    "XS=\"a,bb\"",
    "XS~\"^a\"",
    "XS!~\"b\\|1\"",
    "XS=\".\"",
    "strlen(XS)=2",
    "XI>30",
    "XI[0]>30",
    "XI[1]=5",
    "XI[*]<0",
    "XI[0,2]>35",
    "XI[1-]>35",
    "XI=\".\"",
    "XI!=\".\"",
    "XR=59.2",
    "XR[0]<1",
    "XL=\"bb\"",
    "XL!=\"bb\"",
    "XL[1]=\"A\"",
    "XL[*]~\"[0-9]\"",
    "count(XI)=2",
    "count(XL)>1",
    "strlen(XL[*])=3",
    "DB=1",
    "DB=0",
    "max(XI)>20 && min(XI)<10",
    "avg(XI)>20 || median(XR)<1",
    "sum(XI)=40 || stdev(XI)>10",
    "GT=\"het\"",
    "GT!=\"het\"",
    "GT=\"hom\" && GT=\"hap\"",
    "GT=\"ref\"",
    "GT=\"alt\"",
    "GT=\"mis\"",
    "GT=\"RA\" | GT=\"aA\"",
    "GT=\"AA\"",
    "GT=\"a\"",
    "GT=\"0/1\"",
    "GT~\"|\"",
    "GT~\"0/[1-9]\" & GT!~\"2\"",
    "GT[0]=\"het\"",
    "GT[1-2]=\"alt\"",
    "FMT/DP>20",
    "FMT/DP[0]>20",
    "FMT/DP=\".\"",
    "FMT/DP!=\".\"",
    "FORMAT/DP<5 & GQ>20",
    "FORMAT/DP<5 && GQ>20",
    "GQ<5 | QUAL>100",
    "QUAL>100 || GQ>25",
    "AD[:0]>FMT/DP",
    "AD[:0]+FMT/DP>30",
    "AD[*:0]/FMT/DP>0.5",
    "AD[0:0]>10 & AD[0-1:0]<15",
    "AD>19",
    "PF<=0.1 || FT=\"low\" || NL=\"c\"",
    "NL[:1]=\"b\"",
    "N_PASS(GT=\"het\")>=2 && F_PASS(FMT/DP>10)<0.6",
    "N_MISSING>0 && F_MISSING<0.5",
    "count(GT=\"alt\")=3 || count(FMT/DP)=2",
    "smpl_max(AD)>18 & sMIN(AD)<2 & sSUM(AD)>20",
];

/// Expressions on the binomial test and on counts of alleles.
const COUNT_EXPRESSIONS: [&str; 13] = [
    "AC[0]=3",
    "AC>2",
    "AC[*]>=4",
    "AN=8",
    "AF>0.5",
    "AF[*]<0.2",
    "MAC=1",
    "MAF<=0.25",
    "MAF[1]>0.3",
    "binom(AD)>0.3",
    "binom(FMT/DP,AD[:0])>0.05",
    "phred(binom(AD))>3",
    "sMEAN(AD)>8 & sMEDIAN(AD)<10 & sSTDEV(AD)>2",
];

#[test]
fn expressions_select_the_variants_of_bcftools() {
    needs!("bcftools");
    let directory = scratch::directory("variant-filters");
    let plain = directory.join("v.vcf");
    fs::write(&plain, random_vcf(9101, 700, false)).expect("it can be written");
    fs::write(directory.join("counts.vcf"), random_vcf(9102, 300, true)).expect("it can be written");
    let binary = directory.join("v.bcf");
    Tool::require("bcftools").run([
        "view".as_ref(),
        "-Ob".as_ref(),
        "-o".as_ref(),
        binary.as_os_str(),
        plain.as_os_str(),
    ]);
    let expressions = EXPRESSIONS.map(str::to_owned).to_vec();
    let counts: Vec<String> = COUNT_EXPRESSIONS.map(str::to_owned).to_vec();
    let selective = assert_same_variants(&directory, "v.vcf", &[expressions.clone(), counts.clone()].concat());
    assert!(selective > 110, "{selective}");
    assert_same_variants(&directory, "v.bcf", &expressions[..60]);
    assert_same_variants(&directory, "counts.vcf", &counts);
}

/// Returns a random comparison.
fn random_comparison(random: &mut Random) -> String {
    const NUMBERS: [&str; 22] = [
        "QUAL",
        "POS",
        "N_ALT",
        "INFO/DP",
        "XF",
        "XI",
        "XI[0]",
        "XR",
        "DB",
        "FMT/DP",
        "FMT/DP[0]",
        "GQ",
        "PF",
        "AD",
        "AD[:0]",
        "AD[1:0]",
        "max(XI)",
        "avg(AD)",
        "N_MISSING",
        "abs(XF)",
        "median(FMT/DP)",
        "count(XL)",
    ];
    const CONSTANTS: [&str; 9] = ["0", "1", "0.1", "59.2", "30", "-2.75", "12", "1e1", "3"];
    const TEXTS: [&str; 10] = ["REF", "ALT", "XS", "XL", "XL[0]", "FT", "NL", "NL[:0]", "GT", "CHROM"];
    const WORDS: [&str; 14] = ["a", "bb", "C", "A", ".", "low", "het", "hom", "alt", "0/1", "1|1", "12", "a,b", "chr1"];
    const PATTERNS: [&str; 8] = ["^a", "[0-9]", "C*$", "b\\|c", "A.", "\\(a\\)", "1/", "x/i"];
    match random.below(6) {
        0 => format!("{} {} \"{}\"", random.pick(&TEXTS), random.pick(&["=", "!=", "=="]), random.pick(&WORDS)),
        1 => format!("{} {} \"{}\"", random.pick(&TEXTS), random.pick(&["~", "!~"]), random.pick(&PATTERNS)),
        2 => format!("{}{}\".\"", random.pick(&["INFO/DP", "XI", "GQ", "QUAL", "PF"]), random.pick(&["=", "!="])),
        3 => {
            let single = ["INFO/DP", "QUAL", "XF", "POS", "N_ALT", "FMT/DP", "AD[:0]"];
            let sum =
                format!("{}{}{}", random.pick(&single), random.pick(&["+", "-", "*", "/"]), random.pick(&CONSTANTS));
            format!("{sum} {} {}", random.pick(&["<", ">", "<=", ">="]), random.pick(&CONSTANTS))
        }
        _ => {
            let operator = *random.pick(&["<", "<=", ">", ">=", "=", "!=", "=="]);
            format!("{} {operator} {}", random.pick(&NUMBERS), random.pick(&CONSTANTS))
        }
    }
}

fn random_expression(random: &mut Random, depth: usize) -> String {
    if depth == 0 || random.chance(0.25) {
        return random_comparison(random);
    }
    let (left, right) = (random_expression(random, depth - 1), random_expression(random, depth - 1));
    let operator = *random.pick(&["&", "|", "&&", "||"]);
    match random.below(3) {
        0 => format!("{left} {operator} {right}"),
        1 => format!("({left}){operator}({right})"),
        _ => format!("{left} {operator} ({right})"),
    }
}

fn compare_random_expressions(seed: u64, count: usize) {
    let directory = scratch::directory("random-variant-filters");
    fs::write(directory.join("r.vcf"), random_vcf(seed, 300, seed.is_multiple_of(2))).expect("it can be written");
    let mut random = Random::new(seed);
    let expressions: Vec<String> = (0..count).map(|_| random_expression(&mut random, 3)).collect();
    let selective = assert_same_variants(&directory, "r.vcf", &expressions);
    assert!(selective > count / 4, "{selective} of {count}");
}

#[test]
fn random_expressions_select_the_variants_of_bcftools() {
    needs!("bcftools");
    compare_random_expressions(9201, 150);
}

#[test]
#[ignore = "thousands of expressions; run it by name, with GODWIT_FILTER_SEEDS"]
fn thousands_of_random_expressions_select_the_variants_of_bcftools() {
    needs!("bcftools");
    let seeds = std::env::var("GODWIT_FILTER_SEEDS").unwrap_or_else(|_| "1 2 3 4 5 6 7 8".to_owned());
    for seed in seeds.split(' ') {
        compare_random_expressions(seed.parse().expect("seeds are numbers"), 500);
    }
}

#[test]
fn expressions_that_are_not_valid_are_rejected() {
    let directory = scratch::directory("wrong-variant-filters");
    fs::write(directory.join("v.vcf"), random_vcf(9301, 20, false)).expect("it can be written");
    let many = "1+".repeat(20_000) + "1";
    let nested = "(".repeat(20_000) + "1" + &")".repeat(20_000);
    let pattern = format!("REF ~ \"{}\"", "\\(a\\{100\\}\\)\\{100\\}".repeat(10));
    for (expression, word) in [
        ("", "empty"),
        ("QUAL >", "too few operands"),
        ("DP > 5", "write INFO/DP or FMT/DP"),
        ("NONE > 5", "info_NONE"),
        ("FMT/NONE > 5", "format_NONE"),
        ("ID=@/etc/passwd", "name of a file"),
        ("GT[@/etc/passwd]=\"het\"", "files"),
        ("perl.x(QUAL)", "Perl"),
        ("REF > 5", "text with a number"),
        ("TYPE=\"x\"", "type"),
        ("GT[7]=\"het\"", "sample"),
        ("FMT/DP>AD", "in each sample"),
        ("XI[99999999999]>1", "index"),
        ("REF~\"\\(a\\)\\1\"", "back reference"),
        (&many, "parts"),
        (&nested, "parts"),
        (&pattern, "pattern"),
    ] {
        let output = run_query(&directory, &format!("SELECT * FROM variants('v.vcf') WHERE filter('{expression}')"));
        output.assert_rejected(&[2, 3], &["filter()", word]);
    }
    let join = "SELECT count(*) FROM variants('v.vcf') a JOIN variants('v.vcf') b ON a.position = b.position WHERE ";
    run_query(&directory, &format!("{join} filter('QUAL>1')")).assert_rejected(&[2], &["ambiguous"]);
    assert!(run_query(&directory, &format!("{join} filter(b.contig, 'QUAL>1')")).status.success());
    // A selection of columns can be tested, too.
    let selected = "SELECT count(*) FROM (SELECT quality, reference FROM variants('v.vcf')) WHERE filter('QUAL>=0')";
    let all = "SELECT count(*) FROM variants('v.vcf') WHERE quality >= 0";
    assert_eq!(rows(&directory, selected), rows(&directory, all));
}

/// Returns a VCF with a record at each position. Only some records have a depth.
fn vcf_with_depths(
    samples: usize,
    positions: impl Iterator<Item = usize>,
    has_depth: impl Fn(usize) -> bool,
) -> String {
    let names: Vec<String> = (0..samples).map(|sample| format!("S{sample}")).collect();
    let mut text = format!("{HEADER}#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\t{}\n", names.join("\t"));
    for position in positions {
        let keys = if has_depth(position) { "GT:DP" } else { "GT" };
        write!(text, "chr1\t{position}\t.\tA\tC\t30\tPASS\t.\t{keys}").expect("memory takes it");
        for sample in 0..samples {
            let genotype = ["0/0", "0/1", "1/1", "./."][(position / 2 + sample) % 4];
            let depth = if has_depth(position) { format!(":{}", 8 + position % 3 + sample) } else { String::new() };
            write!(text, "\t{genotype}{depth}").expect("memory takes it");
        }
        text.push('\n');
    }
    text
}

#[test]
fn conditions_count_the_samples_of_the_header_in_batches_without_a_value() {
    needs!("bcftools");
    let directory = scratch::directory("variant-filter-sample-counts");
    // A batch has 8,192 rows, so that the first ones have no depth.
    let records = 20_000;
    let text = vcf_with_depths(3, 1..records + 1, |position| position == records);
    fs::write(directory.join("v.vcf"), text).expect("it can be written");
    for expression in [
        "N_PASS(FMT/DP!=10)>=2",
        "N_PASS(FMT/DP!=10)=1",
        "F_PASS(FMT/DP!=10)>0.5",
        "COUNT(FMT/DP!=10)=1",
        "COUNT(FMT/DP!=10)=3",
        "FMT/DP[2]>5",
        "FMT/DP[1-]!=10",
        "FMT/DP!=10",
    ] {
        let sql = format!("SELECT position + 1 FROM variants('v.vcf') WHERE filter('{expression}') ORDER BY position");
        let expected = bcftools_positions(&directory.join("v.vcf"), expression);
        assert!(rows(&directory, &sql) == expected, "{expression}: bcftools selects {} variants", expected.len());
    }
}

#[test]
fn tables_with_different_numbers_of_samples_can_be_tested_together() {
    needs!("bcftools");
    let directory = scratch::directory("variant-filter-unions");
    let text = vcf_with_depths(3, (1..400).step_by(2), |position| position % 5 > 0);
    fs::write(directory.join("b.vcf"), text).expect("it can be written");
    let text = vcf_with_depths(1, (2..400).step_by(2), |position| position % 3 > 0);
    fs::write(directory.join("c.vcf"), text).expect("it can be written");
    let statement = |other: &str, expression: &str| {
        let union = format!("SELECT * FROM variants('b.vcf') UNION ALL SELECT * FROM variants('{other}')");
        let sorted = format!("SELECT * FROM ({union}) ORDER BY position LIMIT 1000");
        format!("SELECT position + 1 FROM ({sorted}) WHERE filter('{expression}') ORDER BY position")
    };
    let positions = |file: &str, expression: &str| bcftools_positions(&directory.join(file), expression);
    let sorted = |mut all: Vec<String>| {
        all.sort_by_key(|position| position.parse::<u32>().expect("positions are numbers"));
        all
    };
    for expression in ["GT=\"het\"", "GT!=\"het\"", "GT~\"1\"", "FMT/DP>9", "FMT/DP!=10", "GT=\"het\" & FMT/DP!=10"] {
        let expected = sorted([positions("b.vcf", expression), positions("c.vcf", expression)].concat());
        assert_eq!(rows(&directory, &statement("c.vcf", expression)), expected, "{expression}");
    }
    for expression in [
        "N_PASS(GT=\"het\")=1",
        "F_PASS(FMT/DP>9)>0.5",
        "COUNT(GT=\"het\")=1",
        "GT[0]=\"het\"",
        "N_SAMPLES=3",
        "FMT/DP>9 && N_SAMPLES=3",
    ] {
        let output = run_query(&directory, &statement("c.vcf", expression));
        output.assert_rejected(&[2, 3], &["filter()", "number of samples"]);
        let expected = sorted([positions("b.vcf", expression), positions("b.vcf", expression)].concat());
        assert_eq!(rows(&directory, &statement("b.vcf", expression)), expected, "{expression}");
    }
}

#[test]
fn counts_of_values_are_those_of_bcftools() {
    needs!("bcftools");
    let directory = scratch::directory("variant-filter-value-counts");
    let text = random_vcf(9103, 400, false);
    let (header, mut records): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with('#'));
    // In a record without the field, bcftools counts the values of an earlier record. So these records come first.
    records.sort_by_key(|line| line.split('\t').nth(8).is_some_and(|keys| keys.contains("GQ")));
    fs::write(directory.join("v.vcf"), [header, records].concat().join("\n") + "\n").expect("it can be written");
    let expressions = [
        "COUNT(GQ)=0",
        "count(GQ)>2",
        "count(GQ)=4 && count(FMT/DP)<4",
        "count(FMT/DP[1-2])=2",
        "count(AD)>8",
        "count(AD[:0])=3",
        "count(GQ)+count(AD)>9",
        "count(GQ>10)=1",
        "count(abs(FMT/DP))=0",
    ];
    let selective = assert_same_variants(&directory, "v.vcf", &expressions.map(str::to_owned));
    assert!(selective >= 7, "{selective}");
}

#[test]
fn alleles_are_counted_in_genotypes_where_a_count_is_missing() {
    needs!("bcftools");
    let directory = scratch::directory("variant-filter-missing-counts");
    let text = random_vcf(9104, 300, true);
    // bcftools calculates with its code for a missing value, so it receives the file without these values.
    let write = |name: &str, missing: &str| {
        let line = |(at, line): (usize, &str)| match line.split_once(";AC=") {
            Some((start, rest)) if at % 3 == 0 => {
                let end = rest.find([';', '\t']).unwrap_or(rest.len());
                format!("{start}{missing}{}\n", &rest[end..])
            }
            _ => format!("{line}\n"),
        };
        fs::write(directory.join(name), text.lines().enumerate().map(line).collect::<String>())
            .expect("it can be written");
    };
    write("missing.vcf", ";AC=.");
    write("absent.vcf", "");
    for expression in ["AF>0.5", "AF[*]<0.2", "MAC=1", "MAF<=0.25", "MAF[1]>0.3", "AF<0"] {
        let sql =
            format!("SELECT position + 1 FROM variants('missing.vcf') WHERE filter('{expression}') ORDER BY position");
        let expected = bcftools_positions(&directory.join("absent.vcf"), expression);
        assert_eq!(rows(&directory, &sql), expected, "{expression}");
    }
}

#[test]
fn a_record_without_a_field_has_no_values_to_count() {
    let directory = scratch::directory("variant-filter-absent-values");
    for (name, samples) in [("b.vcf", 3), ("c.vcf", 1)] {
        let text = vcf_with_depths(samples, 1..9, |position| position % 4 > 0);
        fs::write(directory.join(name), text).expect("it can be written");
    }
    let union = "SELECT * FROM variants('b.vcf') UNION ALL SELECT * FROM variants('c.vcf')";
    for (count, records) in [(0, "4"), (1, "6"), (3, "6")] {
        let sql = format!("SELECT count(*) FROM ({union}) WHERE filter('COUNT(FMT/DP)={count}')");
        assert_eq!(rows(&directory, &sql), [records], "{count}");
    }
}

#[test]
fn filters_of_variants_see_only_what_rules_show() {
    let directory = scratch::directory("variant-filter-rules");
    let root = directory.join("root");
    fs::create_dir(&root).expect("it can be made");
    fs::write(root.join("v.vcf"), random_vcf(9401, 200, false)).expect("it can be written");
    let policy = directory.join("policy.toml");
    let ask = |rule: &str, expression: &str| {
        let text = format!("[[rule]]\nname = 'r'\nwho = ['bob']\ndatasets = ['v.vcf']\n{rule}\n");
        fs::write(&policy, text).expect("it can be written");
        let sql = format!("SELECT count(*) AS n FROM variants('v.vcf') WHERE filter('{expression}')");
        let words = ["--policy", policy.to_str().expect("scratch paths are text"), "--as", "bob", "--format", "tsv"];
        godwit().arg("query").arg(sql).arg("--data").arg(&root).args(words).run()
    };
    let count = |rule: &str, expression: &str| {
        let output = ask(rule, expression);
        assert!(output.status.success(), "{rule} {expression}: {}", output.describe());
        output.stdout
    };
    assert_ne!(count("", "GT=\"het\""), "n\n0\n");
    assert_eq!(count("samples = ['S1']", "GT=\"het\""), count("", "GT[1]=\"het\""));
    assert_eq!(count("samples = ['S1']", "N_SAMPLES=1"), "n\n200\n");
    assert_eq!(count("without_samples = ['S0', 'S3']", "FMT/DP>20"), count("", "FMT/DP[1-2]>20"));
    ask("samples = ['S1']", "GT[1]=\"het\"").assert_rejected(&[2, 3], &["sample"]);
    ask("mask = { format_DP = 'drop' }", "FMT/DP>1").assert_rejected(&[2], &["format_DP"]);
    ask("mask = { quality = 'drop' }", "QUAL>1").assert_rejected(&[2], &["quality"]);
    ask("mask = { \"info_*\" = 'drop' }", "INFO/DP>1").assert_rejected(&[2], &["info_DP"]);
    assert_eq!(count("mask = { info_DP = 'redact' }", "INFO/DP>-100"), "n\n0\n");
    assert_eq!(count("regions = ['chr1:11-20']", "POS>0"), "n\n10\n");
}
