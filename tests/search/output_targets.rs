//! Outputs that are not regular files: bytes are written to pipes, and links stay.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, symlink};
use std::path::PathBuf;
use std::process::Command;

use godwit_tests::binary::process_timeout;
use godwit_tests::tool::run_checked;
use godwit_tests::{needs, scratch};

use super::test_databases::databases;

const COMMAND: &str = "blastp -db first -query far.fa -outfmt 6 -evalue 1e-5";

#[test]
fn named_pipes_receive_the_outputs_and_stay() {
    needs!("makeblastdb");
    let directory = scratch::directory("pipe-outputs");
    let pipes: [PathBuf; 2] = ["hits", "summary.json"].map(|name| directory.join(name));
    run_checked(Command::new("mkfifo").args(&pipes));
    let readers = pipes.each_ref().map(|path| scratch::read_pipe(path));
    let options = format!("--workers 2 --fragments 3 --summary {}", pipes[1].display());
    databases().search(&options, COMMAND, &pipes[0]).run_ok();
    assert!(pipes.iter().all(|path| path.metadata().is_ok_and(|found| found.file_type().is_fifo())));
    let [hits, summary] = readers.map(|reader| reader.recv_timeout(process_timeout()).expect("the pipe was written"));
    assert!(hits == databases().expected_output(COMMAND));
    serde_json::from_slice::<serde_json::Value>(&summary).expect("JSON");
    for options in ["--resume", "--on local --nodes 2"] {
        databases().search(options, COMMAND, &pipes[0]).run().assert_rejected(&[2], &["-out", "pipe"]);
    }
    let table = directory.join("hits.parquet");
    run_checked(Command::new("mkfifo").arg(&table));
    let options = format!("--hits {}", table.display());
    let out = directory.join("out");
    databases().search(&options, COMMAND, &out).run().assert_rejected(&[2], &["hits.parquet", "write to a file"]);
    assert_eq!(scratch::entry_names(&directory), ["hits", "hits.parquet", "summary.json"]);
}

#[test]
fn a_link_to_standard_output_is_written_through() {
    needs!("makeblastdb");
    let link = scratch::directory("stdout-output").join("out");
    symlink("/dev/stdout", &link).expect("a link can be made");
    let found = databases().search("--workers 2", COMMAND, &link).run_ok().stdout;
    assert!(found.as_bytes() == databases().expected_output(COMMAND));
    assert!(link.is_symlink());
}

#[test]
fn a_link_stays_and_the_file_that_it_names_is_written() {
    needs!("makeblastdb");
    let (directory, store) = (scratch::directory("linked-output"), scratch::directory("linked-store"));
    let link = directory.join("out");
    symlink(store.join("hits"), &link).expect("a link can be made");
    for _ in ["a new file", "an existing file"] {
        databases().search("--workers 2 --fragments 3", COMMAND, &link).run_ok();
        assert!(fs::read(store.join("hits")).expect("it was written") == databases().expected_output(COMMAND));
        fs::write(store.join("hits"), "old").expect("it can be written");
    }
    assert!(link.is_symlink());
    assert_eq!(scratch::entry_names(&directory), ["out"]);
    assert_eq!(scratch::entry_names(&store), ["hits"]);
}
