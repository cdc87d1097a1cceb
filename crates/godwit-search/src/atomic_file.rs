//! The output file: written under a temporary name and renamed when it is complete.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use godwit_process::TemporaryPath;

use crate::SearchError;

/// Unit in which a client of a network file system writes data back to the server, bytes: the page size or a multiple
/// of it.
pub(crate) const PAGE_BYTES: u64 = 64 << 10;

/// Writes bytes at an offset of an existing file.
pub(crate) fn write_at(path: &Path, bytes: &[u8], offset: u64) -> Result<(), SearchError> {
    use std::os::unix::fs::FileExt;
    let written = File::options().write(true).open(path).and_then(|file| file.write_all_at(bytes, offset));
    written.map_err(|source| SearchError::File { action: "write", path: path.to_owned(), source })
}

/// Rejects an output path that is a directory.
pub(crate) fn reject_directory(place: &Path) -> Result<(), SearchError> {
    if !place.is_dir() {
        return Ok(());
    }
    let source = std::io::Error::from(std::io::ErrorKind::IsADirectory);
    Err(SearchError::File { action: "write", path: place.to_owned(), source })
}

/// An output file under a temporary name. Dropping this value removes the file, unless a checkpoint keeps it.
pub(crate) struct AtomicFile {
    temporary_path: PathBuf,
    final_path: Option<PathBuf>,
    is_kept_on_drop: bool,
    _temporary: Option<TemporaryPath>,
}

impl AtomicFile {
    /// Creates the file in the directory of `place`, or in `scratch` if the output goes to standard output. The
    /// temporary name contains `mark`, or the id of this process if there is no `mark`. A resumed search passes the
    /// same `mark` again.
    pub(crate) fn create(place: Option<&Path>, scratch: &Path, mark: Option<&str>) -> Result<Self, SearchError> {
        let wrong = |path: &Path, source| SearchError::File { action: "write", path: path.to_owned(), source };
        place.map_or(Ok(()), reject_directory)?;
        let name = place.and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
        let mark = mark.map_or_else(|| std::process::id().to_string(), str::to_owned);
        let name = format!(".{}.{mark}.godwit", name.as_deref().unwrap_or("search"));
        let directory = match place.and_then(Path::parent) {
            Some(directory) if !directory.as_os_str().is_empty() => directory,
            Some(_) => Path::new("."),
            None => scratch,
        };
        let directory = fs::canonicalize(directory).map_err(|source| wrong(place.unwrap_or(directory), source))?;
        let temporary_path = directory.join(name);
        let made = TemporaryPath::create(&temporary_path, || File::create(&temporary_path));
        let (_, temporary) = made.map_err(|source| wrong(place.unwrap_or(&temporary_path), source))?;
        Ok(Self {
            temporary_path,
            final_path: place.map(Path::to_owned),
            is_kept_on_drop: false,
            _temporary: Some(temporary),
        })
    }

    /// Uses an existing file of a checkpoint directory, which is not removed on drop; `place` is its final path.
    pub(crate) fn open_kept(temporary_path: PathBuf, place: &Path) -> Self {
        Self { temporary_path, final_path: Some(place.to_owned()), is_kept_on_drop: true, _temporary: None }
    }

    /// Returns the path of the file before it is renamed.
    pub(crate) fn temporary_path(&self) -> &Path {
        &self.temporary_path
    }

    /// Writes bytes at an offset of the file.
    pub(crate) fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), SearchError> {
        write_at(&self.temporary_path, bytes, offset)
    }

    /// Inserts bytes at the start of the file.
    pub(crate) fn prepend(&self, bytes: &[u8]) -> Result<(), SearchError> {
        self.rewrite(|to| {
            to.write_all(bytes)?;
            std::io::copy(&mut File::open(&self.temporary_path)?, to).map(drop)
        })
    }

    /// Replaces the content of the file with the bytes that the closure `write` writes.
    pub(crate) fn rewrite(
        &self,
        write: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>,
    ) -> Result<(), SearchError> {
        let other = self.temporary_path.with_extension("other");
        let _temporary = TemporaryPath::new(&other);
        let written = File::create(&other).and_then(|file| {
            let mut to = BufWriter::new(file);
            write(&mut to)?;
            to.flush()?;
            fs::rename(&other, &self.temporary_path)
        });
        written.map_err(|source| {
            let _ = fs::remove_file(&other);
            self.write_error(source)
        })
    }

    /// Returns the size of the file, bytes.
    pub(crate) fn file_bytes(&self) -> Result<u64, SearchError> {
        fs::metadata(&self.temporary_path).map(|metadata| metadata.len()).map_err(|source| self.write_error(source))
    }

    /// Waits until the content of the file is on disk (`fsync`).
    pub(crate) fn sync(&self) -> Result<(), SearchError> {
        File::open(&self.temporary_path).and_then(|file| file.sync_all()).map_err(|source| self.write_error(source))
    }

    /// Renames the file to its final name, or copies it to standard output. Fails if its size is not `bytes`.
    pub(crate) fn commit(self, bytes: u64) -> Result<(), SearchError> {
        let mut file = File::open(&self.temporary_path).map_err(|source| self.write_error(source))?;
        let found = file.metadata().map_err(|source| self.write_error(source))?.len();
        if found != bytes {
            let problem = format!("the output has {found} bytes, but its reports have {bytes}");
            return Err(SearchError::Protocol { problem });
        }
        match &self.final_path {
            Some(place) => file
                .sync_all()
                .and_then(|()| fs::rename(&self.temporary_path, place))
                .map_err(|source| self.write_error(source)),
            None => match std::io::copy(&mut file, &mut std::io::stdout()) {
                // If the process that reads standard output exits early, the search has not failed.
                Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(self.write_error(error)),
                _ => Ok(()),
            },
        }
    }

    fn write_error(&self, source: std::io::Error) -> SearchError {
        let path = self.final_path.clone().unwrap_or_else(|| self.temporary_path.clone());
        SearchError::File { action: "write", path, source }
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if !self.is_kept_on_drop {
            // If `commit` has renamed the file, there is nothing to remove and this call fails.
            let _ = fs::remove_file(&self.temporary_path);
        }
    }
}
