//! Searches of databases that exceed `--cache-memory`: all batches of queries search a range before the next range is read.

use std::fs;

use godwit_tests::processes::{is_running, send_signal};
use godwit_tests::random::Random;
use godwit_tests::tool::{Tool, run_checked};
use godwit_tests::wait::wait_until;
use godwit_tests::{needs, scratch};

use super::test_databases::{databases, without_command_line};
use super::worker_loss::kill_workers;

/// Every database of these tests is larger than this memory.
const SMALL_MEMORY: &str = "--cache-memory 4K";
/// A search of some 5 batches of queries.
const MANY_BATCHES: &str = "blastp -db first -query batches.fa -outfmt 7 -evalue 1e-30";

fn read_json(path: &std::path::Path) -> serde_json::Value {
    serde_json::from_slice(&fs::read(path).expect("it was written")).expect("JSON")
}

#[test]
fn batches_that_share_ranges_write_the_bytes_of_one_pass() {
    needs!("makeblastdb");
    // With --memory 64K, a group ends with the batch of its fourth query.
    let parts = [
        format!("{SMALL_MEMORY} --fragments 3 --workers 2"),
        format!("{SMALL_MEMORY} --fragments 5 --workers 1 --memory 1M"),
        format!("{SMALL_MEMORY} --fragments 2 --workers 2 --memory 64K"),
    ];
    databases().assert_same(&parts.each_ref().map(String::as_str), MANY_BATCHES);
    // The ways to cut a search do not depend on its program and format, so each command has one of them.
    for (parts, command) in parts.iter().cycle().zip([
        "blastp -db 'first second' -query batches.fa -outfmt 6 -evalue 1e-40 -max_target_seqs 5",
        "blastp -db first -query long.fa -outfmt 6 -evalue 1e-5",
        "blastp -db proteins -query far.fa -outfmt 0 -evalue 1e-5 -query_loc 10-60",
        "blastx -db proteins -query coding.fa -outfmt 5 -evalue 1e-5",
        "tblastn -db genes -query far.fa -outfmt 11 -evalue 1e-5",
        "tblastx -db genes -query some.fa -outfmt 6 -evalue 1e-10",
        "blastn -db genes -query near.fa -outfmt 6",
        "blastp -db first -query far.fa -outfmt 6 -culling_limit 1",
    ]) {
        databases().assert_same(&[parts], command);
    }
}

#[test]
fn without_a_number_of_ranges_a_range_takes_a_quarter_of_the_memory() {
    needs!("makeblastdb");
    let directory = scratch::directory("larger-ranges");
    let (out, summary) = (directory.join("out"), directory.join("summary.json"));
    let options = format!("--cache-memory 8K --workers 1 --summary {}", summary.display());
    let run = databases().search(&options, MANY_BATCHES, &out).run_ok();
    assert!(fs::read(&out).expect("it wrote its output") == databases().expected_output(MANY_BATCHES), "{run:?}");
    let summary = read_json(&summary);
    let forecast = &summary["forecast"];
    let bytes = forecast["database_bytes"].as_u64().expect("a size");
    assert!(summary["fragments"].as_u64() >= Some(bytes / 2048), "{summary}");
    assert_eq!((forecast["passes"].as_u64(), summary["passes"].as_u64()), (Some(1), Some(1)), "{summary}");
    assert_eq!(summary["plan"]["split"].as_str(), Some("database"), "{summary}");
    assert!(summary["batches"].as_u64() > Some(3) && forecast["total_s"].as_f64() > Some(0.0), "{summary}");
}

/// Writes 3.4 million letters of queries: mostly random sequences, and from letter 2,500,000 on `repeats` copies of one
/// sequence that has 2,000 mutated copies in the database `repeats`, which this makes too. Returns the options of the
/// search.
fn write_long_queries(directory: &std::path::Path, repeats: usize) -> String {
    let mut random = Random::new(48);
    let mut sequence = |length: usize| -> String { (0..length).map(|_| char::from(*random.pick(b"ACGT"))).collect() };
    let repeat = sequence(100);
    let copies = (0..2000).map(|copy| {
        let (at, letter) = (copy % 90, if &repeat[copy % 90..=copy % 90] == "A" { "C" } else { "A" });
        format!(">copy{copy}\n{}{letter}{}\n", &repeat[..at], &repeat[at + 1..])
    });
    fs::write(directory.join("repeats.fa"), copies.collect::<String>()).expect("scratch can be written");
    let make = ["-in", "repeats.fa", "-dbtype", "nucl", "-out", "repeats"];
    run_checked(Tool::require("makeblastdb").command().args(make).current_dir(directory));
    let mut queries: Vec<String> = (0..2500).map(|_| sequence(1000)).collect();
    queries.extend(vec![repeat; repeats]);
    queries.extend((0..900 - repeats / 10).map(|_| sequence(1000)));
    let text = queries.iter().enumerate().map(|(index, letters)| format!(">q{index}\n{letters}\n"));
    fs::write(directory.join("queries.fa"), text.collect::<String>()).expect("scratch can be written");
    let place = directory.display();
    format!("blastn -task blastn -ungapped -db {place}/repeats -query {place}/queries.fa -outfmt 6 -max_target_seqs 3")
}

#[test]
fn blastn_reads_the_database_once_for_batches_whose_sizes_it_predicts() {
    needs!("makeblastdb");
    // The first batch has 5,000 letters, later ones the largest number, 999,000, as long as they have few hits. 1,500
    // copies of a repeat in the fourth batch have over a million hits, so the fifth batch is smaller than predicted.
    for (repeats, batches, passes) in [(20, 5, 3), (1500, 6, 5)] {
        let directory = scratch::directory("larger-blastn");
        let command = write_long_queries(&directory, repeats);
        let (out, summary) = (directory.join("out"), directory.join("summary.json"));
        let options = format!("{SMALL_MEMORY} --fragments 2 --workers 2 --summary {}", summary.display());
        databases().search(&options, &command, &out).run_ok();
        let found = fs::read(&out).expect("it wrote its output");
        assert!(!found.is_empty() && found == databases().expected_output(&command), "the output is another");
        let summary = read_json(&summary);
        assert_eq!(summary["batches"].as_u64(), Some(batches), "{summary}");
        assert!(summary["passes"].as_u64().is_some_and(|counted| counted <= passes), "{summary}");
    }
}

#[test]
fn hits_of_batches_that_share_ranges_are_those_of_batches_that_do_not() {
    needs!("makeblastdb");
    let directory = scratch::directory("larger-hits");
    let table = |name: &str, options: &str| {
        let (hits, out) = (directory.join(format!("{name}.arrow")), directory.join(name));
        databases().search(&format!("{options} --hits {}", hits.display()), MANY_BATCHES, &out).run_ok();
        fs::read(hits).expect("it wrote its table")
    };
    let together = table("together", &format!("{SMALL_MEMORY} --fragments 3 --workers 2"));
    assert!(together == table("apart", "--fragments 3 --workers 2"), "the table of hits is another");
}

#[test]
fn a_killed_search_of_many_batches_repeats_no_finished_range() {
    needs!("makeblastdb");
    let expected = databases().expected_output(MANY_BATCHES);
    let options = format!("{SMALL_MEMORY} --fragments 4 --workers 2");
    let mut stopped = 0;
    for lines in [3, 12, 40] {
        let directory = scratch::directory("larger-killed");
        let (out, journal) = (directory.join("out"), directory.join(".out.godwit-search/journal"));
        let entries = || -> Vec<String> {
            let text = fs::read(&journal).unwrap_or_default();
            String::from_utf8_lossy(&text).lines().map(str::to_owned).collect()
        };
        let run = databases().search(&options, MANY_BATCHES, &out).spawn();
        let process = run.process_id();
        wait_until("lines in the journal", || !is_running(process) || entries().len() >= lines || out.exists());
        send_signal(process, libc::SIGKILL);
        run.wait_with_output();
        let before = entries();
        stopped += usize::from(!before.is_empty());
        // The resumed search is killed too, after it has finished more work.
        let again = databases().search(&format!("{options} --resume"), MANY_BATCHES, &out).spawn();
        let process = again.process_id();
        wait_until("more lines", || !is_running(process) || entries().len() > before.len() + 2 || out.exists());
        send_signal(process, libc::SIGKILL);
        again.wait_with_output();
        let after = entries();
        if !out.exists() && !before.is_empty() {
            // The last line may have been incomplete.
            let whole = before.len() - 1;
            assert!(after.len() >= whole && after[..whole] == before[..whole], "finished work was removed");
            let range =
                |line: &'_ String| Some(line.split_once("\"Range\"")?.1.split("\"extensions\"").next()?.to_owned());
            let mut ranges: Vec<String> = after.iter().filter_map(range).collect();
            let count = ranges.len();
            ranges.sort_unstable();
            ranges.dedup();
            assert_eq!(ranges.len(), count, "a range was searched twice with the same batch");
        }
        databases().search("--workers 1 --resume --cache-memory 1G", MANY_BATCHES, &out).run_ok();
        assert!(fs::read(&out).expect("it wrote its output") == expected, "{lines}: the output is another");
        assert_eq!(scratch::entry_names(&directory), ["out"]);
    }
    assert!(stopped > 0, "each search ended before it could be killed");
}

#[test]
fn workers_that_are_killed_between_batches_change_nothing() {
    needs!("makeblastdb");
    let directory = scratch::directory("larger-workers");
    let options = format!("{SMALL_MEMORY} --fragments 4 --workers 2");
    let search = databases().search(&options, MANY_BATCHES, &directory.join("out")).spawn();
    let killed = kill_workers(search.process_id(), &directory, 2);
    let finished = search.wait_with_output();
    assert!(finished.status.success() && killed > 0, "{killed} workers were killed: {}", finished.describe());
    let found = fs::read(directory.join("out")).expect("it wrote its output");
    assert!(found == databases().expected_output(MANY_BATCHES), "the output is another");
}

#[test]
fn hosts_share_the_ranges_of_a_database_larger_than_their_memory() {
    needs!("makeblastdb");
    let options = format!("{SMALL_MEMORY} --fragments 6 --on local --nodes 2 --threads 1");
    databases().assert_same(&[&options], MANY_BATCHES);
    databases().assert_same(&[&options], "blastn -db genes -query near.fa -outfmt 6");
}

#[test]
fn a_dry_run_predicts_the_search_and_writes_nothing() {
    needs!("makeblastdb");
    let directory = scratch::directory("larger-dry");
    let out = directory.join("out");
    let plan = databases().search("--dry-run --workers 2 --cache-memory 4K", MANY_BATCHES, &out).run_ok().stdout;
    for words in ["plan: database of", "ranges, 1 pass over it with 200 queries", "in all"] {
        assert!(plan.contains(words), "{words} is not in {plan}");
    }
    let json = databases().search("--dry-run --json --workers 2", MANY_BATCHES, &out).run_ok().stdout;
    let forecast: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(forecast["queries"].as_u64(), Some(200), "{forecast}");
    assert_eq!(scratch::entry_names(&directory), [] as [&str; 0]);
    let (alias, table) = ("--dry-run --engine alias --workers 2", MANY_BATCHES.replace("-outfmt 7", "-outfmt 6"));
    databases().search(alias, &table, &out).run().assert_rejected(&[2], &["--dry-run"]);
}

#[test]
fn lists_of_sequences_and_taxa_restrict_a_search_as_one_pass() {
    needs!("makeblastdb");
    let directory = &databases().directory;
    let names = fs::read_to_string(directory.join("proteins.fa")).expect("it was written");
    let names: Vec<&str> = names.lines().filter_map(|line| line.strip_prefix('>')?.split(' ').next()).collect();
    let some: String = names.iter().step_by(4).flat_map(|name| [*name, "\n"]).collect();
    fs::write(directory.join("some.txt"), some).expect("scratch can be written");
    let parts = format!("{SMALL_MEMORY} --fragments 5 --workers 2");
    for (parts, list) in [
        (parts.as_str(), "-seqidlist some.txt"),
        ("--fragments 5 --workers 2", "-negative_seqidlist some.txt"),
        ("--fragments 5 --workers 2", "-taxids 562,9606 -no_taxid_expansion"),
        (parts.as_str(), "-negative_taxids 9606 -no_taxid_expansion"),
    ] {
        let command = format!("blastp -db named -query far.fa -outfmt '6 std staxids' -evalue 1e-5 {list}");
        databases().assert_same(&[parts], &command);
    }
}

#[test]
fn sam_of_batches_that_share_ranges_has_the_lines_of_one_pass() {
    needs!("makeblastdb");
    let command = "blastn -db genes -query near.fa -outfmt 17";
    let options = format!("{SMALL_MEMORY} --fragments 3 --workers 2");
    let found = without_command_line(command, databases().search_output(&options, command));
    assert!(found == without_command_line(command, databases().expected_output(command)), "the output is another");
}
