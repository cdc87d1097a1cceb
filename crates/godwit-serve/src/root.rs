//! A directory, and what is below it.

use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use godwit_flight::{Catalog, Dataset, DatasetError};
use godwit_formats::intervals::IntervalFormat;
use xxhash_rust::xxh3::xxh3_64;

use crate::reads::{self, BamDataset};
use crate::region_lookup::index_beside;
use crate::streamed_reads::{CramAccess, Origin, StreamedReads};
use crate::tables::{ArrowDataset, CsvDataset, ParquetDataset};
use crate::variants::{self, VcfDataset};
use crate::whole_files::{Content, WholeFile};

/// Directories below each other that are looked into.
const MAX_DEPTH: usize = 32;
/// Datasets that are kept open, with their headers and indexes.
const MAX_OPEN: usize = 256;

/// A file that cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}", path.display())]
struct CannotRead {
    path: PathBuf,
    #[source]
    source: io::Error,
}

pub(crate) fn cannot_open(path: &Path, source: io::Error) -> DatasetError {
    DatasetError::Machine(Box::new(CannotRead { path: path.to_owned(), source }))
}

/// What a file is, by its name.
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
}

impl Format {
    fn of(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        let is = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
        if is(&[".bam"]) {
            Some(Self::Bam)
        } else if is(&[".sam", ".sam.gz"]) {
            Some(Self::Sam)
        } else if is(&[".cram"]) {
            Some(Self::Cram)
        } else if is(&[".vcf", ".vcf.gz", ".vcf.bgz", ".bcf"]) {
            Some(Self::Vcf)
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

    /// Endings of its index.
    fn index_endings(self) -> &'static [&'static str] {
        match self {
            Self::Bam => &reads::INDEX_ENDINGS,
            Self::Vcf => &variants::INDEX_ENDINGS,
            Self::Sam | Self::Cram | Self::Parquet | Self::Arrow | Self::Csv(_) | Self::Whole(_) => &[],
        }
    }

    /// Whether a directory of that name is one dataset, of the files in it.
    fn is_directory(self) -> bool {
        matches!(self, Self::Parquet | Self::Arrow)
    }
}

/// The datasets below a directory. Names are paths below it, with `/` between their parts. What begins with a dot is hidden.
///
/// Links are followed, wherever they lead: who may make one there may put the data there, too.
#[derive(Debug)]
pub struct Root {
    directory: PathBuf,
    cram: CramAccess,
    open: Mutex<HashMap<String, Arc<dyn Dataset>>>,
}

impl Root {
    /// The datasets below a directory.
    ///
    /// # Errors
    /// [`DatasetError::Machine`] where it is no directory, or cannot be read.
    pub fn new(directory: &Path, cram: CramAccess) -> Result<Self, DatasetError> {
        fs::read_dir(directory).map_err(|source| cannot_open(directory, source))?;
        Ok(Self { directory: directory.to_owned(), cram, open: Mutex::default() })
    }

    /// The path of a name, which is below the directory.
    fn path_of(&self, name: &str) -> Result<PathBuf, DatasetError> {
        let path = Path::new(name);
        let is_plain = |part: Component| match part {
            Component::Normal(part) => !part.as_encoded_bytes().starts_with(b"."),
            _ => false,
        };
        let fine = !name.is_empty() && !name.contains('\0') && path.components().all(is_plain);
        if fine { Ok(self.directory.join(path)) } else { Err(DatasetError::NotFound { name: name.to_owned() }) }
    }

    fn open_fresh(&self, path: &Path, format: Format, version: u64) -> Result<Arc<dyn Dataset>, DatasetError> {
        Ok(match format {
            Format::Bam => Arc::new(BamDataset::open(path, version)?),
            Format::Sam => Arc::new(StreamedReads::open(path, Origin::Sam, version)?),
            Format::Cram => Arc::new(StreamedReads::open(path, Origin::Cram(self.cram.clone()), version)?),
            Format::Vcf => Arc::new(VcfDataset::open(path, version)?),
            Format::Parquet => Arc::new(ParquetDataset::open(path, version)?),
            Format::Arrow => Arc::new(ArrowDataset::open(path, version)?),
            Format::Csv(delimiter) => Arc::new(CsvDataset::open(path, delimiter, version)?),
            Format::Whole(content) => Arc::new(WholeFile::open(path, content, version)?),
        })
    }
}

/// A number for the state of a file and its index: when they were written, and how long they are.
fn version_of(path: &Path, metadata: &Metadata, endings: &[&str]) -> u64 {
    let mut bytes = Vec::new();
    let mut add = |found: &Metadata| {
        for number in [found.ino() as i64, found.mtime(), found.mtime_nsec(), found.len() as i64] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
    };
    add(metadata);
    if metadata.is_dir() {
        for file in fs::read_dir(path).into_iter().flatten().flatten() {
            let _ = file.metadata().map(|found| add(&found));
        }
    }
    if let Some(found) = index_beside(path, endings).and_then(|index| fs::metadata(index).ok()) {
        add(&found);
    }
    xxh3_64(&bytes)
}

impl Catalog for Root {
    fn names(&self) -> Result<Vec<String>, DatasetError> {
        let mut names = Vec::new();
        let mut directories = vec![(self.directory.clone(), String::new(), 0)];
        while let Some((directory, prefix, depth)) = directories.pop() {
            let listed = fs::read_dir(&directory);
            // What lies deeper and cannot be read is left out; the root itself has to be there.
            let Ok(entries) = listed.map_err(|source| cannot_open(&directory, source)) else {
                if depth == 0 {
                    fs::read_dir(&directory).map_err(|source| cannot_open(&directory, source))?;
                }
                continue;
            };
            for entry in entries.flatten() {
                let file_name = entry.file_name();
                let Some(name) = file_name.to_str().filter(|name| !name.starts_with('.')) else { continue };
                let Ok(metadata) = fs::metadata(entry.path()) else { continue };
                let whole = format!("{prefix}{name}");
                match Format::of(name) {
                    Some(format) if metadata.is_file() || format.is_directory() => names.push(whole),
                    _ if metadata.is_dir() && depth < MAX_DEPTH => {
                        directories.push((entry.path(), whole + "/", depth + 1));
                    }
                    _ => {}
                }
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Dataset>, DatasetError> {
        let not_found = || DatasetError::NotFound { name: name.to_owned() };
        let path = self.path_of(name)?;
        let format = Format::of(name).ok_or_else(not_found)?;
        let metadata = match fs::metadata(&path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(not_found()),
            Err(error) => return Err(cannot_open(&path, error)),
        };
        let is_dataset = metadata.is_file() || (metadata.is_dir() && format.is_directory());
        if !is_dataset {
            return Err(not_found());
        }
        let version = version_of(&path, &metadata, format.index_endings());
        let locked = || self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = locked().get(name).filter(|found| found.version() == version) {
            return Ok(found.clone());
        }
        let dataset = self.open_fresh(&path, format, version)?;
        let mut open = locked();
        if open.len() >= MAX_OPEN {
            open.clear();
        }
        open.insert(name.to_owned(), dataset.clone());
        Ok(dataset)
    }
}
