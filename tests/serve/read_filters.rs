//! The SQL function `filter` against `samtools view -e`, with fixed and random expressions on random and aligned reads.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use godwit_tests::binary::godwit;
use godwit_tests::random::Random;
use godwit_tests::sam_records::random_sam;
use godwit_tests::tool::Tool;
use godwit_tests::{needs, scratch};

use super::query_rows::run_query;
use crate::run::formats::{aligned_sample, to_lines};

/// Number of expressions in one statement.
const EXPRESSIONS_PER_STATEMENT: usize = 25;

/// Returns name and flags of each read for which samtools evaluates an expression as true.
fn samtools_reads(file: &Path, expression: &str) -> BTreeSet<String> {
    let words = ["view".as_ref(), "-e".as_ref(), expression.as_ref(), file.as_os_str()];
    let output = Tool::require("samtools").run(words);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("Couldn't process"), "{expression}: {said}");
    let lines = to_lines(&String::from_utf8(output.stdout).expect("samtools prints text"));
    lines.iter().map(|line| line.split('\t').take(2).collect::<Vec<_>>().join(" ")).collect()
}

/// Checks that each expression selects the reads that samtools selects. Returns the number of expressions that are true
/// for some reads only.
fn assert_same_reads(directory: &Path, table: &str, file: &Path, expressions: &[String]) -> usize {
    let mut selective = 0;
    for some in expressions.chunks(EXPRESSIONS_PER_STATEMENT) {
        let columns: Vec<String> = some.iter().map(|expression| format!("filter('{expression}')")).collect();
        let aliased = columns.iter().enumerate().map(|(at, column)| format!("{column} AS e{at}"));
        let sql = format!("SELECT name, flags, {} FROM {table}", aliased.collect::<Vec<_>>().join(", "));
        let output = run_query(directory, &sql);
        assert!(output.status.success(), "{sql}: {}", output.describe());
        let rows: Vec<Vec<String>> = to_lines(&output.stdout)
            .split_off(1)
            .iter()
            .map(|line| line.split('\t').map(str::to_owned).collect())
            .collect();
        for (at, expression) in some.iter().enumerate() {
            let passing = rows.iter().filter(|row| row[at + 2] == "true");
            let found: BTreeSet<String> = passing.map(|row| format!("{} {}", row[0], row[1])).collect();
            let expected = samtools_reads(file, expression);
            let differences: Vec<_> = found.symmetric_difference(&expected).take(5).collect();
            assert!(differences.is_empty(), "{expression}: {differences:?}");
            selective += usize::from(!found.is_empty() && found.len() < rows.len());
        }
    }
    selective
}

const EXPRESSIONS: [&str; 62] = [
    "1",
    "0",
    "mapq >= 30",
    "mapq>=30&&flag.proper_pair",
    "flag & 16",
    "(flag & 0x904) == 0",
    "flag.paired",
    "flag.unmap || flag.munmap",
    "flag.reverse && !flag.mreverse",
    "flag.read1 == flag.read2",
    "flag.secondary || flag.supplementary",
    "flag.qcfail || flag.dup",
    "pos > 10000 && endpos < 30000",
    "endpos - pos + 1 > 120",
    "mpos",
    "pnext - pos",
    "tlen > 300 || tlen < -300",
    "rname == \"chr1\"",
    "rname != \"chr1\"",
    "rname =~ \"^chr[0-9]$\"",
    "rname !~ \"^HLA\"",
    "mrname == \"*\"",
    "rnext == rname",
    "refid == 0",
    "refid < 0",
    "mrefid == refid",
    "library == \"l\"",
    "cigar =~ \"[0-9]+S$\"",
    "cigar == \"*\"",
    "cigar =~ \"D|I\"",
    "ncigar > 3",
    "qlen > 100",
    "rlen != qlen",
    "sclen",
    "sclen >= 10",
    "qname =~ \"n{20}\"",
    "length(qname) % 2 == 0",
    "seq =~ \"ACG\"",
    "seq =~ \"(AC|GT){2}\"",
    "length(seq) > 90",
    "min(qual) > 2 || max(qual) < 60",
    "avg(qual) > 40.5",
    "length(qual)",
    "[NM]",
    "![NM]",
    "[NM] == 0",
    "[NM] > 1 && [NM] <= 65535",
    "[NM] + 1 > 0",
    "[NM] % 3",
    "-[NM] < 0",
    "!([NM] > 5)",
    "default([NM], 1000) > 500",
    "exists([NM]) != exists([MD])",
    "[MD] =~ \"\\\\^\"",
    "[MD] == \"148\"",
    "[XA] == \"x\"",
    "[Xf] > 1 && [Xf] < 1e10",
    "[Xh] =~ \"^1A\"",
    "[RG] == \"lane1\"",
    "[QQ] || mapq == 0",
    "[QQ] != 5 || [QQ] == 5",
    "sqrt(mapq) > 4 && log(mapq) < 5 && pow(mapq, 2) > 10 && exp(mapq) > 5",
];

#[test]
fn expressions_select_the_reads_of_samtools() {
    needs!("samtools");
    let directory = scratch::directory("filters");
    fs::write(directory.join("r.sam"), random_sam(8701, 1500)).expect("it can be written");
    let expressions = EXPRESSIONS.map(str::to_owned);
    let selective = assert_same_reads(&directory, "reads('r.sam')", &directory.join("r.sam"), &expressions);
    assert!(selective > 50, "{selective}");
}

#[test]
fn expressions_select_the_same_reads_from_all_formats() {
    needs!("bwa", "samtools");
    let (_, out) = aligned_sample();
    let expressions =
        ["[NM] > 1 && [AS] < 140", "[MC] =~ \"S\" && [SA]", "[XS] > 20 || [MQ] == 0", "[MD] =~ \"^[0-9]+$\""];
    let expressions: Vec<String> =
        EXPRESSIONS[..44].iter().chain(&expressions).map(|text| (*text).to_owned()).collect();
    for table in ["reads('sample.bam')", "reads('sample.parquet')"] {
        assert_same_reads(&out, table, &out.join("sample.bam"), &expressions);
    }
    let pairs = "SELECT count(*) FROM reads('sample.bam') a JOIN reads('sample.bam') b ON a.name = b.name \
        WHERE filter(a.name, 'flag.read1 && mapq > 50') AND filter(b.name, 'flag.read2')";
    let output = run_query(&out, pairs);
    assert!(output.status.success() && !output.stdout.ends_with("\n0\n"), "{}", output.describe());
    let ambiguous = pairs.replace("a.name, 'flag", "'flag");
    run_query(&out, &ambiguous).assert_rejected(&[2], &["ambiguous"]);
}

/// Returns a random expression whose value is a number.
fn random_number(random: &mut Random, depth: usize) -> String {
    const ATOMS: [&str; 32] = [
        "0",
        "1",
        "7",
        "2.5",
        "1e3",
        "0x1f",
        "mapq",
        "pos",
        "endpos",
        "mpos",
        "tlen",
        "flag",
        "flag.dup",
        "flag.reverse",
        "qlen",
        "rlen",
        "ncigar",
        "refid",
        "sclen",
        "length(seq)",
        "length(qname)",
        "min(qual)",
        "max(qual)",
        "avg(qual)",
        "[NM]",
        "[Xf]",
        "[QQ]",
        "default([NM],3)",
        "default([QQ],[NM])",
        "exists([MD])",
        "exists([Xf])",
        "-5",
    ];
    if depth == 0 || random.chance(0.2) {
        return (*random.pick(&ATOMS)).to_owned();
    }
    let mut part = || random_number(random, depth - 1);
    let (left, right) = (part(), part());
    match random.below(9) {
        // samtools crashes if a divisor of % is between -1 and 1.
        0 => format!("{left} % {}", random.pick(&["3", "-7", "100"])),
        1 => format!("-({left})"),
        2 => format!("~({left})"),
        3 => format!("sqrt({left})"),
        4 => format!("({})", random_condition(random, depth - 1)),
        _ => format!("({left} {} {right})", random.pick(&["+", "-", "*", "/", "&", "|", "^"])),
    }
}

/// Returns a random expression that is compared or combined.
fn random_condition(random: &mut Random, depth: usize) -> String {
    const TEXTS: [&str; 11] =
        ["qname", "rname", "mrname", "rnext", "cigar", "seq", "library", "[MD]", "[XA]", "[Xh]", "[QQ]"];
    const LITERALS: [&str; 8] = ["chr1", "*", "x", "148", "", "l", "10A5^AC6", "00ff"];
    const PATTERNS: [&str; 8] = ["^chr", "[0-9]{2}", "A+C|G", "^$", "\\\\^", "[[:upper:]]\\\\*", ".", "(1|4)8$"];
    if depth > 0 && random.chance(0.5) {
        let mut part = || random_condition(random, depth - 1);
        let (left, right) = (part(), part());
        return match random.below(4) {
            0 => format!("!({left})"),
            1 => format!("{left} && {right}"),
            2 => format!("{left} || {right}"),
            _ => format!("({left}) && !({right})"),
        };
    }
    let text = *random.pick(&TEXTS);
    match random.below(5) {
        0 => format!("{text} {} \"{}\"", random.pick(&["=~", "!~"]), random.pick(&PATTERNS)),
        1 => format!("{text} {} \"{}\"", random.pick(&["==", "!=", "<", "<=", ">", ">="]), random.pick(&LITERALS)),
        2 => format!("{text} {} {}", random.pick(&["==", "!=", "<"]), random.pick(&TEXTS)),
        _ => {
            let operator = *random.pick(&["==", "!=", "<", "<=", ">", ">="]);
            format!("{} {operator} {}", random_number(random, depth), random_number(random, depth))
        }
    }
}

fn compare_random_expressions(seed: u64, count: usize) {
    let directory = scratch::directory("random-filters");
    fs::write(directory.join("r.sam"), random_sam(seed, 400)).expect("it can be written");
    let mut random = Random::new(seed);
    let expressions: Vec<String> = (0..count).map(|_| random_condition(&mut random, 3)).collect();
    let selective = assert_same_reads(&directory, "reads('r.sam')", &directory.join("r.sam"), &expressions);
    assert!(selective > count / 4, "{selective} of {count}");
}

#[test]
fn random_expressions_select_the_reads_of_samtools() {
    needs!("samtools");
    compare_random_expressions(8801, 150);
}

#[test]
#[ignore = "thousands of expressions; run it by name, with GODWIT_FILTER_SEEDS"]
fn thousands_of_random_expressions_select_the_reads_of_samtools() {
    needs!("samtools");
    let seeds = std::env::var("GODWIT_FILTER_SEEDS").unwrap_or_else(|_| "1 2 3 4 5 6 7 8".to_owned());
    for seed in seeds.split(' ') {
        compare_random_expressions(seed.parse().expect("seeds are numbers"), 500);
    }
}

#[test]
fn expressions_that_are_not_valid_are_rejected() {
    let directory = scratch::directory("wrong-filters");
    fs::write(directory.join("r.sam"), random_sam(8901, 50)).expect("it can be written");
    fs::write(directory.join("t.csv"), "a,mapping_quality\n1,2\n").expect("it can be written");
    let nested = "(".repeat(5000) + "1" + &")".repeat(5000);
    let signs = "!".repeat(20_000) + "1";
    let pattern = format!("seq =~ \"{}\"", "(a{100}){100}".repeat(10));
    for (expression, word) in [
        ("", "expected at character 1"),
        ("mapq >", "character 7"),
        ("nothing", "is expected"),
        ("mapq mapq", "operator"),
        ("flag.nothing", "is expected"),
        ("[N]", "is expected"),
        ("\"a", "text without an end"),
        ("seq =~ \"(\"", "pattern"),
        ("seq =~ qname", "pattern"),
        ("seq + 1", "calculates with a text"),
        ("mapq =~ \"1\"", "number with a pattern"),
        ("length(mapq)", "length()"),
        ("[Xb]", "array"),
        (&nested, "nesting"),
        (&signs, "nesting"),
        (&pattern, "pattern"),
    ] {
        let output = run_query(&directory, &format!("SELECT * FROM reads('r.sam') WHERE filter('{expression}')"));
        // An expression that is valid in itself, but not for the fields of a read, is an error of the data.
        output.assert_rejected(&[2, 3], &["filter()", word]);
    }
    for (sql, word) in [
        ("SELECT * FROM reads('r.sam') WHERE filter()", "filter"),
        ("SELECT * FROM reads('r.sam') WHERE filter(5)", "filter()"),
        ("SELECT * FROM reads('r.sam') WHERE filter(name)", "filter"),
        ("SELECT * FROM t WHERE filter('pos > 5')", "position"),
        ("SELECT * FROM t WHERE filter('library == \"x\"')", "read_group"),
        ("SELECT filter('1 >')", "filter()"),
    ] {
        run_query(&directory, sql).assert_rejected(&[2], &[word]);
    }
    // The columns decide whether an expression can be evaluated, not the kind of the table.
    assert_eq!(run_query(&directory, "SELECT a FROM t WHERE filter('mapq == 2')").stdout, "a\n1\n");
    assert_eq!(run_query(&directory, "SELECT count(*) AS n FROM t WHERE filter('2 > 3')").stdout, "n\n0\n");
}

#[test]
fn filters_see_only_what_rules_show() {
    let directory = scratch::directory("filter-rules");
    let root = directory.join("root");
    fs::create_dir(&root).expect("it can be made");
    fs::write(root.join("r.sam"), random_sam(9001, 200)).expect("it can be written");
    let policy = directory.join("policy.toml");
    let ask = |rule: &str, expression: &str| {
        let text = format!("[[rule]]\nname = 'r'\nwho = ['bob']\ndatasets = ['r.sam']\n{rule}\n");
        fs::write(&policy, text).expect("it can be written");
        let sql = format!("SELECT count(*) AS n FROM reads('r.sam') WHERE filter('{expression}')");
        let words = ["--policy", policy.to_str().expect("scratch paths are text"), "--as", "bob", "--format", "tsv"];
        godwit().arg("query").arg(sql).arg("--data").arg(&root).args(words).run()
    };
    let all = ask("", "mapq < 100");
    assert!(all.status.success() && all.stdout != "n\n0\n", "{}", all.describe());
    let masked = ask("mask = { mapping_quality = { bin = 300 } }", "mapq == 0");
    assert_eq!(masked.stdout, "n\n200\n", "{}", masked.describe());
    ask("mask = { mapping_quality = 'drop' }", "mapq < 100").assert_rejected(&[2], &["mapping_quality"]);
    ask("mask = { other_tags = 'drop' }", "[Xf] > 1").assert_rejected(&[2], &["other_tags"]);
    assert!(ask("mask = { other_tags = 'drop' }", "[NM] > 1").status.success());
    ask("mask = { \"tag_*\" = 'drop' }", "[NM] > 1").assert_rejected(&[2], &["tag_NM"]);
    // The header names the libraries, and rules hide it.
    ask("regions = ['chr1']", "library == \"l\"").assert_rejected(&[2], &["header"]);
}
