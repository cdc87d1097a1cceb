//! Reads of a file at any offset from a window of it, so that neighbouring nodes and blocks cost one read.

use std::path::Path;
use std::sync::Arc;

use godwit_io::random_access::RandomAccess;

use super::BbiError;

/// Bytes that the first read at a new place requests.
const MIN_WINDOW_BYTES: usize = 64 << 10;
/// Bytes that a read requests after reads of the bytes before, which double the request.
const MAX_WINDOW_BYTES: usize = 4 << 20;

/// A window of a file, which moves to the bytes that are requested.
#[derive(Debug)]
pub(super) struct WindowReader {
    source: Arc<dyn RandomAccess>,
    /// Offset of the first byte of the window.
    start: u64,
    window: Vec<u8>,
    next_window_bytes: usize,
}

impl WindowReader {
    pub(super) fn new(source: Arc<dyn RandomAccess>) -> Self {
        Self { source, start: 0, window: Vec::new(), next_window_bytes: MIN_WINDOW_BYTES }
    }

    pub(super) fn path(&self) -> &Path {
        self.source.path()
    }

    pub(super) fn byte_len(&self) -> u64 {
        self.source.byte_len()
    }

    /// Returns `count` bytes of the file from `offset`. `item` names them in an error.
    ///
    /// # Errors
    /// [`BbiError::Truncated`] if the file ends before them, [`BbiError::Read`] if they cannot be read.
    pub(super) fn bytes(&mut self, offset: u64, count: usize, item: &'static str) -> Result<&[u8], BbiError> {
        let bytes = self.source.byte_len();
        let truncated = || BbiError::Truncated { path: self.source.path().to_owned(), bytes, item };
        let end = offset.checked_add(count as u64).filter(|end| *end <= bytes).ok_or_else(truncated)?;
        let window_end = self.start + self.window.len() as u64;
        if offset < self.start || end > window_end {
            let is_next = (self.start..=window_end).contains(&offset);
            self.next_window_bytes =
                if is_next { MAX_WINDOW_BYTES.min(self.next_window_bytes * 2) } else { MIN_WINDOW_BYTES };
            let rest = usize::try_from(bytes - offset).unwrap_or(usize::MAX);
            self.window.resize(count.max(self.next_window_bytes).min(rest), 0);
            self.start = offset;
            let read = self.source.read_at(&mut self.window, offset);
            self.window.truncate(*read.as_ref().unwrap_or(&0));
            read.map_err(|source| BbiError::Read { path: self.source.path().to_owned(), source })?;
            if self.window.len() < count {
                return Err(truncated());
            }
        }
        let at = (offset - self.start) as usize;
        Ok(&self.window[at..at + count])
    }
}
