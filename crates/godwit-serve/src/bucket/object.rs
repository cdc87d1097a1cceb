//! One object, read at places.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use godwit_flight::DatasetError;
use godwit_formats::random_access::RandomAccess;
use object_store::path::Path as Key;
use object_store::{GetOptions, GetRange, ObjectStore as _};

use super::Bucket;
use super::error::RemoteError;
use crate::store::SeenFile;

/// Bytes that are asked for at a time of what is read from front to back: a round trip should take less than they do.
const BYTES_AT_A_TIME: usize = 4 << 20;

/// An object as it was when it was looked at.
pub(crate) struct Object {
    bucket: Arc<Bucket>,
    key: Key,
    path: PathBuf,
    bytes: u64,
    tag: Option<String>,
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Object").field(&self.path).finish()
    }
}

impl Object {
    pub(super) fn new(bucket: Arc<Bucket>, key: Key, file: &SeenFile) -> Self {
        Self { bucket, key, path: file.path.clone(), bytes: file.bytes, tag: file.tag.clone() }
    }

    fn fetch(&self, start: u64, end: u64) -> io::Result<Bytes> {
        let (store, key, tag) = (self.bucket.store.clone(), self.key.clone(), self.tag.clone());
        let request = async move {
            let options = GetOptions::new().with_range(Some(GetRange::Bounded(start..end))).with_if_match(tag);
            store.get_opts(&key, options).await?.bytes().await
        };
        let answer = self.bucket.wait(request).map_err(|error: DatasetError| io::Error::other(error.to_string()))?;
        answer.map_err(|error| io::Error::other(RemoteError::new(&self.bucket.place, &self.path, error)))
    }
}

impl RandomAccess for Object {
    fn path(&self) -> &Path {
        &self.path
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, space: &mut [u8], offset: u64) -> io::Result<usize> {
        let end = offset.saturating_add(space.len() as u64).min(self.bytes);
        if end <= offset {
            return Ok(0);
        }
        let bytes = self.fetch(offset, end)?;
        let wanted = (end - offset) as usize;
        if bytes.len() != wanted {
            let problem =
                format!("{}: {} bytes came of {wanted} that were asked for", self.path.display(), bytes.len());
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, problem));
        }
        space[..wanted].copy_from_slice(&bytes);
        Ok(wanted)
    }

    fn bytes_at_a_time(&self) -> usize {
        BYTES_AT_A_TIME
    }
}
