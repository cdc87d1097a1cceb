//! Text files that get their names when they are complete. Each file has a thread that compresses and writes it.

use std::io::{self, Write};
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use flate2::Compression;
use flate2::write::GzEncoder;
use godwit_files::AtomicFile;

use super::SimulateError;

/// Size of the text buffers that are passed to the writing thread, bytes. It is so large that passing them costs
/// little.
const TEXT_BUFFER_BYTES: usize = 256 << 10;
/// Maximum number of buffers that wait for the writing thread. If the disk is slower than the simulation, the
/// simulation waits.
const MAX_WAITING_BUFFERS: usize = 4;

/// The thread that writes a file, and the channel that sends buffers to it.
type WriterThread = (SyncSender<Vec<u8>>, JoinHandle<io::Result<()>>);

/// A text file that is not yet complete. Dropping it without [`AtomicTextFile::commit`] removes the file.
pub(super) struct AtomicTextFile {
    file: AtomicFile,
    /// Buffer of text to write. Append text to it, then call [`AtomicTextFile::flush_if_full`].
    pub(super) text: Vec<u8>,
    writer: Option<WriterThread>,
}

impl AtomicTextFile {
    /// Creates a file. If `gzip` is true, the text is compressed with gzip at level 1.
    pub(super) fn create(path: &Path, gzip: bool) -> Result<Self, SimulateError> {
        let failed = |source| SimulateError::Write { path: path.to_path_buf(), source };
        let atomic_file = AtomicFile::create(path).map_err(failed)?;
        let mut file = atomic_file.file().try_clone().map_err(failed)?;
        let (sender, chunks) = sync_channel::<Vec<u8>>(MAX_WAITING_BUFFERS);
        let thread = thread::spawn(move || -> io::Result<()> {
            if gzip {
                let mut encoder = GzEncoder::new(file, Compression::new(1));
                chunks.into_iter().try_for_each(|chunk| encoder.write_all(&chunk))?;
                encoder.finish().map(drop)
            } else {
                chunks.into_iter().try_for_each(|chunk| file.write_all(&chunk))
            }
        });
        Ok(Self { file: atomic_file, text: Vec::new(), writer: Some((sender, thread)) })
    }

    /// Sends the text to the writing thread if the buffer is full.
    #[inline]
    pub(super) fn flush_if_full(&mut self) -> Result<(), SimulateError> {
        if self.text.len() < TEXT_BUFFER_BYTES { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> Result<(), SimulateError> {
        let chunk = mem::replace(&mut self.text, Vec::with_capacity(TEXT_BUFFER_BYTES + (4 << 10)));
        match &self.writer {
            Some((sender, _)) if sender.send(chunk).is_ok() => Ok(()),
            // The thread has ended early because of an error, which `close` returns.
            _ => self.close(),
        }
    }

    /// Waits for the end of the writing thread and returns its result.
    fn close(&mut self) -> Result<(), SimulateError> {
        let Some((sender, thread)) = self.writer.take() else { return Ok(()) };
        drop(sender);
        let result = thread.join().unwrap_or_else(|_| Err(io::Error::other("the writing thread panicked")));
        result.map_err(|source| SimulateError::Write { path: self.file.path().to_owned(), source })
    }

    /// Writes the remaining text and renames the file to its final name.
    pub(super) fn commit(mut self) -> Result<PathBuf, SimulateError> {
        self.flush()?;
        self.close()?;
        let path = self.file.path().to_owned();
        match self.file.commit_unsynced() {
            Ok(()) => Ok(path),
            Err(source) => Err(SimulateError::Write { path, source }),
        }
    }
}
