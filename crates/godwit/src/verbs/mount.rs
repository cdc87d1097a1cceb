//! `godwit mount`: the files of a server, of a pool or of a directory as a file system of this host.
//!
//! Without `--foreground`, a background process mounts the files, and this process exits when they are mounted. A second
//! process of the mount, the guard, waits until the first one exits; if that was killed, the guard removes the mount, so
//! that no program waits for it.

use std::ffi::OsString;
use std::fs::Permissions;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
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
    mounted_device, unmount_lazily,
};
use godwit_process::{
    KEPT_ALLOCATOR_BYTES, LockedDirectory, Signal, keep_freed_memory, set_parent_death_signal, signal_group,
};
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
/// Smallest cache, bytes. The reads in advance of a few programs would evict one another from a smaller one.
const MIN_CACHE_BYTES: u64 = 4 << 20;
/// Time after the exit of the mount's process in which the kernel reports the mount as dead.
const GUARD_TIMEOUT: Duration = Duration::from_secs(5);

/// Mounts the files; returns when they are mounted, or with `--foreground` when they are unmounted.
pub fn run(args: &MountArgs) -> Result<(), Failure> {
    let usage = |problem: String| Failure::new(ErrorKind::Usage, problem);
    if args.cache < MIN_CACHE_BYTES {
        return Err(usage(format!("--cache is {} bytes; the least is 4M", args.cache)));
    }
    let point = mount_point(&args.mount_point).map_err(usage)?;
    check_directories(args, &point)?;
    if args.foreground { run_in_foreground(args, &point) } else { start_in_background() }
}

/// Returns the absolute path of a mount point, without links.
fn mount_point(place: &Path) -> Result<PathBuf, String> {
    let problem = || format!("{} is not a directory; create it: mkdir -p {0}", place.display());
    if !is_dead_mount(place) {
        let found = place.canonicalize().ok().filter(|found| found.is_dir());
        return found.ok_or_else(problem);
    }
    // Nothing can be called on a dead mount itself.
    let parent = place.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let parent = parent.canonicalize().map_err(|_| problem())?;
    Ok(parent.join(place.file_name().unwrap_or_default()))
}

/// Checks that the process of the mount will not access its own mount, which would wait for itself.
fn check_directories(args: &MountArgs, point: &Path) -> Result<(), Failure> {
    let usage = |problem: String| Err(Failure::new(ErrorKind::Usage, problem));
    let place = point.display();
    if let Location::Local(root) = Location::parse(&args.url)?
        && let Ok(root) = root.canonicalize()
        && (root.starts_with(point) || point.starts_with(&root))
    {
        let root = root.display();
        return usage(format!("{root} and the mount point {place} contain one another; name another mount point"));
    }
    let scratch = scratch_directory(&args.common);
    if scratch.canonicalize().is_ok_and(|scratch| scratch.starts_with(point)) {
        let scratch = scratch.display();
        return usage(format!("{scratch}, for scratch files, is below the mount point {place}; pass another --temp"));
    }
    Ok(())
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
            keep_freed_memory(KEPT_ALLOCATOR_BYTES, options.threads + 1);
            let server_path = remote.path.trim_matches('/').to_owned();
            let log = Arc::new(log_warning);
            let storage = ServerStorage::new(remote, &credentials, &options, cancelled.clone(), log)?;
            let is_writable = storage.check()?;
            Ok(OpenStorage { storage: Arc::new(storage), is_writable, server_path })
        }
    }
}

fn run_in_foreground(args: &MountArgs, point: &Path) -> Result<(), Failure> {
    let signalled = interruption::flag_with_grace(CLOSE_TIMEOUT);
    set_server_log(&args.common);
    let cancelled = Arc::new(AtomicBool::new(false));
    let OpenStorage { storage, is_writable, server_path } = open_storage(args, &cancelled)?;
    let scratch = create_scratch_directory(&scratch_directory(&args.common))?;
    let mut guard = Guard::start(point)?;
    let tree = FileTree::new(storage, scratch.path(), server_path.as_ref(), Arc::new(log_warning));
    let options = MountOptions {
        source_name: args.url.clone(),
        read_only: args.read_only || !is_writable,
        allow_other: args.allow_other,
    };
    let started = Mount::start(tree, &args.mount_point, &options).and_then(|mount| {
        guard.watch(&mount)?;
        Ok(mount)
    });
    let mut mount = started.map_err(|error| mount_failure(args, &error))?;
    if options.read_only && !args.read_only {
        log_message("the server does not accept changes (it runs without --writable), so the files are read-only");
    }
    print(&format!("{} is mounted at {}\n", args.url, args.mount_point.display()))?;
    readiness::notify(readiness::READY);
    let outcome = wait_until_unmounted(&mut mount, &signalled);
    readiness::notify(readiness::STOPPING);
    cancelled.store(true, Ordering::Relaxed);
    drop(mount);
    guard.stop();
    let is_stored = outcome.map_err(|error| {
        let problem = format!("the connection to the kernel ended: {error}; mount {} again", args.url);
        Failure::new(ErrorKind::Machine, problem)
    })?;
    match is_stored {
        true => Ok(()),
        // This kind of failure is reported also after a signal.
        false => Err(Failure::new(
            ErrorKind::Interrupted,
            "changes of files were lost, because they were not stored when the mount ended".to_owned(),
        )),
    }
}

/// Creates the directory of scratch files, which only this user may access.
fn create_scratch_directory(parent: &Path) -> Result<LockedDirectory, Failure> {
    let create = || -> std::io::Result<LockedDirectory> {
        let directory = LockedDirectory::create(parent, "godwit-mount-")?;
        std::fs::set_permissions(directory.path(), Permissions::from_mode(0o700))?;
        Ok(directory)
    };
    create().map_err(|error| {
        Failure::new(ErrorKind::Machine, format!("cannot create a directory below {}: {error}", parent.display()))
    })
}

/// Waits until the files are unmounted. A signal unmounts them; programs then have [`CLOSE_TIMEOUT`] to close their
/// files. Returns false if changes are lost.
fn wait_until_unmounted(mount: &mut Mount, signalled: &AtomicBool) -> std::io::Result<bool> {
    loop {
        if let Some(outcome) = mount.wait(SIGNAL_CHECK_INTERVAL) {
            return outcome.map(|()| !mount.has_unstored_changes());
        }
        if signalled.load(Ordering::Relaxed) {
            break;
        }
    }
    mount.unmount()?;
    if mount.wait(CLOSE_TIMEOUT).is_none() {
        log_warning("files are still open; changes that were not stored are lost");
    }
    Ok(!mount.has_unstored_changes())
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
    let mut command = Command::new(THIS_PROGRAM);
    command.args(std::env::args_os().skip(1)).arg("--foreground");
    let (_, ready_line) = spawn_until_mounted(command)?;
    print(&ready_line)
}

/// A process that has mounted files. Dropping this value unmounts them. If this process is killed, the kernel kills that one,
/// and its guard unmounts the files.
pub struct MountProcess(Child);

impl MountProcess {
    /// Starts `godwit mount --foreground` with these arguments, and waits until the files are mounted. The thread that calls
    /// this function must run as long as the files are needed.
    pub fn start(arguments: &[OsString]) -> Result<Self, Failure> {
        let mut command = Command::new(THIS_PROGRAM);
        command.args(["mount", "--foreground"]).args(arguments);
        set_parent_death_signal(&mut command);
        spawn_until_mounted(command).map(|(child, _)| Self(child))
    }
}

impl Drop for MountProcess {
    fn drop(&mut self) {
        signal_group(self.0.id(), Signal::Terminate);
        // The outcome does not matter: the files are read-only, and the guard unmounts them if the process fails.
        let _ = self.0.wait();
    }
}

/// Starts a process that mounts files, and waits until they are mounted. Returns the process and the line that it has
/// printed. Until this process ends, its messages are printed here.
fn spawn_until_mounted(mut command: Command) -> Result<(Child, String), Failure> {
    let failed = |error: std::io::Error| Failure::new(ErrorKind::Machine, format!("cannot start godwit: {error}"));
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(Failure::new(ErrorKind::Bug, "a bug in godwit: the child process has no pipes".to_owned()));
    };
    let messages = std::thread::spawn(move || forward_messages(stderr));
    let mut ready_line = String::new();
    BufReader::new(stdout).read_line(&mut ready_line).map_err(failed)?;
    if !ready_line.is_empty() {
        return Ok((child, ready_line));
    }
    let status = child.wait().map_err(failed)?;
    let message = messages.join().ok().flatten().unwrap_or_else(|| "the process of the mount ended".to_owned());
    Err(Failure::new(ErrorKind::of_exit_code(status.code()), message))
}

/// Prints the messages of the process of a mount until it ends. Returns its error.
fn forward_messages(stderr: ChildStderr) -> Option<String> {
    let mut error = None;
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        match line.strip_prefix(ERROR_PREFIX) {
            Some(message) => error = Some(message.to_owned()),
            None => log_plain(&line),
        }
    }
    error
}

/// The guard of a mount, which ends after this process.
struct Guard {
    /// The guard ends when this is closed, at the latest when this process ends.
    input: ChildStdin,
    /// The guard holds the other end until it ends.
    output: ChildStdout,
}

impl Guard {
    fn start(mount_point: &Path) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::new(ErrorKind::Machine, format!("cannot start godwit: {error}"));
        let mut command = Command::new(THIS_PROGRAM);
        command.arg(GUARD_VERB).arg(mount_point).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(failed)?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        // This process only starts the guard.
        let status = child.wait().map_err(failed)?;
        match (input, output) {
            (Some(input), Some(output)) if status.success() => Ok(Self { input, output }),
            _ => Err(Failure::new(ErrorKind::Machine, format!("the guard of the mount did not start: {status}"))),
        }
    }

    /// Sends the device number of the mount to the guard, which removes no other mount.
    fn watch(&mut self, mount: &Mount) -> std::io::Result<()> {
        self.input.write_all(mount.device().as_bytes())
    }

    /// Stops the guard, and waits until it has ended.
    fn stop(self) {
        let Self { input, mut output } = self;
        drop(input);
        // The guard prints nothing, and exits by itself, whatever the outcome is.
        let _ = output.read_to_end(&mut Vec::new());
    }
}

/// Waits until standard input is closed, and removes the mount if its process has ended without unmounting it. The list
/// of mounts determines whether there is one, because the metadata of a dead mount may come from the cache of the kernel
/// for a second.
///
/// The guard outlives the signals that end the process of the mount. It ignores them, and it is not a descendant of that process
/// or of the process that started it: when the first process has started the second one, the first one exits.
pub fn run_guard(args: &MountGuardArgs) -> Result<(), Failure> {
    let failed =
        |error: std::io::Error| Failure::new(ErrorKind::Machine, format!("the guard of a mount failed: {error}"));
    if !args.detached {
        let mut command = Command::new(THIS_PROGRAM);
        command.args([GUARD_VERB, "--detached"]).arg(&args.mount_point).process_group(0);
        return command.spawn().map(drop).map_err(failed);
    }
    interruption::ignore_signals();
    let mut device = String::new();
    std::io::stdin().read_to_string(&mut device).map_err(failed)?;
    let started = Instant::now();
    while started.elapsed() < GUARD_TIMEOUT {
        // The device is unknown if the process was killed before it sent the number.
        let found = mounted_device(&args.mount_point).map_err(failed)?;
        if found.is_none_or(|found| found != device && !device.is_empty()) {
            return Ok(());
        }
        if is_dead_mount(&args.mount_point) {
            return unmount_lazily(&args.mount_point).map_err(failed);
        }
        // The kernel is ending the calls of the killed process, or the number is that of a later mount.
        std::thread::sleep(SIGNAL_CHECK_INTERVAL);
    }
    Ok(())
}
