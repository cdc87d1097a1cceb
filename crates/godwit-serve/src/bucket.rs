//! Objects of an S3 bucket, read only.
//!
//! Flows in: names and ranges. Flows out: what there is, and bytes, each of the object as it was when it was looked at: one that has been
//! replaced since is an error, never a mixture. Requests run on a thread of their own, so that whoever reads may wait wherever it is.
//! Credentials come from the variables of the AWS tools and go nowhere else.

mod error;
mod object;
mod pinned;

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
pub(crate) use self::error::remote_cause;
use self::object::Object;
use self::pinned::Pinned;
use crate::store::{Seen, SeenFile};

/// How addresses of buckets begin.
const SCHEME: &str = "s3://";
/// How often a request is made again that met a busy or broken server, and for how long all told.
const RETRIES: usize = 4;
const RETRY_TIME: Duration = Duration::from_secs(30);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// A bucket, from a prefix on.
pub(crate) struct Bucket {
    /// `s3://BUCKET`, which paths of objects begin with.
    url: String,
    prefix: Key,
    store: Arc<AmazonS3>,
    /// Where it is, and whether requests are signed, for messages.
    place: Arc<BucketPlace>,
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
}

/// What messages say of a bucket.
#[derive(Clone, Debug)]
pub(crate) struct BucketPlace {
    name: String,
    endpoint: Option<String>,
    is_anonymous: bool,
}

impl BucketPlace {
    /// Where it is, as messages say it.
    fn endpoint(&self) -> String {
        self.endpoint.clone().unwrap_or_else(|| "Amazon".to_owned())
    }
}

// The store would print what it signs requests with.
impl std::fmt::Debug for Bucket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bucket").field("url", &self.url).field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        // A runtime that is waited for may not be dropped by a thread of another.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Whether a root is an address of a bucket.
pub(crate) fn is_address(root: &Path) -> bool {
    root.to_str().is_some_and(|root| root.starts_with(SCHEME))
}

impl Bucket {
    /// The objects below `s3://BUCKET/PREFIX`, as the variables of the AWS tools say where they are and who asks.
    ///
    /// # Errors
    /// [`DatasetError::Refused`] where that is no address, [`DatasetError::Machine`] where the variables make no sense,
    /// [`DatasetError::Remote`] where the bucket cannot be listed.
    pub(crate) fn open(address: &Path) -> Result<Self, DatasetError> {
        let wrong = || DatasetError::Refused {
            problem: format!(
                "{} is no address of a bucket; write s3://BUCKET or s3://BUCKET/PREFIX",
                address.display()
            ),
        };
        let rest = address.to_str().and_then(|text| text.strip_prefix(SCHEME)).ok_or_else(wrong)?;
        let (name, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || "-._".contains(letter);
        if name.is_empty() || !name.chars().all(is_name) {
            return Err(wrong());
        }
        let prefix = Key::parse(prefix).map_err(|_| wrong())?;
        let (store, place) = connected(name)?;
        // Who reads waits for this thread, and it for the network: one has time for all.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("objects")
            .enable_all()
            .build()
            .map_err(|error| DatasetError::Machine(error.into()))?;
        let bucket = Self {
            url: format!("{SCHEME}{name}"),
            prefix,
            store: Arc::new(store),
            place: Arc::new(place),
            runtime: Some(runtime),
        };
        bucket.first_object()?;
        Ok(bucket)
    }

    /// What paths of its objects begin with.
    pub(crate) fn root(&self) -> PathBuf {
        match self.prefix.as_ref() {
            "" => PathBuf::from(&self.url),
            prefix => PathBuf::from(&self.url).join(prefix),
        }
    }

    /// Waits for a request, which runs elsewhere.
    fn wait<T: Send + 'static>(&self, request: impl Future<Output = T> + Send + 'static) -> Result<T, DatasetError> {
        let ended = || DatasetError::Machine("the thread that asks object stores has ended".into());
        let runtime = self.runtime.as_ref().ok_or_else(ended)?;
        let (sender, receiver) = mpsc::sync_channel(1);
        runtime.spawn(async move {
            let _ = sender.send(request.await);
        });
        receiver.recv().map_err(|_| ended())
    }

    /// Whether it can be listed at all.
    fn first_object(&self) -> Result<(), DatasetError> {
        let (store, prefix) = (self.store.clone(), self.prefix.clone());
        let first = self.wait(async move { store.list(Some(&prefix)).next().await })?;
        first.transpose().map(drop).map_err(|error| self.failed(&self.root(), error))
    }

    fn failed(&self, path: &Path, error: object_store::Error) -> DatasetError {
        RemoteError::new(&self.place, path, error).into()
    }

    /// The key of an object by its path; `None` where there can be none of that name.
    fn key_of(&self, path: &Path) -> Option<Key> {
        let key = path.to_str()?.strip_prefix(&self.url)?.strip_prefix('/')?;
        Key::parse(key).ok()
    }

    fn path_of(&self, key: &Key) -> PathBuf {
        PathBuf::from(format!("{}{DELIMITER}{key}", self.url))
    }

    fn seen(&self, found: &ObjectMeta) -> SeenFile {
        let modified = found.last_modified.timestamp_nanos_opt().unwrap_or_default();
        let tag = found.e_tag.clone();
        let state = [tag.as_deref().unwrap_or_default().as_bytes(), &modified.to_le_bytes(), &found.size.to_le_bytes()];
        // When an object came says nothing of when it was made: an index may have been sent before its file.
        SeenFile { path: self.path_of(&found.location), bytes: found.size, modified: None, state: state.concat(), tag }
    }

    /// Every key below the prefix, relative to it, sorted.
    pub(crate) fn names(&self) -> Result<Vec<String>, DatasetError> {
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
        let mut names = self.wait(request)?.map_err(|error| self.failed(&self.root(), error))?;
        names.sort_unstable();
        Ok(names)
    }

    /// An object and the first that there is of some indexes, or where `is_directory` those that lie below; `None` where there is
    /// neither.
    pub(crate) fn find(
        &self,
        path: &Path,
        indexes: &[PathBuf],
        is_directory: bool,
    ) -> Result<Option<Seen>, DatasetError> {
        let Some(key) = self.key_of(path) else { return Ok(None) };
        let keys: Vec<Key> = std::iter::once(Some(key.clone()))
            .chain(indexes.iter().map(|index| self.key_of(index)))
            .flatten()
            .collect();
        let store = self.store.clone();
        let request = async move { future::join_all(keys.iter().map(|key| store.head(key))).await };
        let mut found = Vec::new();
        for answer in self.wait(request)? {
            found.push(match answer {
                Ok(found) => Some(self.seen(&found)),
                Err(object_store::Error::NotFound { .. }) => None,
                Err(error) => return Err(self.failed(path, error)),
            });
        }
        let mut found = found.into_iter();
        match found.next().flatten() {
            Some(file) => Ok(Some(Seen::new(path, vec![file], found.flatten().next(), &[]))),
            None if is_directory => self.find_below(path, key),
            None => Ok(None),
        }
    }

    /// The objects that lie right below a path.
    fn find_below(&self, path: &Path, key: Key) -> Result<Option<Seen>, DatasetError> {
        let store = self.store.clone();
        let listed = self.wait(async move { store.list_with_delimiter(Some(&key)).await })?;
        let mut objects = listed.map_err(|error| self.failed(path, error))?.objects;
        objects.sort_unstable_by(|one, other| one.location.cmp(&other.location));
        let files: Vec<SeenFile> = objects.iter().map(|found| self.seen(found)).collect();
        Ok((!files.is_empty()).then(|| Seen::new(path, files, None, &[])))
    }

    /// An object as it was when it was looked at.
    pub(crate) fn object(self: &Arc<Self>, file: &SeenFile) -> Result<Object, DatasetError> {
        let key = self.key_of(&file.path);
        let key = key.ok_or_else(|| DatasetError::NotFound { name: file.path.display().to_string() })?;
        Ok(Object::new(self.clone(), key, file))
    }

    /// The address of an object as it was when it was looked at, for engines that read it through [`Bucket::pinned`].
    pub(crate) fn pinned_url(&self, file: &SeenFile) -> Option<String> {
        Some(pinned::url_of(&self.key_of(&file.path)?, file.tag.as_deref()))
    }

    /// What engines read objects through that have addresses of [`Bucket::pinned_url`]: the start of these, and the store.
    pub(crate) fn pinned(&self) -> (&'static str, Arc<dyn ObjectStore>) {
        let store = Pinned::new(self.store.clone(), self.place.clone(), self.url.clone());
        (pinned::START, Arc::new(store))
    }
}

/// What the variables of the AWS tools say; those that are empty say nothing.
fn settings() -> impl Iterator<Item = (AmazonS3ConfigKey, String)> {
    std::env::vars_os().filter_map(|(name, value)| {
        let name = name.to_str().filter(|name| name.starts_with("AWS_"))?.to_ascii_lowercase();
        let value = value.into_string().ok().filter(|value| !value.is_empty())?;
        Some((name.parse().ok()?, value))
    })
}

/// A client of a bucket, as the environment has it.
fn connected(name: &str) -> Result<(AmazonS3, BucketPlace), DatasetError> {
    let wrong = |problem: String| DatasetError::Machine(problem.into());
    let backoff = BackoffConfig { init_backoff: FIRST_PAUSE, max_backoff: LONGEST_PAUSE, ..BackoffConfig::default() };
    let retry = RetryConfig { backoff, max_retries: RETRIES, retry_timeout: RETRY_TIME };
    let mut builder = AmazonS3Builder::new();
    for (key, value) in settings() {
        builder = builder.with_config(key, value);
    }
    builder = builder.with_bucket_name(name).with_retry(retry);
    let set = |builder: &AmazonS3Builder, key| builder.get_config_value(&key);
    let endpoint = set(&builder, AmazonS3ConfigKey::S3Endpoint).or_else(|| set(&builder, AmazonS3ConfigKey::Endpoint));
    let allow_http = set(&builder, AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp));
    if let Some(endpoint) = endpoint.as_ref().filter(|endpoint| !endpoint.starts_with("https://")) {
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
    // Asking a machine in the cloud for its own role takes long wherever there is none: only where it is said.
    let is_said = settings().any(|(key, _)| matches!(key, AmazonS3ConfigKey::SkipSignature));
    if !has_credentials && !is_said {
        builder = builder.with_skip_signature(true);
    }
    let is_anonymous = set(&builder, AmazonS3ConfigKey::SkipSignature).is_some_and(|value| value == "true");
    let place = BucketPlace { name: name.to_owned(), endpoint, is_anonymous };
    let store = builder.build().map_err(|error| {
        wrong(format!("the AWS_ variables do not say how to reach the object store: {}", error::without_kind(&error)))
    })?;
    Ok((store, place))
}
