//! For each program, format, number of ranges and number of hits, the output equals that of a single run byte for byte.

use godwit_tests::needs;

use super::test_databases::{databases, without_command_line};

const PARTS_ARGS: &str = "--fragments 3 --workers 2";

#[test]
fn every_program_and_task_writes_the_bytes_of_one_pass() {
    needs!("makeblastdb");
    for command in [
        "blastp -db proteins -query far.fa -outfmt 6",
        "blastp -task blastp-fast -db proteins -query far.fa -outfmt 6",
        "blastn -task megablast -db genes -query near.fa -outfmt 6",
        "blastn -task dc-megablast -db genes -query near.fa -outfmt 6",
        "blastn -task blastn -db genes -query near.fa -outfmt 6",
        "blastn -task blastn-short -db genes -query near.fa -outfmt 6 -evalue 1e-20",
        "blastx -db proteins -query coding.fa -outfmt 6",
        "tblastn -db genes -query far.fa -outfmt 6",
        "tblastx -db genes -query coding.fa -outfmt 6",
    ] {
        databases().assert_same(&[PARTS_ARGS], command);
    }
}

#[test]
fn every_format_is_written_as_by_one_pass() {
    needs!("makeblastdb");
    for format in ["0", "1", "5", "'7 qseqid sseqid evalue bitscore qcovs btop'", "10", "11", "12", "15", "16"] {
        databases()
            .assert_same(&[PARTS_ARGS], &format!("blastp -db proteins -query far.fa -evalue 1e-5 -outfmt {format}"));
    }
    databases().assert_same(&[PARTS_ARGS], "blastn -db genes -query near.fa -outfmt 0");
}

#[test]
fn sam_is_that_of_one_pass_but_for_the_path_of_the_output() {
    needs!("makeblastdb");
    for format in ["17", "'17 SR'"] {
        let command = format!("blastn -db genes -query near.fa -outfmt {format}");
        let lines = |sam: Vec<u8>| -> Vec<String> {
            let text = String::from_utf8(without_command_line(&command, sam)).expect("SAM is text");
            text.lines().map(str::to_owned).collect()
        };
        let (expected, found) =
            (lines(databases().expected_output(&command)), lines(databases().search_output(PARTS_ARGS, &command)));
        assert!(expected.len() > 20, "{command} found only {} lines", expected.len());
        assert_eq!(found, expected, "{command}");
    }
}

#[test]
fn queries_with_more_hits_than_are_kept_keep_those_of_one_pass() {
    needs!("makeblastdb");
    let (one, few, many) = ("--fragments 1 --workers 1", PARTS_ARGS, "--fragments 16 --workers 2");
    for (parts, command) in [
        (&[few, many][..], "blastp -db first -query far.fa -outfmt 6 -evalue 2000 -max_target_seqs 5"),
        (
            &[one, few, many][..],
            "blastn -task blastn -db genes -query near.fa -outfmt 6 -evalue 2000 -max_target_seqs 5",
        ),
        (&[few][..], "tblastn -db genes -query far.fa -outfmt 6 -evalue 2000 -max_target_seqs 5"),
        (&[one, many][..], "blastp -db first -query far.fa -outfmt 6 -culling_limit 1"),
        (&[few][..], "blastp -db first -query far.fa -outfmt 6 -subject_besthit"),
    ] {
        databases().assert_same(parts, command);
    }
}

#[test]
fn queries_that_the_engine_takes_apart_are_put_together_as_by_one_pass() {
    needs!("makeblastdb");
    databases().assert_same(&[PARTS_ARGS], "blastp -db proteins -query long.fa -outfmt 6");
    databases()
        .assert_same(&[PARTS_ARGS], "blastp -db proteins -query long.fa -outfmt 6 -max_target_seqs 5 -evalue 100");
}

#[test]
fn volumes_are_searched_as_one_database() {
    needs!("makeblastdb");
    databases().assert_same(
        &[PARTS_ARGS, "--fragments 7 --workers 1"],
        "blastp -db both -query far.fa -outfmt 0 -evalue 1e-5",
    );
    databases().assert_same(&[PARTS_ARGS], "blastp -db 'first second' -query far.fa -outfmt 6");
}

#[test]
fn more_ranges_than_sequences_are_as_many_as_there_are_sequences() {
    needs!("makeblastdb");
    databases().assert_same(&["--fragments 100000 --workers 2"], "blastp -db first -query near.fa -outfmt 7 -evalue 1");
}

#[test]
fn without_a_word_about_ranges_the_plan_changes_nothing() {
    needs!("makeblastdb");
    for search in ["-db few -query many.fa", "-db first -query far.fa"] {
        databases().assert_same(&["--workers 2"], &format!("blastp {search} -outfmt 7 -evalue 1e-30"));
    }
}
