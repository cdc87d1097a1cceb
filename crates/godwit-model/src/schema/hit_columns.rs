//! Hits of sequence searches as columns, as `godwit search --hits` writes them. `docs/formats/hits.md` describes them for
//! authors of readers.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};

/// Version of this schema, under [`VERSION_KEY`]. A reader rejects a higher one.
pub const VERSION: &str = "1";
/// Metadata key of [`VERSION`].
pub const VERSION_KEY: &str = "godwit.hits";
/// Metadata key of the search program, such as `blastp`.
pub const PROGRAM_KEY: &str = "search.program";
/// Metadata key of the engine and its version.
pub const ENGINE_KEY: &str = "search.engine";

/// Returns the columns, without metadata: a row for each alignment of a query with a subject (an HSP), in the order in which BLAST+
/// prints them as a table.
///
/// `query_index` is the 0-based index of the query. All other columns have the names, numbers and coordinates of the fields
/// of BLAST+'s tables: 1-based, ends included, `sstart` above `send` on the minus strand, in letters of query and subject as
/// they are in their files. `evalue` and `bitscore` are not rounded. Null is what BLAST+ prints as `N/A`.
pub fn hits() -> SchemaRef {
    let mut fields = vec![Field::new("query_index", DataType::Int64, false)];
    fields.extend(TABLE_FIELDS.iter().map(|(name, data_type)| {
        let is_certain = !NULLABLE_FIELDS.contains(name);
        Field::new(*name, data_type.clone(), !is_certain)
    }));
    Arc::new(Schema::new(fields))
}

/// The columns that are fields of BLAST+'s tables, by their names in `-outfmt`.
pub const TABLE_FIELDS: [(&str, DataType); 25] = [
    ("qaccver", DataType::Utf8),
    ("saccver", DataType::Utf8),
    ("pident", DataType::Float64),
    ("length", DataType::Int32),
    ("mismatch", DataType::Int32),
    ("gapopen", DataType::Int32),
    ("qstart", DataType::Int32),
    ("qend", DataType::Int32),
    ("sstart", DataType::Int32),
    ("send", DataType::Int32),
    ("evalue", DataType::Float64),
    ("bitscore", DataType::Float64),
    ("score", DataType::Int32),
    ("qlen", DataType::Int32),
    ("slen", DataType::Int32),
    ("nident", DataType::Int32),
    ("positive", DataType::Int32),
    ("gaps", DataType::Int32),
    ("qframe", DataType::Int32),
    ("sframe", DataType::Int32),
    ("qcovs", DataType::Int32),
    ("qcovhsp", DataType::Int32),
    ("staxid", DataType::Int32),
    ("stitle", DataType::Utf8),
    ("btop", DataType::Utf8),
];

/// Fields that not all databases and programs have.
const NULLABLE_FIELDS: [&str; 5] = ["qcovs", "qcovhsp", "staxid", "stitle", "btop"];
