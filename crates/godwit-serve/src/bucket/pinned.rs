//! Objects for an engine with a reader of its own, each as it was when it was looked at.
//!
//! What such a reader knows of an object is its path. So the path has the tag of the state that is meant before the key, and every
//! request is for that state: where there is another by now, the engine gets an error and not the half of each.

use std::fmt;
use std::path::Path as FilePath;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use godwit_flight::DatasetError;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use super::BucketPlace;
use super::error::RemoteError;

/// What addresses begin with; no statement can say them.
pub(super) const START: &str = "objects://pinned";
/// Stands for the tag of an object that has none.
const NO_TAG: &str = "-";

/// The address of an object in a state.
pub(super) fn url_of(key: &Path, tag: Option<&str>) -> String {
    let mut url = format!("{START}/{}/", in_path(tag));
    for byte in key.as_ref().bytes() {
        if byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte) {
            url.push(char::from(byte));
        } else {
            url += &format!("%{byte:02X}");
        }
    }
    url
}

/// A tag as one part of a path, whatever is in it.
fn in_path(tag: Option<&str>) -> String {
    match tag {
        Some(tag) => tag.bytes().map(|byte| format!("{byte:02x}")).collect(),
        None => NO_TAG.to_owned(),
    }
}

/// The tag and the key that a path of [`url_of`] has.
fn parted(path: &Path) -> Option<(Option<String>, Path)> {
    let (tag, key) = path.as_ref().split_once('/')?;
    let key = Path::parse(key).ok()?;
    if tag == NO_TAG {
        return Some((None, key));
    }
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = tag.as_bytes().chunks(2).map(byte).collect();
    Some((Some(String::from_utf8(bytes?).ok()?), key))
}

/// A store of objects in states, read only.
#[derive(Debug)]
pub(super) struct Pinned<S> {
    store: Arc<S>,
    place: Arc<BucketPlace>,
    url: String,
}

impl<S: ObjectStore> Pinned<S> {
    pub(super) fn new(store: Arc<S>, place: Arc<BucketPlace>, url: String) -> Self {
        Self { store, place, url }
    }

    fn failed(&self, key: &Path, error: Error) -> Error {
        let path = format!("{}/{key}", self.url);
        wrapped(RemoteError::new(&self.place, FilePath::new(&path), error).into())
    }
}

impl<S> fmt::Display for Pinned<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

fn wrapped(error: DatasetError) -> Error {
    Error::Generic { store: "S3", source: error.into() }
}

fn read_only() -> Error {
    wrapped(DatasetError::Forbidden { problem: "objects are only read".to_owned() })
}

#[async_trait]
impl<S: ObjectStore> ObjectStore for Pinned<S> {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let no_key = || wrapped(DatasetError::NotFound { name: location.to_string() });
        let (tag, key) = parted(location).ok_or_else(no_key)?;
        let options = options.with_if_match(tag);
        let mut found = self.store.get_opts(&key, options).await.map_err(|error| self.failed(&key, error))?;
        // Whoever asks for a path asks on for the path that it is told.
        found.meta.location = location.clone();
        Ok(found)
    }

    fn list(&self, _prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        stream::empty().boxed()
    }

    async fn list_with_delimiter(&self, _prefix: Option<&Path>) -> Result<ListResult> {
        Err(read_only())
    }

    async fn put_opts(&self, _: &Path, _: PutPayload, _: PutOptions) -> Result<PutResult> {
        Err(read_only())
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Err(read_only())
    }

    fn delete_stream(&self, _: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        stream::iter([Err(read_only())]).boxed()
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(read_only())
    }
}

#[cfg(test)]
mod tests {
    use object_store::ObjectStoreExt as _;
    use object_store::memory::InMemory;

    use super::*;

    #[test]
    fn a_path_has_the_tag_and_the_key_that_went_into_it() {
        for (key, tag) in [("a/b c%.parquet", Some("\"5-x\"")), ("ä.parquet", None)] {
            let key = Path::parse(key).unwrap();
            let url = url_of(&key, tag);
            let path = Path::from_url_path(url.strip_prefix(START).unwrap()).unwrap();
            assert_eq!(parted(&path), Some((tag.map(str::to_owned), key)), "{url}");
        }
        assert_eq!(parted(&Path::from("no")), None);
    }

    #[tokio::test]
    async fn an_object_that_was_replaced_is_an_error() {
        let inner = Arc::new(InMemory::new());
        let key = Path::from("x.parquet");
        inner.put(&key, "first".into()).await.unwrap();
        let tag = inner.head(&key).await.unwrap().e_tag;
        let place = BucketPlace { name: "b".into(), endpoint: None, is_anonymous: true };
        let pinned = Pinned::new(inner.clone(), Arc::new(place), "s3://b".into());
        let path = Path::from_url_path(url_of(&key, tag.as_deref()).strip_prefix(START).unwrap()).unwrap();
        assert_eq!(pinned.head(&path).await.unwrap().location, path);
        assert_eq!(pinned.get_range(&path, 1..3).await.unwrap(), "ir");
        inner.put(&key, "other".into()).await.unwrap();
        let error = pinned.get_range(&path, 1..3).await.unwrap_err();
        let Error::Generic { source, .. } = error else { panic!("{error}") };
        assert!(matches!(source.downcast_ref(), Some(DatasetError::Changed { name }) if name == "s3://b/x.parquet"));
        assert!(pinned.put(&path, "x".into()).await.is_err());
    }
}
