//! `godwit score` with services of the Python package.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use godwit_tests::binary::godwit;
use godwit_tests::data_server::DataServer;
use godwit_tests::{needs, scratch};

use crate::python::python_command;
use crate::run::formats::{columns_script, to_lines};

/// The rows of the table: several batches, the last one smaller.
const TABLE_ROWS: usize = 100_000;

/// A scoring service, which ends when this value is dropped.
struct ScoringService {
    child: Child,
    url: String,
}

impl ScoringService {
    fn start(words: &[&str], token: Option<&str>) -> Self {
        let mut command = python_command("columns");
        command.arg(columns_script("scoring.py")).args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some(token) = token {
            command.env("SCORING_TOKEN", token);
        }
        let mut child = command.spawn().expect("Python can be started");
        let mut url = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut url).expect("it can be read");
        assert!(url.starts_with("grpc+tcp://"), "the service did not start: {url:?}");
        Self { child, url: url.trim().to_owned() }
    }
}

impl Drop for ScoringService {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Returns a row of the table: its name and its score.
fn expected_row(at: usize) -> (String, f64) {
    let (a, b) = (at as f64 / 4.0, at % 7);
    (format!("row {at},{b},{a}"), a + 10.0 * b as f64)
}

/// Creates a directory with the table as CSV, Parquet and Arrow.
fn write_tables() -> PathBuf {
    let directory = scratch::directory("score");
    let rows: String = (0..TABLE_ROWS).map(|at| expected_row(at).0 + "\n").collect();
    std::fs::write(directory.join("table.csv"), format!("name,b,a\n{rows}")).expect("it can be written");
    for ending in ["parquet", "arrow"] {
        // Use one thread, because several threads return rows in any order.
        let query = godwit().args(["query", "SELECT * FROM \"table.csv\"", "--threads", "1", "--format", ending]);
        query.arg("--data").arg(&directory).arg("--out").arg(directory.join(format!("table.{ending}"))).run_ok();
    }
    directory
}

fn score(service: &ScoringService, model: &str) -> godwit_tests::binary::GodwitCommand {
    godwit().args(["score", "--model", model, "--at", &service.url])
}

/// Checks the name and the score of each row, in order.
fn assert_scored(csv: &str, header: &str, sign: f64) {
    let lines = to_lines(csv);
    assert_eq!(lines[0], header);
    assert_eq!(lines.len(), TABLE_ROWS + 1);
    let columns: Vec<&str> = header.split(',').collect();
    let place = columns.iter().position(|name| *name == "score").expect("scores have that name");
    for (at, line) in lines[1..].iter().enumerate() {
        let fields: Vec<&str> = line.split(',').collect();
        let found: f64 = fields[place].parse().expect("a score is a number");
        assert_eq!(found, sign * expected_row(at).1, "row {at}: {line}");
        if columns[0] == "name" {
            assert_eq!(fields[0], format!("row {at}"));
        }
    }
}

#[test]
fn rows_of_files_of_stdin_and_of_statements_get_their_scores_in_their_order() {
    needs!("python3");
    let directory = write_tables();
    let service = ScoringService::start(&[], None);
    let file = |ending: &str| directory.join(format!("table.{ending}"));
    for ending in ["csv", "parquet", "arrow"] {
        let told = score(&service, "sum").arg(file(ending)).args(["--format", "csv"]).run_ok().stdout;
        assert_scored(&told, "name,b,a,score", 1.0);
    }
    // Score with a version of the model, with some columns in the output, and with no columns.
    let told = score(&service, "sum/1").arg(file("parquet")).args(["--format", "csv", "--columns", "name"]);
    assert_scored(&told.run_ok().stdout, "name,score", -1.0);
    let told = score(&service, "pair").arg(file("parquet")).args(["--format", "csv", "--scores-only"]).run_ok();
    assert_scored(&told.stdout, "score,first", 1.0);
    for ending in ["arrow", "parquet"] {
        let stdin = std::fs::File::open(file(ending)).expect("it is there");
        let told = score(&service, "sum").args(["-", "--format", "csv", "--columns", "name"]).stdin(stdin).run_ok();
        assert_scored(&told.stdout, "name,score", 1.0);
    }
    // Features may be SQL expressions. A model without feature names uses the columns in their order.
    for (model, columns) in [("sum", "2 * a / 2 AS a, CAST(b AS INT) AS b"), ("unnamed", "a AS x, b AS y")] {
        let sql = format!("SELECT {columns} FROM \"table.parquet\"");
        let out = directory.join("scored.csv");
        let command = score(&service, model).args(["--sql", &sql, "--threads", "1", "--scores-only"]);
        command.arg("--data").arg(&directory).arg("--out").arg(&out).run_ok();
        assert_scored(&std::fs::read_to_string(&out).expect("it was written"), "score", 1.0);
    }
    // Write a result without rows in the format of the file extension.
    let out = directory.join("none.parquet");
    let sql = "SELECT * FROM \"table.parquet\" WHERE a < 0";
    score(&service, "sum").args(["--sql", sql]).arg("--data").arg(&directory).arg("--out").arg(&out).run_ok();
    let query = godwit().args(["query", "SELECT * FROM \"none.parquet\"", "--format", "csv"]).arg("--data");
    assert_eq!(query.arg(&directory).run_ok().stdout, "name,b,a,score\n");
}

#[test]
fn variants_are_scored_in_place() {
    needs!("python3");
    let directory = scratch::directory("score-variants");
    let header =
        "##fileformat=VCFv4.2\n##contig=<ID=chr1,length=1000>\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n";
    let text = format!("{header}chr1\t10\t.\tA\tC\t30\tPASS\t.\nchr1\t20\t.\tG\tT\t.\tPASS\t.\n");
    std::fs::write(directory.join("calls.vcf"), &text).expect("it can be written");
    let service = ScoringService::start(&[], Some("s3cret"));
    let token = directory.join("token");
    std::fs::write(&token, "s3cret\n").expect("it can be written");
    let command = || {
        let command = score(&service, "quality").args(["--columns", "contig,position", "--format", "csv"]);
        command.arg("--token-file").arg(&token)
    };
    let expected = "contig,position,score\nchr1,9,15.0\nchr1,19,NaN\n";
    assert_eq!(command().arg(directory.join("calls.vcf")).run_ok().stdout, expected);
    let stdin = std::fs::File::open(directory.join("calls.vcf")).expect("it is there");
    assert_eq!(command().arg("-").stdin(stdin).run_ok().stdout, expected);
    score(&service, "quality")
        .arg(directory.join("calls.vcf"))
        .run()
        .assert_rejected(&[6], &["token is missing or wrong"]);
}

#[test]
fn what_is_wrong_is_told_by_its_exit_code() {
    needs!("python3");
    let directory = write_tables();
    let service = ScoringService::start(&[], None);
    let file = |name: &str| directory.join(name);
    let table = file("table.parquet");
    let wrong = |command: godwit_tests::binary::GodwitCommand, code: i32, words: &[&str]| {
        let finished = command.run();
        finished.assert_rejected(&[code], words);
        assert!(!finished.stderr.contains("Traceback"), "{}", finished.describe());
    };
    wrong(score(&service, "nope").arg(&table), 2, &["no model 'nope'", "pair, quality, sum, unnamed"]);
    wrong(score(&service, "sum/7").arg(&table), 2, &["no version '7'", "1, 2"]);
    wrong(score(&service, "quality").arg(&table), 3, &["quality", "requires the columns quality"]);
    wrong(score(&service, "unnamed").arg(&table), 3, &["f0, f1"]);
    wrong(score(&service, "sum").arg(&table).args(["--columns", "x"]), 2, &["no column x"]);
    wrong(score(&service, "sum").arg(&table).arg("--out").arg(file("x.doc")), 2, &["extension", "--format"]);
    wrong(score(&service, "sum").arg(file("none.csv")), 4, &["there is no file", "none.csv"]);
    wrong(score(&service, "sum"), 2, &["IN"]);
    wrong(score(&service, "sum").args(["--sql", "SELECT nope"]), 2, &["nope"]);
    let texts = "SELECT name AS a, b FROM \"table.parquet\"";
    let texts = || score(&service, "sum").args(["--sql", texts]).arg("--data").arg(&directory);
    wrong(texts(), 3, &["column a is string"]);
    let again = "SELECT *, 1 AS score FROM \"table.parquet\"";
    wrong(
        score(&service, "sum").args(["--sql", again]).arg("--data").arg(&directory),
        2,
        &["already have a column score"],
    );
    wrong(score(&service, "sum").arg("-"), 3, &["stdin is neither"]);
    let no_service = godwit().args(["score", "--model", "sum", "--at", "grpc+tcp://127.0.0.1:1"]).arg(&table);
    wrong(no_service, 6, &["127.0.0.1:1"]);
    let served = DataServer::start(&directory, &[]);
    let url = format!("grpc+tcp://{}", served.address);
    wrong(godwit().args(["score", "--model", "sum", "--at", &url]).arg(&table), 6, &["is not a scoring service"]);
}

/// Checks that a failed command has left no incomplete output.
fn assert_nothing_but(directory: &Path, names: &[&str]) {
    assert_eq!(scratch::entry_names(directory), names);
}

#[test]
fn a_service_that_ends_while_it_scores_leaves_no_output() {
    needs!("python3");
    let directory = write_tables();
    let service = ScoringService::start(&["end"], None);
    let command = score(&service, "sum").arg(directory.join("table.parquet"));
    command.arg("--out").arg(directory.join("scored.parquet")).run().assert_rejected(&[6], &["127.0.0.1"]);
    assert_nothing_but(&directory, &["table.arrow", "table.csv", "table.parquet"]);
}
