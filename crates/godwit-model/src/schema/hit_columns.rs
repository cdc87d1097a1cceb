//! The columns of sequence search hits that `godwit search --hits` writes. `docs/formats/hits.md` describes the columns
//! for authors of readers.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};

/// Version of this schema, stored in the schema metadata under [`VERSION_KEY`]. Readers reject a file of another version
/// ([`check_version`](super::check_version)). Columns that are added at the end do not change the version.
pub const VERSION: &str = "1";
/// Key of the schema metadata that holds [`VERSION`].
pub const VERSION_KEY: &str = "godwit.hits";
/// Key of the schema metadata that holds the name of the search program, such as `blastp`.
pub const PROGRAM_KEY: &str = "search.program";
/// Key of the schema metadata that holds the name and version of the search engine.
pub const ENGINE_KEY: &str = "search.engine";

/// Returns the schema of the columns, without metadata. Each row is one alignment of a query with a subject (an HSP).
/// Rows are in the order of the tabular output of BLAST+.
///
/// `query_index` is the 0-based index of the query. All other columns have the names, values and coordinates of the
/// fields in the tabular output of BLAST+. Coordinates are 1-based and closed, and refer to the sequences as in the
/// input files. On the minus strand, `sstart` is above `send`. `evalue` and `bitscore` are not rounded. Null stands for
/// `N/A` of BLAST+.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use arrow_schema::DataType;
/// use godwit_model::schema::hit_columns;
///
/// let schema = hit_columns::hits();
/// assert_eq!(schema.field(0).name(), "query_index");
/// assert_eq!(schema.field_with_name("evalue")?.data_type(), &DataType::Float64);
/// assert!(schema.field_with_name("staxid")?.is_nullable());
/// # Ok(())
/// # }
/// ```
pub fn hits() -> SchemaRef {
    let mut fields = vec![Field::new("query_index", DataType::Int64, false)];
    fields.extend(TABLE_FIELDS.iter().map(|(name, data_type)| {
        let is_certain = !NULLABLE_FIELDS.contains(name);
        Field::new(*name, data_type.clone(), !is_certain)
    }));
    Arc::new(Schema::new(fields))
}

/// The columns that are fields of the tabular output of BLAST+, by their names in the option `-outfmt`.
pub const TABLE_FIELDS: [(&str, DataType); 29] = [
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
    ("ssciname", DataType::Utf8),
    ("scomname", DataType::Utf8),
    ("sblastname", DataType::Utf8),
    ("sskingdom", DataType::Utf8),
];

/// Fields that may be null, because not every database or search program has them.
const NULLABLE_FIELDS: [&str; 9] =
    ["qcovs", "qcovhsp", "staxid", "stitle", "btop", "ssciname", "scomname", "sblastname", "sskingdom"];
