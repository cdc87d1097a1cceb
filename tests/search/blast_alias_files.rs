//! The programs of an installed BLAST+ over alias files: where no limit is reached, the table of one pass of the same
//! program.

use godwit_tests::tool::{Tool, run_checked};
use godwit_tests::{needs, scratch};

use super::test_databases::{SearchDatabases, databases, split_arguments};

/// Returns the output of the installed program in one pass.
fn one_pass_output(data: &SearchDatabases, command: &str) -> String {
    let place = scratch::directory("installed").join("out");
    let words = split_arguments(command);
    let mut program = Tool::require(&words[0]).command();
    program.args(&words[1..]).arg("-out").arg(&place).current_dir(&data.directory).env("BLAST_USAGE_REPORT", "false");
    run_checked(&mut program);
    std::fs::read_to_string(place).expect("the program writes its output")
}

#[test]
fn tables_of_ranges_are_merged_in_the_order_of_one_pass() {
    needs!("makeblastdb", "blastp", "blast_formatter", "blastdbcmd");
    for (options, command) in [
        ("--fragments 5 --workers 2", "blastp -db proteins -query far.fa -outfmt 6"),
        (
            "--fragments 3 --workers 1",
            "blastp -db both -query far.fa -outfmt '10 qaccver saccver evalue' -max_target_seqs 5",
        ),
        ("--fragments 4 --workers 2", "blastn -db genes -query near.fa -outfmt 6"),
        ("--workers 2", "blastx -db proteins -query coding.fa -outfmt '6 std stitle' -evalue 1e-5"),
        ("--fragments 2 --workers 1", "tblastn -db genes -query far.fa -outfmt 6 -evalue 1e-5"),
        ("--on local --nodes 2 --threads 1 --fragments 5", "blastp -db proteins -query far.fa -outfmt 6"),
    ] {
        let directory = scratch::directory("alias");
        let (out, told) = (directory.join("out"), directory.join("summary.json"));
        let options = format!("--engine alias {options} --summary {}", told.display());
        databases().search(&options, command, &out).run_ok();
        let found = std::fs::read_to_string(&out).expect("the search writes its output");
        let expected = one_pass_output(databases(), command);
        assert!(!expected.is_empty(), "{command} found nothing to compare");
        for (number, (found, expected)) in found.lines().zip(expected.lines()).enumerate() {
            assert_eq!(found, expected, "{options} {command}: row {number}");
        }
        assert_eq!(found.lines().count(), expected.lines().count(), "{options} {command}");
        let told = std::fs::read(&told).expect("it wrote its summary");
        let summary: serde_json::Value = serde_json::from_slice(&told).expect("JSON");
        assert_eq!(summary["identical"].as_bool(), Some(false), "{summary}");
        assert!(summary["why_not_identical"].as_str().is_some_and(|why| why.contains("traceback")), "{summary}");
        assert_eq!(scratch::entry_names(&directory), ["out", "summary.json"], "{command}");
    }
}

#[test]
fn what_cannot_be_merged_is_refused_by_name() {
    needs!("makeblastdb", "blastp");
    for (command, code, said) in [
        ("blastp -db proteins -query far.fa", 2, "-outfmt 0"),
        ("blastp -db proteins -query far.fa -outfmt 6 -sorthits 2", 2, "-sorthits"),
        ("blastp -db no_such_database -query far.fa -outfmt 6", 3, "no_such_database"),
        ("blastp -db proteins -query far.fa -outfmt 6 -evalue x", 2, "evalue"),
    ] {
        let directory = scratch::directory("alias-refused");
        databases().search("--engine alias", command, &directory.join("out")).run().assert_rejected(&[code], &[said]);
        assert_eq!(scratch::entry_names(&directory), [] as [&str; 0], "{command}");
    }
}
