//! Files and directories that only their owner can read: scripts, logs and tokens of human genomes' jobs.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use crate::FleetError;

const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;

/// The directory `path`, made with its parents where it is missing, and closed to others where it was open.
pub(crate) fn directory(path: &Path) -> Result<(), FleetError> {
    let made = DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path);
    made.and_then(|()| fs::set_permissions(path, Permissions::from_mode(DIRECTORY_MODE)))
        .map_err(FleetError::file("make the private directory", path))
}

/// The file `path`, opened to be added to, made where it is missing.
pub(crate) fn appended(path: &Path) -> Result<File, FleetError> {
    let opened = OpenOptions::new().append(true).create(true).mode(FILE_MODE).open(path);
    opened
        .and_then(|file| file.set_permissions(Permissions::from_mode(FILE_MODE)).map(|()| file))
        .map_err(FleetError::file("open", path))
}

/// Puts a file of these bytes in place of `path` in one step: readers see the old one or the new one, whole.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), FleetError> {
    let aside = &path.with_added_extension(format!("{}.new", std::process::id()));
    let write = || {
        // What a process of this number left when it was killed may be in the way.
        let _ = fs::remove_file(aside);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(aside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(aside, path)
    };
    write().map_err(|source| {
        let _ = fs::remove_file(aside);
        FleetError::File { action: "write", path: path.to_owned(), source }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn nothing_is_open_to_others_however_it_was_before() {
        let scratch = tempfile::tempdir().unwrap();
        let inner = scratch.path().join("a/b");
        fs::create_dir_all(&inner).unwrap();
        fs::set_permissions(&inner, Permissions::from_mode(0o755)).unwrap();
        directory(&inner).unwrap();
        assert_eq!(mode(&inner), 0o700);
        let log = inner.join("log");
        fs::write(&log, "old\n").unwrap();
        fs::set_permissions(&log, Permissions::from_mode(0o644)).unwrap();
        appended(&log).unwrap().write_all(b"new\n").unwrap();
        assert_eq!((mode(&log), fs::read_to_string(&log).unwrap().as_str()), (0o600, "old\nnew\n"));
        replace(&log, b"other").unwrap();
        assert_eq!((mode(&log), fs::read_to_string(&log).unwrap().as_str()), (0o600, "other"));
        assert_eq!(fs::read_dir(&inner).unwrap().count(), 1, "nothing stays aside");
    }
}
