//! Files and directories that must not outlive the process: a stop by a signal removes them if their owner cannot.
//!
//! Each owner removes its temporary path when it is dropped. A process that is stopped by a signal while one of its threads
//! is blocked drops nothing; it calls [`remove_temporary_paths`] instead. A path from which a later process resumes is not
//! on the list; [`set_resume_instruction`] records how the user resumes.

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
/// Interval between these attempts.
const LOCK_INTERVAL: Duration = Duration::from_millis(2);

/// All temporary paths of the process.
static TEMPORARY_PATHS: Mutex<PathRegistry> = Mutex::new(PathRegistry { next: 0, paths: BTreeMap::new() });
/// True if the command has no way to resume from the work on disk.
static DISCARDS_WORK: AtomicBool = AtomicBool::new(false);
/// Instruction for resuming from the work on disk.
static RESUME_INSTRUCTION: Mutex<Option<&'static str>> = Mutex::new(None);

struct PathRegistry {
    next: u64,
    paths: BTreeMap<u64, PathBuf>,
}

impl PathRegistry {
    fn add(&mut self, path: &Path) -> TemporaryPath {
        let number = self.next;
        self.next += 1;
        self.paths.insert(number, path.to_owned());
        TemporaryPath(number)
    }
}

fn lock_registry() -> MutexGuard<'static, PathRegistry> {
    TEMPORARY_PATHS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An entry of the list of temporary paths. Dropping it removes the entry and leaves the file system unchanged.
#[derive(Debug)]
pub struct TemporaryPath(u64);

impl TemporaryPath {
    /// Adds the path of a file or directory, which need not exist yet.
    pub fn new(path: &Path) -> Self {
        lock_registry().add(path)
    }

    /// Adds a path and runs `create`, which creates it, as one step: a stop by a signal sees both or neither.
    ///
    /// # Errors
    /// The error of `create`; the path is then not added.
    pub fn create<T, E>(path: &Path, create: impl FnOnce() -> Result<T, E>) -> Result<(T, Self), E> {
        let mut paths = lock_registry();
        let value = create()?;
        Ok((value, paths.add(path)))
    }

    /// Creates a directory with `create` and adds it to the list; returns `None` if it exists already.
    ///
    /// # Errors
    /// The error of `create`.
    pub fn create_directory<E>(path: &Path, create: impl FnOnce() -> Result<(), E>) -> Result<Option<Self>, E> {
        let mut paths = lock_registry();
        let exists = path.exists();
        create()?;
        Ok((!exists).then(|| paths.add(path)))
    }
}

impl Drop for TemporaryPath {
    fn drop(&mut self) {
        lock_registry().paths.remove(&self.0);
    }
}

/// A temporary file or directory whose path is on the list.
#[derive(Debug)]
pub struct TemporaryItem<T> {
    value: T,
    registration: TemporaryPath,
}

impl<T: AsRef<Path>> TemporaryItem<T> {
    /// Creates a temporary file or directory with `make` and adds its path to the list, as one step for a stop by a signal.
    ///
    /// # Errors
    /// The error of `make`.
    pub fn create<E>(make: impl FnOnce() -> Result<T, E>) -> Result<Self, E> {
        let mut paths = lock_registry();
        let value = make()?;
        Ok(Self { registration: paths.add(value.as_ref()), value })
    }
}

impl<T> TemporaryItem<T> {
    /// Returns the value, and the entry of the list, which must be kept until the value is renamed.
    pub fn into_parts(self) -> (T, TemporaryPath) {
        (self.value, self.registration)
    }
}

impl<T> Deref for TemporaryItem<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for TemporaryItem<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T: Write> Write for TemporaryItem<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.value.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.value.flush()
    }
}

/// Paths that are temporary until a later process can resume from their content.
#[derive(Debug)]
pub struct ResumablePaths(Mutex<Vec<TemporaryPath>>);

impl ResumablePaths {
    /// Adds the paths to the list.
    pub fn new<'p>(paths: impl IntoIterator<Item = &'p Path>) -> Self {
        Self(Mutex::new(paths.into_iter().map(TemporaryPath::new).collect()))
    }

    /// Removes the paths from the list: they hold finished work, from which `--resume` continues. After
    /// [`discard_resumable_work`] the paths stay on the list.
    pub fn unregister(&self) {
        if DISCARDS_WORK.load(Ordering::Relaxed) {
            return;
        }
        let listed = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        if !listed.is_empty() {
            set_resume_instruction("what was done is kept: add --resume to the same command to continue");
        }
    }
}

/// Removes all temporary paths of the process before its exit: other threads may still write to them.
pub fn remove_temporary_paths() {
    remove_registered_paths();
}

/// Removes all temporary paths like [`remove_temporary_paths`], and blocks every thread that creates another one or drops one.
pub fn remove_and_block_temporary_paths() {
    std::mem::forget(remove_registered_paths());
}

/// Removes the paths and returns the locked list; `None` if another thread does not release the list.
fn remove_registered_paths() -> Option<MutexGuard<'static, PathRegistry>> {
    let locked = (0..LOCK_ATTEMPTS).find_map(|_| match TEMPORARY_PATHS.try_lock() {
        Ok(paths) => Some(paths),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => {
            std::thread::sleep(LOCK_INTERVAL);
            None
        }
    })?;
    // A later path may be inside an earlier one.
    for path in locked.paths.values().rev() {
        remove_path(path);
    }
    Some(locked)
}

/// Removes a file, or a directory with its content. A path that does not exist has been removed or renamed by its owner.
fn remove_path(path: &Path) {
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

/// Makes a stop by a signal remove unfinished work: the command of this process has no `--resume`.
pub fn discard_resumable_work() {
    DISCARDS_WORK.store(true, Ordering::Relaxed);
}

/// Records how the user resumes from the work on disk.
pub fn set_resume_instruction(how: &'static str) {
    *RESUME_INSTRUCTION.lock().unwrap_or_else(PoisonError::into_inner) = Some(how);
}

/// Returns the last value of [`set_resume_instruction`]; `None` also if another thread is recording one.
pub fn resume_instruction() -> Option<&'static str> {
    *RESUME_INSTRUCTION.try_lock().ok()?
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
        let file = TemporaryItem::create(|| tempfile::NamedTempFile::new_in(directory.path())).unwrap();
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
