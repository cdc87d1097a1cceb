//! Files written aside and renamed when whole, each by a thread of its own, so that gzip does not hold up the simulation.

use std::fs::{self, File};
use std::io::{self, Write};
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use flate2::Compression;
use flate2::write::GzEncoder;
use godwit_process::TemporaryPath;

use super::SimulateError;

/// Text handed to a writing thread at once: large enough that the hand-over costs nothing.
const CHUNK_BYTES: usize = 256 << 10;
/// Chunks that wait for a slow disk before the simulation waits too.
const WAITING_CHUNKS: usize = 4;

/// The thread that writes a file, and the way to it.
type Writer = (SyncSender<Vec<u8>>, JoinHandle<io::Result<()>>);

/// A file in the making. Dropping it uncommitted removes what was written.
pub(super) struct Output {
    path: PathBuf,
    temporary: PathBuf,
    /// Append text here, then call [`Output::flush_if_full`].
    pub(super) text: Vec<u8>,
    writer: Option<Writer>,
    _temporary: TemporaryPath,
}

impl Output {
    /// Starts a file; `gzip` compresses it at level 1.
    pub(super) fn create(path: &Path, gzip: bool) -> Result<Self, SimulateError> {
        if path.is_dir() {
            let source = io::Error::from(io::ErrorKind::IsADirectory);
            return Err(SimulateError::Write { path: path.to_path_buf(), source });
        }
        let temporary = path.with_added_extension("part");
        let (file, listed) = TemporaryPath::create(&temporary, || File::create(&temporary))
            .map_err(|source| SimulateError::Write { path: path.to_path_buf(), source })?;
        let (sender, chunks) = sync_channel::<Vec<u8>>(WAITING_CHUNKS);
        let thread = thread::spawn(move || -> io::Result<()> {
            if gzip {
                let mut encoder = GzEncoder::new(file, Compression::new(1));
                chunks.into_iter().try_for_each(|chunk| encoder.write_all(&chunk))?;
                encoder.finish().map(drop)
            } else {
                let mut file = file;
                chunks.into_iter().try_for_each(|chunk| file.write_all(&chunk))
            }
        });
        let (path, writer) = (path.to_path_buf(), Some((sender, thread)));
        Ok(Self { path, temporary, text: Vec::new(), writer, _temporary: listed })
    }

    /// Hands the text on once there is a chunk of it.
    #[inline]
    pub(super) fn flush_if_full(&mut self) -> Result<(), SimulateError> {
        if self.text.len() < CHUNK_BYTES { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> Result<(), SimulateError> {
        let chunk = mem::replace(&mut self.text, Vec::with_capacity(CHUNK_BYTES + (4 << 10)));
        match &self.writer {
            Some((sender, _)) if sender.send(chunk).is_ok() => Ok(()),
            // The thread has ended early: its result says why.
            _ => self.close(),
        }
    }

    /// Ends the thread and returns what it met.
    fn close(&mut self) -> Result<(), SimulateError> {
        let Some((sender, thread)) = self.writer.take() else { return Ok(()) };
        drop(sender);
        let result = thread.join().unwrap_or_else(|_| Err(io::Error::other("the writing thread panicked")));
        result.map_err(|source| SimulateError::Write { path: self.path.clone(), source })
    }

    /// Writes the rest and gives the file its name.
    pub(super) fn commit(mut self) -> Result<PathBuf, SimulateError> {
        self.flush()?;
        self.close()?;
        fs::rename(&self.temporary, &self.path)
            .map_err(|source| SimulateError::Write { path: self.path.clone(), source })?;
        Ok(self.path.clone())
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        drop(self.writer.take());
        // After a commit there is nothing of that name, which is as it should be.
        let _ = fs::remove_file(&self.temporary);
    }
}
