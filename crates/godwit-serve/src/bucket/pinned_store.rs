//! An object store for the file readers of DataFusion, which pins each object to the state of its snapshot.
//!
//! A DataFusion reader knows only the path of an object. The path therefore contains the ETag before the key, and every
//! request demands this ETag. If the object was replaced, the reader gets an error, never a mixture of two states.

use std::fmt;
use std::path::Path as FilePath;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use godwit_dataset::{DatasetError, percent_encode_path};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use super::BucketEndpoint;
use super::error::RemoteError;

/// Prefix of the URLs of pinned objects. SQL statements of clients cannot refer to such URLs.
pub(super) const URL_PREFIX: &str = "objects://pinned";
/// Path segment that stands for a missing ETag.
const NO_ETAG: &str = "-";

/// Returns the URL of the object `key` with the ETag `tag`.
pub(super) fn pinned_url(key: &Path, tag: Option<&str>) -> String {
    format!("{URL_PREFIX}/{}/{}", encode_etag(tag), percent_encode_path(key.as_ref()))
}

/// Encodes an ETag as one segment of a path.
fn encode_etag(tag: Option<&str>) -> String {
    tag.map_or_else(|| NO_ETAG.to_owned(), hex::encode)
}

/// Returns the ETag and the key in a path that [`pinned_url`] made; `None` for any other path.
fn parse_pinned_path(path: &Path) -> Option<(Option<String>, Path)> {
    let (tag, key) = path.as_ref().split_once('/')?;
    let key = Path::parse(key).ok()?;
    if tag == NO_ETAG {
        return Some((None, key));
    }
    Some((Some(String::from_utf8(hex::decode(tag).ok()?).ok()?), key))
}

/// A read-only object store whose paths contain the ETags of the objects.
#[derive(Debug)]
pub(super) struct PinnedStore<S> {
    store: Arc<S>,
    endpoint: Arc<BucketEndpoint>,
    url: String,
}

impl<S: ObjectStore> PinnedStore<S> {
    pub(super) fn new(store: Arc<S>, endpoint: Arc<BucketEndpoint>, url: String) -> Self {
        Self { store, endpoint, url }
    }

    fn remote_error(&self, key: &Path, error: Error) -> Error {
        let path = format!("{}/{key}", self.url);
        to_object_store_error(RemoteError::new(&self.endpoint, FilePath::new(&path), error).into())
    }
}

impl<S> fmt::Display for PinnedStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

fn to_object_store_error(error: DatasetError) -> Error {
    Error::Generic { store: "S3", source: error.into() }
}

fn read_only_error() -> Error {
    to_object_store_error(DatasetError::Forbidden { problem: "the objects of a bucket are read-only".to_owned() })
}

#[async_trait]
impl<S: ObjectStore> ObjectStore for PinnedStore<S> {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let no_key = || to_object_store_error(DatasetError::NotFound { name: location.to_string() });
        let (tag, key) = parse_pinned_path(location).ok_or_else(no_key)?;
        let options = options.with_if_match(tag);
        let mut found = self.store.get_opts(&key, options).await.map_err(|error| self.remote_error(&key, error))?;
        // DataFusion uses the returned path for its next requests, so it must be the path with the ETag.
        found.meta.location = location.clone();
        Ok(found)
    }

    fn list(&self, _prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        stream::empty().boxed()
    }

    async fn list_with_delimiter(&self, _prefix: Option<&Path>) -> Result<ListResult> {
        Err(read_only_error())
    }

    async fn put_opts(&self, _: &Path, _: PutPayload, _: PutOptions) -> Result<PutResult> {
        Err(read_only_error())
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Err(read_only_error())
    }

    fn delete_stream(&self, _: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        stream::iter([Err(read_only_error())]).boxed()
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(read_only_error())
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
            let url = pinned_url(&key, tag);
            let path = Path::from_url_path(url.strip_prefix(URL_PREFIX).unwrap()).unwrap();
            assert_eq!(parse_pinned_path(&path), Some((tag.map(str::to_owned), key)), "{url}");
        }
        assert_eq!(parse_pinned_path(&Path::from("no")), None);
    }

    #[tokio::test]
    async fn an_object_that_was_replaced_is_an_error() {
        let inner = Arc::new(InMemory::new());
        let key = Path::from("x.parquet");
        inner.put(&key, "first".into()).await.unwrap();
        let tag = inner.head(&key).await.unwrap().e_tag;
        let place = BucketEndpoint { bucket: "b".into(), url: None, is_anonymous: true };
        let pinned = PinnedStore::new(inner.clone(), Arc::new(place), "s3://b".into());
        let path = Path::from_url_path(pinned_url(&key, tag.as_deref()).strip_prefix(URL_PREFIX).unwrap()).unwrap();
        assert_eq!(pinned.head(&path).await.unwrap().location, path);
        assert_eq!(pinned.get_range(&path, 1..3).await.unwrap(), "ir");
        inner.put(&key, "other".into()).await.unwrap();
        let error = pinned.get_range(&path, 1..3).await.unwrap_err();
        let Error::Generic { source, .. } = error else { panic!("{error}") };
        assert!(matches!(source.downcast_ref(), Some(DatasetError::Changed { name }) if name == "s3://b/x.parquet"));
        assert!(pinned.put(&path, "x".into()).await.is_err());
    }
}
