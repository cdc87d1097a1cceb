//! Unsupported searches are rejected by name and before any file is written.

use std::time::{Duration, SystemTime};

use godwit_tests::wait::wait_until;
use godwit_tests::{needs, scratch};

use super::test_databases::databases;

/// Checks that the search fails with this exit code and message, and leaves no output.
fn assert_fails(options: &str, command: &str, code: i32, said: &str) {
    let directory = scratch::directory("refused");
    let out = directory.join("out");
    databases().search(options, command, &out).run().assert_rejected(&[code], &[said]);
    let left: Vec<_> = std::fs::read_dir(&directory).expect("it is there").collect();
    assert!(left.is_empty(), "{command} left {left:?}");
}

#[test]
fn what_is_not_searched_in_parts_is_refused_by_name() {
    needs!("makeblastdb");
    for (command, said) in [
        ("blastp -db proteins -query far.fa -remote", "-remote"),
        ("blastp -subject - -query far.fa", "-subject"),
        ("blastp -subject proteins.fa -query far.fa", "--fragments"),
        ("blastp -subject proteins.fa -db proteins -query far.fa", "--fragments"),
        ("blastp -db proteins -query far.fa -outfmt 13", "-outfmt 13"),
        ("blastn -db genes -query near.fa -use_index true", "-use_index"),
        ("psiblast -db proteins -query far.fa", "psiblast"),
        ("blastp -db proteins -query far.fa -no_such_option 3", "no_such_option"),
        ("blastp -db proteins -query far.fa -evalue x", "evalue"),
    ] {
        assert_fails("--fragments 3", command, 2, said);
    }
    assert_fails("--fragments 0", "blastp -db proteins -query far.fa", 2, "--fragments");
}

#[test]
fn input_that_cannot_be_searched_is_named() {
    needs!("makeblastdb");
    let directory = scratch::directory("bad-input");
    let write = |name: &str, text: &str| {
        let path = directory.join(name);
        std::fs::write(&path, text).expect("scratch can be written");
        path.display().to_string()
    };
    let table = write("table.tsv", "12\t13\n");
    for (command, said) in [
        (format!("blastp -db proteins -query {table}"), "not FASTA"),
        ("blastp -db genes -query far.fa".to_owned(), "database"),
        ("blastp -db no_such_database -query far.fa".to_owned(), "no_such_database"),
    ] {
        assert_fails("--fragments 3 --workers 2", &command, 3, said);
    }
    assert_fails("", "blastp -db proteins -query no_such_file.fa", 4, "no_such_file.fa");
}

#[test]
fn a_database_without_one_of_its_files_is_no_database() {
    needs!("makeblastdb");
    let directory = scratch::directory("damaged");
    for ending in ["phr", "pin", "psq", "pdb", "pot", "ptf", "pto"] {
        let name = format!("second.{ending}");
        let _ = std::fs::copy(databases().directory.join(&name), directory.join(&name));
    }
    std::fs::remove_file(directory.join("second.psq")).expect("it was copied");
    let command = format!("blastp -db {} -query far.fa", directory.join("second").display());
    assert_fails("--fragments 3 --workers 2", &command, 3, "database");
}

#[test]
fn an_output_that_cannot_be_written_is_said_before_searching() {
    needs!("makeblastdb");
    let out = scratch::directory("output").join("no/such/directory/out");
    databases()
        .search("", "blastp -db proteins -query far.fa", &out)
        .run()
        .assert_rejected(&[4], &["no/such/directory"]);
}

#[test]
fn without_an_engine_it_is_said_how_to_get_one() {
    needs!("makeblastdb");
    let out = scratch::directory("no-engine").join("out");
    let search =
        databases().search("", "blastp -db proteins -query far.fa", &out).env("GODWIT_BLAST", "/no/such/program");
    search.run().assert_rejected(&[4], &["fetch-ncbi.sh"]);
}

#[test]
fn a_database_that_changes_while_it_is_searched_gives_no_output() {
    needs!("makeblastdb");
    let (directory, out) = (scratch::directory("changing"), scratch::directory("changing-out"));
    for name in scratch::entry_names(&databases().directory).iter().filter(|name| name.starts_with("genes.n")) {
        std::fs::copy(databases().directory.join(name), directory.join(name)).expect("it can be copied");
    }
    let command = format!("tblastx -db {} -query some.fa -outfmt 6", directory.join("genes").display());
    let search = databases().search("--fragments 8 --workers 2", &command, &out.join("hits")).spawn();
    wait_until("the search to begin", || !scratch::entry_names(&out).is_empty());
    let volume = std::fs::File::options().append(true).open(directory.join("genes.nsq")).expect("it was copied");
    volume.set_modified(SystemTime::now() + Duration::from_secs(60)).expect("its time can be set");
    search.wait_with_output().assert_rejected(&[4], &["genes.nsq", "changed during the search"]);
    assert_eq!(scratch::entry_names(&out), [] as [&str; 0]);
}
