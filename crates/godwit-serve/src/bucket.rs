//! Objects of an S3 bucket, read only.
//!
//! Flows in: names and ranges. Flows out: listings, and bytes of objects pinned to the state of their snapshot: an object
//! replaced since is an error, never a mixture. Requests run on a separate thread, so that callers may block on any thread.
//! Credentials are read from the variables of the AWS tools and are sent nowhere else.

mod error;
mod object;
mod pinned_store;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, future};
use godwit_flight::DatasetError;
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
use crate::file_store::{DatasetSnapshot, FileSnapshot};

/// Scheme of bucket URLs.
const S3_SCHEME: &str = "s3://";
/// Retries of a request after a busy or failed server, and the total time for them.
const MAX_RETRIES: usize = 4;
const RETRY_TIMEOUT: Duration = Duration::from_secs(30);
const INITIAL_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(2);

/// A bucket, or the objects below a prefix of it.
pub(crate) struct Bucket {
    /// `s3://BUCKET`, the start of every object path.
    url: String,
    prefix: Key,
    store: Arc<AmazonS3>,
    /// Endpoint, and whether requests are signed, for messages.
    endpoint: Arc<BucketEndpoint>,
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
}

/// Description of a bucket for messages.
#[derive(Clone, Debug)]
pub(crate) struct BucketEndpoint {
    bucket: String,
    url: Option<String>,
    is_anonymous: bool,
}

impl BucketEndpoint {
    /// Returns the endpoint as shown in messages.
    fn display_name(&self) -> String {
        self.url.clone().unwrap_or_else(|| "Amazon".to_owned())
    }
}

// The derived `Debug` of the store would print credentials.
impl std::fmt::Debug for Bucket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bucket").field("url", &self.url).field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        // A runtime must not be dropped with a blocking wait on a thread of another runtime.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Reports whether a root is the URL of a bucket.
pub(crate) fn is_bucket_url(root: &Path) -> bool {
    root.to_str().is_some_and(|root| root.starts_with(S3_SCHEME))
}

impl Bucket {
    /// Opens the objects below `s3://BUCKET/PREFIX`, with endpoint and credentials from the variables of the AWS tools.
    ///
    /// # Errors
    /// [`DatasetError::InvalidRequest`] if the URL is malformed, [`DatasetError::Local`] if the variables are invalid,
    /// [`DatasetError::Remote`] if the bucket cannot be listed.
    pub(crate) fn open(address: &Path) -> Result<Self, DatasetError> {
        let wrong = || DatasetError::InvalidRequest {
            problem: format!(
                "{} is no address of a bucket; write s3://BUCKET or s3://BUCKET/PREFIX",
                address.display()
            ),
        };
        let rest = address.to_str().and_then(|text| text.strip_prefix(S3_SCHEME)).ok_or_else(wrong)?;
        let (name, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || "-._".contains(letter);
        if name.is_empty() || !name.chars().all(is_name) {
            return Err(wrong());
        }
        let prefix = Key::parse(prefix).map_err(|_| wrong())?;
        let (store, place) = connect(name)?;
        // Callers wait for this thread, and it waits for the network: one thread suffices.
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

    /// Returns the path that its object paths begin with.
    pub(crate) fn root(&self) -> PathBuf {
        match self.prefix.as_ref() {
            "" => PathBuf::from(&self.url),
            prefix => PathBuf::from(&self.url).join(prefix),
        }
    }

    /// Runs a request on the runtime, and waits for it.
    fn block_on<T: Send + 'static>(
        &self,
        request: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, DatasetError> {
        let ended = || DatasetError::Local("the thread that asks object stores has ended".into());
        let runtime = self.runtime.as_ref().ok_or_else(ended)?;
        let (sender, receiver) = mpsc::sync_channel(1);
        runtime.spawn(async move {
            let _ = sender.send(request.await);
        });
        receiver.recv().map_err(|_| ended())
    }

    /// Checks that the bucket can be listed.
    fn check_listing(&self) -> Result<(), DatasetError> {
        let (store, prefix) = (self.store.clone(), self.prefix.clone());
        let first = self.block_on(async move { store.list(Some(&prefix)).next().await })?;
        first.transpose().map(drop).map_err(|error| self.remote_error(&self.root(), error))
    }

    fn remote_error(&self, path: &Path, error: object_store::Error) -> DatasetError {
        RemoteError::new(&self.endpoint, path, error).into()
    }

    /// Returns the key of an object path; `None` if no object can have it.
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
        // The time of an upload is not that of the data: an index may have been uploaded before its file.
        FileSnapshot {
            path: self.path_of(&found.location),
            bytes: found.size,
            modified: None,
            fingerprint: state.concat(),
            etag,
        }
    }

    /// Returns every key below the prefix, relative to it, sorted.
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

    /// Takes a snapshot of an object and the first existing one of its indexes, or with `is_directory` of the objects
    /// below; `None` if there are none.
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

    /// Takes a snapshot of the objects directly below a path.
    fn directory_snapshot(&self, path: &Path, key: Key) -> Result<Option<DatasetSnapshot>, DatasetError> {
        let store = self.store.clone();
        let listed = self.block_on(async move { store.list_with_delimiter(Some(&key)).await })?;
        let mut objects = listed.map_err(|error| self.remote_error(path, error))?.objects;
        objects.sort_unstable_by(|one, other| one.location.cmp(&other.location));
        let files: Vec<FileSnapshot> = objects.iter().map(|found| self.file_snapshot(found)).collect();
        Ok((!files.is_empty()).then(|| DatasetSnapshot::new(path, files, None, &[])))
    }

    /// Opens an object in the state of its snapshot.
    pub(crate) fn open_object(self: &Arc<Self>, file: &FileSnapshot) -> Result<BucketObject, DatasetError> {
        let key = self.key_of(&file.path);
        let key = key.ok_or_else(|| DatasetError::NotFound { name: file.path.display().to_string() })?;
        Ok(BucketObject::new(self.clone(), key, file))
    }

    /// Returns the URL of an object in the state of its snapshot, for [`Bucket::pinned_store`].
    pub(crate) fn pinned_url(&self, file: &FileSnapshot) -> Option<String> {
        Some(pinned_store::pinned_url(&self.key_of(&file.path)?, file.etag.as_deref()))
    }

    /// Returns the store for [`Bucket::pinned_url`] URLs, and the prefix of these.
    pub(crate) fn pinned_store(&self) -> (&'static str, Arc<dyn ObjectStore>) {
        let store = PinnedStore::new(self.store.clone(), self.endpoint.clone(), self.url.clone());
        (pinned_store::URL_PREFIX, Arc::new(store))
    }
}

/// Reads the variables of the AWS tools; empty ones are ignored.
fn aws_settings() -> impl Iterator<Item = (AmazonS3ConfigKey, String)> {
    std::env::vars_os().filter_map(|(name, value)| {
        let name = name.to_str().filter(|name| name.starts_with("AWS_"))?.to_ascii_lowercase();
        let value = value.into_string().ok().filter(|value| !value.is_empty())?;
        Some((name.parse().ok()?, value))
    })
}

/// Connects to a bucket with the settings of the environment.
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
            let problem = "is not encrypted; set AWS_ALLOW_HTTP=true if that is meant";
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
    // Querying a cloud's metadata service takes long outside a cloud: it is done only if configured.
    let is_said = aws_settings().any(|(key, _)| matches!(key, AmazonS3ConfigKey::SkipSignature));
    if !has_credentials && !is_said {
        builder = builder.with_skip_signature(true);
    }
    let is_anonymous = set(&builder, AmazonS3ConfigKey::SkipSignature).is_some_and(|value| value == "true");
    let place = BucketEndpoint { bucket: name.to_owned(), url, is_anonymous };
    let store = builder.build().map_err(|error| {
        wrong(format!(
            "the AWS_ variables do not say how to reach the object store: {}",
            error::message_without_store(&error)
        ))
    })?;
    Ok((store, place))
}
