//! Read-only access to the objects of an S3 bucket.
//!
//! A [`Bucket`] lists object names and reads byte ranges of objects. Each object is pinned to the state of its
//! snapshot: reading an object that was replaced afterwards is an error, never a mixture of two states. Requests run on
//! a separate thread, so callers may block on any thread. The credentials come from the environment variables of the
//! AWS tools and are sent only to the endpoint of the bucket.

mod error;
mod object;
mod pinned_store;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, future};
use godwit_dataset::DatasetError;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::path::Path as Key;
use object_store::{
    BackoffConfig, ClientConfigKey, ObjectMeta, ObjectStore, ObjectStoreExt as _, RetryConfig, path::DELIMITER,
};
use tokio::runtime::Runtime;

use self::error::RemoteError;
pub(crate) use self::error::find_remote_error;
use self::object::BucketObject;
use self::pinned_store::PinnedStore;
use crate::file_snapshot::{DatasetSnapshot, FileSnapshot};

/// Scheme of bucket URLs, with the slashes.
const S3_SCHEME: &str = "s3://";
/// Maximum number of retries of a request if the object store is busy or fails. Their total time is limited as well.
const MAX_RETRIES: usize = 4;
const RETRY_TIMEOUT: Duration = Duration::from_secs(30);
const INITIAL_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(2);

/// The objects of a bucket, or those whose keys begin with a prefix.
pub(crate) struct Bucket {
    /// `s3://BUCKET`, with which every object path begins.
    url: String,
    prefix: Key,
    store: Arc<AmazonS3>,
    /// Endpoint of the bucket and whether requests are signed, for error messages.
    endpoint: Arc<BucketEndpoint>,
    /// Runtime for requests; `None` only while the bucket is dropped.
    runtime: Option<Runtime>,
}

/// Description of the endpoint of a bucket, for error messages.
#[derive(Clone, Debug)]
pub(crate) struct BucketEndpoint {
    bucket: String,
    url: Option<String>,
    is_anonymous: bool,
}

impl BucketEndpoint {
    /// Returns the name of the endpoint in error messages.
    fn display_name(&self) -> String {
        self.url.clone().unwrap_or_else(|| "Amazon".to_owned())
    }
}

// Implement `Debug` by hand, because the derived `Debug` of the object store would print credentials.
impl std::fmt::Debug for Bucket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bucket").field("url", &self.url).field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        // Shut down in the background: dropping a runtime waits for its threads, which is not allowed on a thread of
        // another runtime.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Returns whether the root of a server is the URL of a bucket and not a directory.
pub(crate) fn is_bucket_url(root: &Path) -> bool {
    root.to_str().is_some_and(|root| root.starts_with(S3_SCHEME))
}

impl Bucket {
    /// Opens the objects below `s3://BUCKET/PREFIX`. Endpoint and credentials come from the environment variables of
    /// the AWS tools.
    ///
    /// # Errors
    /// [`DatasetError::InvalidRequest`] if the URL is malformed, [`DatasetError::Local`] if the environment variables
    /// are invalid, [`DatasetError::Remote`] if the bucket cannot be listed.
    pub(crate) fn open(address: &Path) -> Result<Self, DatasetError> {
        let wrong = || DatasetError::InvalidRequest {
            problem: format!("{} is not a bucket URL; write s3://BUCKET or s3://BUCKET/PREFIX", address.display()),
        };
        let rest = address.to_str().and_then(|text| text.strip_prefix(S3_SCHEME)).ok_or_else(wrong)?;
        let (name, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || "-._".contains(letter);
        if name.is_empty() || !name.chars().all(is_name) {
            return Err(wrong());
        }
        let prefix = Key::parse(prefix).map_err(|_| wrong())?;
        let (store, place) = connect(name)?;
        // One thread suffices, because it only waits for the network on behalf of callers.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("objects")
            .enable_all()
            .build()
            .map_err(|error| DatasetError::Local(error.into()))?;
        let bucket = Self {
            url: format!("{S3_SCHEME}{name}"),
            prefix,
            store: Arc::new(store),
            endpoint: Arc::new(place),
            runtime: Some(runtime),
        };
        bucket.check_listing()?;
        Ok(bucket)
    }

    /// Returns the path with which the paths of all its objects begin.
    pub(crate) fn root(&self) -> PathBuf {
        match self.prefix.as_ref() {
            "" => PathBuf::from(&self.url),
            prefix => PathBuf::from(&self.url).join(prefix),
        }
    }

    /// Runs a request on the runtime of the bucket, and blocks until it has finished.
    fn block_on<T: Send + 'static>(
        &self,
        request: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, DatasetError> {
        let ended = || DatasetError::Local("the thread that sends requests to the object store has stopped".into());
        let runtime = self.runtime.as_ref().ok_or_else(ended)?;
        let (sender, receiver) = mpsc::sync_channel(1);
        runtime.spawn(async move {
            let _ = sender.send(request.await);
        });
        receiver.recv().map_err(|_| ended())
    }

    /// Checks that the credentials permit listing the bucket.
    fn check_listing(&self) -> Result<(), DatasetError> {
        let (store, prefix) = (self.store.clone(), self.prefix.clone());
        let first = self.block_on(async move { store.list(Some(&prefix)).next().await })?;
        first.transpose().map(drop).map_err(|error| self.remote_error(&self.root(), error))
    }

    fn remote_error(&self, path: &Path, error: object_store::Error) -> DatasetError {
        RemoteError::new(&self.endpoint, path, error).into()
    }

    /// Returns the key of the object at a path; `None` if the path cannot be that of an object in this bucket.
    fn key_of(&self, path: &Path) -> Option<Key> {
        let key = path.to_str()?.strip_prefix(&self.url)?.strip_prefix('/')?;
        Key::parse(key).ok()
    }

    fn path_of(&self, key: &Key) -> PathBuf {
        PathBuf::from(format!("{}{DELIMITER}{key}", self.url))
    }

    fn file_snapshot(&self, found: &ObjectMeta) -> FileSnapshot {
        let modified = found.last_modified.timestamp_nanos_opt().unwrap_or_default();
        let etag = found.e_tag.clone();
        let state =
            [etag.as_deref().unwrap_or_default().as_bytes(), &modified.to_le_bytes(), &found.size.to_le_bytes()];
        // Omit the upload time, because it is not the modification time of the data: an index may have been uploaded
        // before its file.
        FileSnapshot {
            path: self.path_of(&found.location),
            bytes: found.size,
            modified: None,
            fingerprint: state.concat(),
            etag,
        }
    }

    /// Returns all object keys below the prefix, relative to the prefix, in sorted order.
    pub(crate) fn object_names(&self) -> Result<Vec<String>, DatasetError> {
        let (store, prefix) = (self.store.clone(), self.prefix.clone());
        let below = prefix.clone();
        let request = async move {
            let listed = store.list(Some(&prefix));
            let name = |found: ObjectMeta| {
                let name = found.location.as_ref().strip_prefix(below.as_ref())?;
                let name = name.strip_prefix(DELIMITER).unwrap_or(name);
                (!name.is_empty()).then(|| name.to_owned())
            };
            listed.try_filter_map(move |found| future::ready(Ok(name(found)))).try_collect::<Vec<String>>().await
        };
        let mut names = self.block_on(request)?.map_err(|error| self.remote_error(&self.root(), error))?;
        names.sort_unstable();
        Ok(names)
    }

    /// Returns a snapshot of an object and the first of its possible indexes that exists. If `is_directory` is true,
    /// returns a snapshot of the objects below the path instead. Returns `None` if there is no object.
    pub(crate) fn snapshot(
        &self,
        path: &Path,
        indexes: &[PathBuf],
        is_directory: bool,
    ) -> Result<Option<DatasetSnapshot>, DatasetError> {
        let Some(key) = self.key_of(path) else { return Ok(None) };
        let keys: Vec<Key> = std::iter::once(Some(key.clone()))
            .chain(indexes.iter().map(|index| self.key_of(index)))
            .flatten()
            .collect();
        let store = self.store.clone();
        let request = async move { future::join_all(keys.iter().map(|key| store.head(key))).await };
        let mut found = Vec::new();
        for answer in self.block_on(request)? {
            found.push(match answer {
                Ok(found) => Some(self.file_snapshot(&found)),
                Err(object_store::Error::NotFound { .. }) => None,
                Err(error) => return Err(self.remote_error(path, error)),
            });
        }
        let mut found = found.into_iter();
        match found.next().flatten() {
            Some(file) => Ok(Some(DatasetSnapshot::new(path, vec![file], found.flatten().next(), &[]))),
            None if is_directory => self.directory_snapshot(path, key),
            None => Ok(None),
        }
    }

    /// Returns a snapshot of the objects directly below a path, without those in deeper directories.
    fn directory_snapshot(&self, path: &Path, key: Key) -> Result<Option<DatasetSnapshot>, DatasetError> {
        let store = self.store.clone();
        let listed = self.block_on(async move { store.list_with_delimiter(Some(&key)).await })?;
        let mut objects = listed.map_err(|error| self.remote_error(path, error))?.objects;
        objects.sort_unstable_by(|one, other| one.location.cmp(&other.location));
        let files: Vec<FileSnapshot> = objects.iter().map(|found| self.file_snapshot(found)).collect();
        Ok((!files.is_empty()).then(|| DatasetSnapshot::new(path, files, None, &[])))
    }

    /// Opens an object for reading, pinned to the state of its snapshot.
    pub(crate) fn open_object(self: &Arc<Self>, file: &FileSnapshot) -> Result<BucketObject, DatasetError> {
        let key = self.key_of(&file.path);
        let key = key.ok_or_else(|| DatasetError::NotFound { name: file.path.display().to_string() })?;
        Ok(BucketObject::new(self.clone(), key, file))
    }

    /// Returns a URL for [`Bucket::pinned_store`] that identifies an object in the state of its snapshot.
    pub(crate) fn pinned_url(&self, file: &FileSnapshot) -> Option<String> {
        Some(pinned_store::pinned_url(&self.key_of(&file.path)?, file.etag.as_deref()))
    }

    /// Returns the object store for the URLs of [`Bucket::pinned_url`], and the prefix of these URLs.
    pub(crate) fn pinned_store(&self) -> (&'static str, Arc<dyn ObjectStore>) {
        let store = PinnedStore::new(self.store.clone(), self.endpoint.clone(), self.url.clone());
        (pinned_store::URL_PREFIX, Arc::new(store))
    }
}

/// Returns the settings in the environment variables of the AWS tools. Empty variables are ignored.
fn aws_settings() -> impl Iterator<Item = (AmazonS3ConfigKey, String)> {
    std::env::vars_os().filter_map(|(name, value)| {
        let name = name.to_str().filter(|name| name.starts_with("AWS_"))?.to_ascii_lowercase();
        let value = value.into_string().ok().filter(|value| !value.is_empty())?;
        Some((name.parse().ok()?, value))
    })
}

/// Connects to a bucket with the settings in the environment variables.
fn connect(name: &str) -> Result<(AmazonS3, BucketEndpoint), DatasetError> {
    let wrong = |problem: String| DatasetError::Local(problem.into());
    let backoff = BackoffConfig { init_backoff: INITIAL_BACKOFF, max_backoff: MAX_BACKOFF, ..BackoffConfig::default() };
    let retry = RetryConfig { backoff, max_retries: MAX_RETRIES, retry_timeout: RETRY_TIMEOUT };
    let mut builder = AmazonS3Builder::new();
    for (key, value) in aws_settings() {
        builder = builder.with_config(key, value);
    }
    builder = builder.with_bucket_name(name).with_retry(retry);
    let set = |builder: &AmazonS3Builder, key| builder.get_config_value(&key);
    let url = set(&builder, AmazonS3ConfigKey::S3Endpoint).or_else(|| set(&builder, AmazonS3ConfigKey::Endpoint));
    let allow_http = set(&builder, AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp));
    if let Some(endpoint) = url.as_ref().filter(|endpoint| !endpoint.starts_with("https://")) {
        if !endpoint.starts_with("http://") {
            return Err(wrong(format!("AWS_ENDPOINT_URL is {endpoint:?}; write https://HOST:PORT")));
        }
        if !allow_http.is_some_and(|value| value.eq_ignore_ascii_case("true") || value == "1") {
            let problem = "uses HTTP without encryption; set AWS_ALLOW_HTTP=true to permit this";
            return Err(wrong(format!("the object store at {endpoint} {problem}")));
        }
    }
    let has_credentials = [
        AmazonS3ConfigKey::AccessKeyId,
        AmazonS3ConfigKey::SecretAccessKey,
        AmazonS3ConfigKey::WebIdentityTokenFile,
        AmazonS3ConfigKey::ContainerCredentialsRelativeUri,
        AmazonS3ConfigKey::ContainerCredentialsFullUri,
    ]
    .into_iter()
    .any(|key| set(&builder, key).is_some());
    // Sign requests only if credentials are configured. Outside a cloud, querying the metadata service of a cloud takes
    // long.
    let is_said = aws_settings().any(|(key, _)| matches!(key, AmazonS3ConfigKey::SkipSignature));
    if !has_credentials && !is_said {
        builder = builder.with_skip_signature(true);
    }
    let is_anonymous = set(&builder, AmazonS3ConfigKey::SkipSignature).is_some_and(|value| value == "true");
    let place = BucketEndpoint { bucket: name.to_owned(), url, is_anonymous };
    let store = builder.build().map_err(|error| {
        wrong(format!(
            "the AWS_ environment variables do not configure the object store: {}",
            error::message_without_store(&error)
        ))
    })?;
    Ok((store, place))
}
