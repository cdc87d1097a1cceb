//! The output of a search does not change if workers are lost and restarted.

use std::time::Duration;

use godwit_tests::tool::run_checked;
use godwit_tests::{binary, needs, scratch};

use super::test_databases::databases;

/// Returns the children of a process.
fn child_process_ids(process: u32) -> Vec<i32> {
    let tasks = format!("/proc/{process}/task");
    let Ok(tasks) = std::fs::read_dir(tasks) else { return Vec::new() };
    let listed = tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    listed.flat_map(|text| text.split(' ').filter_map(|word| word.trim().parse().ok()).collect::<Vec<_>>()).collect()
}

/// Kills one worker after another while the search has its output open. Returns how many.
pub(super) fn kill_workers(search: u32, directory: &std::path::Path, count: usize) -> usize {
    let mut killed = 0;
    while killed < count {
        let is_open = std::fs::read_dir(directory).is_ok_and(|mut files| files.next().is_some());
        let workers = child_process_ids(search);
        if !std::path::Path::new(&format!("/proc/{search}/stat")).exists() || (workers.is_empty() && is_open) {
            break;
        }
        if is_open && workers.len() == 2 {
            // SAFETY: kill takes no pointers; the worker is a child of a child of this process.
            unsafe { libc::kill(workers[killed % 2], libc::SIGKILL) };
            killed += 1;
            std::thread::sleep(Duration::from_millis(700));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    killed
}

#[test]
fn workers_that_are_killed_change_nothing() {
    needs!("makeblastdb");
    let command = "tblastx -db genes -query some.fa -outfmt 6 -evalue 1e-10";
    let expected = databases().expected_output(command);
    let directory = scratch::directory("killed");
    let (out, summary) = (directory.join("out/hits.tsv"), directory.join("summary.json"));
    std::fs::create_dir(directory.join("out")).expect("scratch can be written");
    let options = format!("--fragments 8 --workers 2 --summary {}", summary.display());
    let search = databases().search(&options, command, &out).spawn();
    let killed = kill_workers(search.process_id(), &directory.join("out"), 2);
    let finished = search.wait_with_output();
    assert!(finished.status.success(), "{}", finished.describe());
    assert!(std::fs::read(&out).expect("it wrote its output") == expected, "the output is another");
    let summary: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&summary).expect("it wrote its summary")).expect("JSON");
    assert!(killed > 0, "the search ended before a worker could be killed");
    assert!(summary["restarts"].as_u64() >= Some(1), "{summary}");
}

#[test]
fn a_summary_says_where_the_time_went() {
    needs!("makeblastdb");
    let directory = scratch::directory("summary");
    let summary = directory.join("summary.json");
    let options = format!("--fragments 5 --workers 2 --summary {}", summary.display());
    let command = "blastp -db proteins -query far.fa -outfmt 6";
    databases().search(&options, command, &directory.join("out")).run_ok();
    let text = std::fs::read(&summary).expect("it wrote its summary");
    let summary: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    assert_eq!((summary["fragments"].as_u64(), summary["workers"].as_u64()), (Some(5), Some(2)), "{summary}");
    assert_eq!((summary["queries"].as_u64(), summary["identical"].as_bool()), (Some(6), Some(true)), "{summary}");
    for stage in ["search", "traceback", "total"] {
        assert!(summary["cpu_seconds"][stage].as_f64() > Some(0.0), "{stage}: {summary}");
    }
}

#[test]
fn subjects_that_no_list_has_room_for_are_left_where_they_were_found() {
    needs!("makeblastdb");
    let directory = scratch::directory("dropped");
    // For -max_target_seqs 5, blastn keeps 20 subjects in its first phase. blastp would keep more subjects than the
    // database has.
    let command = "blastn -task blastn -db genes -query near.fa -outfmt 6 -evalue 2000 -max_target_seqs 5";
    let summary_of = |fragments: u32| -> serde_json::Value {
        let (out, summary) = (directory.join(fragments.to_string()), directory.join("summary.json"));
        let options = format!("--fragments {fragments} --workers 1 --summary {}", summary.display());
        databases().search(&options, command, &out).run_ok();
        assert!(
            std::fs::read(&out).expect("it wrote its output") == databases().expected_output(command),
            "the output is another"
        );
        serde_json::from_slice(&std::fs::read(&summary).expect("it wrote its summary")).expect("JSON")
    };
    let (one, many) = (summary_of(1), summary_of(64));
    assert_eq!(one["dropped_subjects"].as_u64(), Some(0), "{one}");
    assert!(many["dropped_subjects"].as_u64() > Some(0), "{many}");
}

/// A wrapper of the worker that records its exit status.
const RECORDING_WORKER_SCRIPT: &str = r#"#!/bin/bash
exec 3<&0
("$NOTED_WORKER" "$@" <&3; echo $? >>"$NOTED_ENDS") &
wait
"#;

#[test]
fn workers_end_by_themselves_and_well() {
    use std::os::unix::fs::PermissionsExt as _;
    needs!("makeblastdb");
    let directory = scratch::directory("ends");
    let (noted, ends) = (directory.join("noted.sh"), directory.join("ends"));
    std::fs::write(&noted, RECORDING_WORKER_SCRIPT).expect("scratch can be written");
    std::fs::set_permissions(&noted, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    let search =
        databases().search("--workers 2", "blastp -db proteins -query far.fa -outfmt 6", &directory.join("out"));
    let search = search.env("GODWIT_BLAST", &noted).env("NOTED_ENDS", &ends);
    search.env("NOTED_WORKER", binary::path().with_file_name("godwit-blast")).run_ok();
    // Three processes were started: one to print its version, and two that search. The search does not wait for their
    // exit.
    let told = || std::fs::read_to_string(&ends).unwrap_or_default();
    let noted = (0..600).find_map(|_| {
        std::thread::sleep(Duration::from_millis(50));
        Some(told()).filter(|told| told.lines().count() >= 3)
    });
    assert_eq!(noted.as_deref(), Some("0\n0\n0\n"), "found {:?}", told());
}

#[test]
fn streams_take_the_place_of_files() {
    needs!("makeblastdb");
    let command = "blastp -db proteins -outfmt 6 -query";
    let queries = std::fs::File::open(databases().directory.join("far.fa")).expect("it is there");
    let search = databases().search("--workers 2", &format!("{command} -"), "-".as_ref()).stdin(queries);
    let found = search.run_ok().stdout;
    let expected = databases().expected_output(&format!("{command} far.fa"));
    assert!(found.as_bytes() == expected, "the output is another");
    let queries = std::fs::File::open(databases().directory.join("far.fa")).expect("it is there");
    let search = databases().search("--workers 2", &format!("{command} /dev/stdin"), "-".as_ref()).stdin(queries);
    assert!(search.run_ok().stdout.as_bytes() == expected, "the output is another with /dev/stdin");
    // A shell passes the output of a command by a pipe with a name.
    let script = format!("{} search --workers 2 -- {command} <(cat far.fa)", binary::path().display());
    let mut shell = std::process::Command::new("bash");
    shell.args(["-c", &script]).current_dir(&databases().directory);
    assert!(run_checked(&mut shell).stdout == expected, "the output is another with a pipe");
    databases()
        .search("--on local --nodes 2", &format!("{command} /dev/stdin"), &scratch::directory("streams").join("out"))
        .run()
        .assert_rejected(&[2], &["-query must be a file"]);
}
