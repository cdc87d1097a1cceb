//! A list of the temporary files and directories of this process, which are removed if a signal stops the process.
//!
//! Usually the owner of a temporary path removes it on drop. If a signal stops the process while a thread is blocked,
//! no owner is dropped, and the process calls [`remove_temporary_paths`] instead. A path with finished work, from which
//! a later process can resume, is not on the list. [`set_resume_instruction`] stores the instruction for the user how
//! to resume.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

/// Maximum number of attempts to remove a directory; an attempt fails if a thread creates files in it meanwhile.
const REMOVAL_ATTEMPTS: u32 = 5;
/// Maximum time to wait for the list of temporary paths while another thread holds its lock.
const LOCK_TIMEOUT: Duration = Duration::from_millis(100);

/// Advice in messages about a stopped command that has the option `--resume`.
pub const RESUME_ADVICE: &str = "add --resume to the same command to resume";

/// All temporary paths of the process.
static TEMPORARY_PATHS: Mutex<PathRegistry> = Mutex::new(PathRegistry { next: 0, paths: BTreeMap::new() });
/// True if the command of this process has no option to resume, so that unfinished work is removed.
static DISCARDS_WORK: AtomicBool = AtomicBool::new(false);
/// Instruction for the user how to resume from the finished work on disk.
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

/// An entry of the list of temporary paths. Dropping this value removes the entry from the list, not the file.
#[derive(Debug)]
pub struct TemporaryPath(u64);

impl TemporaryPath {
    /// Adds the path of a file or directory to the list; the file need not exist yet.
    pub fn new(path: &Path) -> Self {
        TEMPORARY_PATHS.lock().add(path)
    }

    /// Runs `create`, which creates the file at `path`, and adds the path to the list, under the lock of the list. So
    /// [`remove_temporary_paths`] never runs between the two.
    ///
    /// # Errors
    /// The error of `create`; the path is then not added to the list.
    pub fn create<T, E>(path: &Path, create: impl FnOnce() -> Result<T, E>) -> Result<(T, Self), E> {
        let mut paths = TEMPORARY_PATHS.lock();
        let value = create()?;
        Ok((value, paths.add(path)))
    }

    /// Runs `create`, which creates the directory at `path`, and adds the path to the list. If the directory existed
    /// before, does not add it and returns `None`.
    ///
    /// # Errors
    /// The error of `create`; the path is then not added to the list.
    pub fn create_directory<E>(path: &Path, create: impl FnOnce() -> Result<(), E>) -> Result<Option<Self>, E> {
        let mut paths = TEMPORARY_PATHS.lock();
        let exists = path.exists();
        create()?;
        Ok((!exists).then(|| paths.add(path)))
    }
}

impl Drop for TemporaryPath {
    fn drop(&mut self) {
        TEMPORARY_PATHS.lock().paths.remove(&self.0);
    }
}

/// A temporary file or directory whose path is on the list of temporary paths.
#[derive(Debug)]
pub struct TemporaryItem<T> {
    value: T,
    registration: TemporaryPath,
}

impl<T: AsRef<Path>> TemporaryItem<T> {
    /// Runs `make`, which creates a temporary file or directory, and adds its path to the list, under the lock of the
    /// list.
    ///
    /// # Errors
    /// The error of `make`; nothing is then added to the list.
    pub fn create<E>(make: impl FnOnce() -> Result<T, E>) -> Result<Self, E> {
        let mut paths = TEMPORARY_PATHS.lock();
        let value = make()?;
        Ok(Self { registration: paths.add(value.as_ref()), value })
    }
}

impl<T> TemporaryItem<T> {
    /// Returns the file or directory, and its entry of the list. The caller must keep the entry until it has renamed
    /// the file.
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

/// Paths that are on the list of temporary paths until they contain work from which a later process can resume.
#[derive(Debug)]
pub struct ResumablePaths(Mutex<Vec<TemporaryPath>>);

impl ResumablePaths {
    /// Adds the paths to the list of temporary paths.
    pub fn new<'p>(paths: impl IntoIterator<Item = &'p Path>) -> Self {
        Self(Mutex::new(paths.into_iter().map(TemporaryPath::new).collect()))
    }

    /// Removes the paths from the list, because they now contain finished work from which a process with `--resume` can
    /// continue. If [`discard_resumable_work`] was called before, the paths remain on the list.
    pub fn unregister(&self) {
        if DISCARDS_WORK.load(Ordering::Relaxed) {
            return;
        }
        let listed = std::mem::take(&mut *self.0.lock());
        if !listed.is_empty() {
            set_resume_instruction(RESUME_ADVICE);
        }
    }
}

/// Removes all files and directories on the list of temporary paths. For use shortly before the exit of the process,
/// while other threads may still write to the files.
pub fn remove_temporary_paths() {
    remove_registered_paths();
}

/// Removes all files and directories like [`remove_temporary_paths`], and keeps the list locked. After this call, every
/// thread that creates or drops a temporary path blocks forever.
pub fn remove_and_block_temporary_paths() {
    std::mem::forget(remove_registered_paths());
}

/// Removes all files and directories on the list and returns the locked list; `None` if another thread does not release
/// the lock in time.
fn remove_registered_paths() -> Option<MutexGuard<'static, PathRegistry>> {
    let locked = TEMPORARY_PATHS.try_lock_for(LOCK_TIMEOUT)?;
    // Remove the newest paths first, because they may be inside older directories.
    for path in locked.paths.values().rev() {
        remove_path(path);
    }
    Some(locked)
}

/// Removes a file, or a directory with its content. If the path does not exist, its owner has removed or renamed it.
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

/// Keeps finished work on the list of temporary paths, so that it is removed if a signal stops the process. For
/// commands without the option `--resume`.
pub fn discard_resumable_work() {
    DISCARDS_WORK.store(true, Ordering::Relaxed);
}

/// Sets the instruction for the user how to resume from the finished work on disk.
pub fn set_resume_instruction(how: &'static str) {
    *RESUME_INSTRUCTION.lock() = Some(how);
}

/// Returns the last instruction of [`set_resume_instruction`]; `None` if there is none, or another thread holds its
/// lock.
pub fn resume_instruction() -> Option<&'static str> {
    *RESUME_INSTRUCTION.try_lock()?
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
