//! The traits of datasets and catalogs: datasets by name, read by parts, columns and regions.
//!
//! Serving and querying crates share these traits: files below a directory and unfinished jobs are datasets; SQL and Flight
//! read them. How a dataset is read or stored is not known here, nor what a principal may read.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use godwit_model::schema::{alignment_columns, variant_columns};
use godwit_model::{Region, message_with_causes};
use serde::{Deserialize, Serialize};

use crate::error_reason::ErrorReason;

/// The reason why a dataset cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum DatasetError {
    /// No dataset of that name exists, or none that the principal may see.
    #[error("there is no dataset {name:?}; names are paths below the root, as a listing has them")]
    NotFound {
        /// The name.
        name: String,
    },
    /// The request is not valid for this dataset.
    #[error("{problem}")]
    InvalidRequest {
        /// The problem, and what to do.
        problem: String,
    },
    /// Writing is not allowed, in general or for this principal.
    #[error("{problem}")]
    Forbidden {
        /// The problem, and what to do.
        problem: String,
    },
    /// A dataset of that name exists and is not to be replaced.
    #[error("there is a dataset {name} already; say that it is to be replaced or appended to, or take another name")]
    AlreadyExists {
        /// The name.
        name: String,
    },
    /// The dataset changed after its reading was planned.
    #[error("{name} has changed since this was asked for; ask again")]
    Changed {
        /// The dataset.
        name: String,
    },
    /// Its data are damaged, or of another format than its name.
    #[error(transparent)]
    Data(Box<dyn std::error::Error + Send + Sync>),
    /// Another host, or the network, failed.
    #[error(transparent)]
    Remote(Box<dyn std::error::Error + Send + Sync>),
    /// A failure of this host.
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
    /// Anything else: the columns of the file.
    Table,
}

impl DatasetKind {
    /// Returns its name in listings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reads => "reads",
            Self::Variants => "variants",
            Self::Table => "table",
        }
    }
}

/// The columns and regions to read of a dataset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// Columns by their 0-based index in its schema, ascending; `None`: all.
    pub columns: Option<Vec<usize>>,
    /// Only rows that overlap one of these, each row once; `None`: all rows. Ignored where [`Dataset::has_regions`] is
    /// false.
    pub regions: Option<Vec<Region>>,
}

/// A part of a scan that can be read by itself: ranges of a file, whose meaning the dataset defines. All parts in order give
/// the rows in the order of the dataset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanPart {
    /// Start and end of each range.
    pub ranges: Vec<(u64, u64)>,
}

/// An iterator of batches, read on the thread of its caller.
pub type BatchReader = Box<dyn Iterator<Item = Result<RecordBatch, DatasetError>> + Send>;

/// Rows of one schema.
pub trait Dataset: std::fmt::Debug + Send + Sync {
    /// Returns the kind of its rows.
    fn kind(&self) -> DatasetKind;

    /// Returns all columns, with metadata.
    fn schema(&self) -> SchemaRef;

    /// Returns the number of rows, where it is known exactly without reading them.
    fn rows(&self) -> Option<u64> {
        None
    }

    /// Returns its size in storage, bytes.
    fn bytes(&self) -> u64;

    /// Returns the sample, where the dataset has exactly one.
    fn sample(&self) -> Option<&str> {
        None
    }

    /// Returns a version that changes whenever the content may have changed.
    fn version(&self) -> u64;

    /// Reports whether rows have a position on a genome, in the columns `contig`, `position` and `end_position`.
    fn has_regions(&self) -> bool;

    /// Returns whether a contig of that name exists; `None` where the list of contigs is not known, or may lack some.
    fn has_contig(&self, name: &str) -> Option<bool> {
        let schema = self.schema();
        let is_listed = contig_names(&schema).any(|contig| contig == name);
        // A SAM header lists all contigs (SAMv1 §1.3); in VCF the lines are optional (VCFv4.4 §1.4.7).
        let is_complete = schema.metadata().contains_key(alignment_columns::HEADER_KEY);
        (is_listed || is_complete).then_some(is_listed)
    }

    /// Returns the columns by which rows of each part are sorted, ascending, nulls last; empty where they are not.
    fn sorted_by(&self) -> &[&'static str] {
        &[]
    }

    /// Returns the Parquet files that it consists of, in order, for engines with a Parquet reader of their own.
    fn parquet_files(&self) -> Option<&[PathBuf]> {
        None
    }

    /// Returns their URLs, where engines read them through the object store of the catalog.
    fn parquet_urls(&self) -> Option<&[String]> {
        None
    }

    /// Splits a scan into at most `max_parts` parts.
    ///
    /// # Errors
    /// [`DatasetError::Changed`] where the file changed; other variants where it cannot be read.
    fn parts(&self, scan: &Scan, max_parts: usize) -> Result<Vec<ScanPart>, DatasetError>;

    /// Reads a part: batches of the requested columns, none of them empty.
    ///
    /// # Errors
    /// [`DatasetError::Changed`] where the file changed; other variants where it cannot be read.
    fn read(&self, scan: &Scan, part: &ScanPart) -> Result<BatchReader, DatasetError>;
}

/// Returns the names of contigs in the SAM or VCF header in the metadata of a schema.
pub(crate) fn contig_names(schema: &Schema) -> impl Iterator<Item = &str> {
    contig_lines(schema).filter_map(|line| line.field("SN:", "ID="))
}

/// A header line that describes a contig.
pub(crate) enum ContigLine<'h> {
    /// Fields of `@SQ`.
    Sam(&'h str),
    /// Fields of `##contig`.
    Vcf(&'h str),
}

impl<'h> ContigLine<'h> {
    /// Returns the value of a field, by its name in SAM and in VCF.
    pub(crate) fn field(&self, of_sam: &str, of_vcf: &str) -> Option<&'h str> {
        match self {
            Self::Sam(fields) => fields.split('\t').find_map(|field| field.strip_prefix(of_sam)),
            Self::Vcf(fields) => fields.split(',').find_map(|field| field.strip_prefix(of_vcf)),
        }
    }
}

/// Returns the lines that describe contigs in the SAM or VCF header in the metadata of a schema.
pub(crate) fn contig_lines(schema: &Schema) -> impl Iterator<Item = ContigLine<'_>> {
    let header = |key: &str| schema.metadata().get(key).map(String::as_str).unwrap_or_default();
    let of_sam = header(alignment_columns::HEADER_KEY)
        .lines()
        .filter_map(|line| line.strip_prefix("@SQ\t"))
        .map(ContigLine::Sam);
    let of_vcf = header(variant_columns::HEADER_KEY).lines();
    let of_vcf = of_vcf.filter_map(|line| line.strip_prefix("##contig=<")?.strip_suffix('>')).map(ContigLine::Vcf);
    of_sam.chain(of_vcf)
}

/// The handling of an existing dataset of the same name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WriteMode {
    /// The name must be free.
    #[default]
    Create,
    /// The new dataset replaces it atomically.
    Replace,
    /// The rows are appended; where no dataset exists, it is created.
    Append,
}

/// A request to write a dataset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PutRequest {
    /// The name of the dataset.
    pub name: String,
    /// Handling of an existing dataset of the same name.
    pub write_mode: WriteMode,
    /// True if a dataset of the name must exist.
    pub must_exist: bool,
    /// True if it is kept in memory and removed when the server stops.
    pub temporary: bool,
    /// Identifier of the upload, 8 to 64 hexadecimal digits: an upload that is already stored is not stored again.
    pub upload_id: Option<String>,
}

/// A summary of what was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PutSummary {
    /// The name of the dataset from now on.
    pub dataset: String,
    /// Rows that were written.
    pub rows: u64,
}

/// A writer of one dataset. Where it is dropped before the commit, nothing is stored or visible.
pub trait DatasetWriter: Send {
    /// Writes rows of the schema that the writer was opened with.
    ///
    /// # Errors
    /// [`DatasetError`] where they cannot be written.
    fn write(&mut self, batch: &RecordBatch) -> Result<(), DatasetError>;

    /// Makes everything durable and then the dataset visible, atomically.
    ///
    /// # Errors
    /// [`DatasetError`]: then nothing is stored.
    fn commit(self: Box<Self>) -> Result<PutSummary, DatasetError>;
}

/// The directory in the names of datasets that are removed when the server stops.
pub const TEMPORARY_DIRECTORY: &str = "temporary";

/// A dataset that was opened, and the rule that allowed it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DatasetAccess {
    /// Its name.
    pub dataset: String,
    /// The name of the rule.
    pub rule: String,
}

/// The datasets that one call opened, as far as rules exist. Clones share the list.
#[derive(Clone, Debug, Default)]
pub struct DatasetAccessList(Arc<Mutex<BTreeSet<DatasetAccess>>>);

impl DatasetAccessList {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<DatasetAccess>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a dataset or file.
    pub fn add(&self, dataset: &str, rule: &str) {
        self.lock().insert(DatasetAccess { dataset: dataset.to_owned(), rule: rule.to_owned() });
    }

    /// Returns all of them, each once.
    pub fn to_vec(&self) -> Vec<DatasetAccess> {
        self.lock().iter().cloned().collect()
    }

    /// Returns all of them and clears the list.
    pub fn drain(&self) -> Vec<DatasetAccess> {
        std::mem::take(&mut *self.lock()).into_iter().collect()
    }
}

/// Datasets by name.
pub trait Catalog: std::fmt::Debug + Send + Sync {
    /// Returns all names, sorted. Datasets that cannot be read are left out.
    ///
    /// # Errors
    /// [`DatasetError`] where the storage cannot be listed.
    fn names(&self) -> Result<Vec<String>, DatasetError>;

    /// Opens the dataset of a name.
    ///
    /// # Errors
    /// [`DatasetError::NotFound`] where none has this name; other variants where it cannot be read.
    fn open(&self, name: &str) -> Result<Arc<dyn Dataset>, DatasetError>;

    /// Returns the one name, of all that [`Catalog::open`] accepts for a dataset, that rules apply to. It need not exist.
    ///
    /// # Errors
    /// [`DatasetError::NotFound`] where the text cannot be the name of a dataset.
    fn canonical_name(&self, name: &str) -> Result<String, DatasetError> {
        Ok(name.to_owned())
    }

    /// Reports whether datasets may be written and removed.
    fn is_writable(&self) -> bool {
        false
    }

    /// Opens a writer for a dataset of a client.
    ///
    /// # Errors
    /// [`DatasetError::Forbidden`] where the catalog is read-only.
    fn open_writer(&self, _put: &PutRequest, _schema: SchemaRef) -> Result<Box<dyn DatasetWriter>, DatasetError> {
        Err(read_only_error())
    }

    /// Removes a dataset that a client wrote.
    ///
    /// # Errors
    /// [`DatasetError::Forbidden`] where the catalog, or this dataset, is read-only.
    fn remove(&self, _name: &str) -> Result<(), DatasetError> {
        Err(read_only_error())
    }
}

/// Returns the error of a read-only catalog.
pub fn read_only_error() -> DatasetError {
    DatasetError::Forbidden { problem: "datasets are only read here; start the server with --writable".to_owned() }
}

impl From<DatasetError> for tonic::Status {
    fn from(error: DatasetError) -> Self {
        let text = message_with_causes(&error);
        match error {
            DatasetError::NotFound { .. } => ErrorReason::DatasetNotFound.status(tonic::Code::NotFound, text),
            DatasetError::InvalidRequest { .. } => Self::invalid_argument(text),
            DatasetError::Forbidden { .. } => Self::permission_denied(text),
            DatasetError::AlreadyExists { .. } => Self::already_exists(text),
            DatasetError::Changed { .. } => ErrorReason::DatasetChanged.status(tonic::Code::FailedPrecondition, text),
            DatasetError::Data(_) => Self::data_loss(text),
            DatasetError::Local(_) | DatasetError::Remote(_) => Self::unavailable(text),
        }
    }
}
