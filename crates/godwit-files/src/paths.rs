//! Directories that contain files, and attributes of both.

use std::fs::{self, File, FileTimes, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path};
use std::time::SystemTime;

/// Returns the directory that contains a file; `.` if the path has only one component.
///
/// # Examples
///
/// ```
/// use std::path::Path;
///
/// use godwit_files::parent_directory;
///
/// assert_eq!(parent_directory(Path::new("out/sample.bam")), Path::new("out"));
/// assert_eq!(parent_directory(Path::new("sample.bam")), Path::new("."));
/// ```
pub fn parent_directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Flushes a directory to disk, so that the names of its files survive a crash. Does nothing for a directory that this
/// user may write but not read, and on a file system that cannot flush directories.
///
/// # Errors
/// The I/O error of the file system.
pub fn sync_directory(directory: &Path) -> io::Result<()> {
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let file = match File::open(directory) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return Ok(()),
        opened => opened?,
    };
    match file.sync_all() {
        Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => Ok(()),
        flushed => flushed,
    }
}

/// Returns whether a relative path stays below its base directory.
pub fn is_relative_descendant(name: &str) -> bool {
    !name.is_empty() && Path::new(name).components().all(|part| matches!(part, Component::Normal(_)))
}

/// Sets permissions (the lowest nine bits of the mode) and modification time of a file or directory; `None` keeps them.
///
/// # Errors
/// The I/O error of the file system.
pub fn set_attributes(path: &Path, mode: Option<u32>, modified: Option<SystemTime>) -> io::Result<()> {
    // The new mode may not permit to open the file.
    let timed = modified.map(|modified| Ok::<_, io::Error>((File::open(path)?, modified))).transpose()?;
    if let Some(mode) = mode {
        fs::set_permissions(path, Permissions::from_mode(mode & 0o777))?;
    }
    match timed {
        Some((file, modified)) => file.set_times(FileTimes::new().set_modified(modified)),
        None => Ok(()),
    }
}
