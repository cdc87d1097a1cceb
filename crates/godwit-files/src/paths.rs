//! Directories that contain files, and attributes of both.

use std::fs::{self, File, FileTimes, Metadata, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
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

/// Creates a directory and its parents, unless they exist.
///
/// # Errors
/// The I/O error of the file system. If a file has the name of one of them, the message names the file.
pub fn create_directories(path: &Path) -> io::Result<()> {
    let Err(error) = fs::create_dir_all(path) else { return Ok(()) };
    let is_file = |place: &&Path| fs::metadata(place).is_ok_and(|found| !found.is_dir());
    let Some(file) = path.ancestors().find(is_file) else { return Err(error) };
    Err(io::Error::new(error.kind(), format!("{} is not a directory; move it away", file.display())))
}

/// Returns whether a relative path stays below its base directory.
pub fn is_relative_descendant(name: &str) -> bool {
    !name.is_empty() && Path::new(name).components().all(|part| matches!(part, Component::Normal(_)))
}

/// Returns whether two paths name the same existing file or named pipe, also through symbolic or hard links. Directories
/// are not compared, nor are sockets and devices such as /dev/null, which may be both input and output.
///
/// # Examples
///
/// ```
/// use godwit_files::is_same_file;
///
/// # fn main() -> std::io::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// let (file, link) = (directory.path().join("ref.fa"), directory.path().join("link.fa"));
/// std::fs::write(&file, ">chr1\nACGT\n")?;
/// std::os::unix::fs::symlink("ref.fa", &link)?;
/// assert!(is_same_file(&file, &link));
/// assert!(!is_same_file(&file, &directory.path().join("other.fa")));
/// # Ok(())
/// # }
/// ```
pub fn is_same_file(one: &Path, other: &Path) -> bool {
    let is_kept = |found: &Metadata| found.is_file() || found.file_type().is_fifo();
    let inspect = |path: &Path| fs::metadata(path).ok().filter(is_kept);
    let Some((first, second)) = inspect(one).zip(inspect(other)) else { return false };
    if (first.dev(), first.ino()) == (second.dev(), second.ino()) {
        return true;
    }
    // sshfs and S3 mounts give a file another inode number each time it is looked up.
    one.canonicalize().is_ok_and(|one| other.canonicalize().is_ok_and(|other| one == other))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_in_the_way_of_a_directory_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        create_directories(&at("a/b")).unwrap();
        create_directories(&at("a/b")).unwrap();
        assert!(at("a/b").is_dir());
        fs::write(at("a/file"), "").unwrap();
        for name in ["a/file", "a/file/c", "a/file/c/d"] {
            let error = create_directories(&at(name)).unwrap_err();
            let expected = format!("{} is not a directory; move it away", at("a/file").display());
            assert_eq!(error.to_string(), expected, "{name}");
        }
    }

    #[test]
    fn a_file_is_the_same_through_links_and_devices_are_not_compared() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("a"), "a").unwrap();
        fs::write(at("b"), "a").unwrap();
        fs::hard_link(at("a"), at("hard")).unwrap();
        std::os::unix::fs::symlink(at("hard"), at("soft")).unwrap();
        for name in ["a", "./a", "hard", "soft"] {
            assert!(is_same_file(&at("a"), &at(name)), "{name}");
        }
        assert!(!is_same_file(&at("a"), &at("b")) && !is_same_file(&at("a"), &at("missing")));
        assert!(!is_same_file(&at("missing"), &at("missing")));
        assert!(!is_same_file(directory.path(), directory.path()));
        assert!(!is_same_file(Path::new("/dev/null"), Path::new("/dev/null")));
    }
}
