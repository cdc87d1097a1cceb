//! Hidden directories in which datasets are made, before anybody sees them.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use godwit_process::Temporary;

/// Below the root: hidden, and on the same file system.
const NAME: &str = ".godwit-puts";

/// The directory that has them all.
#[derive(Debug)]
pub(super) struct Asides {
    directory: PathBuf,
}

/// One of them. Dropping it removes what is in it.
#[derive(Debug)]
pub(super) struct Aside {
    directory: Temporary<tempfile::TempDir>,
    /// Locked as long as somebody writes here, so that others know what was left by a server that was killed.
    _lock: File,
}

impl Asides {
    /// Makes it, and removes what servers that were killed left in it.
    pub(super) fn below(root: &Path) -> io::Result<Self> {
        let asides = Self { directory: root.join(NAME) };
        fs::create_dir_all(&asides.directory)?;
        let _lock = asides.lock()?;
        for entry in fs::read_dir(&asides.directory)?.flatten() {
            let path = entry.path();
            let is_left = path.is_dir() && File::open(&path).is_ok_and(|held| held.try_lock().is_ok());
            if is_left {
                fs::remove_dir_all(&path)?;
            }
        }
        Ok(asides)
    }

    /// Holds off whoever else, in this process or another, changes what is below the root.
    pub(super) fn lock(&self) -> io::Result<File> {
        let path = self.directory.join("lock");
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
        file.lock()?;
        Ok(file)
    }

    pub(super) fn make(&self) -> io::Result<Aside> {
        // Nobody who clears up comes between the directory and its lock.
        let _lock = self.lock()?;
        self.make_locked()
    }

    /// As [`Asides::make`], for who holds the lock.
    pub(super) fn make_locked(&self) -> io::Result<Aside> {
        let directory =
            Temporary::create(|| tempfile::Builder::new().prefix("").rand_bytes(12).tempdir_in(&self.directory))?;
        let lock = File::open(directory.path())?;
        lock.lock()?;
        Ok(Aside { directory, _lock: lock })
    }
}

impl Aside {
    pub(super) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Its name, which no other has.
    pub(super) fn name(&self) -> String {
        self.path().file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }
}
