//! The catalog of the datasets below a local directory, or below a prefix of a bucket.

use std::collections::BTreeSet;
use std::collections::HashMap;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use arrow_schema::SchemaRef;
use godwit_dataset::{Catalog, Dataset, DatasetError, DatasetWriter, PutRequest, TEMPORARY_DIRECTORY, read_only_error};
use godwit_delta::ReferenceStore;
use godwit_formats::file_format::FileFormat;
use godwit_formats::intervals::IntervalFormat;
use godwit_io::crypt4gh;
use parking_lot::Mutex;

use crate::bam_dataset::{self, BamDataset};
use crate::bbi_dataset::BbiDataset;
use crate::bucket::{self, Bucket};
use crate::file_snapshot::{DatasetSnapshot, FileSnapshot};
use crate::file_store::FileStore;
use crate::gwp_dataset::GwpDataset;
use crate::listing::{EntryClassifier, Listing, MAX_DEPTH, SkippedEntry};
use crate::puts::{PutDirectories, PutDirectory, TemporaryDatasets};
use crate::read_error::file_read_error;
use crate::sam_cram_dataset::{CramOptions, ReadsFormat, SamCramDataset};
use crate::table_datasets::{ArrowDataset, CsvDataset, ParquetDataset};
use crate::unfinished_job_dataset::{self, UnfinishedJobDataset, UnfinishedJobs};
use crate::unindexed_dataset::{UnindexedDataset, UnindexedFormat};
use crate::vcf_dataset::{self, VcfDataset};

/// Maximum number of datasets that are kept open, with their headers and indexes.
const MAX_OPEN_DATASETS: usize = 256;
/// Extension that is added to the name of a put dataset if the client omits it.
const PUT_EXTENSION: &str = ".parquet";
/// Maximum number of attempts to open a dataset whose files change at the same time.
const MAX_OPEN_ATTEMPTS: usize = 3;

/// Format of a file: derived from its name in listings, and from its content when the dataset is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DatasetFormat {
    Bam,
    Sam,
    Cram,
    Vcf,
    Parquet,
    Arrow,
    /// Comma- or tab-separated values; the field is the delimiter.
    Csv(u8),
    Unindexed(UnindexedFormat),
    /// A genome in godwit's packed format (gwp).
    Gwp,
    /// bigWig or bigBed.
    Bbi,
}

impl DatasetFormat {
    fn from_name(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        // An encrypted file is a dataset only if this process has keys and itself reads the format inside.
        if let Some(inner) = name.strip_suffix(crypt4gh::FILE_SUFFIX) {
            return if crypt4gh::has_process_keys() {
                Self::from_name(inner).filter(|format| format.is_read_in_process())
            } else {
                None
            };
        }
        let is = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
        if is(&[".bam"]) {
            Some(Self::Bam)
        } else if is(&[".sam", ".sam.gz"]) {
            Some(Self::Sam)
        } else if is(&[".cram"]) {
            Some(Self::Cram)
        } else if is(&[".vcf", ".vcf.gz", ".vcf.bgz", ".bcf"]) {
            Some(Self::Vcf)
        } else if is(&[".gwp"]) {
            Some(Self::Gwp)
        } else if is(&[".bw", ".bigwig", ".bb", ".bigbed"]) {
            Some(Self::Bbi)
        } else if is(&[".parquet"]) {
            Some(Self::Parquet)
        } else if is(&[".arrow", ".arrows", ".feather"]) {
            Some(Self::Arrow)
        } else {
            let name = name.strip_suffix(".gz").or_else(|| name.strip_suffix(".bgz")).unwrap_or(&name);
            let is = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
            if is(&[".fa", ".fasta", ".fna"]) {
                Some(Self::Unindexed(UnindexedFormat::Fasta))
            } else if is(&[".fq", ".fastq"]) {
                Some(Self::Unindexed(UnindexedFormat::Fastq))
            } else if is(&[".bed"]) {
                Some(Self::Unindexed(UnindexedFormat::Intervals(IntervalFormat::Bed)))
            } else if is(&[".gff", ".gff3", ".gtf"]) {
                Some(Self::Unindexed(UnindexedFormat::Intervals(IntervalFormat::Gff)))
            } else if is(&[".chain"]) {
                Some(Self::Unindexed(UnindexedFormat::Chain))
            } else if is(&[".csv"]) {
                Some(Self::Csv(b','))
            } else if is(&[".tsv"]) {
                Some(Self::Csv(b'\t'))
            } else {
                None
            }
        }
    }

    /// Returns whether this process itself reads the format, so that it can also read encrypted files of it.
    fn is_read_in_process(self) -> bool {
        !matches!(self, Self::Cram | Self::Parquet | Self::Gwp)
    }

    /// Returns the file name extensions of the indexes that belong to this format.
    fn index_extensions(self) -> &'static [&'static str] {
        match self {
            Self::Bam => &bam_dataset::INDEX_EXTENSIONS,
            Self::Vcf => &vcf_dataset::INDEX_EXTENSIONS,
            Self::Cram => &["crai"],
            Self::Sam | Self::Parquet | Self::Arrow | Self::Csv(_) | Self::Unindexed(_) | Self::Gwp | Self::Bbi => &[],
        }
    }

    /// Returns whether a directory with the extension of this format is a dataset that consists of its files.
    fn may_be_directory(self) -> bool {
        matches!(self, Self::Parquet | Self::Arrow)
    }
}

impl DatasetFormat {
    /// Returns the format that the content of the file shows. If the content shows none, returns the format of the
    /// name: some text formats have no magic bytes.
    fn refine_by_content(self, content: Option<FileFormat>) -> Self {
        let is_table =
            matches!(self, Self::Csv(_) | Self::Unindexed(UnindexedFormat::Intervals(_) | UnindexedFormat::Chain));
        match content {
            Some(FileFormat::Bam) => Self::Bam,
            Some(FileFormat::Cram) => Self::Cram,
            Some(FileFormat::VcfOrBcf) => Self::Vcf,
            Some(FileFormat::Parquet) => Self::Parquet,
            Some(FileFormat::Arrow) => Self::Arrow,
            Some(FileFormat::Gwp) => Self::Gwp,
            Some(FileFormat::Bbi) => Self::Bbi,
            // A table may look like one of these formats: BED with twelve columns looks like SAM without a header.
            Some(FileFormat::Sam) if !is_table => Self::Sam,
            Some(FileFormat::Fasta) if !is_table => Self::Unindexed(UnindexedFormat::Fasta),
            Some(FileFormat::Fastq) if !is_table => Self::Unindexed(UnindexedFormat::Fastq),
            _ => self,
        }
    }
}

/// A dataset that htsget can serve: a single file of a suitable format, in its current state.
#[derive(Debug)]
pub(crate) struct HtsgetFile {
    /// Canonical name of the dataset, to which the policy applies.
    pub(crate) name: String,
    pub(crate) format: HtsgetFormat,
    pub(crate) snapshot: DatasetSnapshot,
}

/// Format of a file that htsget can serve, as its content shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HtsgetFormat {
    Bam,
    Cram,
    /// VCF or BCF, which share their data model and their indexes.
    Vcf,
}

/// The datasets below a directory, or below a prefix of a bucket. The name of a dataset is its path below the root,
/// with `/` between components. Names with a component that begins with a dot are hidden.
///
/// Symbolic links are followed, also to targets outside the root. A user who may create a link below the root could
/// also copy the data there.
#[derive(Debug)]
pub struct DatasetRoot {
    store: FileStore,
    directory: PathBuf,
    /// Path of the directory that contains temporary datasets, which are removed when the server exits.
    temporary_directory: Option<PathBuf>,
    put_directories: Option<PutDirectories>,
    unfinished_jobs: Option<Arc<dyn UnfinishedJobs>>,
    cram_options: CramOptions,
    /// References with which packed genomes are decoded.
    references: Arc<ReferenceStore>,
    open_datasets: Mutex<HashMap<String, Arc<dyn Dataset>>>,
    /// Format of each file as its content shows it, by path, with the fingerprint of the file in that state.
    formats_by_content: Mutex<HashMap<PathBuf, (Vec<u8>, DatasetFormat)>>,
}

impl DatasetRoot {
    /// Opens the catalog of the datasets below a directory, or below `s3://BUCKET/PREFIX`.
    ///
    /// # Errors
    /// [`DatasetError::Local`] if `root` is not a readable directory; [`DatasetError::Remote`] if the bucket cannot be
    /// listed.
    pub fn new(root: &Path, cram_options: CramOptions) -> Result<Self, DatasetError> {
        let (store, directory) = if Self::is_bucket_url(root) {
            let bucket = Arc::new(Bucket::open(root)?);
            let directory = bucket.root();
            (FileStore::Bucket(bucket), directory)
        } else {
            fs::read_dir(root).map_err(|source| file_read_error(root, source))?;
            (FileStore::Local, root.to_owned())
        };
        Ok(Self {
            store,
            directory,
            temporary_directory: None,
            put_directories: None,
            unfinished_jobs: None,
            cram_options,
            references: Arc::new(ReferenceStore::new(Vec::new(), 1)),
            open_datasets: Mutex::default(),
            formats_by_content: Mutex::default(),
        })
    }

    /// Returns whether `root` is the URL of a bucket, whose datasets are read-only, and not a directory.
    pub fn is_bucket_url(root: &Path) -> bool {
        bucket::is_bucket_url(root)
    }

    /// Returns the object store for the URLs of [`Dataset::parquet_urls`], and their prefix; `None` for a local root.
    pub fn object_store(&self) -> Option<(&'static str, Arc<dyn object_store::ObjectStore>)> {
        match &self.store {
            FileStore::Local => None,
            FileStore::Bucket(bucket) => Some(bucket.pinned_store()),
        }
    }

    /// Adds the temporary datasets of the server, which are in `directory`, to the catalog.
    #[must_use]
    pub fn with_temporary_directory(self, directory: &Path) -> Self {
        Self { temporary_directory: Some(directory.to_owned()), ..self }
    }

    /// Adds the unfinished jobs below the root to the catalog, as datasets.
    #[must_use]
    pub fn with_unfinished_jobs(self, runs: Arc<dyn UnfinishedJobs>) -> Self {
        Self { unfinished_jobs: Some(runs), ..self }
    }

    /// Sets the references with which packed genomes are decoded.
    #[must_use]
    pub fn with_references(self, references: ReferenceStore) -> Self {
        Self { references: Arc::new(references), ..self }
    }

    /// Returns the dataset name and the path of each FASTA file below a local root; empty for a bucket.
    ///
    /// # Errors
    /// [`DatasetError::Local`] if the root directory cannot be read.
    pub(crate) fn fasta_files(&self) -> Result<Vec<(String, PathBuf)>, DatasetError> {
        if !matches!(self.store, FileStore::Local) {
            return Ok(Vec::new());
        }
        let is_fasta =
            |name: &String| DatasetFormat::from_name(name) == Some(DatasetFormat::Unindexed(UnindexedFormat::Fasta));
        let names = self.names()?.into_iter().filter(is_fasta);
        names.map(|name| self.path_of(&name).map(|path| (name, path))).collect()
    }

    /// Allows clients to put datasets (DoPut) and to remove those that were put. Temporary datasets stay in memory up
    /// to a total of `memory_bytes`.
    ///
    /// # Errors
    /// [`DatasetError::Local`] if the root directory is not writable, [`DatasetError::InvalidRequest`] if an entry in
    /// it has the name that is reserved for temporary datasets.
    pub fn with_put_directories(self, temporary: &TemporaryDatasets, memory_bytes: u64) -> Result<Self, DatasetError> {
        let taken = self.directory.join(TEMPORARY_DIRECTORY);
        if taken.exists() {
            let problem = format!(
                "{} exists, but {TEMPORARY_DIRECTORY}/ is reserved for temporary datasets; rename it",
                taken.display()
            );
            return Err(DatasetError::InvalidRequest { problem });
        }
        let shelves = PutDirectories::new(&self.directory, temporary, memory_bytes)?;
        Ok(Self { put_directories: Some(shelves), ..self.with_temporary_directory(temporary.directory()) })
    }

    /// Returns the path of a dataset, which is below the root or below the directory of temporary datasets.
    fn path_of(&self, name: &str) -> Result<PathBuf, DatasetError> {
        let (directory, name) = match (&self.temporary_directory, name.split_once('/')) {
            (Some(temporary), Some((TEMPORARY_DIRECTORY, name))) => (temporary, name),
            _ => (&self.directory, name),
        };
        relative_path(name).map(|path| directory.join(path))
    }

    /// Returns the location for a put dataset: the put directory, the path below it, and the name of the dataset.
    fn put_target(&self, name: &str, temporary: bool) -> Result<(&Arc<PutDirectory>, PathBuf, String), DatasetError> {
        let shelves = self.put_directories.as_ref().ok_or_else(read_only_error)?;
        let refused = |problem: String| DatasetError::InvalidRequest { problem };
        let (temporary, name) = match name.split_once('/') {
            Some((TEMPORARY_DIRECTORY, rest)) => (true, rest),
            _ => (temporary, name),
        };
        let name = match DatasetFormat::from_name(name) {
            Some(DatasetFormat::Parquet) => name.to_owned(),
            other if other.is_some() || is_unfinished_job_name(name) => {
                let problem =
                    format!("{name} is stored as Parquet: use a name that ends with .parquet, or has no extension");
                return Err(refused(problem));
            }
            _ => format!("{name}{PUT_EXTENSION}"),
        };
        let path = relative_path(&name).map_err(|_| {
            refused(format!("{name:?} is not a valid dataset name: write a path without . and .. and hidden parts"))
        })?;
        if path
            .ancestors()
            .skip(1)
            .any(|above| above.to_str().is_some_and(|above| DatasetFormat::from_name(above).is_some()))
        {
            return Err(refused(format!("{name} is below the directory of another dataset; use another name")));
        }
        let (path, name) = (path.to_owned(), path.components().collect::<PathBuf>().to_string_lossy().into_owned());
        Ok(match temporary {
            true => (&shelves.temporary, path, format!("{TEMPORARY_DIRECTORY}/{name}")),
            false => (&shelves.durable, path, name),
        })
    }

    /// Returns a snapshot of the dataset at a path, and its format.
    fn snapshot(
        &self,
        path: &Path,
        by_name: DatasetFormat,
        name: &str,
    ) -> Result<(DatasetSnapshot, DatasetFormat), DatasetError> {
        let find = |format: DatasetFormat| {
            let found = self.store.snapshot(path, format.index_extensions(), format.may_be_directory())?;
            found.ok_or_else(|| DatasetError::NotFound { name: name.to_owned() })
        };
        let seen = find(by_name)?;
        let Ok(file) = seen.single_file() else { return Ok((seen, by_name)) };
        let format = self.detect_format(file, by_name)?;
        // If the format differs from that of the name, the index may have another extension: take the snapshot again.
        let seen = if format.index_extensions() == by_name.index_extensions() { seen } else { find(format)? };
        Ok((seen, format))
    }

    /// Returns the format that the content of a file shows. The content is read only once for each state of the file.
    fn detect_format(&self, file: &FileSnapshot, by_name: DatasetFormat) -> Result<DatasetFormat, DatasetError> {
        let known = || self.formats_by_content.lock();
        if let Some((_, format)) = known().get(&file.path).filter(|(state, _)| *state == file.fingerprint) {
            return Ok(*format);
        }
        let source = self.store.open(file)?;
        let content = FileFormat::detect(&*source).map_err(|source| file_read_error(&file.path, source))?;
        let by_content = by_name.refine_by_content(content);
        let format = if source.is_decrypted() && !by_content.is_read_in_process() { by_name } else { by_content };
        let mut known = known();
        if known.len() >= MAX_OPEN_DATASETS {
            known.clear();
        }
        known.insert(file.path.clone(), (file.fingerprint.clone(), format));
        Ok(format)
    }

    pub(crate) fn store(&self) -> &FileStore {
        &self.store
    }

    /// Returns the file of a dataset if htsget can serve it.
    ///
    /// # Errors
    /// [`DatasetError::NotFound`] if it does not exist or has another format; other errors if it cannot be read.
    pub(crate) fn htsget_file(&self, name: &str) -> Result<HtsgetFile, DatasetError> {
        let not_found = || DatasetError::NotFound { name: name.to_owned() };
        let canonical = self.canonical_name(name)?;
        let by_name = DatasetFormat::from_name(&canonical).ok_or_else(not_found)?;
        let (snapshot, format) = self.snapshot(&self.path_of(&canonical)?, by_name, name)?;
        let format = match format {
            DatasetFormat::Bam => HtsgetFormat::Bam,
            DatasetFormat::Cram => HtsgetFormat::Cram,
            DatasetFormat::Vcf => HtsgetFormat::Vcf,
            _ => return Err(not_found()),
        };
        Ok(HtsgetFile { name: canonical, format, snapshot })
    }

    /// Opens an unfinished job as a dataset. `path` is its job directory plus the name of the dataset, which is not an
    /// existing file.
    fn open_unfinished_job(&self, path: &Path, name: &str) -> Result<Arc<dyn Dataset>, DatasetError> {
        let not_found = || DatasetError::NotFound { name: name.to_owned() };
        let (runs, directory) = self.unfinished_jobs.as_ref().zip(path.parent()).ok_or_else(not_found)?;
        let found = runs.dataset_name_in(directory).ok_or_else(not_found)?;
        let is_it =
            path.file_name().is_some_and(|file| *file == *format!("{found}{}", unfinished_job_dataset::DATASET_SUFFIX));
        if !is_it {
            return Err(not_found());
        }
        Ok(Arc::new(UnfinishedJobDataset::open(runs.open(directory)?)?))
    }

    fn open_dataset(&self, seen: &DatasetSnapshot, format: DatasetFormat) -> Result<Arc<dyn Dataset>, DatasetError> {
        let store = &self.store;
        Ok(match format {
            DatasetFormat::Bam => Arc::new(BamDataset::open(store, seen)?),
            DatasetFormat::Sam => Arc::new(SamCramDataset::open(store, seen, ReadsFormat::Sam)?),
            DatasetFormat::Cram if !matches!(store, FileStore::Local) => {
                let problem = format!(
                    "{} is CRAM, which is only served from a local directory, not from a bucket; download it",
                    seen.path.display()
                );
                return Err(DatasetError::InvalidRequest { problem });
            }
            DatasetFormat::Cram => {
                Arc::new(SamCramDataset::open(store, seen, ReadsFormat::Cram(self.cram_options.clone()))?)
            }
            DatasetFormat::Vcf => Arc::new(VcfDataset::open(store, seen)?),
            DatasetFormat::Parquet => Arc::new(ParquetDataset::open(store, seen)?),
            DatasetFormat::Arrow => Arc::new(ArrowDataset::open(store, seen)?),
            DatasetFormat::Bbi => Arc::new(BbiDataset::open(store, seen)?),
            DatasetFormat::Csv(delimiter) => Arc::new(CsvDataset::open(store, seen, delimiter)?),
            DatasetFormat::Gwp if !matches!(store, FileStore::Local) => {
                let problem = format!(
                    "{} is a packed genome, which is only served from a local directory, not from a bucket; download \
                     it",
                    seen.path.display()
                );
                return Err(DatasetError::InvalidRequest { problem });
            }
            DatasetFormat::Gwp => Arc::new(GwpDataset::open(seen, &self.references, || {
                Ok(self.fasta_files()?.into_iter().map(|(_, path)| path).collect())
            })?),
            DatasetFormat::Unindexed(content) => Arc::new(UnindexedDataset::open(store, seen, content)?),
        })
    }

    /// Returns the number of datasets, and the entries that look like datasets or directories but are not served.
    ///
    /// # Errors
    /// [`DatasetError::Local`] if the root directory cannot be read, [`DatasetError::Remote`] if the bucket cannot be
    /// listed.
    pub fn count_datasets(&self) -> Result<(usize, Vec<SkippedEntry>), DatasetError> {
        match &self.store {
            FileStore::Bucket(bucket) => Ok((Self::bucket_names(bucket)?.len(), Vec::new())),
            FileStore::Local => self.listing().map(|listing| (listing.names.len(), listing.skipped)),
        }
    }

    /// Lists the datasets below a local root, and the temporary datasets.
    fn listing(&self) -> Result<Listing, DatasetError> {
        let mut listing = Listing::default();
        listing
            .walk(&self.directory, String::new(), self)
            .map_err(|source| file_read_error(&self.directory, source))?;
        if let Some(temporary) = &self.temporary_directory {
            // Ignore the error: the directory of temporary datasets does not exist any more if its server has exited.
            let _ = listing.walk(temporary, format!("{TEMPORARY_DIRECTORY}/"), self);
        }
        Ok(listing)
    }

    /// Returns the names of the datasets in a bucket.
    fn bucket_names(bucket: &Bucket) -> Result<Vec<String>, DatasetError> {
        let names: BTreeSet<String> =
            bucket.object_names()?.iter().filter_map(|key| dataset_of_key(key)).map(str::to_owned).collect();
        Ok(names.into_iter().collect())
    }
}

/// Returns whether a dataset name has the suffix of unfinished jobs.
fn is_unfinished_job_name(name: &str) -> bool {
    name.to_ascii_lowercase().ends_with(unfinished_job_dataset::DATASET_SUFFIX)
}

/// Returns the dataset to which an object belongs; `None` if it belongs to none. `key`: its key below the prefix.
fn dataset_of_key(key: &str) -> Option<&str> {
    let mut end = 0;
    for (depth, part) in key.split('/').enumerate() {
        let is_last = end + part.len() == key.len();
        if part.starts_with('.') || depth > MAX_DEPTH {
            return None;
        }
        end += part.len();
        match DatasetFormat::from_name(part) {
            // The libraries that decode these formats can only open local files.
            Some(DatasetFormat::Cram | DatasetFormat::Gwp) if is_last => return None,
            Some(format) if is_last || format.may_be_directory() => return Some(&key[..end]),
            _ => end += 1,
        }
    }
    None
}

/// Returns a dataset name as a relative path. Names with `..` or hidden components are rejected.
fn relative_path(name: &str) -> Result<&Path, DatasetError> {
    let path = Path::new(name);
    let is_plain = |part: Component| match part {
        Component::Normal(part) => !part.as_encoded_bytes().starts_with(b"."),
        _ => false,
    };
    let fine = !name.is_empty() && !name.contains('\0') && path.components().all(is_plain);
    if fine { Ok(path) } else { Err(DatasetError::NotFound { name: name.to_owned() }) }
}

impl EntryClassifier for DatasetRoot {
    fn classify_name(&self, name: &str) -> Option<bool> {
        DatasetFormat::from_name(name).map(|format| format.may_be_directory())
    }

    fn directory_dataset_name(&self, directory: &Path) -> Option<String> {
        let run = self.unfinished_jobs.as_ref().and_then(|runs| runs.dataset_name_in(directory))?;
        Some(format!("{run}{}", unfinished_job_dataset::DATASET_SUFFIX))
    }
}

impl Catalog for DatasetRoot {
    fn names(&self) -> Result<Vec<String>, DatasetError> {
        if let FileStore::Bucket(bucket) = &self.store {
            return Self::bucket_names(bucket);
        }
        let mut names = self.listing()?.names;
        names.sort_unstable();
        Ok(names)
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Dataset>, DatasetError> {
        let not_found = || DatasetError::NotFound { name: name.to_owned() };
        if is_unfinished_job_name(name) {
            return self.open_unfinished_job(&self.path_of(name)?, name);
        }
        let Some(by_name) = DatasetFormat::from_name(name) else {
            let whole = format!("{name}{PUT_EXTENSION}");
            return self.open(&whole).map_err(|error| match error {
                DatasetError::NotFound { .. } => not_found(),
                error => error,
            });
        };
        let path = self.path_of(name)?;
        let mut seen = self.snapshot(&path, by_name, name)?;
        let locked = || self.open_datasets.lock();
        for _ in 0..MAX_OPEN_ATTEMPTS {
            if let Some(found) = locked().get(name).filter(|found| found.version() == seen.0.version) {
                return Ok(found.clone());
            }
            let opened = self.open_dataset(&seen.0, seen.1);
            // If the files changed while the dataset was opened, it may be a mixture of two states. Open it again.
            let then = std::mem::replace(&mut seen, self.snapshot(&path, by_name, name)?);
            if then.0.version != seen.0.version {
                continue;
            }
            let dataset = opened?;
            let mut open = locked();
            if open.len() >= MAX_OPEN_DATASETS {
                open.clear();
            }
            open.insert(name.to_owned(), dataset.clone());
            return Ok(dataset);
        }
        Err(DatasetError::Changed { name: name.to_owned() })
    }

    /// Removes empty components and single dots from a dataset name, and adds the extension that a client may omit for
    /// put datasets. Rejects a path inside a directory that is itself a dataset.
    fn canonical_name(&self, name: &str) -> Result<String, DatasetError> {
        let not_found = || DatasetError::NotFound { name: name.to_owned() };
        let parts: Option<Vec<&str>> = relative_path(name)?.iter().map(|part| part.to_str()).collect();
        let parts = parts.ok_or_else(not_found)?;
        let (last, above) = parts.split_last().ok_or_else(not_found)?;
        if above.iter().any(|part| DatasetFormat::from_name(part).is_some_and(DatasetFormat::may_be_directory)) {
            return Err(not_found());
        }
        let ending =
            if is_unfinished_job_name(last) || DatasetFormat::from_name(last).is_some() { "" } else { PUT_EXTENSION };
        Ok(parts.join("/") + ending)
    }

    fn is_writable(&self) -> bool {
        self.put_directories.is_some()
    }

    fn open_writer(&self, put: &PutRequest, schema: SchemaRef) -> Result<Box<dyn DatasetWriter>, DatasetError> {
        let (put_directory, path, name) = self.put_target(&put.name, put.temporary)?;
        put_directory.create_writer(&path, name, put, schema)
    }

    fn remove(&self, name: &str) -> Result<(), DatasetError> {
        let (put_directory, path, name) = self.put_target(name, false)?;
        put_directory.remove_dataset(&path, &name)
    }
}
