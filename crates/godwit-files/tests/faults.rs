//! Faults of the file system at every step of the primitives: each change to a file fails, or kills the process.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use godwit_files::{AtomicFile, AtomicSet, Journal, JournalEntry, finish_publishing};
use godwit_tests::fault_injection::{Fault, fault_environment};
use godwit_tests::scratch;

/// Environment variable with the directory in which the steps run in a process that meets a fault.
const DIRECTORY_VARIABLE: &str = "GODWIT_FILES_DIRECTORY";
/// More than the number of changes of [`run_steps`].
const MAX_CHANGES: u64 = 40;
/// Content of a file of both versions; long enough that half of it is not a version.
const OLD: &[u8] = b"the old content of a file";
const NEW: &[u8] = b"the new content of a file, which is longer";

#[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
enum Entry {
    Step(u64),
    Publish { names: Vec<(String, String)> },
}

impl JournalEntry for Entry {
    fn is_sound(&self) -> bool {
        true
    }
}

/// Writes a file of each kind, and records each finished step in a journal.
fn run_steps(directory: &Path) -> io::Result<()> {
    let (journal, _) = Journal::open(&directory.join("journal"))?;
    let creations: [fn(&Path) -> io::Result<AtomicFile>; 2] =
        [AtomicFile::create, |path| AtomicFile::create_unique(path, 0o600)];
    for (step, create) in creations.iter().enumerate() {
        let mut file = create(&directory.join(format!("file-{step}")))?;
        file.write_all(NEW)?;
        file.commit()?;
        journal.append(&Entry::Step(step as u64))?;
    }
    let mut set = AtomicSet::default();
    for name in ["set-0", "set-1"] {
        set.write_file(&directory.join(name), NEW)?;
    }
    let names = set.prepare_publishing(directory)?;
    journal.append(&Entry::Publish { names })?;
    set.publish().map_err(|(_, error)| error)
}

/// Completes the work of a process that met a fault, as a job that resumes does.
fn resume(directory: &Path) -> io::Result<()> {
    let (journal, entries) = Journal::open(&directory.join("journal"))?;
    drop(journal);
    match entries.last() {
        Some(Entry::Publish { names }) => finish_publishing(directory, names),
        _ => run_steps(directory),
    }
}

fn old_files() -> PathBuf {
    let directory = scratch::directory("durable-files");
    for name in ["file-0", "file-1", "set-0", "set-1"] {
        fs::write(directory.join(name), OLD).expect("scratch can be written");
    }
    directory
}

/// Runs the steps in another process, which meets the fault at its `at`th change. Returns whether it succeeded.
fn run_with_fault(directory: &Path, fault: Fault, at: u64) -> bool {
    let program = std::env::current_exe().expect("the program of the test has a path");
    let environment = fault_environment(directory, fault, at);
    let command = format!("{environment} {} --exact without_a_fault_all_files_are_new", program.display());
    let mut shell = Command::new("sh");
    shell.args(["-c", &command]).env(DIRECTORY_VARIABLE, directory);
    shell.output().expect("sh can be started").status.success()
}

fn assert_all_new(directory: &Path, context: &str) {
    for name in ["file-0", "file-1", "set-0", "set-1"] {
        assert_eq!(fs::read(directory.join(name)).expect("the file exists"), NEW, "{name}, {context}");
    }
}

#[test]
fn without_a_fault_all_files_are_new() {
    let given = std::env::var_os(DIRECTORY_VARIABLE).map(PathBuf::from);
    let directory = given.unwrap_or_else(old_files);
    run_steps(&directory).unwrap();
    assert_all_new(&directory, "without a fault");
}

#[test]
fn after_any_fault_each_file_is_old_or_new_and_the_work_can_be_completed() {
    for fault in [Fault::Kill, Fault::Error, Fault::FullDisk] {
        let mut at = 1;
        loop {
            let context = format!("{fault:?} at change {at}");
            let directory = old_files();
            let succeeded = run_with_fault(&directory, fault, at);
            for name in ["file-0", "file-1", "set-0", "set-1"] {
                // A set whose publication fails removes the files that it has already renamed.
                if let Ok(content) = fs::read(directory.join(name)) {
                    assert!(content == OLD || content == NEW, "{name}, {context}");
                }
            }
            let entries = Journal::<Entry>::open(&directory.join("journal")).expect("a journal can be opened").1;
            for step in 0..2 {
                if entries.contains(&Entry::Step(step)) {
                    let content = fs::read(directory.join(format!("file-{step}"))).expect("the file exists");
                    assert_eq!(content, NEW, "step {step} is recorded, {context}");
                }
            }
            resume(&directory).unwrap_or_else(|error| panic!("{context}: {error}"));
            assert_all_new(&directory, &context);
            fs::remove_dir_all(&directory).expect("scratch can be removed");
            if succeeded {
                break;
            }
            at += 1;
            assert!(at < MAX_CHANGES, "every change fails");
        }
        assert!(at > 5, "{fault:?}: only {at} changes meet the fault");
    }
}
