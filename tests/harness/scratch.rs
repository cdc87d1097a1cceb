//! Directories for one test run.
//!
//! They are below the build's target directory, one per process, and are not removed at the end: a failing test names
//! files in them. The next run removes those of processes that have ended.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};

/// Returns the directory of this process.
pub fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let all = target_directory().join("e2e");
        remove_leftovers(&all);
        let own = all.join(std::process::id().to_string());
        std::fs::create_dir_all(&own).unwrap_or_else(|error| panic!("cannot create {}: {error}", own.display()));
        own
    })
}

/// Reads a named pipe in another thread. The receiver gets the content; wait for it with a time limit, because the thread
/// waits until a process opens the pipe for writing.
pub fn read_pipe(path: &Path) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    let path = path.to_owned();
    std::thread::spawn(move || sender.send(read(&path)));
    receiver
}

/// Returns the content of a file.
///
/// # Panics
/// With the path, if the file cannot be read.
pub fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Creates a new, empty directory whose name starts with `label`.
pub fn directory(label: &str) -> PathBuf {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let path = root().join(format!("{label}-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
    std::fs::create_dir_all(&path).unwrap_or_else(|error| panic!("cannot create {}: {error}", path.display()));
    path
}

/// Writes a program that can be started at once.
///
/// Another process writes it. A file that this process has open for writing may be inherited by a child that another test
/// starts at that moment. It cannot be executed until the child runs a program of its own (`ETXTBSY`, execve(2)).
///
/// # Panics
/// When it cannot be written.
pub fn write_executable(path: &Path, text: &str) {
    let mut command = Command::new("sh");
    command.args(["-c", "cat >\"$0\" && chmod 755 \"$0\""]).arg(path).stdin(Stdio::piped());
    let mut writer = command.spawn().expect("a shell can be started");
    let written = writer.stdin.take().expect("it is piped").write_all(text.as_bytes());
    let ended = writer.wait().expect("it was started");
    assert!(written.is_ok() && ended.success(), "cannot write {}: {written:?}, {ended}", path.display());
}

/// Returns the names of the entries of a directory, sorted.
///
/// # Panics
/// When it cannot be read.
pub fn entry_names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).expect("the directory can be read");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("it can be read").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Returns the directory for inputs of failed tests. Later runs of the tests do not remove it.
pub fn failure_directory() -> PathBuf {
    let path = target_directory().join("e2e-failures");
    std::fs::create_dir_all(&path).unwrap_or_else(|error| panic!("cannot create {}: {error}", path.display()));
    path
}

/// Returns the target directory of the Cargo profile with which the tests were built. It contains the programs of
/// godwit.
pub fn profile_directory() -> PathBuf {
    let own = std::env::current_exe().expect("a running program has a path");
    own.ancestors().nth(2).expect("a test binary lies in PROFILE/deps").to_path_buf()
}

fn target_directory() -> PathBuf {
    profile_directory().parent().expect("a profile lies in the target directory").to_path_buf()
}

fn remove_leftovers(all: &Path) {
    let Ok(entries) = std::fs::read_dir(all) else { return };
    for entry in entries.flatten() {
        if !Path::new("/proc").join(entry.file_name()).exists() {
            // Ignore the error: another run of the tests may remove the same directories at the same time.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}
