//! A directory, and what is below it.

use std::collections::BTreeSet;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_schema::SchemaRef;
use godwit_flight::{Catalog, Dataset, DatasetError, DatasetWriter, Put, TEMPORARY, read_only};
use godwit_formats::content::FileContent;
use godwit_formats::crypt4gh;
use godwit_formats::intervals::IntervalFormat;
use godwit_transfer::References;

use crate::bucket::{self, Bucket};
use crate::listing::{Entries, Listing, MAX_DEPTH, SkippedEntry};
use crate::live::{self, LiveDataset, LiveRuns};
use crate::packed::PackedDataset;
use crate::puts::{Shelf, Shelves, Temporary};
use crate::reads::{self, BamDataset};
use crate::store::{Seen, SeenFile, Store};
use crate::streamed_reads::{CramAccess, Origin, StreamedReads};
use crate::tables::{ArrowDataset, CsvDataset, ParquetDataset};
use crate::variants::{self, VcfDataset};
use crate::whole_files::{Content, WholeFile};

/// Datasets that are kept open, with their headers and indexes.
const MAX_OPEN: usize = 256;
/// The format of a dataset whose name does not say it: what clients put is kept so.
const PUT_ENDING: &str = ".parquet";
/// How often a dataset is opened that changes while it is being opened.
const OPENED_AGAIN: usize = 3;

/// A file that cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}", path.display())]
pub(crate) struct CannotRead {
    pub(crate) path: PathBuf,
    #[source]
    pub(crate) source: io::Error,
}

pub(crate) fn cannot_open(path: &Path, source: io::Error) -> DatasetError {
    DatasetError::Machine(Box::new(CannotRead { path: path.to_owned(), source }))
}

/// The format of a file: by its name where it is listed, by its content where it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Bam,
    Sam,
    Cram,
    Vcf,
    Parquet,
    Arrow,
    /// With what is between its columns.
    Csv(u8),
    Whole(Content),
    /// A packed genome.
    Packed,
}

impl Format {
    fn of(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        // What nobody here has a key for is no dataset, nor what others than this program would have to read.
        if let Some(inner) = name.strip_suffix(crypt4gh::ENDING) {
            return if crypt4gh::has_keys() { Self::of(inner).filter(|format| format.is_read_here()) } else { None };
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
            Some(Self::Packed)
        } else if is(&[".parquet"]) {
            Some(Self::Parquet)
        } else if is(&[".arrow", ".arrows", ".feather"]) {
            Some(Self::Arrow)
        } else {
            let name = name.strip_suffix(".gz").or_else(|| name.strip_suffix(".bgz")).unwrap_or(&name);
            let is = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
            if is(&[".fa", ".fasta", ".fna"]) {
                Some(Self::Whole(Content::Fasta))
            } else if is(&[".fq", ".fastq"]) {
                Some(Self::Whole(Content::Fastq))
            } else if is(&[".bed"]) {
                Some(Self::Whole(Content::Intervals(IntervalFormat::Bed)))
            } else if is(&[".gff", ".gff3", ".gtf"]) {
                Some(Self::Whole(Content::Intervals(IntervalFormat::Gff)))
            } else if is(&[".csv"]) {
                Some(Self::Csv(b','))
            } else if is(&[".tsv"]) {
                Some(Self::Csv(b'\t'))
            } else {
                None
            }
        }
    }

    /// Returns whether this program reads the format itself, and so encrypted files of it, too.
    fn is_read_here(self) -> bool {
        !matches!(self, Self::Cram | Self::Parquet | Self::Packed)
    }

    /// Endings of its index.
    fn index_endings(self) -> &'static [&'static str] {
        match self {
            Self::Bam => &reads::INDEX_ENDINGS,
            Self::Vcf => &variants::INDEX_ENDINGS,
            Self::Cram => &["crai"],
            Self::Sam | Self::Parquet | Self::Arrow | Self::Csv(_) | Self::Whole(_) | Self::Packed => &[],
        }
    }

    /// Whether a directory of that name is one dataset, of the files in it.
    fn is_directory(self) -> bool {
        matches!(self, Self::Parquet | Self::Arrow)
    }
}

impl Format {
    /// The format of a file by its content, where that shows one: its name decides between formats of text that have no mark.
    fn by_content(self, content: Option<FileContent>) -> Self {
        let is_table = matches!(self, Self::Csv(_) | Self::Whole(Content::Intervals(_)));
        match content {
            Some(FileContent::Bam) => Self::Bam,
            Some(FileContent::Cram) => Self::Cram,
            Some(FileContent::Variants) => Self::Vcf,
            Some(FileContent::Parquet) => Self::Parquet,
            Some(FileContent::Arrow) => Self::Arrow,
            Some(FileContent::Packed) => Self::Packed,
            // Rows of a table may look like these: BED of twelve columns like SAM without a header.
            Some(FileContent::Sam) if !is_table => Self::Sam,
            Some(FileContent::Fasta) if !is_table => Self::Whole(Content::Fasta),
            Some(FileContent::Fastq) if !is_table => Self::Whole(Content::Fastq),
            _ => self,
        }
    }
}

/// A dataset that is one file of a format that others know, as it is now.
#[derive(Debug)]
pub(crate) struct OneFile {
    /// The name that rules are applied to.
    pub(crate) name: String,
    pub(crate) kind: FileKind,
    pub(crate) seen: Seen,
}

/// Its format, by its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    Bam,
    Cram,
    /// VCF or BCF.
    Vcf,
}

/// The datasets below a directory, or a prefix of a bucket. Names are paths below it, with `/` between their parts. What begins with a
/// dot is hidden.
///
/// Links are followed, wherever they lead: who may make one there may put the data there, too.
#[derive(Debug)]
pub struct Root {
    store: Store,
    directory: PathBuf,
    /// Where those are that end with the server.
    temporary: Option<PathBuf>,
    shelves: Option<Shelves>,
    runs: Option<Arc<dyn LiveRuns>>,
    cram: CramAccess,
    /// What genomes were packed with.
    references: Arc<References>,
    open: Mutex<HashMap<String, Arc<dyn Dataset>>>,
    /// Formats of files by their content, each for one state of its file.
    formats: Mutex<HashMap<PathBuf, (Vec<u8>, Format)>>,
}

impl Root {
    /// The datasets below a directory, or below `s3://BUCKET/PREFIX`.
    ///
    /// # Errors
    /// [`DatasetError::Machine`] where it is no directory, or cannot be read; [`DatasetError::Remote`] where the bucket cannot.
    pub fn new(root: &Path, cram: CramAccess) -> Result<Self, DatasetError> {
        let (store, directory) = if Self::is_elsewhere(root) {
            let bucket = Arc::new(Bucket::open(root)?);
            let directory = bucket.root();
            (Store::Bucket(bucket), directory)
        } else {
            fs::read_dir(root).map_err(|source| cannot_open(root, source))?;
            (Store::Here, root.to_owned())
        };
        Ok(Self {
            store,
            directory,
            temporary: None,
            shelves: None,
            runs: None,
            cram,
            references: Arc::new(References::new(Vec::new(), 1)),
            open: Mutex::default(),
            formats: Mutex::default(),
        })
    }

    /// Whether a root is the address of a bucket, of which datasets are only read.
    pub fn is_elsewhere(root: &Path) -> bool {
        bucket::is_address(root)
    }

    /// What an engine reads the files through that [`Dataset::parquet_urls`] tells, and how these begin; `None` where they are here.
    pub fn objects(&self) -> Option<(&'static str, Arc<dyn object_store::ObjectStore>)> {
        match &self.store {
            Store::Here => None,
            Store::Bucket(bucket) => Some(bucket.pinned()),
        }
    }

    /// With the datasets that end with a server, as it keeps them in a directory.
    #[must_use]
    pub fn with_temporary(self, directory: &Path) -> Self {
        Self { temporary: Some(directory.to_owned()), ..self }
    }

    /// With runs that are not over, which lie in directories of their own.
    #[must_use]
    pub fn with_runs(self, runs: Arc<dyn LiveRuns>) -> Self {
        Self { runs: Some(runs), ..self }
    }

    /// With references, by which packed genomes are unpacked.
    #[must_use]
    pub fn with_references(self, references: References) -> Self {
        Self { references: Arc::new(references), ..self }
    }

    /// FASTA files of this machine below the directory: their names and paths.
    ///
    /// # Errors
    /// [`DatasetError::Machine`].
    pub(crate) fn fasta_files(&self) -> Result<Vec<(String, PathBuf)>, DatasetError> {
        if !matches!(self.store, Store::Here) {
            return Ok(Vec::new());
        }
        let is_fasta = |name: &String| Format::of(name) == Some(Format::Whole(Content::Fasta));
        let names = self.names()?.into_iter().filter(is_fasta);
        names.map(|name| self.path_of(&name).map(|path| (name, path))).collect()
    }

    /// Lets clients put datasets, and remove what they put; temporary ones are in memory up to so many bytes.
    ///
    /// # Errors
    /// [`DatasetError::Machine`] where nothing can be written below the directory, [`DatasetError::Refused`] where a file in
    /// it has the name of what is temporary.
    pub fn writable(self, temporary: &Temporary, memory_bytes: u64) -> Result<Self, DatasetError> {
        let taken = self.directory.join(TEMPORARY);
        if taken.exists() {
            let problem = format!(
                "{} is in the way: the names of temporary datasets begin with {TEMPORARY}/; give it another name",
                taken.display()
            );
            return Err(DatasetError::Refused { problem });
        }
        let shelves = Shelves::new(&self.directory, temporary, memory_bytes)?;
        Ok(Self { shelves: Some(shelves), ..self.with_temporary(temporary.directory()) })
    }

    /// The path of a name, which is below the directory.
    fn path_of(&self, name: &str) -> Result<PathBuf, DatasetError> {
        let (directory, name) = match (&self.temporary, name.split_once('/')) {
            (Some(temporary), Some((TEMPORARY, name))) => (temporary, name),
            _ => (&self.directory, name),
        };
        plain(name).map(|path| directory.join(path))
    }

    /// Where a dataset of a client's goes: a shelf, the path below it, and its name.
    fn place_of(&self, name: &str, temporary: bool) -> Result<(&Arc<Shelf>, PathBuf, String), DatasetError> {
        let shelves = self.shelves.as_ref().ok_or_else(read_only)?;
        let refused = |problem: String| DatasetError::Refused { problem };
        let (temporary, name) = match name.split_once('/') {
            Some((TEMPORARY, rest)) => (true, rest),
            _ => (temporary, name),
        };
        let name = match Format::of(name) {
            Some(Format::Parquet) => name.to_owned(),
            other if other.is_some() || is_live(name) => {
                let problem = format!("{name} is put as Parquet: give it a name that ends so, or has no ending");
                return Err(refused(problem));
            }
            _ => format!("{name}{PUT_ENDING}"),
        };
        let path = plain(&name).map_err(|_| {
            refused(format!("{name:?} is no name for a dataset: write a path without . and .. and hidden parts"))
        })?;
        if path.ancestors().skip(1).any(|above| above.to_str().is_some_and(|above| Format::of(above).is_some())) {
            return Err(refused(format!("{name} lies within another dataset; give it another name")));
        }
        let (path, name) = (path.to_owned(), path.components().collect::<PathBuf>().to_string_lossy().into_owned());
        Ok(match temporary {
            true => (&shelves.passing, path, format!("{TEMPORARY}/{name}")),
            false => (&shelves.lasting, path, name),
        })
    }

    /// Returns the current file at a path and its format.
    fn seen(&self, path: &Path, by_name: Format, name: &str) -> Result<(Seen, Format), DatasetError> {
        let find = |format: Format| {
            let found = self.store.find(path, format.index_endings(), format.is_directory())?;
            found.ok_or_else(|| DatasetError::NotFound { name: name.to_owned() })
        };
        let seen = find(by_name)?;
        let Ok(file) = seen.file() else { return Ok((seen, by_name)) };
        let format = self.format_of(file, by_name)?;
        // Another format has other indexes.
        let seen = if format.index_endings() == by_name.index_endings() { seen } else { find(format)? };
        Ok((seen, format))
    }

    /// The format of a file by its content, which is read once for each state of it.
    fn format_of(&self, file: &SeenFile, by_name: Format) -> Result<Format, DatasetError> {
        let known = || self.formats.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, format)) = known().get(&file.path).filter(|(state, _)| *state == file.state) {
            return Ok(*format);
        }
        let source = self.store.open(file)?;
        let content = FileContent::read(&*source).map_err(|source| cannot_open(&file.path, source))?;
        let by_content = by_name.by_content(content);
        let format = if source.is_decrypted() && !by_content.is_read_here() { by_name } else { by_content };
        let mut known = known();
        if known.len() >= MAX_OPEN {
            known.clear();
        }
        known.insert(file.path.clone(), (file.state.clone(), format));
        Ok(format)
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// The file that a dataset is. One of another kind is not there.
    ///
    /// # Errors
    /// [`DatasetError`].
    pub(crate) fn one_file(&self, name: &str) -> Result<OneFile, DatasetError> {
        let not_found = || DatasetError::NotFound { name: name.to_owned() };
        let canonical = self.canonical_name(name)?;
        let by_name = Format::of(&canonical).ok_or_else(not_found)?;
        let (seen, format) = self.seen(&self.path_of(&canonical)?, by_name, name)?;
        let kind = match format {
            Format::Bam => FileKind::Bam,
            Format::Cram => FileKind::Cram,
            Format::Vcf => FileKind::Vcf,
            _ => return Err(not_found()),
        };
        Ok(OneFile { name: canonical, kind, seen })
    }

    /// A run that is not over has no file of its own: it is opened by the directory it works in.
    fn open_run(&self, path: &Path, name: &str) -> Result<Arc<dyn Dataset>, DatasetError> {
        let not_found = || DatasetError::NotFound { name: name.to_owned() };
        let (runs, directory) = self.runs.as_ref().zip(path.parent()).ok_or_else(not_found)?;
        let found = runs.name_in(directory).ok_or_else(not_found)?;
        let is_it = path.file_name().is_some_and(|file| *file == *format!("{found}{}", live::ENDING));
        if !is_it {
            return Err(not_found());
        }
        Ok(Arc::new(LiveDataset::open(runs.open(directory)?)?))
    }

    fn open_fresh(&self, seen: &Seen, format: Format) -> Result<Arc<dyn Dataset>, DatasetError> {
        let store = &self.store;
        Ok(match format {
            Format::Bam => Arc::new(BamDataset::open(store, seen)?),
            Format::Sam => Arc::new(StreamedReads::open(store, seen, Origin::Sam)?),
            Format::Cram if !matches!(store, Store::Here) => {
                let problem = format!("{} is CRAM, which is read on this machine only; fetch it", seen.path.display());
                return Err(DatasetError::Refused { problem });
            }
            Format::Cram => Arc::new(StreamedReads::open(store, seen, Origin::Cram(self.cram.clone()))?),
            Format::Vcf => Arc::new(VcfDataset::open(store, seen)?),
            Format::Parquet => Arc::new(ParquetDataset::open(store, seen)?),
            Format::Arrow => Arc::new(ArrowDataset::open(store, seen)?),
            Format::Csv(delimiter) => Arc::new(CsvDataset::open(store, seen, delimiter)?),
            Format::Packed if !matches!(store, Store::Here) => {
                let problem =
                    format!("{} is a packed genome, which is read on this machine only; fetch it", seen.path.display());
                return Err(DatasetError::Refused { problem });
            }
            Format::Packed => Arc::new(PackedDataset::open(seen, &self.references, || {
                Ok(self.fasta_files()?.into_iter().map(|(_, path)| path).collect())
            })?),
            Format::Whole(content) => Arc::new(WholeFile::open(store, seen, content)?),
        })
    }

    /// The number of datasets, and the entries below the directory that look like datasets or directories and are not served.
    ///
    /// # Errors
    /// [`DatasetError::Machine`] where the directory cannot be read.
    pub fn survey(&self) -> Result<(usize, Vec<SkippedEntry>), DatasetError> {
        match &self.store {
            Store::Bucket(bucket) => Ok((Self::names_in(bucket)?.len(), Vec::new())),
            Store::Here => self.listing().map(|listing| (listing.names.len(), listing.skipped)),
        }
    }

    /// Datasets below the directory, and tables that clients put while the server runs.
    fn listing(&self) -> Result<Listing, DatasetError> {
        let mut listing = Listing::default();
        listing.add(&self.directory, String::new(), self).map_err(|source| cannot_open(&self.directory, source))?;
        if let Some(temporary) = &self.temporary {
            // It is gone where its server has ended.
            let _ = listing.add(temporary, format!("{TEMPORARY}/"), self);
        }
        Ok(listing)
    }

    /// The names of what a bucket has.
    fn names_in(bucket: &Bucket) -> Result<Vec<String>, DatasetError> {
        let names: BTreeSet<String> =
            bucket.names()?.iter().filter_map(|key| dataset_of(key)).map(str::to_owned).collect();
        Ok(names.into_iter().collect())
    }
}

/// Whether a name is that of a run that is not over.
fn is_live(name: &str) -> bool {
    name.to_ascii_lowercase().ends_with(live::ENDING)
}

/// The dataset that an object belongs to, by its key below the root; `None` where it belongs to none.
fn dataset_of(key: &str) -> Option<&str> {
    let mut end = 0;
    for (depth, part) in key.split('/').enumerate() {
        let is_last = end + part.len() == key.len();
        if part.starts_with('.') || depth > MAX_DEPTH {
            return None;
        }
        end += part.len();
        match Format::of(part) {
            // It is decoded by a library that opens files of this machine.
            Some(Format::Cram | Format::Packed) if is_last => return None,
            Some(format) if is_last || format.is_directory() => return Some(&key[..end]),
            _ => end += 1,
        }
    }
    None
}

/// A name as a path that leads down, and to nothing that is hidden.
fn plain(name: &str) -> Result<&Path, DatasetError> {
    let path = Path::new(name);
    let is_plain = |part: Component| match part {
        Component::Normal(part) => !part.as_encoded_bytes().starts_with(b"."),
        _ => false,
    };
    let fine = !name.is_empty() && !name.contains('\0') && path.components().all(is_plain);
    if fine { Ok(path) } else { Err(DatasetError::NotFound { name: name.to_owned() }) }
}

impl Entries for Root {
    fn dataset(&self, name: &str) -> Option<bool> {
        Format::of(name).map(|format| format.is_directory())
    }

    fn name_in(&self, directory: &Path) -> Option<String> {
        let run = self.runs.as_ref().and_then(|runs| runs.name_in(directory))?;
        Some(format!("{run}{}", live::ENDING))
    }
}

impl Catalog for Root {
    fn names(&self) -> Result<Vec<String>, DatasetError> {
        if let Store::Bucket(bucket) = &self.store {
            return Self::names_in(bucket);
        }
        let mut names = self.listing()?.names;
        names.sort_unstable();
        Ok(names)
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Dataset>, DatasetError> {
        let not_found = || DatasetError::NotFound { name: name.to_owned() };
        if is_live(name) {
            return self.open_run(&self.path_of(name)?, name);
        }
        let Some(by_name) = Format::of(name) else {
            let whole = format!("{name}{PUT_ENDING}");
            return self.open(&whole).map_err(|error| match error {
                DatasetError::NotFound { .. } => not_found(),
                error => error,
            });
        };
        let path = self.path_of(name)?;
        let mut seen = self.seen(&path, by_name, name)?;
        let locked = || self.open.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..OPENED_AGAIN {
            if let Some(found) = locked().get(name).filter(|found| found.version() == seen.0.version) {
                return Ok(found.clone());
            }
            let opened = self.open_fresh(&seen.0, seen.1);
            // One that was replaced in the meantime may be neither this nor that.
            let then = std::mem::replace(&mut seen, self.seen(&path, by_name, name)?);
            if then.0.version != seen.0.version {
                continue;
            }
            let dataset = opened?;
            let mut open = locked();
            if open.len() >= MAX_OPEN {
                open.clear();
            }
            open.insert(name.to_owned(), dataset.clone());
            return Ok(dataset);
        }
        Err(DatasetError::Changed { name: name.to_owned() })
    }

    /// Without empty parts and dots, and with the ending that is left out of what was put. What lies within another dataset is
    /// none by itself.
    fn canonical_name(&self, name: &str) -> Result<String, DatasetError> {
        let not_found = || DatasetError::NotFound { name: name.to_owned() };
        let parts: Option<Vec<&str>> = plain(name)?.iter().map(|part| part.to_str()).collect();
        let parts = parts.ok_or_else(not_found)?;
        let (last, above) = parts.split_last().ok_or_else(not_found)?;
        if above.iter().any(|part| Format::of(part).is_some_and(Format::is_directory)) {
            return Err(not_found());
        }
        let ending = if is_live(last) || Format::of(last).is_some() { "" } else { PUT_ENDING };
        Ok(parts.join("/") + ending)
    }

    fn is_writable(&self) -> bool {
        self.shelves.is_some()
    }

    fn put(&self, put: &Put, schema: SchemaRef) -> Result<Box<dyn DatasetWriter>, DatasetError> {
        let (shelf, path, name) = self.place_of(&put.name, put.temporary)?;
        shelf.begin(&path, name, put, schema)
    }

    fn remove(&self, name: &str) -> Result<(), DatasetError> {
        let (shelf, path, name) = self.place_of(name, false)?;
        shelf.remove(&path, &name)
    }
}
