//! Random access to one object of a bucket.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use godwit_dataset::DatasetError;
use godwit_io::random_access::RandomAccess;
use object_store::path::Path as Key;
use object_store::{GetOptions, GetRange, ObjectStore as _};

use super::Bucket;
use super::error::RemoteError;
use crate::file_snapshot::FileSnapshot;

/// Number of bytes per request during sequential reading. Their transfer should take longer than a network round trip.
const REQUEST_BYTES: usize = 4 << 20;

/// An object of a bucket, pinned to the state of its snapshot.
pub(crate) struct BucketObject {
    bucket: Arc<Bucket>,
    key: Key,
    path: PathBuf,
    bytes: u64,
    etag: Option<String>,
}

impl fmt::Debug for BucketObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Object").field(&self.path).finish()
    }
}

impl BucketObject {
    pub(super) fn new(bucket: Arc<Bucket>, key: Key, file: &FileSnapshot) -> Self {
        Self { bucket, key, path: file.path.clone(), bytes: file.bytes, etag: file.etag.clone() }
    }

    fn fetch_range(&self, start: u64, end: u64) -> io::Result<Bytes> {
        let (store, key, tag) = (self.bucket.store.clone(), self.key.clone(), self.etag.clone());
        let request = async move {
            let options = GetOptions::new().with_range(Some(GetRange::Bounded(start..end))).with_if_match(tag);
            store.get_opts(&key, options).await?.bytes().await
        };
        let answer =
            self.bucket.block_on(request).map_err(|error: DatasetError| io::Error::other(error.to_string()))?;
        answer.map_err(|error| io::Error::other(RemoteError::new(&self.bucket.endpoint, &self.path, error)))
    }
}

impl RandomAccess for BucketObject {
    fn path(&self) -> &Path {
        &self.path
    }

    fn byte_len(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, space: &mut [u8], offset: u64) -> io::Result<usize> {
        let end = offset.saturating_add(space.len() as u64).min(self.bytes);
        if end <= offset {
            return Ok(0);
        }
        let bytes = self.fetch_range(offset, end)?;
        let wanted = (end - offset) as usize;
        if bytes.len() != wanted {
            let problem = format!("{}: received {} bytes of {wanted} requested", self.path.display(), bytes.len());
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, problem));
        }
        space[..wanted].copy_from_slice(&bytes);
        Ok(wanted)
    }

    fn preferred_read_bytes(&self) -> usize {
        REQUEST_BYTES
    }
}
