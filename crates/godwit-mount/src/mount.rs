//! A mounted file system: its threads, and its end.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{fs, io, mem, thread};

use fuser::{Config, MountOption, Session, SessionACL};
use rustix::mount::{UnmountFlags, unmount};

use crate::file_tree::FileTree;
use crate::fuse_adapter::FuseAdapter;
use crate::slow_calls::SlowCalls;

/// Number of threads that answer calls. Each program that waits for a server occupies one.
const SESSION_THREADS: usize = 16;
/// Size of the read-ahead of the kernel, bytes.
const KERNEL_READ_AHEAD_BYTES: u32 = 1 << 20;
/// Interval of the checks whether the file system was unmounted.
const END_CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// Types of a mounted file system in the lists of the kernel: that of root's mount call, and that of `fusermount3`.
const FILE_SYSTEM_TYPES: [&[u8]; 2] = [b"fuse", b"fuse.godwit"];
/// Program by which users other than root unmount.
const FUSERMOUNT: &str = "fusermount3";

/// Options of a mount.
#[derive(Clone, Debug, Default)]
pub struct MountOptions {
    /// Name of the mounted storage in `/proc/mounts`, for example its URL.
    pub source_name: String,
    /// True if nothing may be changed.
    pub read_only: bool,
    /// True if other users may access the files, with the rights of the token of the mount.
    pub allow_other: bool,
}

/// A mounted file system. It is unmounted when the value is dropped.
pub struct Mount {
    mount_point: PathBuf,
    /// Device number of the file system, by which it differs from one that is mounted at the same directory later.
    device: String,
    /// The thread that ends when the file system is unmounted and no file of it is open; `None` once it has ended.
    session: Option<JoinHandle<io::Result<()>>>,
    tree: Arc<FileTree>,
}

impl Mount {
    /// Mounts the files of a tree at a directory. A mount that an earlier process has left there is removed first.
    ///
    /// # Errors
    /// The I/O error of the kernel, or the message of `fusermount3`.
    pub fn start(tree: FileTree, mount_point: &Path, options: &MountOptions) -> io::Result<Self> {
        if is_dead_mount(mount_point) {
            unmount_lazily(mount_point)?;
        }
        let mount_point = mount_point.canonicalize()?;
        let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let tree = Arc::new(tree);
        let adapter = FuseAdapter { tree: tree.clone(), slow_calls: SlowCalls::default(), user, group };
        let mut session = Session::new(adapter, &mount_point, &session_options(options))?.spawn()?;
        let device = mounted_device(&mount_point)?
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the file system was unmounted at this moment"))?;
        // This is an optimization that only root may make.
        let _ = set_kernel_read_ahead(&device);
        // When this value of the crate fuser is dropped, it unmounts whatever is mounted at the directory, also a file
        // system of another process. So only its thread is used.
        let thread = mem::replace(&mut session.guard, thread::spawn(|| Ok(())));
        mem::forget(session);
        Ok(Self { mount_point, device, session: Some(thread), tree })
    }

    /// Returns the device number of the file system, as `MAJOR:MINOR`.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Waits until the file system is unmounted, for example by `umount`, or until the time is over. Returns `None` if
    /// it is still mounted.
    pub fn wait(&mut self, timeout: Duration) -> Option<io::Result<()>> {
        let started = Instant::now();
        while self.session.as_ref().is_some_and(|session| !session.is_finished()) {
            if started.elapsed() >= timeout {
                return None;
            }
            thread::sleep(END_CHECK_INTERVAL);
        }
        let panicked = |_| Err(io::Error::other("a thread of the file system panicked"));
        Some(self.session.take().map_or(Ok(()), |session| session.join().unwrap_or_else(panicked)))
    }

    /// Reports whether files have changes that are not stored.
    pub fn has_unstored_changes(&self) -> bool {
        self.tree.has_unstored_changes()
    }

    /// Unmounts the file system, unless that is done already: another one may be mounted at the directory by now. If files
    /// are open, it leaves the directory tree at once, and ends when they are closed.
    ///
    /// # Errors
    /// The I/O error of the kernel, or the message of `fusermount3`.
    pub fn unmount(&self) -> io::Result<()> {
        // When the file system has ended, a later one may have its device number.
        let has_ended = self.session.as_ref().is_none_or(JoinHandle::is_finished);
        match !has_ended && mounted_device(&self.mount_point)?.as_ref() == Some(&self.device) {
            true => unmount_lazily(&self.mount_point),
            false => Ok(()),
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // The mount ends with this process at the latest.
        let _ = self.unmount();
    }
}

fn session_options(options: &MountOptions) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        // A comma would end the name.
        MountOption::FSName(options.source_name.replace(',', "_")),
        MountOption::Subtype("godwit".to_owned()),
        MountOption::NoDev,
        MountOption::NoSuid,
        MountOption::NoAtime,
        if options.read_only { MountOption::RO } else { MountOption::RW },
    ];
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(SESSION_THREADS);
    config.clone_fd = true;
    config
}

/// Lets the kernel read further ahead in files of a mount. Only root may set it; other users keep the default of
/// 128 KiB. No file of the mount is accessed: a process that is killed while it waits for its own mount never ends.
fn set_kernel_read_ahead(device: &str) -> io::Result<()> {
    fs::write(format!("/sys/class/bdi/{device}/read_ahead_kb"), (KERNEL_READ_AHEAD_BYTES / 1024).to_string())
}

/// Reports whether a path is the mount point of a process that has ended.
pub fn is_dead_mount(mount_point: &Path) -> bool {
    fs::metadata(mount_point).is_err_and(|error| error.raw_os_error() == Some(libc::ENOTCONN))
}

/// Returns the device number, as `MAJOR:MINOR`, of the file system in user space that the kernel lists at a directory;
/// `None` if there is none. `mount_point` is absolute, without links. Unlike the metadata of the directory, the list does
/// not come from a cache.
///
/// # Errors
/// The I/O error of `/proc/self/mountinfo`.
pub fn mounted_device(mount_point: &Path) -> io::Result<Option<String>> {
    let mountinfo = fs::read("/proc/self/mountinfo")?;
    Ok(listed_device(&mountinfo, mount_point).map(|device| String::from_utf8_lossy(device).into_owned()))
}

/// Returns the device number of the file system in user space that a mountinfo file (proc_pid_mountinfo(5)) lists at a
/// directory. Of several, the last one is visible.
fn listed_device<'t>(mountinfo: &'t [u8], mount_point: &Path) -> Option<&'t [u8]> {
    let mut escaped = Vec::new();
    for byte in mount_point.as_os_str().as_bytes() {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => escaped.extend(format!("\\{byte:03o}").bytes()),
            byte => escaped.push(*byte),
        }
    }
    mountinfo.split(|byte| *byte == b'\n').rev().find_map(|line| {
        let mut fields = line.split(|byte| *byte == b' ');
        let (device, found_point) = (fields.nth(2)?, fields.nth(1)?);
        let found_type = fields.skip_while(|field| *field != b"-").nth(1)?;
        (found_point == escaped && FILE_SYSTEM_TYPES.contains(&found_type)).then_some(device)
    })
}

/// Removes a mount from the directory tree, also while files are open.
///
/// # Errors
/// The I/O error of the kernel, or the message of `fusermount3`, by which users other than root unmount.
pub fn unmount_lazily(mount_point: &Path) -> io::Result<()> {
    match unmount(mount_point, UnmountFlags::DETACH).map_err(io::Error::from) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
        unmounted => return unmounted,
    }
    let mut command = Command::new(FUSERMOUNT);
    let output = command.args(["-u", "-z", "--"]).arg(mount_point).stdin(Stdio::null()).output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;
    use std::sync::mpsc;

    use super::*;
    use crate::local_storage::LocalStorage;
    use crate::slow_storage::SlowStorage;

    #[test]
    fn calls_are_answered_while_more_files_are_uploaded_than_there_are_threads() {
        let [root, scratch, point] = [(); 3].map(|()| tempfile::tempdir().unwrap());
        fs::write(root.path().join("stored"), "stored").unwrap();
        let storage = Arc::new(SlowStorage::new(root.path()));
        let tree = FileTree::new(storage.clone(), scratch.path(), Path::new(""), Arc::new(|_: &str| ()));
        let options = MountOptions { source_name: "slow".to_owned(), ..MountOptions::default() };
        let Ok(mount) = Mount::start(tree, point.path(), &options) else {
            godwit_tests::skip!("fuse", "this machine does not permit to mount a file system in user space")
        };
        let (writers, uploads) = (2 * SESSION_THREADS, storage.hold_uploads());
        thread::scope(|scope| {
            for number in 0..writers {
                let path = point.path().join(number.to_string());
                scope.spawn(move || {
                    let mut file = File::create(path).unwrap();
                    file.write_all(b"written").unwrap();
                    // Half of the uploads are those of fsync.
                    if number % 2 == 0 {
                        file.sync_all().unwrap();
                    }
                });
            }
            storage.wait_for_uploads(writers);
            let (sender, receiver) = mpsc::channel();
            let (stored, other) = (point.path().join("stored"), point.path().join("other"));
            scope.spawn(move || {
                fs::rename(&stored, &other).unwrap();
                sender.send(fs::read(other).unwrap()).unwrap();
            });
            let read = receiver.recv_timeout(Duration::from_secs(20));
            drop(uploads);
            assert_eq!(read.as_deref(), Ok(&b"stored"[..]));
        });
        for number in 0..writers {
            assert_eq!(fs::read(root.path().join(number.to_string())).unwrap(), b"written");
        }
        mount.unmount().unwrap();
    }

    /// Mounts a new directory with the file `name`; returns `None` if this machine does not permit it.
    fn mount_file(name: &str, point: &Path) -> Option<(Mount, [tempfile::TempDir; 2])> {
        let [root, scratch] = [(); 2].map(|()| tempfile::tempdir().expect("it can be made"));
        fs::write(root.path().join(name), name).expect("it can be written");
        let storage = Arc::new(LocalStorage::new(root.path()));
        let tree = FileTree::new(storage, scratch.path(), Path::new(""), Arc::new(|_: &str| ()));
        let options = MountOptions { source_name: name.to_owned(), ..MountOptions::default() };
        Some((Mount::start(tree, point, &options).ok()?, [root, scratch]))
    }

    #[test]
    fn a_mount_that_ends_late_does_not_unmount_a_later_one_at_the_same_directory() {
        let point = tempfile::tempdir().unwrap();
        for has_open_file in [false, true] {
            let Some((mut earlier, _earlier_files)) = mount_file("earlier", point.path()) else {
                godwit_tests::skip!("fuse", "this machine does not permit to mount a file system in user space")
            };
            let open_file = has_open_file.then(|| File::open(point.path().join("earlier")).unwrap());
            unmount_lazily(point.path()).unwrap();
            let (later, _later_files) = mount_file("later", point.path()).unwrap();
            // The later one may have the device number of an earlier one that has ended.
            let end = earlier.wait(Duration::from_secs(if has_open_file { 0 } else { 60 }));
            assert_eq!(end.is_none(), has_open_file);
            earlier.unmount().unwrap();
            drop(earlier);
            let read = || fs::read_to_string(point.path().join("later")).ok();
            assert_eq!(read().as_deref(), Some("later"));
            drop(later);
            assert_eq!(read(), None);
            drop(open_file);
        }
    }

    #[test]
    fn a_mount_is_found_in_the_list_of_the_kernel_by_its_directory_and_its_type() {
        let list = b"36 35 0:52 / /mnt/a\\040b rw,nosuid - fuse.godwit grpc+tcp://h rw\n\
                     37 35 0:53 / /mnt/c rw shared:1 - ext4 /dev/sda1 rw\n\
                     38 35 0:54 / /mnt/d rw shared:1 - fuse /data rw\n";
        let found = ["/mnt/a b", "/mnt/c", "/mnt/d", "/mnt"].map(|point| listed_device(list, point.as_ref()));
        assert_eq!(found, [Some(&b"0:52"[..]), None, Some(b"0:54"), None]);
    }
}
