//! Independent clients of a server: pyarrow.flight, ADBC, polars, DuckDB.

use std::path::Path;
use std::process::Command;

use godwit_tests::data_server::DataServer;
use godwit_tests::tool::{Tool, run_checked};
use godwit_tests::{needs, scratch};

use crate::run::formats::{aligned_sample, run_python, to_lines};

fn client_output(served: &DataServer, words: &[&str]) -> Vec<String> {
    let words: Vec<&str> = [served.address.as_str()].into_iter().chain(words.iter().copied()).collect();
    to_lines(&run_python("flight_clients.py", Path::new("-"), &words))
}

fn count(bam: &Path, regions: &[&str]) -> String {
    let words = ["view".as_ref(), "-c".as_ref(), bam.as_os_str()].into_iter().chain(regions.iter().map(AsRef::as_ref));
    String::from_utf8(Tool::require("samtools").run(words).stdout).expect("samtools prints text").trim().to_owned()
}

#[test]
fn pyarrow_lists_and_fetches_datasets() {
    needs!("bwa", "samtools", "python3");
    let (_, out) = aligned_sample();
    let served = DataServer::start(&out, &[]);
    let bam = out.join("sample.bam");
    let all = count(&bam, &[]);
    let listed = client_output(&served, &["list_datasets"]);
    assert!(listed.contains(&format!("sample.bam {all} 24")), "{listed:?}");
    assert!(listed.contains(&format!("sample.parquet {all} 24")), "{listed:?}");
    for name in ["sample.bam", "sample.parquet"] {
        let command = format!("{{\"dataset\":\"{name}\"}}");
        let fetched = client_output(&served, &["fetch_dataset", &command]);
        assert!(fetched[0].starts_with(&format!("{all} 1 name,flags,contig,")), "{fetched:?}");
    }
    let several = client_output(
        &served,
        &["fetch_dataset", "{\"dataset\":\"sample.bam\",\"columns\":[\"flags\",\"tag_NM\"],\"parts\":3}"],
    );
    assert!(several[0].starts_with(&format!("{all} 3 ")) && several[0].ends_with(" flags,tag_NM"), "{several:?}");
    let regions = ["chr1:100-9000", "chr1:5000-20000", "chr3"];
    let command = format!("{{\"dataset\":\"sample.bam\",\"columns\":[\"flags\"],\"regions\":{regions:?}}}");
    let union = Tool::require("samtools").run(
        ["view".as_ref(), "-M".as_ref(), "-c".as_ref(), bam.as_os_str()]
            .into_iter()
            .chain(regions.iter().map(AsRef::as_ref)),
    );
    let union = String::from_utf8(union.stdout).expect("samtools prints text");
    assert!(client_output(&served, &["fetch_dataset", &command])[0].starts_with(&format!("{} ", union.trim())));
}

#[test]
fn tickets_that_were_not_given_are_refused() {
    needs!("python3");
    let directory = scratch::directory("tickets");
    let served = DataServer::start(&directory, &[]);
    for line in client_output(&served, &["check_forged_tickets", "", "x", "gw1.", "{\"dataset\":\"x.bam\"}"]) {
        assert!(!line.starts_with("taken"), "{line}");
    }
}

#[test]
fn adbc_polars_and_duckdb_ask_with_sql() {
    needs!("bwa", "samtools", "python3");
    let (_, out) = aligned_sample();
    let served = DataServer::start(&out, &[]);
    let bam = out.join("sample.bam");
    let region = "chr2:20000-22000";
    let in_region = count(&bam, &[region]);
    let statement = format!("SELECT count(*) FROM reads('sample.bam') WHERE region('{region}')");
    assert_eq!(
        client_output(&served, &["query_adbc", &statement, "SELECT 1 + 1"]),
        [in_region.clone(), "2".to_owned()]
    );
    let parameters = "SELECT count(*) FROM reads('sample.bam') WHERE mapping_quality >= $1";
    let expected: Vec<String> = ["0", "30"]
        .iter()
        .map(|least| {
            let words = ["view".as_ref(), "-c".as_ref(), "-q".as_ref(), least.as_ref(), bam.as_os_str()];
            String::from_utf8(Tool::require("samtools").run(words).stdout)
                .expect("samtools prints text")
                .trim()
                .to_owned()
        })
        .collect();
    assert_eq!(client_output(&served, &["query_prepared", parameters, "0", "30"]), expected);
    let limited = "SELECT count(*) FROM (SELECT name FROM reads('sample.bam') LIMIT $1)";
    assert_eq!(client_output(&served, &["query_prepared", limited, "3"]), ["3"]);
    let rows = format!("SELECT position FROM reads('sample.bam') WHERE region('{region}')");
    let by_duckdb = client_output(&served, &["query_duckdb", &rows]);
    assert!(by_duckdb[0].starts_with(&format!("{in_region} ")), "{by_duckdb:?}");
    assert_eq!(client_output(&served, &["query_polars", &statement]), [in_region]);
    let objects = client_output(&served, &["adbc_objects"]);
    assert_eq!(objects[0], "godwit TABLE");
    assert!(objects.contains(&"godwit data sample.bam 24".to_owned()), "{objects:?}");
}

#[test]
fn a_server_that_is_told_to_end_lets_calls_end() {
    let directory = scratch::directory("drain");
    let served = DataServer::start(&directory, &[]);
    assert!(served.ready_line.starts_with("0 datasets of "), "{}", served.ready_line);
    let (code, said) = served.stop(15);
    assert_eq!((code, said.as_str()), (Some(0), ""));
}

#[test]
fn jdbc_finds_tables_and_asks_with_sql() {
    needs!("bwa", "samtools", "java", "mvn");
    let (_, out) = aligned_sample();
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/jdbc");
    let fetched = run_checked(&mut Command::new(tools.join("fetch.sh"))).stdout;
    let jars = String::from_utf8(fetched).expect("it prints a path");
    let served = DataServer::start(&out, &[]);
    let statement =
        "SELECT count(*), min(contig), sum(position) FROM reads('sample.bam') WHERE region('chr2:20000-22000')";
    let mut java = Tool::require("java").command();
    java.arg("--add-opens=java.base/java.nio=ALL-UNNAMED").arg("-cp").arg(format!("{}/*", jars.trim()));
    let told = run_checked(java.arg(tools.join("Ask.java")).arg(&served.address).arg(statement)).stdout;
    let told = to_lines(&String::from_utf8(told).expect("it prints text"));
    let has = |line: &str| assert!(told.iter().any(|told| told == line), "no {line:?} in {told:#?}");
    has("product godwit true");
    has("catalog godwit");
    has("type TABLE");
    has("table godwit data sample.bam TABLE");
    has("column position INTEGER");
    has("column name VARCHAR");
    has("keys false");
    has("prepared 42");
    has("update refused");
    let count = count(&out.join("sample.bam"), &["chr2:20000-22000"]);
    assert!(told.iter().any(|line| line.starts_with(&format!("row {count} chr2 "))), "{told:#?}");
}
