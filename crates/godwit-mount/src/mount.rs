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
        let adapter = FuseAdapter { tree: tree.clone(), user, group };
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
/// 128 KiB.
fn set_kernel_read_ahead(mount_point: &Path) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt as _;
    let device = fs::metadata(mount_point)?.dev();
    let setting = format!("/sys/class/bdi/{}:{}/read_ahead_kb", libc::major(device), libc::minor(device));
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
    Ok(has_mount(&fs::read("/proc/self/mountinfo")?, mount_point))
}

/// Reports whether the text of a mountinfo file (proc_pid_mountinfo(5)) contains a file system in user space at a directory.
fn has_mount(mountinfo: &[u8], mount_point: &Path) -> bool {
    let mut escaped = Vec::new();
    for byte in mount_point.as_os_str().as_bytes() {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => escaped.extend(format!("\\{byte:03o}").bytes()),
            byte => escaped.push(*byte),
        }
    }
    mountinfo.split(|byte| *byte == b'\n').any(|line| {
        let mut fields = line.split(|byte| *byte == b' ');
        fields.nth(4) == Some(&escaped[..])
            && fields.skip_while(|field| *field != b"-").nth(1).is_some_and(|found| FILE_SYSTEM_TYPES.contains(&found))
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
    use super::*;

    #[test]
    fn a_mount_is_found_in_the_list_of_the_kernel_by_its_directory_and_its_type() {
        let list = b"36 35 0:52 / /mnt/a\\040b rw,nosuid - fuse.godwit grpc+tcp://h rw\n\
                     37 35 0:53 / /mnt/c rw shared:1 - ext4 /dev/sda1 rw\n\
                     38 35 0:54 / /mnt/d rw shared:1 - fuse /data rw\n";
        let found = ["/mnt/a b", "/mnt/c", "/mnt/d", "/mnt"].map(|point| has_mount(list, point.as_ref()));
        assert_eq!(found, [true, false, true, false]);
    }
}
