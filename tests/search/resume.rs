//! Resuming stopped searches: the output equals that of a single run, and no batch is searched twice.

use std::fs;
use std::path::{Path, PathBuf};

use godwit_tests::binary::GodwitCommand;
use godwit_tests::processes::{is_running, send_signal};
use godwit_tests::wait::wait_until;
use godwit_tests::{needs, scratch, skip};

use super::test_databases::databases;

const EXIT_USAGE: i32 = 2;
/// A search of two batches of queries.
const COMMAND: &str = "tblastx -db genes -query some.fa -outfmt 6 -evalue 1e-10";

struct SearchDirectory {
    directory: PathBuf,
}

impl SearchDirectory {
    fn new(name: &str) -> Self {
        Self { directory: scratch::directory(name) }
    }

    fn out(&self) -> PathBuf {
        self.directory.join("out")
    }

    fn journal_directory(&self) -> PathBuf {
        self.directory.join(".out.godwit-search")
    }

    fn search(&self, options: &str, command: &str) -> GodwitCommand {
        databases().search(options, command, &self.out())
    }

    /// Starts a search, and kills it and its workers when its journal has `lines` lines. Returns whether it was still
    /// running.
    fn kill_at_journal_lines(&self, options: &str, command: &str, lines: usize) -> bool {
        let run = self.search(options, command).spawn();
        let process = run.process_id();
        wait_until("lines in the journal", || {
            !is_running(process)
                || line_count(&self.journal_directory().join("journal")) >= lines
                || self.out().exists()
        });
        let stopped = is_running(process) && !self.out().exists();
        send_signal(process, libc::SIGKILL);
        run.wait_with_output();
        stopped
    }

    /// Resumes the search, compares its output with that of a single run, and returns the summary.
    fn resume(&self, options: &str, command: &str) -> serde_json::Value {
        let told = self.directory.join("summary.json");
        self.search(&format!("{options} --resume --summary {}", told.display()), command).run_ok();
        let found = fs::read(self.out()).expect("it wrote its output");
        assert!(found == databases().expected_output(command), "{options} {command}: the output is another");
        let summary = serde_json::from_slice(&fs::read(&told).expect("it wrote its summary")).expect("JSON");
        fs::remove_file(told).expect("it is there");
        let mut left = scratch::entry_names(&self.directory);
        left.retain(|name| name != "out" && name != "hits.parquet");
        assert_eq!(left, [] as [&str; 0], "{options} {command}");
        summary
    }
}

fn line_count(path: &Path) -> usize {
    fs::read(path).map_or(0, |bytes| bytes.iter().filter(|byte| **byte == b'\n').count())
}

#[test]
fn a_search_that_was_killed_at_any_moment_goes_on() {
    needs!("makeblastdb");
    let mut stopped = 0;
    for lines in [1, 3, 8] {
        let place = SearchDirectory::new("resume");
        stopped += usize::from(place.kill_at_journal_lines("--fragments 6 --workers 2", COMMAND, lines));
        // The resumed search has another number of workers, which search the remaining ranges.
        place.resume("--workers 1", COMMAND);
    }
    assert!(stopped > 0, "each search ended before it could be killed");
}

#[test]
fn finished_batches_are_not_searched_again() {
    needs!("makeblastdb");
    // With this command, the search has many batches, and each worker searches complete batches.
    let command = "blastp -db few -query many.fa -outfmt 7 -evalue 1e-30";
    let place = SearchDirectory::new("resume-batches");
    let hits = format!("--workers 2 --hits {}/hits.parquet", place.directory.display());
    if !place.kill_at_journal_lines(&hits, command, 4) {
        return assert!(place.out().exists(), "it was not killed, and has no output");
    }
    let summary = place.resume(&hits, command);
    assert!(summary["resumed_batches"].as_u64() >= Some(1), "{summary}");
    let whole = SearchDirectory::new("resume-whole");
    let again = format!("--workers 2 --hits {}/hits.parquet", whole.directory.display());
    whole.search(&again, command).run_ok();
    let table = |place: &SearchDirectory| fs::read(place.directory.join("hits.parquet")).expect("it wrote its table");
    assert!(table(&place) == table(&whole), "the table of hits is another");
}

#[test]
fn a_search_of_something_else_does_not_go_on() {
    needs!("makeblastdb");
    let place = SearchDirectory::new("resume-other");
    if !place.kill_at_journal_lines("--fragments 6 --workers 2", COMMAND, 2) {
        return assert!(place.out().exists(), "it was not killed, and has no output");
    }
    for (options, command, said) in [
        ("--resume", COMMAND.replace("1e-10", "1e-11"), "-evalue 1e-11"),
        ("--resume", COMMAND.replace("some.fa", "near.fa"), "queries"),
        ("--resume", COMMAND.replace("tblastx", "blastn"), "blastn"),
        ("--resume --fragments 7", COMMAND.to_owned(), "6 parts"),
    ] {
        place.search(options, &command).run().assert_rejected(&[EXIT_USAGE], &["cannot resume", said]);
        assert!(place.journal_directory().is_dir() && !place.out().exists(), "{command}");
    }
    // Without --resume, the search starts from the beginning.
    place.search("--workers 2", "blastp -db proteins -query far.fa -outfmt 6").run_ok();
    assert_eq!(scratch::entry_names(&place.directory), ["out"]);
    databases().search("--resume", COMMAND, "-".as_ref()).run().assert_rejected(&[EXIT_USAGE], &["-out FILE"]);
}

#[test]
fn with_nothing_to_go_on_from_it_begins() {
    needs!("makeblastdb");
    let place = SearchDirectory::new("resume-nothing");
    let summary = place.resume("--workers 2", "blastp -db proteins -query far.fa -outfmt 0 -evalue 1e-5");
    assert_eq!(summary["resumed_batches"].as_u64(), Some(0), "{summary}");
}

#[test]
fn an_interrupted_cluster_search_reports_how_to_resume() {
    needs!("makeblastdb");
    let place = SearchDirectory::new("resume-nodes");
    let run = place.search("--on local --nodes 2 --threads 1 --fragments 12", COMMAND).spawn();
    wait_until("ranges to be searched", || {
        line_count(&place.journal_directory().join("journal")) >= 3 || place.out().exists()
    });
    send_signal(run.process_id(), libc::SIGTERM);
    let stopped = run.wait_with_output();
    if stopped.status.success() {
        skip!("fast-search", "the search was complete before it was interrupted");
    }
    stopped.assert_rejected(&[130], &["--resume"]);
    place.resume("--workers 2", COMMAND);
}
