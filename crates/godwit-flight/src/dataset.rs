//! What a server has: datasets, by name, of which parts, columns and regions can be read.
//!
//! The traits are here because everything that serves or asks knows them: files below a directory and live runs are
//! datasets, SQL and Flight read them. How a dataset is read or kept is not known here, nor who may read what.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use godwit_model::schema::{columnar, variants};
use godwit_model::{Region, with_causes};
use serde::{Deserialize, Serialize};

use crate::error_reason::ErrorReason;

/// Why a dataset cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum DatasetError {
    /// There is none of that name, or none that may be seen.
    #[error("there is no dataset {name:?}; names are paths below the root, as a listing has them")]
    NotFound {
        /// The name.
        name: String,
    },
    /// It cannot be asked for in this way.
    #[error("{problem}")]
    Refused {
        /// What, and what to do.
        problem: String,
    },
    /// It may not be written, or not by who asks.
    #[error("{problem}")]
    Forbidden {
        /// What, and what to do.
        problem: String,
    },
    /// There is one of that name, which is not to be replaced.
    #[error("there is a dataset {name} already; say that it is to be replaced or appended to, or take another name")]
    AlreadyThere {
        /// The name.
        name: String,
    },
    /// It is not what it was when its reading was planned.
    #[error("{name} has changed since this was asked for; ask again")]
    Changed {
        /// The dataset.
        name: String,
    },
    /// Its data are damaged, or not what its name says.
    #[error(transparent)]
    Data(Box<dyn std::error::Error + Send + Sync>),
    /// Another machine, or the way there, keeps it from being read.
    #[error(transparent)]
    Remote(Box<dyn std::error::Error + Send + Sync>),
    /// This machine keeps it from being read.
    #[error(transparent)]
    Machine(Box<dyn std::error::Error + Send + Sync>),
}

/// What the rows of a dataset are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Aligned reads ([`godwit_model::schema::columnar`]).
    Reads,
    /// Variants ([`godwit_model::schema::variants`]).
    Variants,
    /// Anything else: columns as the file has them.
    Table,
}

impl Kind {
    /// Its name, in listings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reads => "reads",
            Self::Variants => "variants",
            Self::Table => "table",
        }
    }
}

/// What is asked of a dataset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// Columns by their 0-based index in its schema, ascending; `None`: all.
    pub columns: Option<Vec<usize>>,
    /// Only rows that overlap one of these, each row once; `None`: all rows. Where [`Dataset::has_regions`] is false they are
    /// not looked at.
    pub regions: Option<Vec<Region>>,
}

/// A part of a scan that can be read by itself: stretches of a file, whose meaning the dataset knows. All parts in order
/// give the rows in the order of the dataset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Start and end of each stretch.
    pub stretches: Vec<(u64, u64)>,
}

/// Batches as they are read, on the thread of whoever asks.
pub type BatchReader = Box<dyn Iterator<Item = Result<RecordBatch, DatasetError>> + Send>;

/// Rows of one schema.
pub trait Dataset: std::fmt::Debug + Send + Sync {
    /// What its rows are.
    fn kind(&self) -> Kind;

    /// All its columns, and what is known of them as metadata.
    fn schema(&self) -> SchemaRef;

    /// Number of rows, where it is known without reading them and certain.
    fn rows(&self) -> Option<u64> {
        None
    }

    /// Bytes it takes where it lies.
    fn bytes(&self) -> u64;

    /// The sample that it is of, where it is of one.
    fn sample(&self) -> Option<&str> {
        None
    }

    /// Changes whenever its content may have: not the same for two states of one dataset.
    fn version(&self) -> u64;

    /// Whether rows have a place on a genome, in the columns `contig`, `position` and `end_position`.
    fn has_regions(&self) -> bool;

    /// Returns whether a contig of that name exists; `None` where the list of contigs is not known, or may lack some.
    fn has_contig(&self, name: &str) -> Option<bool> {
        let schema = self.schema();
        let is_listed = contigs_of(&schema).any(|contig| contig == name);
        // A SAM header lists all contigs (SAMv1 §1.3); in VCF the lines are optional (VCFv4.4 §1.4.7).
        let is_complete = schema.metadata().contains_key(columnar::HEADER_KEY);
        (is_listed || is_complete).then_some(is_listed)
    }

    /// Columns by which rows are sorted within each part, ascending and nulls last; empty where they are not.
    fn sorted_by(&self) -> &[&'static str] {
        &[]
    }

    /// Parquet files that it consists of, in order, for engines with a reader of their own.
    fn parquet_files(&self) -> Option<&[PathBuf]> {
        None
    }

    /// Their addresses, where engines read them through a store of objects that whoever opened the catalog gives them.
    fn parquet_urls(&self) -> Option<&[String]> {
        None
    }

    /// Cuts a scan into as many parts, or fewer.
    ///
    /// # Errors
    /// [`DatasetError`].
    fn parts(&self, scan: &Scan, most: usize) -> Result<Vec<Part>, DatasetError>;

    /// Reads a part: batches of the columns asked for, none of them empty.
    ///
    /// # Errors
    /// [`DatasetError`].
    fn read(&self, scan: &Scan, part: &Part) -> Result<BatchReader, DatasetError>;
}

/// Names of contigs in the SAM or VCF header that a schema has as metadata.
pub(crate) fn contigs_of(schema: &Schema) -> impl Iterator<Item = &str> {
    contig_lines(schema).filter_map(|line| line.field("SN:", "ID="))
}

/// A line of a header that describes a contig.
pub(crate) enum ContigLine<'h> {
    /// Fields of `@SQ`.
    Sam(&'h str),
    /// Fields of `##contig`.
    Vcf(&'h str),
}

impl<'h> ContigLine<'h> {
    /// The value of a field, by its name in SAM and in VCF.
    pub(crate) fn field(&self, of_sam: &str, of_vcf: &str) -> Option<&'h str> {
        match self {
            Self::Sam(fields) => fields.split('\t').find_map(|field| field.strip_prefix(of_sam)),
            Self::Vcf(fields) => fields.split(',').find_map(|field| field.strip_prefix(of_vcf)),
        }
    }
}

/// Lines that describe contigs in the SAM or VCF header that a schema has as metadata.
pub(crate) fn contig_lines(schema: &Schema) -> impl Iterator<Item = ContigLine<'_>> {
    let header = |key: &str| schema.metadata().get(key).map(String::as_str).unwrap_or_default();
    let of_sam =
        header(columnar::HEADER_KEY).lines().filter_map(|line| line.strip_prefix("@SQ\t")).map(ContigLine::Sam);
    let of_vcf = header(variants::HEADER_KEY).lines();
    let of_vcf = of_vcf.filter_map(|line| line.strip_prefix("##contig=<")?.strip_suffix('>')).map(ContigLine::Vcf);
    of_sam.chain(of_vcf)
}

/// What becomes of a dataset of the same name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Existing {
    /// There must be none.
    #[default]
    Create,
    /// The new one takes its place, at once.
    Replace,
    /// Its rows come behind those that are there; without one, it is made.
    Append,
}

/// What a client wants to put.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Put {
    /// The name of the dataset.
    pub name: String,
    /// What becomes of one of the same name.
    pub existing: Existing,
    /// Whether there has to be one.
    pub must_exist: bool,
    /// Kept in memory, and gone with the server.
    pub temporary: bool,
    /// By which this upload is known again, 8 to 64 hexadecimal digits: one that is already kept is not kept once more.
    pub upload: Option<String>,
}

/// What was put.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stored {
    /// The name it has from now on.
    pub dataset: String,
    /// Rows that were taken.
    pub rows: u64,
}

/// A dataset on its way in. Dropping it forgets it: nobody ever saw it.
pub trait DatasetWriter: Send {
    /// Takes rows, of the schema it was begun with.
    ///
    /// # Errors
    /// [`DatasetError`].
    fn write(&mut self, batch: &RecordBatch) -> Result<(), DatasetError>;

    /// Makes everything durable, and the dataset seen, at once.
    ///
    /// # Errors
    /// [`DatasetError`]: then it is as if nothing had been put.
    fn commit(self: Box<Self>) -> Result<Stored, DatasetError>;
}

/// The directory that the names of datasets begin with that end with the server.
pub const TEMPORARY: &str = "temporary";

/// A dataset that was opened, and the rule that let it be seen.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Touched {
    /// Its name.
    pub dataset: String,
    /// The name of the rule.
    pub rule: String,
}

/// What one call came to, as far as there are rules about it. Clones are the same list.
#[derive(Clone, Debug, Default)]
pub struct Touches(Arc<Mutex<BTreeSet<Touched>>>);

impl Touches {
    fn locked(&self) -> MutexGuard<'_, BTreeSet<Touched>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a dataset or file.
    pub fn add(&self, dataset: &str, rule: &str) {
        self.locked().insert(Touched { dataset: dataset.to_owned(), rule: rule.to_owned() });
    }

    /// All of them, each once.
    pub fn all(&self) -> Vec<Touched> {
        self.locked().iter().cloned().collect()
    }

    /// The same, and forgets them.
    pub fn take(&self) -> Vec<Touched> {
        std::mem::take(&mut *self.locked()).into_iter().collect()
    }
}

/// Datasets by name.
pub trait Catalog: std::fmt::Debug + Send + Sync {
    /// All names, sorted. What cannot be read is left out.
    ///
    /// # Errors
    /// [`DatasetError`].
    fn names(&self) -> Result<Vec<String>, DatasetError>;

    /// The dataset of a name.
    ///
    /// # Errors
    /// [`DatasetError`].
    fn open(&self, name: &str) -> Result<Arc<dyn Dataset>, DatasetError>;

    /// The one name, of all under which [`Catalog::open`] finds a dataset, that rules are applied to. It need not be there.
    ///
    /// # Errors
    /// [`DatasetError::NotFound`] for what cannot be the name of a dataset by itself.
    fn canonical_name(&self, name: &str) -> Result<String, DatasetError> {
        Ok(name.to_owned())
    }

    /// Whether datasets may be put and removed.
    fn is_writable(&self) -> bool {
        false
    }

    /// Begins to take a dataset of a client's.
    ///
    /// # Errors
    /// [`DatasetError`]: [`DatasetError::Forbidden`] where datasets are only read.
    fn put(&self, _put: &Put, _schema: SchemaRef) -> Result<Box<dyn DatasetWriter>, DatasetError> {
        Err(read_only())
    }

    /// Removes a dataset that a client put.
    ///
    /// # Errors
    /// [`DatasetError`]: [`DatasetError::Forbidden`] where datasets are only read, or this one is.
    fn remove(&self, _name: &str) -> Result<(), DatasetError> {
        Err(read_only())
    }
}

/// What is said where nothing can be put.
pub fn read_only() -> DatasetError {
    DatasetError::Forbidden { problem: "datasets are only read here; start the server with --writable".to_owned() }
}

impl From<DatasetError> for tonic::Status {
    fn from(error: DatasetError) -> Self {
        let text = with_causes(&error);
        match error {
            DatasetError::NotFound { .. } => ErrorReason::DatasetNotFound.status(tonic::Code::NotFound, text),
            DatasetError::Refused { .. } => Self::invalid_argument(text),
            DatasetError::Forbidden { .. } => Self::permission_denied(text),
            DatasetError::AlreadyThere { .. } => Self::already_exists(text),
            DatasetError::Changed { .. } => ErrorReason::DatasetChanged.status(tonic::Code::FailedPrecondition, text),
            DatasetError::Data(_) => Self::data_loss(text),
            DatasetError::Machine(_) | DatasetError::Remote(_) => Self::unavailable(text),
        }
    }
}
