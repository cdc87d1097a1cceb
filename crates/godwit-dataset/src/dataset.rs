//! The traits of datasets, which are read by parts, columns and regions, and of catalogs, which open datasets by name.
//!
//! Implementations read files below a directory, or the output of unfinished jobs. The SQL engine and the Flight
//! service read datasets through these traits only. This module contains no storage format and no authorization.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use godwit_model::Region;
use godwit_model::schema::{alignment_columns, variant_columns};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// Number of columns of a VCF file before those of the samples (VCFv4.4 §1.5).
const VCF_COLUMNS_BEFORE_SAMPLES: usize = 9;

/// An error while a dataset is opened, read, written or removed.
#[derive(Debug, thiserror::Error)]
pub enum DatasetError {
    /// A dataset of this name does not exist, or the principal may not see it.
    #[error("dataset {name:?} does not exist; names are paths below the root, as in a listing")]
    NotFound {
        /// The name.
        name: String,
    },
    /// The request is not valid for the dataset, such as a region of a dataset without positions.
    #[error("{problem}")]
    InvalidRequest {
        /// The problem and its solution, as shown to users.
        problem: String,
    },
    /// The server or the access rules of the principal do not allow writing.
    #[error("{problem}")]
    Forbidden {
        /// The problem and its solution, as shown to users.
        problem: String,
    },
    /// A dataset of this name exists, and the request does not allow replacing or appending.
    #[error("dataset {name} already exists; replace it, append to it, or choose another name")]
    AlreadyExists {
        /// The name.
        name: String,
    },
    /// The dataset changed after its parts were determined.
    #[error("{name} has changed since the request was planned; request it again")]
    Changed {
        /// The dataset.
        name: String,
    },
    /// The data of the dataset are damaged, or their format does not match the name of the dataset.
    #[error(transparent)]
    Data(Box<dyn std::error::Error + Send + Sync>),
    /// Another host or the network failed.
    #[error(transparent)]
    Remote(Box<dyn std::error::Error + Send + Sync>),
    /// This host failed, for example while reading a file.
    #[error(transparent)]
    Local(Box<dyn std::error::Error + Send + Sync>),
}

/// The kind of rows in a dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatasetKind {
    /// Aligned reads ([`godwit_model::schema::alignment_columns`]).
    Reads,
    /// Variants ([`godwit_model::schema::variant_columns`]).
    Variants,
    /// Any other table, with the columns of its file.
    Table,
}

impl DatasetKind {
    /// Returns the name of the kind that listings show.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reads => "reads",
            Self::Variants => "variants",
            Self::Table => "table",
        }
    }
}

/// The columns and genomic regions that a client wants to read from a dataset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// 0-based indexes of the columns in the schema of the dataset, ascending; `None`: all columns.
    pub columns: Option<Vec<usize>>,
    /// Regions: only rows that overlap at least one of them are read, each row once. [`Region::unplaced`] selects
    /// unplaced reads. `None`: all rows. Ignored if [`Dataset::has_regions`] is false.
    pub regions: Option<Vec<Region>>,
}

/// A part of a scan that can be read independently, as ranges of a file. The dataset defines the unit of the ranges.
/// All parts read in order give the rows in the order of the dataset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanPart {
    /// Start and end of each range.
    pub ranges: Vec<(u64, u64)>,
}

/// An iterator over the batches of a dataset. It may block its caller on file access.
pub type BatchReader = Box<dyn Iterator<Item = Result<RecordBatch, DatasetError>> + Send>;

/// A table of reads, variants or other rows, which can be read by parts, columns and regions.
pub trait Dataset: std::fmt::Debug + Send + Sync {
    /// Returns the kind of rows that the dataset contains.
    fn kind(&self) -> DatasetKind;

    /// Returns the schema with all columns, and with metadata such as the SAM or VCF header.
    fn schema(&self) -> SchemaRef;

    /// Returns the exact number of rows; `None` if it is not known without reading all rows.
    fn rows(&self) -> Option<u64> {
        None
    }

    /// Returns the size of the dataset in storage, bytes; 0 if the size is unknown or hidden.
    fn bytes(&self) -> u64;

    /// Returns the name of the sample if the dataset contains exactly one sample.
    fn sample(&self) -> Option<&str> {
        None
    }

    /// Returns the names of the samples of a dataset of variants, in the order of the elements of its lists with one
    /// element per sample. `None` if the names are unknown or hidden, or if the dataset does not contain variants.
    fn samples(&self) -> Option<Vec<String>> {
        if self.kind() != DatasetKind::Variants {
            return None;
        }
        let schema = self.schema();
        let header = schema.metadata().get(variant_columns::HEADER_KEY)?;
        let columns = header.lines().rev().find(|line| line.starts_with("#CHROM"))?;
        Some(columns.split('\t').skip(VCF_COLUMNS_BEFORE_SAMPLES).map(str::to_owned).collect())
    }

    /// Returns a version number, which differs after any change of the content.
    fn version(&self) -> u64;

    /// Returns whether the dataset can be read by genomic regions. If so, the columns `contig`, `position` and
    /// `end_position` contain the position of each row.
    fn has_regions(&self) -> bool;

    /// Returns whether a contig of this name exists; `None` if the list of contigs in the header may be incomplete.
    fn has_contig(&self, name: &str) -> Option<bool> {
        let schema = self.schema();
        let is_listed = contig_names(&schema).any(|contig| contig == name);
        // A SAM header lists all contigs (SAMv1 §1.3). In a VCF header, `##contig` lines are optional (VCFv4.4 §1.4.7).
        let is_complete = schema.metadata().contains_key(alignment_columns::HEADER_KEY);
        (is_listed || is_complete).then_some(is_listed)
    }

    /// Returns the names of the columns by which the rows of each part are sorted, ascending with nulls last; empty if
    /// the rows are not sorted.
    fn sorted_by(&self) -> &[&'static str] {
        &[]
    }

    /// Returns the Parquet files of which the dataset consists, in order, for SQL engines with their own Parquet
    /// reader. `None` for other formats.
    fn parquet_files(&self) -> Option<&[PathBuf]> {
        None
    }

    /// Returns the URLs of the Parquet files, if SQL engines must read them from an object store; `None` otherwise.
    fn parquet_urls(&self) -> Option<&[String]> {
        None
    }

    /// Splits a scan into at most `max_parts` parts.
    ///
    /// # Errors
    /// [`DatasetError::Changed`] if the file has changed; other variants if the file cannot be read.
    fn parts(&self, scan: &Scan, max_parts: usize) -> Result<Vec<ScanPart>, DatasetError>;

    /// Divides a part into pieces, which are parts themselves. All pieces read in order give the rows of the part. Returns
    /// the part itself if it is small or cannot be divided. [`read_pieces`](crate::read_pieces) reads several pieces at
    /// the same time; only the first batches of a piece are read in advance.
    fn pieces(&self, part: &ScanPart) -> Vec<ScanPart> {
        vec![part.clone()]
    }

    /// Reads a part of a scan. Returns batches with the requested columns; no batch is empty.
    ///
    /// # Errors
    /// [`DatasetError::Changed`] if the file has changed; other variants if the file cannot be read.
    fn read(&self, scan: &Scan, part: &ScanPart) -> Result<BatchReader, DatasetError>;
}

/// Returns the names of contigs in the SAM or VCF header in the metadata of a schema.
pub(crate) fn contig_names(schema: &Schema) -> impl Iterator<Item = &str> {
    contig_lines(schema).filter_map(|line| line.field("SN:", "ID="))
}

/// A line of a SAM or VCF header that describes a contig, without its prefix.
pub enum ContigLine<'h> {
    /// The fields of an `@SQ` line of SAM.
    Sam(&'h str),
    /// The fields of a `##contig` line of VCF.
    Vcf(&'h str),
}

impl<'h> ContigLine<'h> {
    /// Returns the value of a field. `of_sam` and `of_vcf` are the prefixes of the field in SAM and VCF, such as `SN:`
    /// and `ID=`.
    pub fn field(&self, of_sam: &str, of_vcf: &str) -> Option<&'h str> {
        match self {
            Self::Sam(fields) => fields.split('\t').find_map(|field| field.strip_prefix(of_sam)),
            Self::Vcf(fields) => fields.split(',').find_map(|field| field.strip_prefix(of_vcf)),
        }
    }
}

/// Returns the lines that describe contigs in the SAM or VCF header in the metadata of a schema.
pub fn contig_lines(schema: &Schema) -> impl Iterator<Item = ContigLine<'_>> {
    let header = |key: &str| schema.metadata().get(key).map(String::as_str).unwrap_or_default();
    let of_sam = header(alignment_columns::HEADER_KEY)
        .lines()
        .filter_map(|line| line.strip_prefix("@SQ\t"))
        .map(ContigLine::Sam);
    let of_vcf = header(variant_columns::HEADER_KEY).lines();
    let of_vcf = of_vcf.filter_map(|line| line.strip_prefix("##contig=<")?.strip_suffix('>')).map(ContigLine::Vcf);
    of_sam.chain(of_vcf)
}

/// The action if a dataset with the name of the upload exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WriteMode {
    /// The upload is rejected if the dataset exists.
    #[default]
    Create,
    /// The uploaded dataset atomically replaces the existing one.
    Replace,
    /// The uploaded rows are appended to the existing dataset. If the dataset does not exist, it is created.
    Append,
}

/// A request to write a dataset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PutRequest {
    /// The name of the dataset.
    pub name: String,
    /// The action if a dataset with this name exists.
    pub write_mode: WriteMode,
    /// True if the request must be rejected unless a dataset with this name exists.
    pub must_exist: bool,
    /// True if the dataset is stored in memory and removed when the server stops.
    pub temporary: bool,
    /// Identifier of the upload, 8 to 64 hexadecimal digits. If the client repeats an upload that is already stored,
    /// the server does not store it again.
    pub upload_id: Option<String>,
}

/// A summary of a stored upload, which the client receives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PutSummary {
    /// The name under which the dataset can now be read.
    pub dataset: String,
    /// Number of rows that were written.
    pub rows: u64,
}

/// A writer of one dataset. If the writer is dropped without [`DatasetWriter::commit`], nothing is stored.
pub trait DatasetWriter: Send {
    /// Writes rows of the schema that the writer was opened with.
    ///
    /// # Errors
    /// [`DatasetError`] if the rows cannot be written.
    fn write(&mut self, batch: &RecordBatch) -> Result<(), DatasetError>;

    /// Makes all written rows durable, and then makes the dataset visible atomically.
    ///
    /// # Errors
    /// [`DatasetError`] if the dataset cannot be stored; nothing is stored in this case.
    fn commit(self: Box<Self>) -> Result<PutSummary, DatasetError>;
}

/// First part of the names of temporary datasets, which are removed when the server stops.
pub const TEMPORARY_DIRECTORY: &str = "temporary";

/// A dataset that a call opened, and the access rule that allowed it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DatasetAccess {
    /// The name of the dataset or file.
    pub dataset: String,
    /// The name of the access rule.
    pub rule: String,
}

/// The datasets that one call opened, for the audit log; empty without access rules. Clones share the list.
///
/// # Examples
///
/// ```
/// use godwit_dataset::DatasetAccessList;
///
/// let accesses = DatasetAccessList::default();
/// let accesses_of_call = accesses.clone();
/// accesses_of_call.add("cohort/a.bam", "trio");
/// accesses_of_call.add("cohort/a.bam", "trio");
/// let opened = accesses.drain();
/// assert_eq!(opened.len(), 1);
/// assert_eq!((opened[0].dataset.as_str(), opened[0].rule.as_str()), ("cohort/a.bam", "trio"));
/// assert!(accesses.to_vec().is_empty());
/// ```
#[derive(Clone, Debug, Default)]
pub struct DatasetAccessList(Arc<Mutex<BTreeSet<DatasetAccess>>>);

impl DatasetAccessList {
    /// Adds a dataset or file, and the access rule that allowed it.
    pub fn add(&self, dataset: &str, rule: &str) {
        self.0.lock().insert(DatasetAccess { dataset: dataset.to_owned(), rule: rule.to_owned() });
    }

    /// Returns the entries of the list, each once.
    pub fn to_vec(&self) -> Vec<DatasetAccess> {
        self.0.lock().iter().cloned().collect()
    }

    /// Returns the entries of the list and clears it.
    pub fn drain(&self) -> Vec<DatasetAccess> {
        std::mem::take(&mut *self.0.lock()).into_iter().collect()
    }
}

/// The collection of datasets of a server, by name.
///
/// # Examples
///
/// ```
/// use std::collections::BTreeMap;
/// use std::sync::Arc;
///
/// use godwit_dataset::{Catalog, Dataset, DatasetError};
///
/// #[derive(Debug, Default)]
/// struct Tables(BTreeMap<String, Arc<dyn Dataset>>);
///
/// impl Catalog for Tables {
///     fn names(&self) -> Result<Vec<String>, DatasetError> {
///         Ok(self.0.keys().cloned().collect())
///     }
///
///     fn open(&self, name: &str) -> Result<Arc<dyn Dataset>, DatasetError> {
///         self.0.get(name).cloned().ok_or_else(|| DatasetError::NotFound { name: name.to_owned() })
///     }
/// }
///
/// let catalog = Tables::default();
/// assert!(matches!(catalog.open("a.bam"), Err(DatasetError::NotFound { .. })));
/// assert!(!catalog.is_writable());
/// ```
pub trait Catalog: std::fmt::Debug + Send + Sync {
    /// Returns the names of all datasets, sorted. Omits datasets that cannot be read.
    ///
    /// # Errors
    /// [`DatasetError`] if the storage cannot be listed.
    fn names(&self) -> Result<Vec<String>, DatasetError>;

    /// Opens the dataset with this name.
    ///
    /// # Errors
    /// [`DatasetError::NotFound`] if no dataset has this name; other variants if the dataset cannot be read.
    fn open(&self, name: &str) -> Result<Arc<dyn Dataset>, DatasetError>;

    /// Returns the canonical name of a dataset, to which access rules apply. [`Catalog::open`] may accept several names
    /// for the same dataset. The dataset need not exist.
    ///
    /// # Errors
    /// [`DatasetError::NotFound`] if `name` cannot be the name of a dataset.
    fn canonical_name(&self, name: &str) -> Result<String, DatasetError> {
        Ok(name.to_owned())
    }

    /// Returns whether clients may write and remove datasets.
    fn is_writable(&self) -> bool {
        false
    }

    /// Opens a writer for a dataset that a client uploads.
    ///
    /// # Errors
    /// [`DatasetError::Forbidden`] if the catalog is read-only.
    fn open_writer(&self, _put: &PutRequest, _schema: SchemaRef) -> Result<Box<dyn DatasetWriter>, DatasetError> {
        Err(read_only_error())
    }

    /// Removes a dataset that a client wrote.
    ///
    /// # Errors
    /// [`DatasetError::Forbidden`] if the catalog, or this dataset, is read-only.
    fn remove(&self, _name: &str) -> Result<(), DatasetError> {
        Err(read_only_error())
    }
}

/// Returns the error of a read-only catalog.
pub fn read_only_error() -> DatasetError {
    DatasetError::Forbidden { problem: "datasets are read-only on this server; start it with --writable".to_owned() }
}
