//! The kind of place that an output path names: a file that is replaced, or a stream that is written directly.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use crate::paths::parent_directory;

/// Maximum number of symbolic links that are followed, as in Linux.
const MAX_LINKS: usize = 40;
const DIRECTORY_MESSAGE: &str = "a directory has this name";
const STREAM_MESSAGE: &str = "this output cannot be written to a device, pipe or socket; write to a file";

/// The place of an output, after symbolic links were followed.
///
/// # Examples
///
/// ```
/// use std::path::Path;
///
/// use godwit_files::OutputTarget;
///
/// # fn main() -> std::io::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// let (file, link) = (directory.path().join("hits.tsv"), directory.path().join("link.tsv"));
/// std::os::unix::fs::symlink("hits.tsv", &link)?;
/// assert_eq!(OutputTarget::resolve(&link)?, OutputTarget::File(file));
/// assert_eq!(OutputTarget::resolve(Path::new("/dev/null"))?, OutputTarget::Stream);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputTarget {
    /// Path of a regular file, or of a file that does not exist yet. It is not a symbolic link.
    File(PathBuf),
    /// A device, pipe or socket, or an open file of a process such as `/dev/stdout`. Bytes are written to it in order; a
    /// file must not replace it.
    Stream,
}

impl OutputTarget {
    /// Determines the place of the output that `path` names.
    ///
    /// # Errors
    /// [`io::ErrorKind::IsADirectory`] if a directory has the name; the I/O error of the file system if the path cannot be
    /// followed.
    pub fn resolve(path: &Path) -> io::Result<Self> {
        let found = match fs::metadata(path) {
            Ok(found) => Some(found),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        if found.as_ref().is_some_and(fs::Metadata::is_dir) {
            return Err(directory_error());
        }
        if found.is_some_and(|found| !found.is_file()) {
            return Ok(Self::Stream);
        }
        let (place, is_descriptor) = follow_links(path)?;
        Ok(if is_descriptor { Self::Stream } else { Self::File(place) })
    }

    /// Checks that an output that cannot be a stream is a file or does not exist yet.
    ///
    /// # Errors
    /// The errors of [`OutputTarget::resolve`]; [`io::ErrorKind::InvalidInput`] for a stream.
    pub(crate) fn check_file(path: &Path) -> io::Result<()> {
        match Self::resolve(path)? {
            Self::File(_) => Ok(()),
            Self::Stream => Err(io::Error::new(io::ErrorKind::InvalidInput, STREAM_MESSAGE)),
        }
    }
}

/// Returns the error for an output whose name is that of a directory.
pub(crate) fn directory_error() -> io::Error {
    io::Error::new(io::ErrorKind::IsADirectory, DIRECTORY_MESSAGE)
}

/// Returns whether an output path names standard output: `-`, `/dev/stdout`, `/dev/fd/1`, or a link to one of the last
/// two.
///
/// # Examples
///
/// ```
/// use std::path::Path;
///
/// use godwit_files::is_stdout;
///
/// assert!(["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"].map(Path::new).into_iter().all(is_stdout));
/// assert!(["out", "/dev/null", "/dev/fd/2"].map(Path::new).into_iter().all(|path| !is_stdout(path)));
/// ```
pub fn is_stdout(path: &Path) -> bool {
    ["-", "/dev/stdout"].map(Path::new).contains(&path) || own_descriptor(path) == Some(1)
}

/// Returns the number of the open file of this process that `path` names, also through links.
fn own_descriptor(path: &Path) -> Option<u32> {
    let (place, is_descriptor) = follow_links(path).ok()?;
    let own_descriptors = Path::new("/proc").join(std::process::id().to_string()).join("fd");
    let is_own = is_descriptor && parent_directory(&place).canonicalize().is_ok_and(|found| found == own_descriptors);
    place.file_name().and_then(OsStr::to_str).filter(|_| is_own)?.parse().ok()
}

/// Opens an output that is an [`OutputTarget::Stream`] for writing. Waits for a reader if it is a named pipe.
///
/// # Errors
/// The I/O error of the file system.
pub fn open_stream(path: &Path) -> io::Result<File> {
    // Opening the path again would write from the start of a file, and fails for a socket.
    if is_stdout(path) {
        return io::stdout().as_fd().try_clone_to_owned().map(File::from);
    }
    if own_descriptor(path) == Some(2) {
        return io::stderr().as_fd().try_clone_to_owned().map(File::from);
    }
    let (place, _) = follow_links(path)?;
    let appends = fs::metadata(&place)?.is_file();
    OpenOptions::new().write(true).append(appends).open(&place)
}

/// Follows the symbolic links at the end of a path. Returns the place of the last one, and whether it is an open file of
/// a process. The links to open files of a process are not followed, because they contain no path of a pipe or of a
/// removed file.
fn follow_links(path: &Path) -> io::Result<(PathBuf, bool)> {
    let mut place = path.to_owned();
    for _ in 0..=MAX_LINKS {
        let Ok(link) = fs::read_link(&place) else { return Ok((place, false)) };
        let directory = parent_directory(&place);
        if directory.canonicalize().is_ok_and(|found| found.starts_with("/proc") && found.ends_with("fd")) {
            return Ok((place, true));
        }
        place = if directory == Path::new(".") { link } else { directory.join(link) };
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "too many symbolic links"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn links_are_followed_to_the_file_that_an_output_replaces() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir(at("store")).unwrap();
        symlink("store/file", at("first")).unwrap();
        symlink(at("first"), at("second")).unwrap();
        let expected = OutputTarget::File(at("store/file"));
        assert_eq!(OutputTarget::resolve(&at("second")).unwrap(), expected);
        fs::write(at("store/file"), "old").unwrap();
        assert_eq!(OutputTarget::resolve(&at("second")).unwrap(), expected);
        assert_eq!(OutputTarget::resolve(&at("none")).unwrap(), OutputTarget::File(at("none")));
        symlink("store", at("directory")).unwrap();
        symlink("loop", at("loop")).unwrap();
        let kind = |name: &str| OutputTarget::resolve(&at(name)).err().map(|error| error.kind());
        assert_eq!(kind("directory"), Some(io::ErrorKind::IsADirectory));
        assert!(kind("loop").is_some());
    }

    #[test]
    fn links_to_standard_output_name_it() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        symlink("/dev/stdout", at("first")).unwrap();
        symlink("first", at("second")).unwrap();
        symlink("/dev/stderr", at("errors")).unwrap();
        symlink("-", at("minus")).unwrap();
        assert!(["first", "second"].iter().all(|name| is_stdout(&at(name))));
        assert!(["errors", "minus", "-", "none"].iter().all(|name| !is_stdout(&at(name))));
    }

    #[test]
    fn sockets_and_open_files_are_streams() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let _socket = UnixListener::bind(at("socket")).unwrap();
        symlink("socket", at("link")).unwrap();
        assert_eq!(OutputTarget::resolve(&at("link")).unwrap(), OutputTarget::Stream);
        let message = OutputTarget::check_file(&at("link")).unwrap_err().to_string();
        assert!(message.contains("write to a file"), "{message}");
        fs::write(at("open"), "one").unwrap();
        let open = File::open(at("open")).unwrap();
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(&open);
        let name = PathBuf::from(format!("/dev/fd/{descriptor}"));
        assert_eq!(OutputTarget::resolve(&name).unwrap(), OutputTarget::Stream);
        io::Write::write_all(&mut open_stream(&name).unwrap(), b"two").unwrap();
        assert_eq!(fs::read(at("open")).unwrap(), b"onetwo");
    }
}
