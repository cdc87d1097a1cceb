//! Mounts of a test. Each ends when its test does: by a signal, when the thread of the test ends, or after a time.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use godwit_tests::binary::{GodwitCommand, GodwitProcess, godwit, process_timeout};
use godwit_tests::processes::{is_running, send_signal};
use godwit_tests::scratch;
use godwit_tests::tool::run_checked;

use super::server_pool::path_text;

/// Time after SIGTERM for a mount to end. Programs have ten seconds to close their files.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// A mount of a running process. Dropping it stops the process.
pub(super) struct MountedFiles {
    process: Option<GodwitProcess>,
    pub(super) point: PathBuf,
    /// Dropping it ends the thread that kills the process if it runs for too long.
    _end_sender: mpsc::Sender<()>,
}

/// Reports whether a file system is mounted at a directory.
pub(super) fn is_mounted(point: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/mounts").expect("it can be read");
    mounts.lines().any(|line| line.split(' ').nth(1) == Some(path_text(point)))
}

/// Returns the device number of the file system that is mounted at a directory (proc_pid_mountinfo(5)).
pub(super) fn device_of_mount(point: &Path) -> String {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("it can be read");
    let mut lines = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let line = lines.find(|fields| fields[4] == path_text(point)).expect("it is mounted");
    line[2].to_owned()
}

impl MountedFiles {
    /// Mounts a location at a new directory; returns `None` if this machine does not permit it.
    pub(super) fn start(label: &str, words: &[&str]) -> Option<Self> {
        Self::start_by(godwit(), label, words)
    }

    /// Mounts a location as [`Self::start`] does, by a command line that begins with `command`.
    pub(super) fn start_by(command: GodwitCommand, label: &str, words: &[&str]) -> Option<Self> {
        let point = scratch::directory(label);
        let command = command.arg("mount").arg(words[0]).arg(&point).args(&words[1..]).arg("--foreground");
        let mut running = command.end_with_this_thread().spawn();
        let end_sender = kill_after_timeout(running.process_id());
        if running.read_line().contains("is mounted at") {
            return Some(Self { process: Some(running), point, _end_sender: end_sender });
        }
        let ended = running.wait_with_output();
        assert_eq!(ended.status.code(), Some(4), "{}", ended.describe());
        assert!(ended.stderr.contains("cannot mount at"), "{}", ended.describe());
        None
    }

    pub(super) fn process_id(&self) -> u32 {
        self.process.as_ref().map(GodwitProcess::process_id).expect("it runs")
    }

    /// Stops the process by a signal, and returns its exit code and its standard error.
    pub(super) fn stop(mut self, signal: i32) -> (Option<i32>, String) {
        let running = self.process.take().expect("it runs");
        send_signal(running.process_id(), signal);
        let ended = running.wait_with_output();
        (ended.status.code(), ended.stderr)
    }
}

/// Reports whether this machine permits to mount.
pub(super) fn can_mount() -> bool {
    MountedFiles::start("mount-check", &[path_text(&scratch::directory("mount-check-root"))]).is_some()
}

/// Kills a process if it runs longer than a test may, so that programs that wait for its files fail instead of hanging.
fn kill_after_timeout(process: u32) -> mpsc::Sender<()> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        if receiver.recv_timeout(process_timeout()) == Err(RecvTimeoutError::Timeout) {
            send_signal(process, libc::SIGKILL);
        }
    });
    sender
}

impl Drop for MountedFiles {
    fn drop(&mut self) {
        let Some(running) = self.process.take() else { return };
        send_signal(running.process_id(), libc::SIGTERM);
        let started = Instant::now();
        while is_running(running.process_id()) && started.elapsed() < STOP_TIMEOUT {
            std::thread::sleep(Duration::from_millis(5));
        }
        send_signal(running.process_id(), libc::SIGKILL);
    }
}

/// Skips the calling test because file systems in user space cannot be mounted.
macro_rules! skip_without_mounts {
    () => {
        godwit_tests::skip!("fuse", "this machine does not permit to mount a file system in user space")
    };
}
pub(super) use skip_without_mounts;

/// Skips the calling test where file systems in user space cannot be mounted.
macro_rules! needs_mounts {
    () => {
        if !$crate::fleet::mounted_files::can_mount() {
            $crate::fleet::mounted_files::skip_without_mounts!();
        }
    };
}
pub(super) use needs_mounts;

/// Mounts files. Skips the calling test where file systems in user space cannot be mounted.
macro_rules! mount_or_skip {
    ($label:expr, $($word:expr),+) => {
        match $crate::fleet::mounted_files::MountedFiles::start($label, &[$($word),+]) {
            Some(mounted) => mounted,
            None => $crate::fleet::mounted_files::skip_without_mounts!(),
        }
    };
}
pub(super) use mount_or_skip;

/// A file system that was mounted by another program; it is unmounted when the value is dropped, also if the test fails.
pub(super) struct UnmountOnDrop(pub(super) PathBuf);

impl Drop for UnmountOnDrop {
    fn drop(&mut self) {
        // It fails if the test has unmounted it.
        let _ = unmount_command(&self.0, true).stderr(Stdio::null()).status();
    }
}

/// Returns the command by which this user unmounts a file system; with `lazily`, also one with open files.
pub(super) fn unmount_command(point: &Path, lazily: bool) -> Command {
    // SAFETY: the call has no arguments and cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    let (program, lazy) = if is_root { ("umount", "-l") } else { ("fusermount3", "-uz") };
    let mut command = Command::new(program);
    match (lazily, is_root) {
        (true, _) => command.arg(lazy),
        (false, true) => &mut command,
        (false, false) => command.arg("-u"),
    };
    command.arg(point);
    command
}

/// Runs a shell script; every command of it must succeed. Returns its output.
pub(super) fn shell(script: &str, directory: &Path) -> Vec<u8> {
    run_checked(Command::new("bash").args(["-eo", "pipefail", "-c", script]).current_dir(directory)).stdout
}

/// Returns the error number of a call that fails.
pub(super) fn errno<T: std::fmt::Debug>(outcome: io::Result<T>) -> Option<i32> {
    outcome.expect_err("it fails").raw_os_error()
}
