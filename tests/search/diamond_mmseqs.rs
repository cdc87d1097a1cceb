//! DIAMOND and MMseqs2 by pieces of the queries, against one run of the same tool.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use godwit_tests::binary::{GodwitCommand, godwit};
use godwit_tests::processes::{child_processes, send_signal, wait_for_children};
use godwit_tests::tool::{Tool, run_checked};
use godwit_tests::wait::wait_until;
use godwit_tests::{needs, scratch, skip};

use super::test_databases::databases;

/// Skips the calling test where one of the tools is not installed.
macro_rules! needs_diamond_and_mmseqs {
    ($($tool:literal),+) => {
        needs!("makeblastdb");
        $(
            if Tool::find($tool).is_none() {
                skip!("bulk-searcher", "{} is not on PATH", $tool);
            }
        )+
    };
}

/// Returns the directory with the proteins of the other tests as DIAMOND's and MMseqs2's databases, and with queries.
fn databases_directory() -> &'static Path {
    static DATABASES: OnceLock<PathBuf> = OnceLock::new();
    DATABASES.get_or_init(|| {
        let directory = scratch::directory("bulk");
        for name in ["proteins.fa", "far.fa", "coding.fa", "genes.fa"] {
            std::fs::copy(databases().directory.join(name), directory.join(name)).expect("it can be copied");
        }
        // Use more queries than MMseqs2 assigns to its threads in one round, and not a multiple of this number.
        let proteins = std::fs::read_to_string(directory.join("proteins.fa")).expect("FASTA is text");
        let some: Vec<&str> = proteins.split_inclusive("\n>").step_by(6).collect();
        let some: String = some.iter().map(|record| format!(">{}", record.trim_matches('>'))).collect();
        std::fs::write(directory.join("some.fa"), some.trim_end()).expect("scratch can be written");
        if let Some(diamond) = Tool::find("diamond") {
            let make = ["makedb", "--in", "proteins.fa", "-d", "diamond", "--quiet"];
            run_checked(diamond.command().args(make).current_dir(&directory));
        }
        directory
    })
}

/// Returns the output of one run of the tool.
fn expected_output(command: &str) -> Vec<u8> {
    let place = scratch::directory("one-run");
    let words = split_arguments(command, &place);
    // Run the tool by its name, because the SAM header contains the name as it was called.
    run_checked(std::process::Command::new(&words[0]).args(&words[1..]).current_dir(databases_directory()));
    std::fs::read(place.join("out")).expect("the tool writes its output")
}

/// Splits a command line, with OUT and TMP replaced by paths.
fn split_arguments(command: &str, place: &Path) -> Vec<String> {
    let place = place.display().to_string();
    command
        .split(' ')
        .map(|word| word.replace("OUT", &format!("{place}/out")).replace("TMP", &format!("{place}/tmp")))
        .collect()
}

fn search(options: &str, command: &str, place: &Path) -> GodwitCommand {
    let options = options.split(' ').filter(|word| !word.is_empty());
    let godwit = godwit().current_dir(databases_directory()).arg("search").args(options).args(["--quiet", "--"]);
    godwit.args(split_arguments(command, place))
}

#[track_caller]
fn assert_same(options: &[&str], command: &str) {
    let expected = without_output_path(expected_output(command));
    assert!(!expected.is_empty(), "{command} found nothing to compare");
    for options in options {
        let place = scratch::directory("by-pieces");
        search(options, command, &place).run_ok();
        let found = without_output_path(std::fs::read(place.join("out")).expect("the search writes its output"));
        assert!(
            found == expected,
            "search {options} -- {command}: {} bytes differ from {}",
            found.len(),
            expected.len()
        );
        let left: Vec<String> =
            scratch::entry_names(&place).into_iter().filter(|name| name != "out" && name != "tmp").collect();
        assert_eq!(left, [] as [&str; 0], "search {options} -- {command}");
    }
}

/// Removes the path of the output from SAM's header, because it differs in each run.
fn without_output_path(report: Vec<u8>) -> Vec<u8> {
    match report.starts_with(b"@HD") {
        false => report,
        true => {
            let text = String::from_utf8(report).expect("SAM is text");
            let lines = text.lines().map(|line| line.split(" -o ").next().unwrap_or_default());
            lines.collect::<Vec<_>>().join("\n").into_bytes()
        }
    }
}

#[test]
fn diamond_by_pieces_writes_the_bytes_of_one_run() {
    needs_diamond_and_mmseqs!("diamond");
    let pieces = ["--workers 2 --fragments 5", "--workers 1 --threads 1"];
    assert_same(&pieces, "diamond blastp -d diamond -q some.fa --threads 1 -o OUT");
    for more in [
        "blastp -q some.fa -f 6 qseqid sseqid evalue bitscore btop --header simple -k 3 --very-sensitive",
        "blastp -q some.fa -f 0",
        "blastp -q some.fa -f 101",
        "blastx -q coding.fa -f 103",
        "blastp -q some.fa --algo 1 --unal 1",
        "blastp -q some.fa --iterate",
    ] {
        assert_same(&pieces[..1], &format!("diamond {more} --threads 1 -d diamond -o OUT"));
    }
}

#[test]
fn mmseqs_by_pieces_writes_the_bytes_of_one_run() {
    needs_diamond_and_mmseqs!("mmseqs");
    assert_same(&["--workers 1 --fragments 3"], "mmseqs easy-search some.fa proteins.fa OUT TMP --threads 1 -v 1");
}

#[test]
#[ignore = "each run of MMseqs2 takes seconds to start"]
fn mmseqs_in_other_modes_writes_the_bytes_of_one_run() {
    needs_diamond_and_mmseqs!("mmseqs");
    let pieces = ["--workers 2 --fragments 2", "--fragments 1"];
    for more in [
        "some.fa proteins.fa OUT TMP --format-mode 4 --shuffle 0",
        "some.fa proteins.fa OUT TMP --num-iterations 2 -s 7.5",
        "coding.fa proteins.fa OUT TMP --search-type 2",
        "genes.fa genes.fa OUT TMP --search-type 3",
    ] {
        assert_same(&pieces, &format!("mmseqs easy-search {more} --threads 1 -v 1"));
    }
}

#[test]
fn pieces_from_workers_are_joined_as_in_one_process() {
    needs_diamond_and_mmseqs!("diamond");
    let nodes = ["--on local --nodes 2 --threads 1 --fragments 5"];
    assert_same(&nodes, "diamond blastp -d diamond -q some.fa -f 0 --threads 1 -o OUT");
}

#[test]
fn pieces_of_workers_that_are_killed_are_searched_again() {
    needs_diamond_and_mmseqs!("diamond");
    let command = "diamond blastp -d diamond -q some.fa --threads 1 --ultra-sensitive -o OUT";
    let expected = expected_output(command);
    let (place, told) =
        (scratch::directory("killed-pieces"), scratch::directory("killed-pieces-told").join("summary.json"));
    let options = format!("--workers 2 --fragments 6 --summary {}", told.display());
    let run = search(&options, command, &place).spawn();
    let workers = wait_for_children(run.process_id(), "search-worker", 2);
    wait_until("a worker to search", || !child_processes(workers[0], "--ultra-sensitive").is_empty());
    send_signal(workers[0], libc::SIGKILL);
    let finished = run.wait_with_output();
    assert!(finished.status.success(), "{}", finished.describe());
    assert!(std::fs::read(place.join("out")).expect("it wrote its output") == expected, "the output is another");
    let summary: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&told).expect("it wrote its summary")).expect("JSON");
    assert!(summary["restarts"].as_u64() >= Some(1), "{summary}");
    assert_eq!(
        (summary["program"].as_str(), summary["identical"].as_bool()),
        (Some("diamond"), Some(true)),
        "{summary}"
    );
}

#[test]
fn searches_with_tools_resume_with_the_same_database_only() {
    needs_diamond_and_mmseqs!("diamond", "mmseqs");
    // MMseqs2 searches a database that each search makes from the FASTA file.
    for (command, other) in [
        ("diamond blastp -d diamond -q some.fa --threads 1 --ultra-sensitive -o OUT", None),
        ("mmseqs easy-search some.fa proteins.fa OUT TMP --threads 1 -v 1", Some(("proteins.fa", "far.fa"))),
    ] {
        let place = scratch::directory("resume-tool");
        let run = search("--workers 1 --fragments 2", command, &place).spawn();
        let journal = place.join(".out.godwit-search/journal");
        let lines = || std::fs::read_to_string(&journal).map_or(0, |text| text.lines().count());
        wait_until("a piece is searched", || lines() >= 2 || place.join("out").exists());
        send_signal(run.process_id(), libc::SIGKILL);
        run.wait_with_output();
        if place.join("out").exists() {
            continue;
        }
        if let Some((file, replacement)) = other {
            let resumed = search("--workers 1 --resume", &command.replace(file, replacement), &place).run();
            resumed.assert_rejected(&[2], &["cannot resume", "the database has changed"]);
        }
        search("--workers 1 --resume", command, &place).run_ok();
        assert!(
            std::fs::read(place.join("out")).expect("it wrote its output") == expected_output(command),
            "{command}"
        );
    }
}

#[test]
fn what_a_tool_cannot_search_by_pieces_is_refused_and_leaves_nothing() {
    needs_diamond_and_mmseqs!("diamond", "mmseqs");
    databases_directory();
    for (options, command, code, said) in [
        ("", "diamond blastp -d diamond -q some.fa -o OUT -f 100", 2, "--outfmt 100"),
        ("", "diamond blastp -d diamond -q some.fa -o OUT --un TMP", 2, "--un"),
        ("", "diamond blastp -d diamond -q some.fa -o OUT --no-such-option 3", 2, "no-such-option"),
        ("", "diamond blastp -d no_such_database -q some.fa -o OUT", 3, "no_such_database"),
        ("", "diamond blastp -d diamond -q no_such_file.fa -o OUT", 4, "no_such_file.fa"),
        ("", "diamond blastp -d diamond -q diamond.dmnd -o OUT", 3, "FASTA"),
        ("--hits hits.parquet", "diamond blastp -d diamond -q some.fa -o OUT", 2, "--hits"),
        ("", "mmseqs easy-search some.fa proteins.fa OUT TMP --format-mode 3", 2, "--format-mode 3"),
        ("", "mmseqs easy-search some.fa proteins.fa OUT TMP --no-such-option 3", 2, "no-such-option"),
        ("", "mmseqs easy-search some.fa no_such_target.fa OUT TMP", 3, "no_such_target.fa"),
    ] {
        let place = scratch::directory("pieces-refused");
        search(options, command, &place).run().assert_rejected(&[code], &[said]);
        let left: Vec<String> = scratch::entry_names(&place).into_iter().filter(|name| name != "tmp").collect();
        assert_eq!(left, [] as [&str; 0], "{command}");
    }
}
