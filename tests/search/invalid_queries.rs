//! Unusual and invalid queries among valid ones: exit code and output equal those of NCBI's program.

use godwit_tests::binary::godwit;
use godwit_tests::{needs, scratch};

use super::test_databases::{databases, reference_program};

#[test]
fn a_query_that_blast_goes_past_keeps_no_other_from_being_searched() {
    needs!("makeblastdb");
    let data = databases();
    let far = std::fs::read_to_string(data.directory.join("far.fa")).expect("it is there");
    let directory = scratch::directory("bad-queries");
    let long = "ACDEFGHIKL".repeat(4000);
    let cases = [
        ("empty", ">none\n\n"),
        ("digits", ">digits\nMKT123AYI\n"),
        ("masked", ">masked\nXXXXXXXXXX\n"),
        ("short", ">short\nM\n"),
        ("unnamed", ">\nMKTAYIAKQRQISFVKSHF\n"),
        ("hyphens", ">hyphens\nMKT---AYIAKQRQISF\n"),
        ("stops", ">stops\nMKTAYIAK*QRQISF\n"),
        ("implausible", ">implausible\nM!K@T#AY(I\n"),
        ("zeros", ">zeros\n\0\u{1}\u{2}MKT\n"),
        ("long", &format!(">long\n{long}\n")),
    ];
    // Batches do not depend on what kind of query they begin and end with, so each kind is at one end and in the middle.
    for ((name, bad), end) in cases.into_iter().zip(["first", "last"].into_iter().cycle()) {
        for place in ["middle", end] {
            let (before, after) = match place {
                "first" => ("", far.as_str()),
                "last" => (far.as_str(), ""),
                _ => (far.as_str(), far.as_str()),
            };
            let query = directory.join(format!("{name}-{place}.fa"));
            std::fs::write(&query, format!("{before}{bad}{after}")).expect("it can be written");
            let words = ["blastp", "-db", "first", "-outfmt", "6", "-evalue", "1e-5", "-query"];
            let mut blast = std::process::Command::new(reference_program());
            blast.args(words).arg(&query).current_dir(&data.directory).env("BLAST_USAGE_REPORT", "false");
            let blast = blast.output().expect("it can be started");
            let out = directory.join(format!("{name}-{place}.tsv"));
            let search = godwit().args(["search", "--workers", "2", "--fragments", "3", "--"]).args(words).arg(&query);
            let search = search.arg("-out").arg(&out).current_dir(&data.directory).run();
            assert_eq!(search.status.success(), blast.status.success(), "{name} {place}: {}", search.describe());
            match blast.status.success() {
                true => assert!(std::fs::read(&out).expect("it is there") == blast.stdout, "{name} {place}"),
                false => search.assert_rejected(&[3], &["queries"]),
            }
        }
    }
}

#[test]
fn an_empty_file_of_queries_makes_an_empty_output_as_of_blast() {
    needs!("makeblastdb");
    let directory = scratch::directory("no-queries");
    for (name, text) in [("empty.fa", ""), ("blank.fa", "\n \n")] {
        let query = directory.join(name);
        std::fs::write(&query, text).expect("scratch can be written");
        for words in ["blastp -db first -outfmt 6", "blastp -db first -outfmt 0", "blastn -db genes -outfmt 17"] {
            let command = format!("{words} -query {}", query.display());
            assert!(databases().expected_output(&command).is_empty(), "{command}");
            assert!(databases().search_output("--workers 2 --fragments 3", &command).is_empty(), "{command}");
        }
        let command = format!("blastp -db no_such_database -query {}", query.display());
        let search = databases().search("", &command, &directory.join("out"));
        search.run().assert_rejected(&[3], &["no_such_database"]);
    }
    assert_eq!(scratch::entry_names(&directory), ["blank.fa", "empty.fa"]);
}

/// Returns the warnings in the text on stderr, sorted.
fn sorted_warnings(stderr: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = stderr.lines().filter(|line| line.starts_with("Warning")).collect();
    lines.sort_unstable();
    lines
}

#[test]
fn warnings_are_those_of_one_pass_and_are_printed_once() {
    needs!("makeblastdb");
    let data = databases();
    let directory = scratch::directory("warnings");
    let batches = std::fs::read_to_string(data.directory.join("batches.fa")).expect("it is there");
    // Queries of three batches; the engine warns of each one without letters.
    let records = batches.split_inclusive("\n>").take(100).enumerate().map(|(index, record)| match index % 9 {
        4 => format!(">masked_{index}\nXXXXXXXXXXXX\n>{}\n", record.trim_matches(['>', '\n'])),
        _ => format!(">{}\n", record.trim_matches(['>', '\n'])),
    });
    let query = directory.join("masked.fa");
    std::fs::write(&query, records.collect::<String>()).expect("scratch can be written");
    let words = "blastp -db first -outfmt 6 -evalue 1e-30 -max_target_seqs 2".split(' ');
    let mut blast = std::process::Command::new(reference_program());
    blast.args(words.clone()).arg("-query").arg(&query).current_dir(&data.directory).env("BLAST_USAGE_REPORT", "false");
    let blast = String::from_utf8(blast.output().expect("it can be started").stderr).expect("warnings are text");
    let expected = sorted_warnings(&blast);
    // One for each masked query, and one for the small number of subjects.
    assert_eq!(expected.len(), 12, "{blast}");
    for parts in ["--workers 2", "--workers 2 --fragments 3", "--workers 1 --fragments 3 --cache-memory 4K"] {
        let search =
            godwit().arg("search").args(parts.split(' ')).arg("--").args(words.clone()).arg("-query").arg(&query);
        let search = search.arg("-out").arg(directory.join("out")).current_dir(&data.directory).run_ok();
        assert_eq!(sorted_warnings(&search.stderr), expected, "{parts}");
    }
}
