//! The SQL function `filter` on variants against `bcftools view -i`, with fixed and random expressions on random variants.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use godwit_tests::binary::godwit;
use godwit_tests::random::Random;
use godwit_tests::tool::Tool;
use godwit_tests::{needs, scratch};

use super::query_rows::{rows, run_query};
use crate::run::formats::to_lines;

/// Number of expressions in one statement.
const EXPRESSIONS_PER_STATEMENT: usize = 25;
const SAMPLES: usize = 4;

const HEADER: &str = "##fileformat=VCFv4.2\n##contig=<ID=chr1,length=1000000>\n##FILTER=<ID=q10,Description=\"x\">\n\
    ##FILTER=<ID=s50,Description=\"x\">\n##INFO=<ID=DP,Number=1,Type=Integer,Description=\"x\">\n\
    ##INFO=<ID=XF,Number=1,Type=Float,Description=\"x\">\n##INFO=<ID=XS,Number=1,Type=String,Description=\"x\">\n\
    ##INFO=<ID=XI,Number=.,Type=Integer,Description=\"x\">\n##INFO=<ID=XR,Number=.,Type=Float,Description=\"x\">\n\
    ##INFO=<ID=XL,Number=.,Type=String,Description=\"x\">\n##INFO=<ID=DB,Number=0,Type=Flag,Description=\"x\">\n\
    ##FORMAT=<ID=GT,Number=1,Type=String,Description=\"x\">\n##FORMAT=<ID=DP,Number=1,Type=Integer,Description=\"x\">\n\
    ##FORMAT=<ID=AD,Number=R,Type=Integer,Description=\"x\">\n##FORMAT=<ID=GQ,Number=1,Type=Integer,Description=\"x\">\n\
    ##FORMAT=<ID=PF,Number=1,Type=Float,Description=\"x\">\n##FORMAT=<ID=FT,Number=1,Type=String,Description=\"x\">\n\
    ##FORMAT=<ID=NL,Number=.,Type=String,Description=\"x\">\n";
const COUNTS_HEADER: &str = "##INFO=<ID=AN,Number=1,Type=Integer,Description=\"x\">\n\
    ##INFO=<ID=AC,Number=A,Type=Integer,Description=\"x\">\n";

fn random_info(random: &mut Random, alternates: usize, has_counts: bool) -> String {
    const WORDS: [&str; 6] = ["a", "bb", "abc", "A", "x1", "12"];
    let list = |random: &mut Random, value: fn(&mut Random) -> String| {
        let count = random.between(1, 3);
        (0..count).map(|_| value(random)).collect::<Vec<_>>().join(",")
    };
    let mut fields = Vec::new();
    let mut add = |random: &mut Random, key: &str, value: String| {
        if random.chance(0.75) {
            fields.push(format!("{key}={value}"));
        }
    };
    let number = |random: &mut Random| random.between(-5, 40).to_string();
    let float = |random: &mut Random| random.pick(&["0.1", "0.25", "1", "3.5e-3", "-2.75", "59.2"]).to_string();
    let word = |random: &mut Random| random.pick(&WORDS).to_string();
    let value = number(random);
    add(random, "DP", value);
    let value = float(random);
    add(random, "XF", value);
    let value = word(random);
    add(random, "XS", value);
    let value = list(random, number);
    add(random, "XI", value);
    let value = list(random, float);
    add(random, "XR", value);
    let value = list(random, word);
    add(random, "XL", value);
    if has_counts && random.chance(0.8) {
        let counts: Vec<String> = (0..alternates).map(|_| random.between(0, 2).to_string()).collect();
        fields.push(format!("AN={};AC={}", random.between(6, 9), counts.join(",")));
    }
    if random.chance(0.5) {
        fields.push("DB".to_owned());
    }
    if fields.is_empty() { ".".to_owned() } else { fields.join(";") }
}

fn random_genotype(random: &mut Random, alternates: i64) -> String {
    let ploidy = *random.pick(&[1, 2, 2, 2, 2, 2, 3]);
    let separator = *random.pick(&["/", "|"]);
    let mut allele = || match random.chance(0.1) {
        true => ".".to_owned(),
        false => random.between(0, alternates).to_string(),
    };
    let alleles: Vec<String> = (0..ploidy).map(|_| allele()).collect();
    alleles.join(separator)
}

fn random_sample(random: &mut Random, keys: &str, alternates: usize) -> String {
    let values = keys.split(':').map(|key| {
        let present = match key {
            "GT" => return random_genotype(random, alternates as i64),
            "AD" => (0..=alternates).map(|_| random.between(0, 20).to_string()).collect::<Vec<_>>().join(","),
            "PF" => random.pick(&["0.1", "0.25", "17", "1e-3"]).to_string(),
            "FT" => random.pick(&["PASS", "q10", "low"]).to_string(),
            "NL" => random.pick(&["a", "a,b", "b,.,c", "c"]).to_string(),
            _ => random.between(0, 30).to_string(),
        };
        if random.chance(0.15) { ".".to_owned() } else { present }
    });
    values.collect::<Vec<_>>().join(":")
}

/// Returns a random VCF with one record at each of the positions from 11 on.
fn random_vcf(seed: u64, records: usize, has_counts: bool) -> String {
    let mut random = Random::new(seed);
    let counts = if has_counts { COUNTS_HEADER } else { "" };
    let mut text = HEADER.to_owned() + counts + "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT";
    (0..SAMPLES).for_each(|at| write!(text, "\tS{at}").expect("memory takes it"));
    for at in 0..records {
        let reference = *random.pick(&["A", "A", "A", "AT", "ACG", "gTC"]);
        let mut alternates: Vec<&str> = Vec::new();
        for _ in 0..random.between(0, 3) {
            let allele = *random.pick(&[
                "C",
                "G",
                "T",
                "AG",
                "ACG",
                "AC",
                "GTC",
                "A[chr1:5[",
                "]chr1:9]A",
                "<DEL>",
                "<*>",
                "*",
                "ATT",
                "TTG",
            ]);
            if allele != reference && !alternates.contains(&allele) {
                alternates.push(allele);
            }
        }
        let count = alternates.len();
        let joined = if count == 0 { ".".to_owned() } else { alternates.join(",") };
        let id = *random.pick(&[".", "rs1", "rs22", "rs1;x", "y"]);
        let quality = *random.pick(&[".", "10", "29.5", "30", "59.2", "1000", "0"]);
        let filter = *random.pick(&[".", "PASS", "PASS", "q10", "s50", "q10;s50"]);
        let info = random_info(&mut random, count, has_counts);
        write!(text, "\nchr1\t{}\t{id}\t{reference}\t{joined}\t{quality}\t{filter}\t{info}", 11 + at)
            .expect("memory takes it");
        let keys = *random.pick(&["GT:DP:AD", "GT:DP:AD:GQ", "GT:DP:AD:PF:FT:NL", "GT:DP:AD:NL:GQ:FT"]);
        write!(text, "\t{keys}").expect("memory takes it");
        for _ in 0..SAMPLES {
            write!(text, "\t{}", random_sample(&mut random, keys, count)).expect("memory takes it");
        }
    }
    text + "\n"
}

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
