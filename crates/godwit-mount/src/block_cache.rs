//! A bounded cache of blocks of files, in memory. Several readers of a block wait for one request.
//!
//! A block is absent, requested, or present. [`BlockCache::claim`] marks absent blocks as requested; the caller then
//! fetches them and reports each by [`BlockCache::insert`], or all remaining ones by [`BlockCache::fail`].

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use crate::storage::StorageError;

/// A version of a file.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileVersionKey {
    /// Path below the mounted directory.
    pub(crate) path: PathBuf,
    /// Size of the file, bytes.
    pub(crate) size_bytes: u64,
    /// Modification time.
    pub(crate) modified: SystemTime,
    /// A number that differs between versions of the same size and modification time, and may differ between servers.
    pub(crate) version: u64,
}

/// A block: a version of a file, and the 0-based index of the block.
type BlockKey = (Arc<FileVersionKey>, u64);

enum BlockState {
    Requested,
    Present { data: Bytes, last_use: u64 },
    Failed(StorageError),
}

#[derive(Default)]
struct CacheState {
    blocks: HashMap<BlockKey, BlockState>,
    /// Present blocks by the number of their last use.
    by_last_use: BTreeMap<u64, BlockKey>,
    use_count: u64,
}

/// A cache of blocks.
pub(crate) struct BlockCache {
    state: Mutex<CacheState>,
    changed: Condvar,
    max_blocks: usize,
}

impl BlockCache {
    /// Returns an empty cache of at most `max_blocks` present blocks.
    pub(crate) fn new(max_blocks: usize) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), max_blocks: max_blocks.max(1) }
    }

    /// Returns the largest number of present blocks.
    pub(crate) fn max_blocks(&self) -> u64 {
        self.max_blocks as u64
    }

    /// Returns a block; waits while it is requested. Returns `None` if it is absent.
    ///
    /// # Errors
    /// The error of the request for this block, once.
    pub(crate) fn wait_for(&self, file: &Arc<FileVersionKey>, block: u64) -> Result<Option<Bytes>, StorageError> {
        let key = (file.clone(), block);
        let mut guard = self.state.lock();
        loop {
            let state = &mut *guard;
            match state.blocks.get_mut(&key) {
                None => return Ok(None),
                Some(BlockState::Present { data, last_use }) => {
                    let data = data.clone();
                    state.by_last_use.remove(last_use);
                    state.use_count += 1;
                    *last_use = state.use_count;
                    state.by_last_use.insert(state.use_count, key);
                    return Ok(Some(data));
                }
                Some(BlockState::Failed(error)) => {
                    let error = error.clone();
                    state.blocks.remove(&key);
                    return Err(error);
                }
                Some(BlockState::Requested) => self.changed.wait(&mut guard),
            }
        }
    }

    /// Reports whether a block is neither present nor requested.
    pub(crate) fn is_absent(&self, file: &Arc<FileVersionKey>, block: u64) -> bool {
        !self.state.lock().blocks.contains_key(&(file.clone(), block))
    }

    /// Marks the first run of absent blocks of a range as requested, and returns it; it may be empty.
    pub(crate) fn claim(&self, file: &Arc<FileVersionKey>, blocks: Range<u64>) -> Range<u64> {
        let mut state = self.state.lock();
        let is_absent = |state: &CacheState, block: u64| !state.blocks.contains_key(&(file.clone(), block));
        let start = blocks.clone().find(|block| is_absent(&state, *block)).unwrap_or(blocks.end);
        let end = (start..blocks.end).find(|block| !is_absent(&state, *block)).unwrap_or(blocks.end);
        for block in start..end {
            state.blocks.insert((file.clone(), block), BlockState::Requested);
        }
        start..end
    }

    /// Stores a requested block, and removes the least recently used blocks beyond the limit.
    pub(crate) fn insert(&self, file: &Arc<FileVersionKey>, block: u64, data: Bytes) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.use_count += 1;
        let key = (file.clone(), block);
        let present = BlockState::Present { data, last_use: state.use_count };
        if let Some(BlockState::Present { last_use, .. }) = state.blocks.insert(key.clone(), present) {
            state.by_last_use.remove(&last_use);
        }
        state.by_last_use.insert(state.use_count, key);
        while state.by_last_use.len() > self.max_blocks
            && let Some((_, oldest)) = state.by_last_use.pop_first()
        {
            state.blocks.remove(&oldest);
        }
        drop(guard);
        self.changed.notify_all();
    }

    /// Reports that requested blocks of a range were not received. The readers of block `reported`, if any, receive the
    /// error; for readers of other blocks, the blocks are absent again.
    pub(crate) fn fail(
        &self,
        file: &Arc<FileVersionKey>,
        blocks: Range<u64>,
        reported: Option<u64>,
        error: &StorageError,
    ) {
        let mut state = self.state.lock();
        for block in blocks {
            let key = (file.clone(), block);
            if !matches!(state.blocks.get(&key), Some(BlockState::Requested)) {
                continue;
            }
            if reported == Some(block) {
                state.blocks.insert(key, BlockState::Failed(error.clone()));
            } else {
                state.blocks.remove(&key);
            }
        }
        drop(state);
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Arc<FileVersionKey> {
        Arc::new(FileVersionKey { path: "f".into(), size_bytes: 9, modified: SystemTime::UNIX_EPOCH, version: 1 })
    }

    #[test]
    fn a_block_is_requested_once_and_the_least_recently_used_one_leaves() {
        let (cache, file) = (BlockCache::new(2), file());
        assert_eq!(cache.claim(&file, 0..3), 0..3);
        assert_eq!(cache.claim(&file, 0..5), 3..5);
        cache.insert(&file, 0, vec![0].into());
        cache.insert(&file, 1, vec![1].into());
        assert_eq!(cache.wait_for(&file, 0).unwrap().as_deref(), Some(&[0][..]));
        cache.insert(&file, 2, vec![2].into());
        assert_eq!(cache.wait_for(&file, 1).unwrap(), None);
        assert_eq!(cache.wait_for(&file, 0).unwrap().as_deref(), Some(&[0][..]));
    }

    #[test]
    fn an_error_reaches_the_readers_of_one_block_and_the_others_are_requested_again() {
        let (cache, file) = (BlockCache::new(9), file());
        assert_eq!(cache.claim(&file, 0..3), 0..3);
        let waiting = std::thread::scope(|scope| {
            let reader = scope.spawn(|| cache.wait_for(&file, 0));
            std::thread::sleep(std::time::Duration::from_millis(20));
            cache.fail(&file, 0..3, Some(0), &StorageError::new(libc::ESTALE, "f".as_ref()));
            reader.join().unwrap()
        });
        assert_eq!(waiting.unwrap_err().errno, libc::ESTALE);
        assert_eq!(cache.claim(&file, 0..3), 0..3);
    }
}
