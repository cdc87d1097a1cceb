//! `godwit mount`: the files of a server, of a pool or of a directory as a file system of this host.
//!
//! Without `--foreground`, a background process mounts the files, and this process exits when they are mounted. A second
//! process of the mount, the guard, waits until the first one exits; if that was killed, the guard removes the mount, so
//! that no program waits for it.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use godwit_cli::cli::{MountArgs, MountGuardArgs};
use godwit_cli::failure::{Failure, print};
use godwit_cli::log::{log_message, log_plain, log_warning, set_server_log};
use godwit_fleet::ERROR_PREFIX;
use godwit_model::ErrorKind;
use godwit_mount::{
    FileTree, LocalStorage, Mount, MountOptions, ServerStorage, ServerStorageOptions, Storage, is_dead_mount,
    unmount_lazily,
};
use godwit_process::LockedDirectory;
use godwit_transfer::location::Location;

use super::credentials::credentials_for;
use super::scratch_directory;
use super::serve::readiness;
use crate::interruption;

/// This program; the path also works if the file was removed or replaced by another version.
const THIS_PROGRAM: &str = "/proc/self/exe";
/// Hidden verb of the guard.
const GUARD_VERB: &str = "mount-guard";
/// Interval of the checks for a signal.
const SIGNAL_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Time after a signal for programs to close their files.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time after the exit of the mount's process in which the kernel reports the mount as dead.
const GUARD_TIMEOUT: Duration = Duration::from_secs(5);

/// Mounts the files; returns when they are mounted, or with `--foreground` when they are unmounted.
pub fn run(args: &MountArgs) -> Result<(), Failure> {
    check_mount_point(&args.mount_point)?;
    if args.foreground { run_in_foreground(args) } else { start_in_background() }
}

fn check_mount_point(mount_point: &Path) -> Result<(), Failure> {
    if mount_point.is_dir() || is_dead_mount(mount_point) {
        return Ok(());
    }
    let problem = format!("{} is not a directory; create it: mkdir -p {0}", mount_point.display());
    Err(Failure::new(ErrorKind::Usage, problem))
}

/// A storage, and whether it accepts changes.
struct OpenStorage {
    storage: Arc<dyn Storage>,
    is_writable: bool,
    /// Path below the root of the server.
    server_path: String,
}

fn open_storage(args: &MountArgs, cancelled: &Arc<AtomicBool>) -> Result<OpenStorage, Failure> {
    let location = Location::parse(&args.url)?;
    let credentials = credentials_for([&location], &args.access, args.common.json)?;
    match location {
        Location::Local(path) => {
            if !path.is_dir() {
                let problem =
                    format!("{} is not a directory; name a directory, or a server by its URL", path.display());
                return Err(Failure::new(ErrorKind::Usage, problem));
            }
            // The process in the background has the same working directory.
            let storage = Arc::new(LocalStorage::new(&path));
            Ok(OpenStorage { storage, is_writable: true, server_path: String::new() })
        }
        Location::Remote(remote) => {
            let options = ServerStorageOptions {
                cache_bytes: args.cache,
                wait_timeout: args.access.wait,
                threads: args.common.thread_count(),
            };
            let server_path = remote.path.trim_matches('/').to_owned();
            let storage = ServerStorage::new(remote, &credentials, &options, cancelled.clone())?;
            let is_writable = storage.check()?;
            Ok(OpenStorage { storage: Arc::new(storage), is_writable, server_path })
        }
    }
}

fn run_in_foreground(args: &MountArgs) -> Result<(), Failure> {
    let signalled = interruption::flag_with_grace(CLOSE_TIMEOUT);
    set_server_log(&args.common);
    let cancelled = Arc::new(AtomicBool::new(false));
    let OpenStorage { storage, is_writable, server_path } = open_storage(args, &cancelled)?;
    let scratch = scratch_directory(&args.common);
    let scratch = LockedDirectory::create(&scratch, "godwit-mount-").map_err(|error| {
        Failure::new(ErrorKind::Machine, format!("cannot create a directory below {}: {error}", scratch.display()))
    })?;
    let guard = start_guard(&args.mount_point)?;
    let tree = FileTree::new(storage, scratch.path(), server_path.as_ref(), Arc::new(log_warning));
    let options = MountOptions {
        source_name: args.url.clone(),
        read_only: args.read_only || !is_writable,
        allow_other: args.allow_other,
    };
    let mut mount = Mount::start(tree, &args.mount_point, &options).map_err(|error| mount_failure(args, &error))?;
    if options.read_only && !args.read_only {
        log_message("the server does not accept changes (it runs without --writable), so the files are read-only");
    }
    print(&format!("{} is mounted at {}\n", args.url, args.mount_point.display()))?;
    readiness::notify(readiness::READY);
    let outcome = wait_until_unmounted(&mut mount, &signalled);
    readiness::notify(readiness::STOPPING);
    cancelled.store(true, Ordering::Relaxed);
    drop(mount);
    stop_guard(guard);
    outcome.map_err(|error| {
        let problem = format!("the connection to the kernel ended: {error}; mount {} again", args.url);
        Failure::new(ErrorKind::Machine, problem)
    })
}

/// Waits until the files are unmounted. A signal unmounts them; programs then have [`CLOSE_TIMEOUT`] to close their
/// files.
fn wait_until_unmounted(mount: &mut Mount, signalled: &AtomicBool) -> std::io::Result<()> {
    loop {
        if let Some(outcome) = mount.wait(SIGNAL_CHECK_INTERVAL) {
            return outcome;
        }
        if signalled.load(Ordering::Relaxed) {
            break;
        }
    }
    mount.unmount()?;
    if mount.wait(CLOSE_TIMEOUT).is_none() {
        log_warning("files are still open; changes that were not stored are lost");
    }
    Ok(())
}

fn mount_failure(args: &MountArgs, error: &std::io::Error) -> Failure {
    let advice = match error.kind() {
        std::io::ErrorKind::NotFound => {
            "the kernel module fuse (modprobe fuse) and, for users other than root, fusermount3 (package fuse3) are required"
        }
        _ => {
            "users other than root need fusermount3 (package fuse3), and user_allow_other in /etc/fuse.conf for \
             --allow-other; containers need --device /dev/fuse --cap-add SYS_ADMIN"
        }
    };
    let place = args.mount_point.display();
    Failure::new(ErrorKind::Machine, format!("cannot mount at {place}: {error}; {advice}"))
}

/// Starts this command again with `--foreground`, and waits until the files are mounted.
fn start_in_background() -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::new(ErrorKind::Machine, format!("cannot start godwit: {error}"));
    let words: Vec<OsString> = std::env::args_os().skip(1).chain([OsString::from("--foreground")]).collect();
    let mut command = Command::new(THIS_PROGRAM);
    command.args(words).process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let (Some(stdout), Some(mut stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(Failure::new(ErrorKind::Bug, "a bug in godwit: the child process has no pipes".to_owned()));
    };
    let mut ready_line = String::new();
    BufReader::new(stdout).read_line(&mut ready_line).map_err(failed)?;
    if !ready_line.is_empty() {
        return print(&ready_line);
    }
    let mut said = String::new();
    stderr.read_to_string(&mut said).map_err(failed)?;
    let status = child.wait().map_err(failed)?;
    let mut lines: Vec<&str> = said.lines().collect();
    let last = lines.pop().unwrap_or_default();
    lines.iter().for_each(|line| log_plain(line));
    let message = last.strip_prefix(ERROR_PREFIX).unwrap_or("the process in the background ended").to_owned();
    Err(Failure::new(ErrorKind::of_exit_code(status.code()), message))
}

/// Starts the guard of a mount. It ends when this process does, because this process holds the other end of its
/// standard input.
fn start_guard(mount_point: &Path) -> Result<Child, Failure> {
    let mut command = Command::new(THIS_PROGRAM);
    command.arg(GUARD_VERB).arg(mount_point).process_group(0);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    child.map_err(|error| Failure::new(ErrorKind::Machine, format!("cannot start godwit: {error}")))
}

fn stop_guard(mut guard: Child) {
    drop(guard.stdin.take());
    // The guard exits by itself, whatever the outcome is.
    let _ = guard.wait();
}

/// Waits until standard input is closed, and removes the mount if its process has ended without unmounting it.
pub fn run_guard(args: &MountGuardArgs) -> Result<(), Failure> {
    let failed =
        |error: std::io::Error| Failure::new(ErrorKind::Machine, format!("the guard of a mount failed: {error}"));
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).map_err(failed)?;
    let started = Instant::now();
    while started.elapsed() < GUARD_TIMEOUT {
        match std::fs::metadata(&args.mount_point) {
            _ if is_dead_mount(&args.mount_point) => return unmount_lazily(&args.mount_point).map_err(failed),
            Ok(_) => return Ok(()),
            // The kernel is ending the calls of the killed process.
            Err(_) => std::thread::sleep(SIGNAL_CHECK_INTERVAL),
        }
    }
    Ok(())
}
