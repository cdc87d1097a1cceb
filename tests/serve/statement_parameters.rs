//! `godwit query --parameter`: the values of parameters are typed, and never a part of the statement.

use std::fs;
use std::path::PathBuf;

use godwit_tests::binary::{GodwitOutput, godwit};
use godwit_tests::data_server::DataServer;
use godwit_tests::scratch;

use crate::run::formats::to_lines;

fn data_directory() -> PathBuf {
    let directory = scratch::directory("statement-parameters");
    let rows = "chr1\t3\t5\tit's\nchr1\t7\t9\t--\nchr2\t7\t100\tx\n";
    fs::write(directory.join("x.bed"), rows).expect("it can be written");
    fs::write(directory.join("y.csv"), "name,day,share\na,2026-11-29,0.5\nb,2026-11-30,1\n")
        .expect("it can be written");
    directory
}

fn query(place: &[&str], sql: &str, parameters: &[&str]) -> GodwitOutput {
    let values = parameters.iter().flat_map(|parameter| ["--parameter", *parameter]);
    godwit().args(["query", sql, "--format", "tsv"]).args(place).args(values).run()
}

#[test]
fn values_have_the_types_of_their_parameters_here_and_at_a_server() {
    let directory = data_directory();
    let served = DataServer::start(&directory, &[]);
    let at = format!("grpc+tcp://{}", served.address);
    for place in [["--data", directory.to_str().expect("scratch paths are text")], ["--at", &at]] {
        for (sql, parameters, expected) in [
            ("SELECT name FROM \"x.bed\" WHERE contig = $1 AND position > $2", &["1=chr1", "2=5"][..], &["--"][..]),
            // As a text, 100 would be less than 9.
            ("SELECT name FROM \"x.bed\" WHERE end_position >= $least", &["least=9"], &["--", "x"]),
            ("SELECT contig FROM \"x.bed\" WHERE name = $name", &["name=it's"], &["chr1"]),
            ("SELECT contig FROM \"x.bed\" WHERE name = $name", &["name=' OR true --"], &[]),
            ("SELECT count(*) AS n FROM \"x.bed\" WHERE name = $name OR name = $name", &["$name=--"], &["1"]),
            ("SELECT name FROM \"x.bed\" WHERE region($1)", &["1=chr2:50-60"], &["x"]),
            (
                "SELECT name FROM \"y.csv\" WHERE day < $day AND share < $share",
                &["share=0.75", "day=2026-11-30"],
                &["a"],
            ),
            ("SELECT name FROM \"x.bed\" ORDER BY end_position LIMIT $n OFFSET $skip", &["n=1", "skip=1"], &["--"]),
            ("SELECT name FROM \"x.bed\" WHERE position > $n LIMIT $n", &["n=6"], &["--", "x"]),
            ("SELECT name FROM \"x.bed\" WHERE $at BETWEEN position AND end_position", &["at=50"], &["x"]),
            ("SELECT substr(name, $from) AS end FROM \"x.bed\" WHERE contig = 'chr1'", &["from=2"], &["t's", "-"]),
            // BED lists no contigs, so the whole text is a contig that does not exist.
            ("SELECT name FROM \"x.bed\" WHERE region($1)", &["1=') OR ('"], &[]),
            ("SELECT $text AS text", &["text=a=b; DROP TABLE x"], &["a=b; DROP TABLE x"]),
            (
                "SELECT lag(name, $n, $none) OVER (ORDER BY end_position) AS before FROM \"x.bed\" ORDER BY end_position",
                &["n=2", "none=no"],
                &["no", "no", "it's"],
            ),
            ("SELECT name FROM \"x.bed\" WHERE name = $n LIMIT $n::BIGINT", &["n=1"], &[]),
        ] {
            let told = query(&place, sql, parameters);
            assert!(told.status.success(), "{place:?} {sql}: {}", told.describe());
            assert_eq!(to_lines(&told.stdout)[1..], *expected, "{place:?} {sql}");
        }
        for (sql, parameters, words) in [
            ("SELECT $1 AS a, $2 AS b", &["1=x"][..], &["parameter $2", "no value"][..]),
            ("SELECT $a AS a", &["a=1", "b=2"], &["no parameter $b"]),
            ("SELECT 1 AS a", &["a=1"], &["no parameter $a"]),
            ("SELECT $a AS a", &["a=1", "a=2"], &["parameter $a", "more than one value"]),
            ("SELECT name FROM \"x.bed\" WHERE position > $1", &["1=five"], &["\"five\"", "parameter $1", "Int"]),
            ("SELECT name FROM \"x.bed\" WHERE position > $1", &[], &["parameter $1", "no value"]),
            ("SELECT name FROM \"x.bed\" LIMIT $n", &["n=ten"], &["\"ten\"", "parameter $n", "Int64"]),
            ("SELECT name FROM \"x.bed\" LIMIT $n", &["n=-1"], &["LIMIT", "-1"]),
            (
                "SELECT name FROM \"x.bed\" WHERE name = $n LIMIT $n",
                &["n=1"],
                &["parameter $n", "whole number in LIMIT", "text in", "name = $n"],
            ),
        ] {
            query(&place, sql, parameters).assert_rejected(&[2], words);
        }
        query(&place, "SELECT $1 AS a", &["chr1"]).assert_rejected(&[2], &["NAME=VALUE"]);
    }
}

#[test]
fn files_that_hold_no_row_of_parameters_are_rejected() {
    let directory = data_directory();
    let place = |file: &str, more: &[&str]| {
        let (data, file) = (directory.to_str().expect("scratch paths are text"), directory.join(file));
        let file = file.to_str().expect("scratch paths are text");
        query(&["--data", data, "--parameters-from", file], "SELECT $1 AS a", more)
    };
    place("x.bed", &[]).assert_rejected(&[3], &["cannot read parameters from", "x.bed"]);
    place("absent", &[]).assert_rejected(&[4], &["cannot read parameters from", "absent"]);
    place("x.bed", &["1=x"]).assert_rejected(&[2], &["--parameters-from", "--parameter"]);
}
