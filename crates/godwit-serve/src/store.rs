//! Where files are: below a directory of this machine, or in a bucket.
//!
//! Flows in: the path of a dataset, and what may lie beside it. Flows out: the files that it consists of as they are now, and their bytes at
//! any place.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use godwit_flight::DatasetError;
use godwit_formats::bgzf::{Reader, open_text_of};
use godwit_formats::crypt4gh::{self, ENDING};
use godwit_formats::random_access::{LocalFile, RandomAccess};
use xxhash_rust::xxh3::xxh3_64;

use crate::batches::blamed;
use crate::bucket::Bucket;
use crate::root::{CannotRead, cannot_open};

/// Bytes of a list of files, at most.
const MAX_SMALL_BYTES: usize = 64 << 20;

/// A file, as it was when it was looked at.
#[derive(Clone, Debug)]
pub(crate) struct SeenFile {
    pub(crate) path: PathBuf,
    /// Its length.
    pub(crate) bytes: u64,
    /// When it was written, where that can be compared with when another was.
    pub(crate) modified: Option<SystemTime>,
    /// Not the same for two states of it.
    pub(crate) state: Vec<u8>,
    /// What its store calls this state.
    pub(crate) tag: Option<String>,
}

/// What lies at a path, as it was when it was looked at.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) path: PathBuf,
    /// The file; or, of a directory, all files right in it, by name.
    pub(crate) files: Vec<SeenFile>,
    /// Whether it is a directory.
    pub(crate) is_directory: bool,
    /// The index beside it.
    pub(crate) index: Option<SeenFile>,
    /// A number for the state of all of it.
    pub(crate) version: u64,
}

impl Seen {
    /// A file, or the files of a directory, the state of the directory itself, and an index.
    pub(crate) fn new(path: &Path, files: Vec<SeenFile>, index: Option<SeenFile>, state: &[u8]) -> Self {
        let mut bytes = state.to_vec();
        for file in files.iter().chain(&index) {
            bytes.extend_from_slice(&file.state);
        }
        let is_directory = files.first().is_none_or(|first| first.path != path);
        Self { path: path.to_owned(), files, is_directory, index, version: xxh3_64(&bytes) }
    }

    /// Bytes of its files.
    pub(crate) fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// The one file that it is.
    ///
    /// # Errors
    /// [`DatasetError::NotFound`] for a directory.
    pub(crate) fn file(&self) -> Result<&SeenFile, DatasetError> {
        let none = || DatasetError::NotFound { name: self.path.display().to_string() };
        self.files.first().filter(|_| !self.is_directory).ok_or_else(none)
    }
}

/// Where files are.
#[derive(Clone, Debug)]
pub(crate) enum Store {
    /// On this machine.
    Here,
    /// In a bucket.
    Bucket(Arc<Bucket>),
}

impl Store {
    /// What lies at a path: a file with the first that there is of some indexes, or where `or_directory` a directory.
    ///
    /// # Errors
    /// [`DatasetError`]; `None` where there is nothing of the kind.
    pub(crate) fn find(
        &self,
        path: &Path,
        index_endings: &[&str],
        or_directory: bool,
    ) -> Result<Option<Seen>, DatasetError> {
        let indexes: Vec<PathBuf> = index_paths(path, index_endings).collect();
        match self {
            Self::Here => find_here(path, &indexes, or_directory),
            Self::Bucket(bucket) => bucket.find(path, &indexes, or_directory),
        }
    }

    /// Opens a file.
    ///
    /// # Errors
    /// [`DatasetError`].
    pub(crate) fn open(&self, file: &SeenFile) -> Result<Arc<dyn RandomAccess>, DatasetError> {
        let source: Arc<dyn RandomAccess> = match self {
            Self::Here => Arc::new(LocalFile::open(&file.path).map_err(|source| cannot_open(&file.path, source))?),
            Self::Bucket(bucket) => Arc::new(bucket.object(file)?),
        };
        if !is_encrypted(&file.path) {
            return Ok(source);
        }
        crypt4gh::open(source).map_err(|source| blamed(CannotRead { path: file.path.clone(), source }))
    }

    /// Opens a file of text, plain or packed, to be read from front to back.
    ///
    /// # Errors
    /// [`DatasetError`].
    pub(crate) fn open_text(&self, file: &SeenFile) -> Result<Reader, DatasetError> {
        open_text_of(&self.open(file)?, 1).map_err(blamed)
    }

    /// The whole of a small file of text.
    ///
    /// # Errors
    /// [`DatasetError`].
    pub(crate) fn read_small(&self, file: &SeenFile) -> Result<String, DatasetError> {
        let source = self.open(file)?;
        let mut bytes = vec![0; usize::try_from(source.bytes()).unwrap_or(usize::MAX).min(MAX_SMALL_BYTES)];
        let count = source.read_at(&mut bytes, 0).map_err(blamed)?;
        bytes.truncate(count);
        String::from_utf8(bytes).map_err(|error| DatasetError::Data(error.into()))
    }

    /// The address of a file for an engine that reads it by itself; `None` where its path is enough.
    pub(crate) fn engine_url(&self, file: &SeenFile) -> Option<String> {
        match self {
            Self::Here => None,
            Self::Bucket(bucket) => bucket.pinned_url(file),
        }
    }
}

/// Whether a file is encrypted, by its name.
fn is_encrypted(path: &Path) -> bool {
    let name = path.as_os_str().as_encoded_bytes();
    let ending = name.len().checked_sub(ENDING.len()).map(|at| &name[at..]);
    ending.is_some_and(|ending| ending.eq_ignore_ascii_case(ENDING.as_bytes()))
}

/// Where the index of a file may be: `a.bam.bai`, or `a.bai`.
fn index_paths<'a>(path: &'a Path, endings: &'a [&str]) -> impl Iterator<Item = PathBuf> + 'a {
    let appended = endings.iter().map(|ending| path.with_added_extension(ending));
    appended.chain(endings.iter().map(|ending| path.with_extension(ending)))
}

fn seen_here(path: &Path, metadata: &Metadata) -> SeenFile {
    SeenFile {
        path: path.to_owned(),
        bytes: metadata.len(),
        modified: metadata.modified().ok(),
        state: state_of(metadata),
        tag: None,
    }
}

/// Which file, when it was written, and how long it is.
fn state_of(metadata: &Metadata) -> Vec<u8> {
    let numbers = [metadata.ino() as i64, metadata.mtime(), metadata.mtime_nsec(), metadata.len() as i64];
    numbers.into_iter().flat_map(i64::to_le_bytes).collect()
}

fn find_here(path: &Path, indexes: &[PathBuf], or_directory: bool) -> Result<Option<Seen>, DatasetError> {
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(cannot_open(path, error)),
    };
    if metadata.is_file() {
        let file_at =
            |path: &PathBuf| fs::metadata(path).ok().filter(Metadata::is_file).map(|found| seen_here(path, &found));
        let index = indexes.iter().find_map(file_at);
        return Ok(Some(Seen::new(path, vec![seen_here(path, &metadata)], index, &[])));
    }
    if !metadata.is_dir() || !or_directory {
        return Ok(None);
    }
    let entries = fs::read_dir(path).map_err(|source| cannot_open(path, source))?;
    let seen = entries.flatten().filter_map(|entry| {
        let found = fs::metadata(entry.path()).ok()?;
        Some(seen_here(&entry.path(), &found))
    });
    let mut files: Vec<SeenFile> = seen.collect();
    files.sort_unstable_by(|one, other| one.path.cmp(&other.path));
    Ok(Some(Seen::new(path, files, None, &state_of(&metadata))))
}
