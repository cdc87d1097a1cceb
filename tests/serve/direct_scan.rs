//! Statements that select rows of one dataset unchanged: a server answers them by a direct scan, and the rows are those
//! of the SQL engine.

use std::fs;
use std::path::Path;

use godwit_tests::binary::godwit;
use godwit_tests::data_server::DataServer;
use godwit_tests::random::Random;
use godwit_tests::{needs, scratch};
use serde_json::Value;

use super::object_store::datasets_of_every_kind;
use super::regions::random_regions;
use crate::run::formats::{run_python, to_lines};

fn path_text(path: &Path) -> &str {
    path.to_str().expect("scratch paths are text")
}

/// Returns the rows of a statement, sorted: several threads read them in any order.
fn rows(served: &DataServer, sql: &str) -> Vec<String> {
    let url = format!("grpc+tcp://{}", served.address);
    let told = godwit().args(["query", "--at", &url, "--format", "json", sql]).run_ok().stdout;
    let mut rows = to_lines(&told);
    rows.sort_unstable();
    rows
}

/// Returns the columns of a dataset.
fn dataset_columns(served: &DataServer, dataset: &str) -> Vec<String> {
    let url = format!("grpc+tcp://{}", served.address);
    let sql = format!("SELECT * FROM \"{dataset}\" WHERE 1 = 1 LIMIT 1");
    let told = godwit().args(["query", "--at", &url, "--format", "json", &sql]).run_ok().stdout;
    let first: Value = serde_json::from_str(told.lines().next().expect("it has a row")).expect("a row is JSON");
    first.as_object().expect("a row has columns").keys().cloned().collect()
}

#[test]
fn what_is_read_from_datasets_is_what_the_engine_gives() {
    needs!("bwa", "samtools", "bcftools");
    let served = DataServer::start(&datasets_of_every_kind(), &[]);
    let mut random = Random::new(7301);
    let mut pairs: Vec<String> = Vec::new();
    for (dataset, function, has_regions) in [
        ("deep/er one/sample.bam", Some("reads"), true),
        ("s.sam", Some("reads"), true),
        ("sample.parquet", Some("reads"), true),
        ("sample.arrow", Some("reads"), true),
        ("one & only.parquet", None, true),
        ("z.vcf.gz", Some("variants"), true),
        ("b.bcf", Some("variants"), true),
        ("v.vcf", None, true),
        ("t.csv", None, false),
        ("t.tsv", None, false),
        ("p.bed", None, true),
        ("g.gff", None, true),
        ("r.fa", None, false),
        ("q.fastq", None, false),
    ] {
        let columns = dataset_columns(&served, dataset);
        let quoted = format!("\"{dataset}\"");
        let called = function.map_or_else(|| quoted.clone(), |function| format!("{function}('{dataset}')"));
        let mut some: Vec<String> = Vec::new();
        while some.is_empty() {
            some = columns.iter().filter(|_| random.chance(0.4)).map(|name| format!("\"{name}\"")).collect();
        }
        some.reverse();
        let some = some.join(", ");
        for (what, table) in [("*", &quoted), (&some[..], &called)] {
            let sql = format!("SELECT {what} FROM {table}");
            let plain = rows(&served, &sql);
            assert!(!plain.is_empty(), "{sql}");
            let engines = format!("{sql} WHERE 1 = 1");
            assert_eq!(plain, rows(&served, &engines), "{sql}");
            pairs.extend([sql, engines]);
        }
        let counted = format!("SELECT count(*) FROM {called}");
        let computed = format!("{counted} WHERE 1 = 1");
        assert_eq!(rows(&served, &counted), rows(&served, &computed), "{counted}");
        pairs.extend([counted, computed]);
        if !has_regions {
            continue;
        }
        for region in random_regions(7302, 9)
            .into_iter()
            .filter(|region| region.starts_with("chr1") || region.starts_with("chr2"))
        {
            let sql = format!("SELECT {some} FROM {called} WHERE region('{region}')");
            assert_eq!(rows(&served, &sql), rows(&served, &format!("{sql} AND 1 = 1")), "{sql}");
            let sql = format!("SELECT count(*) AS n FROM {called} WHERE region('{region}')");
            assert_eq!(rows(&served, &sql), rows(&served, &format!("{sql} AND 1 = 1")), "{sql}");
        }
    }
    // Standard Flight clients require the same columns from a direct scan as from the SQL engine.
    let words = [&served.address[..], "assert_same_columns"].into_iter().chain(pairs.iter().map(String::as_str));
    run_python("flight_clients.py", Path::new("-"), &words.collect::<Vec<_>>());
}

/// Returns the number of idle statement processes: it is one more after the first statement that runs in one.
fn idle_statement_workers(served: &DataServer) -> String {
    let told = super::http_client::get(served, "/metrics", &[]).body;
    let line = told.lines().find(|line| line.starts_with("godwit_statement_workers{state=\"idle\"}"));
    line.and_then(|line| line.split(' ').next_back()).expect("it is told").to_owned()
}

#[test]
fn nothing_is_computed_where_nothing_need_be() {
    needs!("curl");
    let root = scratch::directory("plain-workers");
    fs::write(root.join("a.bed"), "chr1\t5\t9\nchr1\t50\t90\n").expect("it can be written");
    let limited = DataServer::start(&root, &["--statement-rows", "1"]);
    let served = DataServer::start(&root, &[]);
    let (all, some) = ("SELECT * FROM a", "SELECT position, contig FROM \"a.bed\" WHERE region('chr1:51-60')");
    assert_eq!(
        (rows(&served, all).len(), rows(&served, some)),
        (2, vec![r#"{"position":50,"contig":"chr1"}"#.to_owned()])
    );
    for (region, rows_there) in [("chr1:51-60", 1), ("chr1:10-20", 0), ("chr1", 2)] {
        let sql = format!("SELECT count(*) AS n FROM a WHERE region('{region}')");
        assert_eq!(rows(&served, &sql), [format!("{{\"n\":{rows_there}}}")], "{region}");
    }
    assert_eq!(idle_statement_workers(&served), "0");
    // Counting the rows of a text file requires reading it, so the SQL engine runs this statement.
    assert_eq!(rows(&served, "SELECT count(*) AS n FROM a"), [r#"{"n":2}"#]);
    assert_eq!(idle_statement_workers(&served), "1");
    // With a limit on rows, the server must count the rows, so it does not use a direct scan.
    let url = format!("grpc+tcp://{}", limited.address);
    godwit().args(["query", "--at", &url, all]).run().assert_rejected(&[3, 6, 2], &["more than 1 rows"]);
}

/// A dataset may be replaced between the time that a client receives its endpoints and the time that it fetches them.
#[test]
fn rows_of_a_dataset_that_has_changed_are_those_it_has_now() {
    needs!("python3");
    let root = scratch::directory("plain-changed");
    let file = root.join("a.csv");
    fs::write(&file, "n\n1\n2\n").expect("it can be written");
    let served = DataServer::start(&root, &[]);
    let (asked, changed) = (root.join("asked"), root.join("changed"));
    let told = std::thread::scope(|scope| {
        let words = [
            &served.address,
            "fetch_before_and_after_change",
            "SELECT n FROM a",
            path_text(&asked),
            path_text(&changed),
        ];
        let client = scope.spawn(move || run_python("flight_clients.py", Path::new("-"), &words));
        godwit_tests::wait::wait_until("the client has its ticket", || asked.exists() || client.is_finished());
        let other = root.join("other");
        fs::write(&other, "n\n7\n8\n9\n").and_then(|()| fs::rename(&other, &file)).expect("it can be written");
        fs::write(&changed, "").expect("it can be written");
        client.join().expect("the client ends well")
    });
    assert_eq!(to_lines(&told), ["2", "taken 3", "3"]);
}
