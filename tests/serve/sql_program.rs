//! `godwit-sql`, the program that runs SQL statements: `godwit` names it when it is missing or of another version, and needs
//! it only for statements that compute something.

use std::fs;
use std::path::PathBuf;

use godwit_tests::binary::godwit;
use godwit_tests::data_server::DataServer;
use godwit_tests::scratch;

/// The environment variable with the path of the program.
const PROGRAM_VARIABLE: &str = "GODWIT_SQL_PROGRAM";
/// A statement that the SQL engine must run.
const GROUPING: &str = "SELECT contig, count(*) AS genes FROM genes GROUP BY contig";

fn genes(test: &str) -> PathBuf {
    let directory = scratch::directory(test);
    fs::write(directory.join("genes.csv"), "name,contig,position\nA,chr1,7\nB,chr2,5\nC,chr2,9\n")
        .expect("it can be written");
    directory
}

#[test]
fn without_the_program_a_statement_that_needs_it_is_rejected_and_others_run() {
    let data = genes("no sql program");
    let query = |sql: &str| {
        godwit().env(PROGRAM_VARIABLE, "/no/such/program").args(["query", sql, "--format", "csv", "--data"]).arg(&data)
    };
    query(GROUPING).run().assert_rejected(&[4], &["godwit-sql", "beside godwit", "./install"]);
    assert_eq!(query("SELECT position, name FROM genes").run_ok().stdout, "position,name\n7,A\n5,B\n9,C\n");
}

#[test]
fn a_server_without_the_program_starts_with_a_warning_and_rejects_statements_that_need_it() {
    let data = genes("no sql program of a server");
    let served = DataServer::start_with(&data, "127.0.0.1:0", &[], &[(PROGRAM_VARIABLE, "/no/such/program")]);
    let at = format!("grpc+tcp://{}", served.address);
    let query = |sql: &str| godwit().args(["query", sql, "--format", "csv", "--at", &at]);
    query(GROUPING).run().assert_rejected(&[6], &["godwit-sql", "beside godwit"]);
    assert_eq!(query("SELECT name FROM genes").run_ok().stdout, "name\nA\nB\nC\n");
    let (_, log) = served.stop(libc::SIGTERM);
    assert!(log.contains("godwit: warning: ") && log.contains("godwit-sql"), "{log}");
}

#[test]
fn a_program_of_another_version_is_rejected() {
    let data = genes("other sql program");
    let other = data.join("godwit-sql");
    scratch::write_executable(&other, "#!/bin/sh\necho godwit-sql 9.9.9\nexec cat\n");
    let query = godwit().env(PROGRAM_VARIABLE, &other).args(["query", GROUPING, "--data"]).arg(&data);
    query.run().assert_rejected(&[4], &["godwit-sql 9.9.9", env!("CARGO_PKG_VERSION")]);
    let doctor = godwit().env(PROGRAM_VARIABLE, &other).args(["doctor", "--json"]).run();
    assert!(doctor.stdout.contains("9.9.9"), "{}", doctor.describe());
}

#[test]
fn scratch_directories_with_long_paths_have_sockets() {
    let data = genes("long scratch path");
    // A socket address has at most 107 bytes.
    let temp = data.join("a".repeat(200));
    fs::create_dir(&temp).expect("it can be created");
    let query = godwit().args(["query", GROUPING, "--format", "csv", "--data"]).arg(&data).arg("--temp").arg(&temp);
    let rows = query.run_ok().stdout;
    assert!(rows.starts_with("contig,genes\n") && rows.contains("chr2,2"), "{rows}");
    assert_eq!(scratch::entry_names(&temp), [] as [&str; 0]);
}
