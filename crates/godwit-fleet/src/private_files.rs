//! Files and directories that only their owner can read: scripts, logs and tokens of jobs that process human genomes.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use godwit_files::AtomicFile;

use crate::FleetError;

const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;

/// Creates a directory and its parents if they do not exist, and removes the permissions of other users on the
/// directory.
pub(crate) fn create_private_directory(path: &Path) -> Result<(), FleetError> {
    let made = DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path);
    made.and_then(|()| fs::set_permissions(path, Permissions::from_mode(DIRECTORY_MODE)))
        .map_err(FleetError::file_error("make the private directory", path))
}

/// Opens a file for appending, and creates it if it does not exist. Only its owner can read it.
pub(crate) fn open_for_append(path: &Path) -> Result<File, FleetError> {
    let opened = OpenOptions::new().append(true).create(true).mode(FILE_MODE).open(path);
    opened
        .and_then(|file| file.set_permissions(Permissions::from_mode(FILE_MODE)).map(|()| file))
        .map_err(FleetError::file_error("open", path))
}

/// Replaces the content of a file atomically: a reader sees either the old or the new content.
pub(crate) fn replace_file(path: &Path, bytes: &[u8]) -> Result<(), FleetError> {
    let write = || {
        let mut file = AtomicFile::create_unique(path, FILE_MODE)?;
        file.write_all(bytes)?;
        file.commit()
    };
    write().map_err(FleetError::file_error("write", path))
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
        create_private_directory(&inner).unwrap();
        assert_eq!(mode(&inner), 0o700);
        let log = inner.join("log");
        fs::write(&log, "old\n").unwrap();
        fs::set_permissions(&log, Permissions::from_mode(0o644)).unwrap();
        open_for_append(&log).unwrap().write_all(b"new\n").unwrap();
        assert_eq!((mode(&log), fs::read_to_string(&log).unwrap().as_str()), (0o600, "old\nnew\n"));
        replace_file(&log, b"other").unwrap();
        assert_eq!((mode(&log), fs::read_to_string(&log).unwrap().as_str()), (0o600, "other"));
        assert_eq!(fs::read_dir(&inner).unwrap().count(), 1, "nothing stays aside");
    }
}
