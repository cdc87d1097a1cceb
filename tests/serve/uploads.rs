//! Uploaded datasets: every type, the write modes for an existing dataset, and what readers see while one is uploaded,
//! replaced or aborted.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use godwit_tests::binary::godwit;
use godwit_tests::data_server::DataServer;
use godwit_tests::tool::Tool;
use godwit_tests::{needs, scratch, wait};

use crate::run::formats::{aligned_sample, columns_script, pyarrow_python, run_python, to_lines};

fn client_output(served: &DataServer, words: &[&str]) -> Vec<String> {
    let words: Vec<&str> = [served.address.as_str()].into_iter().chain(words.iter().copied()).collect();
    to_lines(&run_python("uploads.py", Path::new("-"), &words))
}

fn start_writable_server(root: &Path, words: &[&str]) -> DataServer {
    let words: Vec<&str> = ["--writable"].iter().chain(words).copied().collect();
    DataServer::start(root, &words)
}

/// Returns what is left in the hidden directory of unfinished uploads, without its lock.
fn remaining_upload_files(root: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root.join(".godwit-puts")).expect("it is there");
    entries.map(|entry| entry.expect("it can be listed").path()).filter(|path| path.is_dir()).collect()
}

#[test]
fn what_is_put_comes_back_as_it_was() {
    needs!("python3");
    let root = scratch::directory("puts-types");
    let served = start_writable_server(&root, &[]);
    let told = client_output(&served, &["check_round_trip"]);
    assert_eq!(told[0], "{'dataset': 'some/types.parquet', 'rows': 5000}");
    assert_eq!(told[1], told[2], "SQL counts what was put");
    assert_eq!(told[3], "{'dataset': 'empty.parquet', 'rows': 0} 0 True");
    assert_eq!(told[4..6], ["['empty.parquet', 'some/types.parquet']", "[] ['empty.parquet']"]);
    assert!(told[6].contains("dataset \"some/types.parquet\" does not exist"), "{}", told[6]);
    assert!(remaining_upload_files(&root).is_empty());
    // The parts must be complete Parquet files that only their owner may read, because they may contain human data.
    use std::os::unix::fs::PermissionsExt as _;
    let list = root.join("empty.parquet/_parts");
    assert_eq!(std::fs::metadata(list).expect("it is there").permissions().mode() & 0o777, 0o600);
}

#[test]
fn one_that_is_there_is_kept_replaced_or_appended_to_as_is_said() {
    needs!("python3");
    let root = scratch::directory("puts-existing");
    let told = client_output(&start_writable_server(&root, &[]), &["upload_over_existing"]);
    let said = |rows: u64| format!("{{'dataset': 't.parquet', 'rows': {rows}}}");
    assert_eq!(told[0], format!("{} [1, 1, 1]", said(3)));
    assert!(told[1].contains("dataset t.parquet already exists") && told[1].ends_with("[1, 1, 1]"), "{}", told[1]);
    assert_eq!(told[2], format!("{} [1, 1, 1, 2, 2]", said(2)));
    assert_eq!(told[3], format!("{} [3, 3]", said(2)));
    assert!(
        told[4].contains("\"n\" (Int64)") && told[4].contains("(Utf8)") && told[4].ends_with("[3, 3]"),
        "{}",
        told[4]
    );
    assert_eq!(told[5], format!("{} ['text']", said(1)));
    assert_eq!(told[6], "{'dataset': 'new.parquet', 'rows': 3} 3");
    for refused in &told[7..] {
        assert!(refused.starts_with("ArrowInvalid") || refused.contains("Error"), "{refused}");
    }
    assert_eq!(told.len(), 10);
    let parts = std::fs::read_dir(root.join("t.parquet")).expect("it is there").count();
    assert_eq!(parts, 2, "what was replaced is gone: one part and its list");
}

#[test]
fn what_is_put_again_under_its_name_is_kept_once() {
    needs!("python3");
    let root = scratch::directory("puts-again");
    let told = client_output(&start_writable_server(&root, &[]), &["upload_twice"]);
    let rows = |rows: &str| format!("{{'dataset': 't.parquet', 'rows': 2}} [{rows}]");
    let (one, two, three) = ("1, 2", "1, 2, 1, 2", "1, 2, 1, 2, 1, 2");
    assert_eq!(told[..6], [one, one, two, two, three, three].map(rows));
    assert!(told[6].contains("already"), "{}", told[6]);
    assert!(told[7..].len() == 4 && told[7..].iter().all(|line| line.contains("hexadecimal")), "{told:?}");
    assert!(remaining_upload_files(&root).is_empty());
}

#[test]
fn names_that_lead_elsewhere_and_files_of_others_are_refused() {
    needs!("python3");
    let root = scratch::directory("puts-names");
    std::fs::create_dir(root.join("run.parquet")).expect("it can be made");
    std::fs::write(root.join("x.bed"), "chr1\t5\t9\n").expect("it can be written");
    let served = start_writable_server(&root, &[]);
    let bad =
        ["../out", "a/../../out", "/tmp/out", ".hidden", "a/.godwit-puts/b", "x.bed", "", "a.parquet/b", "run", "a//b"];
    let words: Vec<&str> = ["upload_under_names"].into_iter().chain(bad).collect();
    let lines = client_output(&served, &words);
    let (taken, refused): (Vec<_>, Vec<_>) = lines[..bad.len()].iter().partition(|line| line.contains("'rows'"));
    assert_eq!(taken, ["{'dataset': 'a/b.parquet', 'rows': 1}"].map(String::from).iter().collect::<Vec<_>>());
    assert_eq!(refused.len(), bad.len() - 1);
    assert!(lines[bad.len()].contains("no columns") && lines[bad.len() + 1].contains("two columns"), "{lines:?}");
    for name in ["x.bed", "run", "run.parquet", "../puts-names/x", "temporary/none"] {
        let told = client_output(&served, &["drop_datasets", name]).join("");
        assert!(told.contains("Error") || told.starts_with("Arrow"), "{name}: {told}");
    }
    assert!(root.join("x.bed").exists() && root.join("run.parquet").exists());
    let read_only = DataServer::start(&root, &[]);
    let told = client_output(&read_only, &["upload_under_names", "t"]);
    assert!(told[0].contains("--writable"), "{}", told[0]);
    drop(read_only);
    std::fs::create_dir(root.join("temporary")).expect("it can be made");
    let words = ["serve", "--root", root.to_str().expect("scratch paths are text"), "--writable"];
    godwit().args(words).run().assert_rejected(&[2], &["temporary/", "rename it"]);
}

#[test]
fn adbc_ingests_in_all_its_modes() {
    needs!("python3");
    let root = scratch::directory("puts-adbc");
    let told = client_output(&start_writable_server(&root, &[]), &["ingest_by_adbc"]);
    let words: Vec<&str> = told[0].split(' ').collect();
    let [appended, "3", "3", created, "3", "6"] = words[..] else { panic!("{}", told[0]) };
    assert!(appended.ends_with("Error") && created.ends_with("Error"), "{}", told[0]);
    assert_eq!(told[1..3], ["3 3 3 6", "3 3"]);
    assert!(told[3].split(' ').all(|word| word.ends_with("Error")), "{}", told[3]);
}

#[test]
fn readers_see_one_state_of_a_dataset_while_it_is_replaced() {
    needs!("python3");
    let root = scratch::directory("puts-replaced");
    let told = client_output(&start_writable_server(&root, &[]), &["read_while_replaced", "40"]);
    assert_eq!(told, ["True True"]);
}

#[test]
fn a_prepared_statement_has_the_columns_that_its_table_has_by_now() {
    needs!("python3");
    let root = scratch::directory("puts-prepared");
    let told = client_output(&start_writable_server(&root, &[]), &["prepared_while_columns_change"]);
    assert_eq!(told, ["['a'] ['a']", "['a', 'b'] ['b', 'a']"]);
}

#[test]
fn a_server_or_client_that_is_killed_leaves_no_half_of_a_dataset() {
    needs!("python3");
    let root = scratch::directory("puts-killed");
    for victim in ["client", "server"] {
        let served = start_writable_server(&root, &[]);
        let python = pyarrow_python().expect("tools/python-packages.sh made it");
        let mut command: Command = python.command();
        command
            .arg(columns_script("uploads.py"))
            .args(["-", &served.address, "upload_half", "lost"])
            .stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().expect("it can be started");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut line).expect("it prints");
        assert_eq!(line, "begun\n");
        if victim == "client" {
            child.kill().expect("it can be killed");
            wait::wait_until("the server forgets it", || remaining_upload_files(&root).is_empty());
            assert_eq!(client_output(&served, &["upload_under_names"]).last().map(String::as_str), Some("[]"));
        } else {
            wait::wait_until("the upload has begun", || !remaining_upload_files(&root).is_empty());
            served.stop(libc::SIGKILL);
            assert!(!remaining_upload_files(&root).is_empty(), "it had no time to clear up");
        }
        let _ = child.kill();
        let _ = child.wait();
    }
    let again = start_writable_server(&root, &[]);
    assert!(remaining_upload_files(&root).is_empty(), "the next server clears up");
    assert_eq!(client_output(&again, &["upload_under_names"]).last().map(String::as_str), Some("[]"));
    assert!(!root.join("lost.parquet").exists());
}

#[test]
fn messages_of_200_megabytes_are_taken_and_larger_than_the_limit_refused() {
    needs!("python3");
    let root = scratch::directory("puts-large");
    assert_eq!(
        client_output(&start_writable_server(&root, &[]), &["upload_large_message", "200"]),
        ["{'dataset': 'large.parquet', 'rows': 25000000} ['large.parquet']", "True"]
    );
    let other = scratch::directory("puts-limit");
    let told =
        client_output(&start_writable_server(&other, &["--message-limit", "100M"]), &["upload_large_message", "200"]);
    assert!(told.len() == 1 && told[0].contains("over") && told[0].ends_with(" []"), "{told:?}");
    assert!(remaining_upload_files(&other).is_empty());
}

#[test]
fn temporary_datasets_stay_in_memory_as_long_as_there_is_room_and_end_with_the_server() {
    needs!("python3");
    let root = scratch::directory("puts-temporary");
    let scratch = scratch::directory("puts-spill");
    let spill = scratch.to_str().expect("scratch paths are text");
    let served = start_writable_server(&root, &["--put-memory", "1M", "--temp", spill]);
    let spilled = || {
        let directories = std::fs::read_dir(&scratch).expect("it is there").flatten();
        let files = directories.filter_map(|entry| std::fs::read_dir(entry.path()).ok()).flatten().flatten();
        files.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file())).count()
    };
    for (rows, on_disk) in [(10_000, 0), (200_000, 2)] {
        let told = client_output(&served, &["upload_temporary", &rows.to_string()]);
        assert_eq!(told[0], format!("{{'dataset': 'temporary/mine.parquet', 'rows': {rows}}}"));
        assert_eq!(told[2..], ["['temporary/mine.parquet'] True", "True"]);
        assert_eq!(spilled(), on_disk, "{rows} rows");
        let memory = std::fs::read_dir("/dev/shm").expect("it is there").flatten();
        let ours = memory.filter(|entry| entry.file_name().to_string_lossy().starts_with("godwit-temporary-")).count();
        assert!(ours > 0);
        assert_eq!(self::client_output(&served, &["drop_datasets", "temporary/mine"]), ["[]"]);
        assert_eq!(spilled(), 0);
    }
    assert_eq!(client_output(&served, &["upload_temporary", "200000"])[3], "True");
    assert_eq!(served.stop(libc::SIGTERM).0, Some(0));
    let left: Vec<_> = std::fs::read_dir(&scratch).expect("it is there").flatten().map(|entry| entry.path()).collect();
    assert!(left.iter().all(|path| !path.to_string_lossy().contains("godwit-temporary")), "{left:?}");
    assert_eq!(std::fs::read_dir(&root).expect("it is there").count(), 1, "nothing but the hidden directory");
}

#[test]
fn malformed_arrow_is_refused_and_the_server_goes_on() {
    needs!("python3");
    let root = scratch::directory("puts-malformed");
    let served = start_writable_server(&root, &[]);
    let told = run_python("malformed.py", Path::new("-"), &[&served.address, "1", "400"]);
    let counts: Vec<u64> = told.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    let [refused, taken, fetched] = counts[..] else { panic!("{told}") };
    assert!(refused > 200 && refused + taken == 400 && fetched == taken, "{told}");
    assert!(remaining_upload_files(&root).is_empty());
    let peak_kb =
        crate::serve::resource_exhaustion::peak_memory_kb(served.process_id()).expect("the server is still there");
    assert!(peak_kb < 512 << 10, "{peak_kb} kB");
    // The server catches panics of decoders and must not print them, because administrators would take them for a bug.
    let (code, said) = served.stop(libc::SIGTERM);
    assert_eq!((code, said.contains("panicked")), (Some(0), false), "{said}");
}

#[test]
fn regions_are_looked_up_over_one_exchange() {
    needs!("bwa", "samtools", "python3");
    let (_, out) = aligned_sample();
    let served = DataServer::start(&out, &[]);
    let questions = ["chr1:0-500", "chr1:16299-16500,chr2:100-900", "chr3:5-6", "chr1:0-2147483647"];
    let expected = questions.map(|question| {
        let regions: Vec<String> = question
            .split(',')
            .map(|word| {
                let (contig, range) = word.split_once(':').expect("it has a range");
                let (start, end) = range.split_once('-').expect("it has an end");
                let first: u64 = start.parse::<u64>().expect("a number") + 1;
                format!("{contig}:{first}-{end}")
            })
            .collect();
        let bam = out.join("sample.bam");
        let words = ["view".as_ref(), "-M".as_ref(), "-c".as_ref(), bam.as_os_str()];
        let counted = Tool::require("samtools").run(words.into_iter().chain(regions.iter().map(AsRef::as_ref)));
        String::from_utf8(counted.stdout).expect("samtools prints text").trim().to_owned()
    });
    let words: Vec<&str> = ["look_up_regions", "sample.bam"].into_iter().chain(questions).collect();
    assert_eq!(client_output(&served, &words), expected);
}

#[test]
fn adbc_reads_partitions_and_cancels_statements() {
    needs!("bwa", "samtools", "python3");
    let (_, out) = aligned_sample();
    let served = DataServer::start(&out, &[]);
    let told = client_output(&served, &["adbc_partitions", "sample.bam"]);
    assert_eq!(told, ["True", "cancelled", "0"]);
}

#[test]
fn adbc_shows_the_progress_of_a_statement() {
    needs!("python3");
    let served = DataServer::start(&scratch::directory("statement-progress"), &["--writable"]);
    assert_eq!(client_output(&served, &["adbc_progress", "150000"]), ["True True True True"]);
}

#[test]
fn what_runs_is_ended_from_another_connection() {
    needs!("bwa", "samtools", "python3");
    let (_, out) = aligned_sample();
    let served = DataServer::start(&out, &[]);
    let told = client_output(&served, &["cancel_statement", "sample.bam"]);
    assert_eq!(told, ["True 1 False True FlightCancelledError", "FlightCancelledError 0"]);
}
