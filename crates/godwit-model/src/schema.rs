//! Every Arrow schema that crosses a process border.
//!
//! A block crosses a pipe as one Arrow IPC stream per kind. Values of the whole block are in the schema's metadata under the
//! keys in [`metadata`].

pub mod alignment_columns;
pub mod hit_columns;
pub mod variant_columns;

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};

use crate::{EndSignature, PairSignature};

/// Keys of schema metadata.
pub mod metadata {
    /// Kind of the stream: [`super::HELLO`], [`super::READS`], [`super::ALIGNMENTS`], [`super::PAIRS`], [`super::ENDS`] or
    /// [`super::BLOCK_END`].
    pub const KIND: &str = "godwit.kind";
    /// 0-based index of the lane, decimal.
    pub const LANE: &str = "godwit.lane";
    /// 0-based index of the block within its lane, decimal.
    pub const BLOCK: &str = "godwit.block";
    /// Number of reads of the lane before this block, decimal: `n_processed` of bwa.
    pub const FIRST_ORDINAL: &str = "godwit.first_ordinal";
    /// `1` if reads are paired (rows 2i and 2i+1 are mates), else `0`.
    pub const PAIRED: &str = "godwit.paired";
    /// `ID` of the read group of the lane; absent for none.
    pub const READ_GROUP: &str = "godwit.read_group";
    /// Index of that read group in the header, decimal.
    pub const READ_GROUP_INDEX: &str = "godwit.read_group_index";
    /// Index of the library of that read group, decimal.
    pub const LIBRARY_INDEX: &str = "godwit.library_index";
    /// Version of the godwit release that the program belongs to.
    pub const GODWIT_VERSION: &str = "godwit.version";
    /// Version of the linked aligner.
    pub const ENGINE_VERSION: &str = "godwit.engine_version";
    /// `@SQ` lines as the aligner prints them, newline-ended.
    pub const SQ_LINES: &str = "godwit.sq_lines";
    /// Number of reads in the block, decimal.
    pub const READS: &str = "godwit.reads";
    /// Number of records in the block, decimal.
    pub const RECORDS: &str = "godwit.records";
    /// Counts of the block for the duplicate metrics: `unpaired,paired,not_primary,unmapped`, decimal.
    pub const DUPLICATE_COUNTS: &str = "godwit.duplicate_counts";
}

/// First stream of an aligner: versions and contigs, no columns.
pub const HELLO: &str = "hello";
/// Reads to align.
pub const READS: &str = "reads";
/// Aligned records in the aligner's order.
pub const ALIGNMENTS: &str = "alignments";
/// [`PairSignature`]s.
pub const PAIRS: &str = "pairs";
/// [`EndSignature`]s.
pub const ENDS: &str = "ends";
/// End of a block: counts, no columns.
pub const BLOCK_END: &str = "block_end";

/// Returns the schema of reads of a block, in the order of the input; mates are neighbours (read 1, read 2).
///
/// `name`: up to the first white space, without a trailing `/1` or `/2`. `comment`: the rest of the title line, or null.
/// `sequence`: bases as in the file. `quality`: same length, Phred+33, null for FASTA input.
pub fn reads() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("name", DataType::Binary, false),
        Field::new("comment", DataType::Binary, true),
        Field::new("sequence", DataType::Binary, false),
        Field::new("quality", DataType::Binary, true),
    ]))
}

/// Returns the schema of aligned records of a block in the aligner's order: key columns and the packed record.
///
/// `contig`: index, -1 none. `position`: 0-based POS, -1 none. `flag`: FLAG. `five_prime`: 0-based unclipped 5' position,
/// valid only on mapped records. `order`: 0-based index within the block. `record`: BAM record without its leading
/// `block_size`.
pub fn alignments() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("contig", DataType::Int32, false),
        Field::new("position", DataType::Int32, false),
        Field::new("flag", DataType::UInt16, false),
        Field::new("five_prime", DataType::Int32, false),
        Field::new("order", DataType::UInt32, false),
        Field::new("record", DataType::Binary, false),
    ]))
}

/// Returns the schema of [`PairSignature`]s as bytes, unsorted.
pub fn pairs() -> SchemaRef {
    fixed_size_schema("pair", size_of::<PairSignature>())
}

/// Returns the schema of [`EndSignature`]s as bytes, unsorted.
pub fn ends() -> SchemaRef {
    fixed_size_schema("end", size_of::<EndSignature>())
}

/// Returns a schema without columns, for messages that consist of metadata.
pub fn empty_schema() -> SchemaRef {
    Arc::new(Schema::empty())
}

fn fixed_size_schema(name: &str, bytes: usize) -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new(name, DataType::FixedSizeBinary(bytes as i32), false)]))
}
