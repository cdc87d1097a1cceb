//! A storage for tests whose uploads wait until the test lets them continue.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use godwit_transfer::StorageSpace;
use parking_lot::{RwLock, RwLockWriteGuard};

use crate::local_storage::LocalStorage;
use crate::storage::{Attributes, DirectoryEntry, Storage, StorageError, StoredFile, WriteOptions};

/// A local directory with uploads that wait.
pub(crate) struct SlowStorage {
    files: LocalStorage,
    /// Locked for writing while uploads wait.
    gate: RwLock<()>,
    started_uploads: AtomicUsize,
}

impl SlowStorage {
    pub(crate) fn new(root: &Path) -> Self {
        Self { files: LocalStorage::new(root), gate: RwLock::default(), started_uploads: AtomicUsize::new(0) }
    }

    /// Lets uploads wait until the guard is dropped.
    pub(crate) fn hold_uploads(&self) -> RwLockWriteGuard<'_, ()> {
        self.gate.write()
    }

    /// Waits until this number of uploads has started.
    pub(crate) fn wait_for_uploads(&self, count: usize) {
        let started = Instant::now();
        while self.started_uploads.load(Ordering::Relaxed) < count {
            assert!(started.elapsed() < Duration::from_secs(60), "too few uploads start");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Storage for SlowStorage {
    fn list(&self, directory: &Path) -> Result<Vec<DirectoryEntry>, StorageError> {
        self.files.list(directory)
    }

    fn attributes(&self, path: &Path) -> Result<Attributes, StorageError> {
        self.files.attributes(path)
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn StoredFile>, StorageError> {
        self.files.open(path)
    }

    fn write_file(&self, path: &Path, local: &Path, options: &WriteOptions) -> Result<(), StorageError> {
        self.started_uploads.fetch_add(1, Ordering::Relaxed);
        drop(self.gate.read());
        self.files.write_file(path, local, options)
    }

    fn create_directory(&self, path: &Path, mode: u32) -> Result<(), StorageError> {
        self.files.create_directory(path, mode)
    }

    fn remove_file(&self, path: &Path) -> Result<(), StorageError> {
        self.files.remove_file(path)
    }

    fn remove_directory(&self, path: &Path) -> Result<(), StorageError> {
        self.files.remove_directory(path)
    }

    fn rename(&self, from: &Path, to: &Path, replace: bool) -> Result<(), StorageError> {
        self.files.rename(from, to, replace)
    }

    fn set_attributes(&self, path: &Path, mode: Option<u32>, modified: Option<SystemTime>) -> Result<(), StorageError> {
        self.files.set_attributes(path, mode, modified)
    }

    fn space(&self) -> Result<StorageSpace, StorageError> {
        self.files.space()
    }

    fn digest(&self, path: &Path) -> Result<String, StorageError> {
        self.files.digest(path)
    }

    fn accepts_name(&self, name: &OsStr) -> bool {
        self.files.accepts_name(name)
    }
}
