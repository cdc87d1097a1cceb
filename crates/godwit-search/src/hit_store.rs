//! The hits of the preliminary search, in a file: memory has those of one batch of queries at a time.

use std::path::{Path, PathBuf};

use godwit_files::Spill;

use crate::SearchError;
use crate::error::file_error;
use crate::search_checkpoint::FileExtent;

/// Stored hits, by their extents in a file.
#[derive(Debug)]
pub(crate) struct HitStore {
    file: Spill,
    path: PathBuf,
}

impl HitStore {
    /// Creates a store in an unnamed file in the directory `scratch`; the system removes it when it is closed.
    pub(crate) fn create_unnamed(scratch: &Path) -> Result<Self, SearchError> {
        let file = Spill::create(scratch).map_err(file_error("make a scratch file in", scratch))?;
        Ok(Self { file, path: scratch.to_owned() })
    }

    /// Opens or creates a store at `path`; new hits are appended to it.
    pub(crate) fn open_named(path: PathBuf) -> Result<Self, SearchError> {
        let file = Spill::open(&path).map_err(file_error("write", &path))?;
        Ok(Self { file, path })
    }

    /// Appends hits and returns their extent.
    pub(crate) fn append(&self, hits: &[u8]) -> Result<FileExtent, SearchError> {
        let offset = self.file.append(hits).map_err(file_error("write", &self.path))?;
        Ok(FileExtent { offset, bytes: hits.len() as u64, checksum: libdeflater::crc32(hits) })
    }

    /// Reads the hits at an extent.
    pub(crate) fn read(&self, extent: FileExtent) -> Result<Vec<u8>, SearchError> {
        let mut hits = vec![0; extent.bytes as usize];
        self.file.read_at(extent.offset, &mut hits).map_err(file_error("read", &self.path))?;
        Ok(hits)
    }

    /// Removes all hits.
    pub(crate) fn clear(&self) -> Result<(), SearchError> {
        self.file.truncate(0).map_err(file_error("write", &self.path))
    }
}
