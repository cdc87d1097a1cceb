//! A mounted file system: its threads, and its end.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
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
    session: Option<BackgroundSession>,
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
        let session = Session::new(adapter, &mount_point, &session_options(options))?.spawn()?;
        // This is an optimization that only root may make.
        let _ = set_kernel_read_ahead(&mount_point);
        Ok(Self { mount_point, session: Some(session), tree })
    }

    /// Waits until the file system is unmounted, for example by `umount`, or until the time is over. Returns `None` if
    /// it is still mounted.
    pub fn wait(&mut self, timeout: Duration) -> Option<io::Result<()>> {
        let started = Instant::now();
        while self.session.as_ref().is_some_and(|session| !session.guard.is_finished()) {
            if started.elapsed() >= timeout {
                return None;
            }
            thread::sleep(END_CHECK_INTERVAL);
        }
        Some(self.session.take().map_or(Ok(()), BackgroundSession::join))
    }

    /// Reports whether files have changes that are not stored.
    pub fn has_unstored_changes(&self) -> bool {
        self.tree.has_unstored_changes()
    }

    /// Unmounts the file system. If files are open, it leaves the directory tree at once, and ends when they are closed.
    ///
    /// # Errors
    /// The I/O error of the kernel, or the message of `fusermount3`.
    pub fn unmount(&self) -> io::Result<()> {
        unmount_lazily(&self.mount_point)
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
fn set_kernel_read_ahead(mount_point: &Path) -> io::Result<()> {
    let mountinfo = fs::read("/proc/self/mountinfo")?;
    let device = mounted_device(&mountinfo, mount_point).ok_or(io::ErrorKind::NotFound)?;
    let setting = format!("/sys/class/bdi/{}/read_ahead_kb", String::from_utf8_lossy(device));
    fs::write(setting, (KERNEL_READ_AHEAD_BYTES / 1024).to_string())
}

/// Reports whether a path is the mount point of a process that has ended.
pub fn is_dead_mount(mount_point: &Path) -> bool {
    fs::metadata(mount_point).is_err_and(|error| error.raw_os_error() == Some(libc::ENOTCONN))
}

/// Reports whether the kernel lists a file system in user space at a directory. `mount_point` is absolute, without links.
/// Unlike the metadata of the directory, the list does not come from a cache.
///
/// # Errors
/// The I/O error of `/proc/self/mountinfo`.
pub fn is_mounted(mount_point: &Path) -> io::Result<bool> {
    Ok(mounted_device(&fs::read("/proc/self/mountinfo")?, mount_point).is_some())
}

/// Returns the device numbers, as `MAJOR:MINOR`, of the file system in user space that a mountinfo file
/// (proc_pid_mountinfo(5)) lists at a directory. Of several, the last one is visible.
fn mounted_device<'t>(mountinfo: &'t [u8], mount_point: &Path) -> Option<&'t [u8]> {
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

    #[test]
    fn a_mount_is_found_in_the_list_of_the_kernel_by_its_directory_and_its_type() {
        let list = b"36 35 0:52 / /mnt/a\\040b rw,nosuid - fuse.godwit grpc+tcp://h rw\n\
                     37 35 0:53 / /mnt/c rw shared:1 - ext4 /dev/sda1 rw\n\
                     38 35 0:54 / /mnt/d rw shared:1 - fuse /data rw\n";
        let found = ["/mnt/a b", "/mnt/c", "/mnt/d", "/mnt"].map(|point| mounted_device(list, point.as_ref()));
        assert_eq!(found, [Some(&b"0:52"[..]), None, Some(b"0:54"), None]);
    }
}
