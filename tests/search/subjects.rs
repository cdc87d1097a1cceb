//! Searches of the sequences of a FASTA file (`-subject`), compared with one pass of NCBI's application and with the tables
//! of the installed programs.

use std::fs;
use std::process::Command;

use godwit_tests::binary::{self, godwit};
use godwit_tests::tool::{Tool, run_checked};
use godwit_tests::{needs, scratch};

use super::test_databases::{databases, split_arguments, without_command_line};

#[test]
fn subjects_are_searched_as_by_one_pass() {
    needs!("makeblastdb");
    for (options, command) in [
        ("--workers 2", "blastp -subject first.fa -query batches.fa -outfmt 6 -evalue 1e-5"),
        ("--workers 1", "blastp -subject first.fa -query far.fa -outfmt 0 -evalue 1e-5 -subject_loc 5-90"),
        ("--on local --nodes 2 --threads 1", "blastx -subject first.fa -query coding.fa -outfmt 5 -evalue 1e-5"),
        ("--workers 2", "tblastn -subject genes.fa -query far.fa -outfmt 11 -evalue 1e-5"),
        ("--workers 2", "tblastx -subject genes.fa -query near.fa -outfmt 7 -evalue 1e-10"),
        ("--workers 2", "blastn -subject genes.fa -query near.fa -outfmt 17"),
        // Two batches: the size of the second depends on the extensions of the first.
        ("--workers 2", "blastn -task blastn -subject genes.fa -query genes.fa -outfmt 10 -evalue 1e-10"),
    ] {
        let expected = without_command_line(command, databases().expected_output(command));
        let found = without_command_line(command, databases().search_output(options, command));
        assert!(!expected.is_empty() && found == expected, "search {options} -- {command}: the output is another");
    }
}

#[test]
fn tables_of_subjects_are_those_of_the_installed_programs() {
    needs!("makeblastdb", "blastp", "blastn");
    for command in [
        "blastp -subject first.fa -query far.fa -outfmt 6 -evalue 1e-5",
        "blastn -subject genes.fa -query near.fa -outfmt 6",
    ] {
        let words = split_arguments(command);
        let mut program = Tool::require(&words[0]).command();
        program.args(&words[1..]).current_dir(&databases().directory).env("BLAST_USAGE_REPORT", "false");
        let expected = program.output().expect("it can be started").stdout;
        assert!(!expected.is_empty() && databases().search_output("--workers 2", command) == expected, "{command}");
    }
}

#[test]
fn a_search_of_subjects_writes_a_table_of_hits_and_rejects_what_it_cannot_search() {
    needs!("makeblastdb");
    let directory = scratch::directory("subjects");
    let (subjects, out, table) = (directory.join("subjects.fa"), directory.join("out"), directory.join("hits.arrow"));
    let sequences = fs::read_to_string(databases().directory.join("first.fa")).expect("it is there");
    fs::write(&subjects, &sequences).expect("scratch can be written");
    let command = format!("blastp -subject {} -query batches.fa -outfmt 6 -evalue 1e-5", subjects.display());
    let options = format!("--workers 2 --hits {}", table.display());
    databases().search(&options, &command, &out).run_ok();
    assert!(fs::read(&out).expect("it wrote its output") == databases().expected_output(&command));
    let rows = fs::metadata(&table).expect("it wrote its table").len();
    assert!(rows > 10_000, "the table has only {rows} bytes");
    let script = "blastp -subject <(cat first.fa) -query batches.fa -outfmt 6 -evalue 1e-5";
    let script = format!("{} search --workers 2 -- {script}", binary::path().display());
    let mut shell = Command::new("bash");
    shell.args(["-c", &script]).current_dir(&databases().directory);
    let piped = run_checked(&mut shell);
    assert!(piped.stdout == databases().expected_output(&command), "the output is another with a pipe");
    let missing = directory.join("missing.fa");
    let command = format!("blastp -subject {} -query far.fa", missing.display());
    databases().search("", &command, &out).run().assert_rejected(&[4], &["missing.fa"]);
    let command = "blastn -subject genes.fa -query near.fa";
    let search = godwit().current_dir(&databases().directory).args(["search", "--workers", "2", "--"]);
    let warned = search.args(split_arguments(command)).arg("-out").arg(&out).run_ok();
    assert!(warned.stderr.contains("with one worker; build a database"), "{}", warned.stderr);
    databases().search("--on local --nodes 2", command, &out).run().assert_rejected(&[2], &["omit --on"]);
}
