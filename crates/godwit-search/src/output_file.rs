//! The output file of a search, to which several workers write reports at their offsets.

use std::fs::{self, File};
use std::io::{BufWriter, IntoInnerError, Read as _, Write};
use std::path::{Path, PathBuf};

use godwit_files::{AtomicFile, OutputTarget, open_stream, rename_durably};
use godwit_process::TemporaryItem;
use tempfile::NamedTempFile;

use crate::SearchError;
use crate::search_checkpoint::REWRITTEN_OUTPUT;

/// Unit in which a client of a network file system writes data back to the server, bytes: the page size or a multiple
/// of it.
pub(crate) const PAGE_BYTES: u64 = 64 << 10;

/// Writes bytes at an offset of an existing file.
pub(crate) fn write_at(path: &Path, bytes: &[u8], offset: u64) -> Result<(), SearchError> {
    use std::os::unix::fs::FileExt;
    let written = File::options().write(true).open(path).and_then(|file| file.write_all_at(bytes, offset));
    written.map_err(|source| SearchError::File { action: "write", path: path.to_owned(), source })
}

/// Returns the place of the output. Rejects a path that is a directory.
pub(crate) fn resolve_output(out: &Path) -> Result<OutputTarget, SearchError> {
    OutputTarget::resolve(out).map_err(|source| SearchError::File { action: "write", path: out.to_owned(), source })
}

/// The file to which the workers write reports, until it is complete.
pub(crate) enum OutputFile {
    /// A file of the checkpoint directory, which stays there if the search stops.
    Checkpoint { temporary_path: PathBuf, final_path: PathBuf },
    /// A temporary file whose content is copied at the end to a device, pipe or socket, or to standard output without
    /// `stream_path`. Dropping this value removes the file.
    Stream { file: TemporaryItem<NamedTempFile>, stream_path: Option<PathBuf> },
}

impl OutputFile {
    /// Creates a temporary file in `scratch`. Its path is absolute, because workers use it. `stream_path` is the path of
    /// the device, pipe or socket to write to; `None` for standard output.
    pub(crate) fn create_for_stream(scratch: &Path, stream_path: Option<&Path>) -> Result<Self, SearchError> {
        let create =
            || tempfile::Builder::new().prefix(".search.").suffix(".godwit").tempfile_in(scratch.canonicalize()?);
        let failed = |source| SearchError::File { action: "write", path: scratch.to_owned(), source };
        let file = TemporaryItem::create(create).map_err(failed)?;
        Ok(Self::Stream { file, stream_path: stream_path.map(Path::to_owned) })
    }

    /// Uses an existing file of a checkpoint directory, which will be renamed to `final_path`.
    pub(crate) fn open_checkpoint(temporary_path: PathBuf, final_path: &Path) -> Self {
        Self::Checkpoint { temporary_path, final_path: final_path.to_owned() }
    }

    /// Returns the path of the file before it is renamed.
    pub(crate) fn temporary_path(&self) -> &Path {
        match self {
            Self::Checkpoint { temporary_path, .. } => temporary_path,
            Self::Stream { file, .. } => file.path(),
        }
    }

    /// Writes bytes at an offset of the file.
    pub(crate) fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), SearchError> {
        write_at(self.temporary_path(), bytes, offset)
    }

    /// Inserts bytes at the start of the output, which has `end` bytes.
    pub(crate) fn prepend(&mut self, bytes: &[u8], end: u64) -> Result<(), SearchError> {
        self.rewrite(|output, to| {
            to.write_all(bytes)?;
            std::io::copy(&mut File::open(output)?.take(end), to).map(drop)
        })
    }

    /// Replaces the output with the bytes that the closure `write` writes; it receives the path of the present output. A
    /// file of a checkpoint directory remains beside the new one.
    pub(crate) fn rewrite(
        &mut self,
        write: impl FnOnce(&Path, &mut BufWriter<AtomicFile>) -> std::io::Result<()>,
    ) -> Result<(), SearchError> {
        let target = match self {
            Self::Checkpoint { temporary_path, .. } => temporary_path.with_file_name(REWRITTEN_OUTPUT),
            Self::Stream { file, .. } => file.path().to_owned(),
        };
        let rewrite = || {
            let mut to = BufWriter::new(AtomicFile::create_unique(&target, 0o666)?);
            write(self.temporary_path(), &mut to)?;
            to.into_inner().map_err(IntoInnerError::into_error)?.commit_unsynced()
        };
        rewrite().map_err(|source| self.write_error(source))?;
        if let Self::Checkpoint { temporary_path, .. } = self {
            *temporary_path = target;
        }
        Ok(())
    }

    /// Returns the size of the file, bytes.
    pub(crate) fn file_bytes(&self) -> Result<u64, SearchError> {
        fs::metadata(self.temporary_path()).map(|metadata| metadata.len()).map_err(|source| self.write_error(source))
    }

    /// Waits until the content of the file is on disk (`fsync`).
    pub(crate) fn sync(&self) -> Result<(), SearchError> {
        File::open(self.temporary_path()).and_then(|file| file.sync_all()).map_err(|source| self.write_error(source))
    }

    /// Renames the file to its final name, or copies it to the stream. Fails if its size is not `bytes`.
    pub(crate) fn commit(self, bytes: u64) -> Result<(), SearchError> {
        let mut file = File::open(self.temporary_path()).map_err(|source| self.write_error(source))?;
        let found = file.metadata().map_err(|source| self.write_error(source))?.len();
        if found != bytes {
            let problem = format!("the output has {found} bytes, but its reports have {bytes}");
            return Err(SearchError::Protocol { problem });
        }
        match &self {
            Self::Checkpoint { temporary_path, final_path } => {
                rename_durably(temporary_path, final_path).map_err(|source| self.write_error(source))
            }
            Self::Stream { stream_path, .. } => {
                let copied = match stream_path {
                    Some(path) => open_stream(path).and_then(|mut stream| std::io::copy(&mut file, &mut stream)),
                    None => std::io::copy(&mut file, &mut std::io::stdout()),
                };
                match copied {
                    // If the process that reads the output exits early, the search has not failed.
                    Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(self.write_error(error)),
                    _ => Ok(()),
                }
            }
        }
    }

    fn write_error(&self, source: std::io::Error) -> SearchError {
        let path = match self {
            Self::Checkpoint { final_path, .. } => final_path.as_path(),
            Self::Stream { file, stream_path } => stream_path.as_deref().unwrap_or_else(|| file.path()),
        };
        SearchError::File { action: "write", path: path.to_owned(), source }
    }
}
