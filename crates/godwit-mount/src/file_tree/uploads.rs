//! Uploads of files and renames of the directories that contain them: neither begins while the other runs, so that a file
//! is stored in its directory, whatever the name of the directory is by then.

use std::path::{Path, PathBuf};

use parking_lot::{Condvar, Mutex};

/// The paths of running uploads and renames.
#[derive(Default)]
pub(super) struct RunningUploads {
    state: Mutex<RunningPaths>,
    ended: Condvar,
}

#[derive(Default)]
struct RunningPaths {
    uploads: Vec<PathBuf>,
    /// The old paths of files and directories that are being renamed, or whose rename waits for uploads.
    renames: Vec<PathBuf>,
}

/// A running upload.
pub(super) struct Upload<'r> {
    running: &'r RunningUploads,
    /// Path of the file, which no rename changes until this value is dropped.
    pub(super) path: PathBuf,
}

/// A running rename.
pub(super) struct Rename<'r> {
    running: &'r RunningUploads,
    from: PathBuf,
}

impl RunningUploads {
    /// Begins an upload to the path that `path` returns when no rename can change it. Returns `None` if `path` does.
    pub(super) fn begin_upload(&self, path: impl Fn() -> Option<PathBuf>) -> Option<Upload<'_>> {
        let mut state = self.state.lock();
        loop {
            let path = path()?;
            if !state.renames.iter().any(|from| path.starts_with(from)) {
                state.uploads.push(path.clone());
                return Some(Upload { running: self, path });
            }
            self.ended.wait(&mut state);
        }
    }

    /// Begins a rename when no file at or below `from` is being uploaded. Further uploads wait until it ends.
    pub(super) fn begin_rename(&self, from: &Path) -> Rename<'_> {
        let mut state = self.state.lock();
        state.renames.push(from.to_owned());
        while state.uploads.iter().any(|path| path.starts_with(from)) {
            self.ended.wait(&mut state);
        }
        Rename { running: self, from: from.to_owned() }
    }

    /// Returns the number of renames that run or wait.
    #[cfg(test)]
    pub(super) fn rename_count(&self) -> usize {
        self.state.lock().renames.len()
    }

    fn end(&self, path: &Path, running: impl Fn(&mut RunningPaths) -> &mut Vec<PathBuf>) {
        let mut state = self.state.lock();
        let paths = running(&mut state);
        if let Some(at) = paths.iter().position(|other| other == path) {
            paths.swap_remove(at);
        }
        self.ended.notify_all();
    }
}

impl Drop for Upload<'_> {
    fn drop(&mut self) {
        self.running.end(&self.path, |state| &mut state.uploads);
    }
}

impl Drop for Rename<'_> {
    fn drop(&mut self) {
        self.running.end(&self.from, |state| &mut state.renames);
    }
}
