//! The Arrow schemas of the pipes to aligner processes (this file), and of the files and tables of alignments, variants
//! and hits ([`alignment_columns`], [`variant_columns`], [`hit_columns`]).
//!
//! godwit and an aligner process exchange each block over pipes, with one Arrow IPC stream for each kind of data.
//! Values that apply to the whole block are in the schema metadata of the stream, under the keys in [`metadata`].

pub mod alignment_columns;
pub mod hit_columns;
pub mod variant_columns;

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};

use crate::{EndSignature, PairSignature};

/// Versions of the columns of files, with the keys of the schema metadata that hold them.
const FILE_VERSIONS: [(&str, &str); 3] = [
    (alignment_columns::VERSION_KEY, alignment_columns::VERSION),
    (variant_columns::VERSION_KEY, variant_columns::VERSION),
    (hit_columns::VERSION_KEY, hit_columns::VERSION),
];

/// A version of the columns of a file that this godwit does not know.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("version {found} of {key}; this godwit reads version {known}; install a newer godwit")]
pub struct UnknownVersion {
    /// Key of the schema metadata that holds the version.
    pub key: &'static str,
    /// Version of the file.
    pub found: String,
    /// Version that this godwit reads.
    pub known: &'static str,
}

/// Checks that this godwit knows the version of the columns in the schema metadata of a file. Metadata without a version
/// are those of a table of other origin, and pass.
///
/// # Errors
/// [`UnknownVersion`] if the metadata have another version of alignments, variants or hits.
///
/// # Examples
///
/// ```
/// use std::collections::HashMap;
///
/// use godwit_model::schema::{alignment_columns, check_version};
///
/// let mut metadata = HashMap::from([(alignment_columns::VERSION_KEY.to_owned(), "1".to_owned())]);
/// assert_eq!(check_version(&metadata), Ok(()));
/// metadata.insert(alignment_columns::VERSION_KEY.to_owned(), "2".to_owned());
/// assert_eq!(check_version(&metadata).unwrap_err().found, "2");
/// ```
pub fn check_version(metadata: &HashMap<String, String>) -> Result<(), UnknownVersion> {
    for (key, known) in FILE_VERSIONS {
        if let Some(found) = metadata.get(key).filter(|found| *found != known) {
            return Err(UnknownVersion { key, found: found.clone(), known });
        }
    }
    Ok(())
}

/// Keys of the schema metadata of streams.
pub mod metadata {
    /// Kind of the stream: [`super::HELLO`], [`super::READS`], [`super::ALIGNMENTS`], [`super::PAIRS`], [`super::ENDS`]
    /// or [`super::BLOCK_END`].
    pub const KIND: &str = "godwit.kind";
    /// 0-based index of the lane that the block belongs to, decimal.
    pub const LANE: &str = "godwit.lane";
    /// 0-based index of the block within its lane, decimal.
    pub const BLOCK: &str = "godwit.block";
    /// Number of reads of the lane that precede this block, decimal (`n_processed` of bwa).
    pub const FIRST_ORDINAL: &str = "godwit.first_ordinal";
    /// `1` if reads are paired (rows 2i and 2i+1 are mates), else `0`.
    pub const PAIRED: &str = "godwit.paired";
    /// `ID` of the read group of the lane; absent if the lane does not have a read group.
    pub const READ_GROUP: &str = "godwit.read_group";
    /// 0-based index of the lane's read group in the SAM header, decimal.
    pub const READ_GROUP_INDEX: &str = "godwit.read_group_index";
    /// 0-based index of the library of the lane's read group, decimal.
    pub const LIBRARY_INDEX: &str = "godwit.library_index";
    /// Version of the godwit release that the aligner program is part of.
    pub const GODWIT_VERSION: &str = "godwit.version";
    /// Version of the aligner library that the program is linked with.
    pub const ENGINE_VERSION: &str = "godwit.engine_version";
    /// `@SQ` lines as the aligner prints them; a line feed ends each line.
    pub const SQ_LINES: &str = "godwit.sq_lines";
    /// Number of reads in the block, decimal.
    pub const READS: &str = "godwit.reads";
    /// Number of alignment records of the block, decimal.
    pub const RECORDS: &str = "godwit.records";
    /// Record counts of the block for the duplication metrics: `unpaired,paired,not_primary,unmapped`, decimal.
    pub const DUPLICATE_COUNTS: &str = "godwit.duplicate_counts";
}

/// Kind of the first stream that an aligner process sends: versions and contigs in the metadata, no columns.
pub const HELLO: &str = "hello";
/// Kind of a stream of reads to align.
pub const READS: &str = "reads";
/// Kind of a stream of alignment records, in the order in which the aligner returned the records.
pub const ALIGNMENTS: &str = "alignments";
/// Kind of a stream of [`PairSignature`]s.
pub const PAIRS: &str = "pairs";
/// Kind of a stream of [`EndSignature`]s.
pub const ENDS: &str = "ends";
/// Kind of the stream that ends a block: counts in the metadata, no columns.
pub const BLOCK_END: &str = "block_end";

/// Returns the schema of the reads of a block. Rows are in input order; the mates of a pair are in neighbouring rows
/// (read 1, read 2).
///
/// `name` ends before the first white space and does not have a trailing `/1` or `/2`. `comment` is the remainder of
/// the title line, or null. `sequence` holds the bases as in the input file. `quality` has the same length, in
/// Phred+33; null for FASTA input.
///
/// # Examples
///
/// ```
/// use godwit_model::schema;
///
/// let reads = schema::pipe_reads();
/// let names: Vec<&str> = reads.fields().iter().map(|field| field.name().as_str()).collect();
/// assert_eq!(names, ["name", "comment", "sequence", "quality"]);
/// ```
pub fn pipe_reads() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("name", DataType::Binary, false),
        Field::new("comment", DataType::Binary, true),
        Field::new("sequence", DataType::Binary, false),
        Field::new("quality", DataType::Binary, true),
    ]))
}

/// Returns the schema of the alignment records of a block: the columns of the sort key, and the packed record. Rows are
/// in the order in which the aligner returned the records.
///
/// `contig` is the contig index and `position` the 0-based POS, both -1 if absent. `flag` is FLAG. `five_prime` is the
/// 0-based unclipped 5' position, valid only for mapped records. `order` is the 0-based index within the block.
/// `record` is the BAM record without its leading `block_size`.
pub fn pipe_alignments() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("contig", DataType::Int32, false),
        Field::new("position", DataType::Int32, false),
        Field::new("flag", DataType::UInt16, false),
        Field::new("five_prime", DataType::Int32, false),
        Field::new("order", DataType::UInt32, false),
        Field::new("record", DataType::Binary, false),
    ]))
}

/// Returns the schema of unsorted [`PairSignature`]s: one column with the bytes of each signature.
pub fn pipe_pairs() -> SchemaRef {
    fixed_size_schema("pair", size_of::<PairSignature>())
}

/// Returns the schema of unsorted [`EndSignature`]s: one column with the bytes of each signature.
pub fn pipe_ends() -> SchemaRef {
    fixed_size_schema("end", size_of::<EndSignature>())
}

/// Returns a schema without columns, for streams that carry only metadata.
pub fn empty_schema() -> SchemaRef {
    Arc::new(Schema::empty())
}

fn fixed_size_schema(name: &str, bytes: usize) -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new(name, DataType::FixedSizeBinary(bytes as i32), false)]))
}
