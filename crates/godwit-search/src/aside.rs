//! The output: written beside its place, there under its name when it is whole.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use godwit_process::TemporaryPath;

use crate::SearchError;

/// Bytes of a page, or a multiple: what a client of a network file system writes back as one.
pub(crate) const PAGE_BYTES: u64 = 64 << 10;

/// Writes bytes at a place in a file that is there.
pub(crate) fn write_at(path: &Path, bytes: &[u8], offset: u64) -> Result<(), SearchError> {
    use std::os::unix::fs::FileExt;
    let written = File::options().write(true).open(path).and_then(|file| file.write_all_at(bytes, offset));
    written.map_err(|source| SearchError::File { action: "write", path: path.to_owned(), source })
}

/// Refuses a place that is a directory.
pub(crate) fn no_directory(place: &Path) -> Result<(), SearchError> {
    if !place.is_dir() {
        return Ok(());
    }
    let source = std::io::Error::from(std::io::ErrorKind::IsADirectory);
    Err(SearchError::File { action: "write", path: place.to_owned(), source })
}

/// A file on its way. Dropping it removes it, where nobody else keeps it.
pub(crate) struct Aside {
    path: PathBuf,
    place: Option<PathBuf>,
    is_kept: bool,
    _temporary: Option<TemporaryPath>,
}

impl Aside {
    /// Makes it beside `place`, or in `scratch` where the output is a stream. Its name has `mark`: one that a later search that goes on
    /// writes anew, or this process' number.
    pub(crate) fn create(place: Option<&Path>, scratch: &Path, mark: Option<&str>) -> Result<Self, SearchError> {
        let wrong = |path: &Path, source| SearchError::File { action: "write", path: path.to_owned(), source };
        place.map_or(Ok(()), no_directory)?;
        let name = place.and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
        let mark = mark.map_or_else(|| std::process::id().to_string(), str::to_owned);
        let name = format!(".{}.{mark}.godwit", name.as_deref().unwrap_or("search"));
        let directory = match place.and_then(Path::parent) {
            Some(directory) if !directory.as_os_str().is_empty() => directory,
            Some(_) => Path::new("."),
            None => scratch,
        };
        let directory = fs::canonicalize(directory).map_err(|source| wrong(place.unwrap_or(directory), source))?;
        let path = directory.join(name);
        let made = TemporaryPath::create(&path, || File::create(&path));
        let (_, temporary) = made.map_err(|source| wrong(place.unwrap_or(&path), source))?;
        Ok(Self { path, place: place.map(Path::to_owned), is_kept: false, _temporary: Some(temporary) })
    }

    /// A file that is there, kept by a journal.
    pub(crate) fn kept(path: PathBuf, place: &Path) -> Self {
        Self { path, place: Some(place.to_owned()), is_kept: true, _temporary: None }
    }

    /// Where it is until it is whole.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes bytes at a place in it.
    pub(crate) fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), SearchError> {
        write_at(&self.path, bytes, offset)
    }

    /// Puts bytes before what is in it.
    pub(crate) fn prepend(&self, bytes: &[u8]) -> Result<(), SearchError> {
        self.rewrite(|to| {
            to.write_all(bytes)?;
            std::io::copy(&mut File::open(&self.path)?, to).map(drop)
        })
    }

    /// Puts what is written in the place of what is in it.
    pub(crate) fn rewrite(
        &self,
        write: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>,
    ) -> Result<(), SearchError> {
        let other = self.path.with_extension("other");
        let _temporary = TemporaryPath::new(&other);
        let written = File::create(&other).and_then(|file| {
            let mut to = BufWriter::new(file);
            write(&mut to)?;
            to.flush()?;
            fs::rename(&other, &self.path)
        });
        written.map_err(|source| {
            let _ = fs::remove_file(&other);
            self.wrong(source)
        })
    }

    /// Bytes that are in it.
    pub(crate) fn bytes(&self) -> Result<u64, SearchError> {
        fs::metadata(&self.path).map(|metadata| metadata.len()).map_err(|source| self.wrong(source))
    }

    /// Waits until it is on the disk.
    pub(crate) fn sync(&self) -> Result<(), SearchError> {
        File::open(&self.path).and_then(|file| file.sync_all()).map_err(|source| self.wrong(source))
    }

    /// Gives it its name, or copies it to standard output. Returns its size.
    pub(crate) fn commit(self, bytes: u64) -> Result<(), SearchError> {
        let mut file = File::open(&self.path).map_err(|source| self.wrong(source))?;
        let found = file.metadata().map_err(|source| self.wrong(source))?.len();
        if found != bytes {
            let problem = format!("the output has {found} bytes, but its parts have {bytes}");
            return Err(SearchError::Protocol { problem });
        }
        match &self.place {
            Some(place) => {
                file.sync_all().and_then(|()| fs::rename(&self.path, place)).map_err(|source| self.wrong(source))
            }
            None => match std::io::copy(&mut file, &mut std::io::stdout()) {
                // A reader that has seen enough is no failure.
                Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(self.wrong(error)),
                _ => Ok(()),
            },
        }
    }

    fn wrong(&self, source: std::io::Error) -> SearchError {
        let path = self.place.clone().unwrap_or_else(|| self.path.clone());
        SearchError::File { action: "write", path, source }
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        if !self.is_kept {
            // It is gone where it has its name already.
            let _ = fs::remove_file(&self.path);
        }
    }
}
