//! Intervals in another assembly by `liftover(..)`, compared with those of pyliftover and CrossMap in `golden/liftover`.

use std::fs;
use std::path::{Path, PathBuf};

use godwit_tests::binary::godwit;
use godwit_tests::scratch;

use super::query_rows::{rows, run_query};
use crate::run::formats::{assert_same_lines, to_lines};

/// Writes the intervals as BED, with the expected result as their name, and returns the directory.
fn directory_with_intervals(name: &str) -> PathBuf {
    let directory = scratch::directory(name);
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/liftover");
    fs::copy(golden.join("old-to-new.chain"), directory.join("old-to-new.chain")).expect("it can be copied");
    let expected = fs::read_to_string(golden.join("expected.tsv")).expect("it is there");
    let line = |line: &str| {
        let fields: Vec<&str> = line.split('\t').collect();
        format!("{}\t{}\n", fields[..3].join("\t"), fields[3..].join(" "))
    };
    fs::write(directory.join("x.bed"), expected.lines().map(line).collect::<String>()).expect("it can be written");
    directory
}

/// The result in the form of the expected ones.
const LIFTED: &str = "concat_ws(' ', coalesce(lifted_contig, '.'), CAST(coalesce(lifted_position, -1) AS STRING), \
                      CAST(coalesce(lifted_end_position, -1) AS STRING), coalesce(lifted_strand, '.'))";

#[test]
fn lifted_intervals_are_those_of_pyliftover_and_crossmap() {
    let directory = directory_with_intervals("liftover");
    for condition in ["true", "region('chr1:2000-30000')", "lifted_contig = 'chr3' AND position > 4000"] {
        let select = |column: &str| {
            format!(
                "SELECT {column} FROM liftover('x.bed', 'old-to-new.chain') WHERE {condition} ORDER BY contig, position, end_position, 1"
            )
        };
        let (found, expected) = (rows(&directory, &select(LIFTED)), rows(&directory, &select("name")));
        assert!(found.len() > 50);
        assert_same_lines(&found, &expected, condition);
    }
    let plan = run_query(
        &directory,
        "EXPLAIN SELECT lifted_position FROM liftover('x.bed', 'old-to-new.chain') WHERE contig = 'chr2'",
    );
    assert!(plan.stdout.contains("regions=[chr2]"), "{}", plan.stdout);
    // The columns of the table are kept, and come first.
    let all = run_query(&directory, "SELECT * FROM liftover('x.bed', 'old-to-new.chain') LIMIT 1");
    let names = "contig\tposition\tend_position\tname\tscore\tstrand\tother_columns\t\
                 lifted_contig\tlifted_position\tlifted_end_position\tlifted_strand";
    assert_eq!(to_lines(&all.stdout)[0], names);
}

#[test]
fn a_fraction_of_the_bases_can_be_enough() {
    let directory = scratch::directory("liftover-match");
    let chain = "chain 5 a 1000 + 100 300 b 900 + 0 190 1\n100 10 0\n90\n\n";
    fs::write(directory.join("c.chain"), chain).expect("it can be written");
    fs::write(directory.join("x.bed"), "a\t100\t300\na\t0\t300\na\t205\t206\na\t150\t150\nb\t0\t5\n")
        .expect("it can be written");
    let sql = |arguments: &str| {
        format!(
            "SELECT coalesce(lifted_position, -1), coalesce(lifted_end_position, -1) FROM liftover('x.bed', 'c.chain'{arguments})"
        )
    };
    assert_eq!(rows(&directory, &sql("")), ["0\t190", "-1\t-1", "-1\t-1", "-1\t-1", "-1\t-1"]);
    assert_eq!(rows(&directory, &sql(", 0.6")), ["0\t190", "0\t190", "-1\t-1", "-1\t-1", "-1\t-1"]);
    assert_eq!(rows(&directory, &sql(", 1"))[0], "-1\t-1");
    // The chain file is a table, too.
    let blocks = "SELECT position, end_position, lifted_position, chain FROM \"c.chain\" WHERE region('a:211-220')";
    assert_eq!(rows(&directory, blocks), ["210\t300\t100\t1"]);
}

#[test]
fn wrong_arguments_and_damaged_chains_are_errors() {
    let directory = directory_with_intervals("liftover-errors");
    fs::write(directory.join("t.csv"), "a,b\n1,2\n").expect("it can be written");
    fs::write(directory.join("empty.chain"), "").expect("it can be written");
    fs::write(directory.join("cut.chain"), "chain 5 a 1000 + 100 300 b 900 + 0 190 1\n100 10 0\n")
        .expect("it can be written");
    for (arguments, code, expected) in [
        ("'x.bed'", 2, "takes the names of a table and of a chain file"),
        ("'x.bed', 'old-to-new.chain', 1.5", 2, "from 0 to 1"),
        ("'x.bed', 'x.bed'", 2, "x.bed is not a chain file"),
        ("'t.csv', 'old-to-new.chain'", 2, "t.csv has no such contig"),
        ("'old-to-new.chain', 'old-to-new.chain'", 2, "already has a column lifted_contig"),
        ("'x.bed', 'cut.chain'", 3, "cut.chain, line 3: the file ends within a chain"),
        ("'x.bed', 'empty.chain'", 3, "empty.chain has no chains"),
    ] {
        run_query(&directory, &format!("SELECT lifted_contig FROM liftover({arguments})"))
            .assert_rejected(&[code], &[expected]);
    }
    run_query(&directory, "SELECT * FROM liftover('x.bed', 'none.chain')").assert_rejected(&[2, 3, 4], &["none.chain"]);
}

#[test]
fn chains_that_exceed_the_memory_of_the_statement_are_an_error() {
    let directory = scratch::directory("liftover-memory");
    let blocks = 200_000;
    let header = format!("chain 5 a 9000000 + 0 {0} b 9000000 + 0 {0} 1\n", 11 * blocks - 1);
    let chain = header + &"10 1 1\n".repeat(blocks - 1) + "10\n\n";
    fs::write(directory.join("c.chain"), chain).expect("it can be written");
    fs::write(directory.join("x.bed"), "a\t110\t115\n").expect("it can be written");
    // The blocks take 21 MB.
    let run = |memory: &str| {
        let sql = "SELECT lifted_position FROM liftover('x.bed', 'c.chain')";
        let words = ["--format", "tsv", "--memory", memory, "--threads", "1", "--data"];
        godwit().arg("query").arg(sql).args(words).arg(&directory).run()
    };
    let enough = run("36M");
    assert_eq!(enough.stdout, "lifted_position\n110\n", "{}", enough.describe());
    run("16M").assert_rejected(&[4], &["exceeds its memory limit", "the blocks of c.chain;"]);
}
