//! Files and directories that must not outlive the process: a stop by a signal removes them where their owner cannot.
//!
//! Each owner removes its temporary path when it is dropped. A process that a signal stops while one of its threads is blocked drops
//! nothing; it calls [`remove_temporary_paths`] instead. A path that a later process continues from is not on the list; what the user has
//! to do to continue is recorded by [`record_resumable_work`].

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// Attempts to remove a directory that a thread still writes to.
const REMOVAL_ATTEMPTS: u32 = 5;
/// Attempts to lock the list while another thread holds it.
const LOCK_ATTEMPTS: u32 = 50;
/// The pause between these.
const LOCK_INTERVAL: Duration = Duration::from_millis(2);

/// All temporary paths of the process.
static PATHS: Mutex<Paths> = Mutex::new(Paths { next: 0, paths: BTreeMap::new() });
/// Whether the verb has no way to continue from the work on disk.
static DISCARDS_WORK: AtomicBool = AtomicBool::new(false);
/// The user's way to continue from the work on disk.
static RESUMABLE: Mutex<Option<&'static str>> = Mutex::new(None);

struct Paths {
    next: u64,
    paths: BTreeMap<u64, PathBuf>,
}

impl Paths {
    fn add(&mut self, path: &Path) -> TemporaryPath {
        let number = self.next;
        self.next += 1;
        self.paths.insert(number, path.to_owned());
        TemporaryPath(number)
    }
}

fn paths() -> MutexGuard<'static, Paths> {
    PATHS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An entry of the list of temporary paths. Dropping it takes the path off the list and leaves the file system as it is.
#[derive(Debug)]
pub struct TemporaryPath(u64);

impl TemporaryPath {
    /// Adds a path, of a file or of a directory, which need not exist yet.
    pub fn new(path: &Path) -> Self {
        paths().add(path)
    }

    /// Adds a path together with what `make` creates there: a stop by a signal sees both or neither.
    ///
    /// # Errors
    /// The error of `make`; the path is not added then.
    pub fn create<T, E>(path: &Path, make: impl FnOnce() -> Result<T, E>) -> Result<(T, Self), E> {
        let mut paths = paths();
        let value = make()?;
        Ok((value, paths.add(path)))
    }

    /// Creates a directory with `create` and adds it to the list, unless it exists already: `None` then.
    ///
    /// # Errors
    /// The error of `create`.
    pub fn create_directory<E>(path: &Path, create: impl FnOnce() -> Result<(), E>) -> Result<Option<Self>, E> {
        let mut paths = paths();
        let exists = path.exists();
        create()?;
        Ok((!exists).then(|| paths.add(path)))
    }
}

impl Drop for TemporaryPath {
    fn drop(&mut self) {
        paths().paths.remove(&self.0);
    }
}

/// A temporary file or directory whose path is on the list.
#[derive(Debug)]
pub struct Temporary<T> {
    value: T,
    listed: TemporaryPath,
}

impl<T: AsRef<Path>> Temporary<T> {
    /// Creates a temporary file or directory with `make` and adds its path to the list, as one step for a stop by a signal.
    ///
    /// # Errors
    /// The error of `make`.
    pub fn create<E>(make: impl FnOnce() -> Result<T, E>) -> Result<Self, E> {
        let mut paths = paths();
        let value = make()?;
        Ok(Self { listed: paths.add(value.as_ref()), value })
    }
}

impl<T> Temporary<T> {
    /// The value, and the entry of the list, which is kept until the value has another name.
    pub fn into_parts(self) -> (T, TemporaryPath) {
        (self.value, self.listed)
    }
}

impl<T> Deref for Temporary<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Temporary<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T: Write> Write for Temporary<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.value.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.value.flush()
    }
}

/// Paths that are temporary until a later process can continue from what they hold.
#[derive(Debug)]
pub struct ResumablePaths(Mutex<Vec<TemporaryPath>>);

impl ResumablePaths {
    /// Adds the paths to the list.
    pub fn new<'p>(paths: impl IntoIterator<Item = &'p Path>) -> Self {
        Self(Mutex::new(paths.into_iter().map(TemporaryPath::new).collect()))
    }

    /// Takes the paths off the list: they hold finished work, from which `--resume` continues. After [`discard_resumable_work`] the
    /// paths stay on the list.
    pub fn keep(&self) {
        if DISCARDS_WORK.load(Ordering::Relaxed) {
            return;
        }
        let listed = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        if !listed.is_empty() {
            record_resumable_work("what was done is kept: add --resume to the same command to continue");
        }
    }
}

/// Removes all temporary paths of the process, which is about to end: other threads may still write to them.
pub fn remove_temporary_paths() {
    remove_listed();
}

/// Removes all temporary paths like [`remove_temporary_paths`], and blocks every thread that creates another one or drops one.
pub fn close_temporary_paths() {
    std::mem::forget(remove_listed());
}

/// Removes the paths and returns the locked list; `None` if another thread does not release the list.
fn remove_listed() -> Option<MutexGuard<'static, Paths>> {
    let locked = (0..LOCK_ATTEMPTS).find_map(|_| match PATHS.try_lock() {
        Ok(paths) => Some(paths),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => {
            std::thread::sleep(LOCK_INTERVAL);
            None
        }
    })?;
    // What was made last may lie in what was made first.
    for path in locked.paths.values().rev() {
        remove(path);
    }
    Some(locked)
}

/// Removes a file, or a directory with its content. A path that does not exist has been removed or renamed by its owner.
fn remove(path: &Path) {
    for _ in 0..REMOVAL_ATTEMPTS {
        let removed = match fs::symlink_metadata(path) {
            Ok(found) if found.is_dir() => fs::remove_dir_all(path),
            Ok(_) => fs::remove_file(path),
            Err(_) => return,
        };
        if removed.is_ok() {
            return;
        }
    }
}

/// Lets a stop by a signal remove unfinished work: the verb of this process has no `--resume`.
pub fn discard_resumable_work() {
    DISCARDS_WORK.store(true, Ordering::Relaxed);
}

/// Records how the user continues from the work that is on disk.
pub fn record_resumable_work(how: &'static str) {
    *RESUMABLE.lock().unwrap_or_else(PoisonError::into_inner) = Some(how);
}

/// Returns the last value of [`record_resumable_work`]; `None` also where another thread records at this moment.
pub fn resumable_work() -> Option<&'static str> {
    *RESUMABLE.try_lock().ok()?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_the_list_is_removed_and_what_was_taken_off_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for name in ["gone", "stays"] {
            fs::create_dir(path(name)).unwrap();
            fs::write(path(name).join("file"), b"x").unwrap();
        }
        let file = Temporary::create(|| tempfile::NamedTempFile::new_in(directory.path())).unwrap();
        let listed = TemporaryPath::new(&path("gone"));
        assert!(TemporaryPath::create(&path("none"), || Err::<(), _>("it fails")).is_err());
        drop(TemporaryPath::new(&path("stays")));
        let create =
            |name: &str| TemporaryPath::create_directory(&path(name), || fs::create_dir_all(path(name))).unwrap();
        let (existing, created) = (create("stays"), create("created"));
        assert!(existing.is_none() && created.is_some());
        remove_temporary_paths();
        assert!(!path("gone").exists() && !path("created").exists() && !file.path().exists());
        assert!(path("stays").join("file").exists());
        drop(listed);
    }
}
