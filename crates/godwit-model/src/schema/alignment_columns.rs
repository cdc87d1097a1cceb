//! The columns of alignments in Parquet and Arrow files. `docs/formats/alignments.md` describes the columns for authors
//! of readers.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};

/// Version of this schema, stored in the schema metadata under [`VERSION_KEY`]. A reader rejects a higher version.
pub const VERSION: &str = "1";
/// Key of the schema metadata that holds [`VERSION`].
pub const VERSION_KEY: &str = "godwit.alignments";
/// Key of the schema metadata that holds the text of the SAM header.
pub const HEADER_KEY: &str = "sam.header";

/// The type of a tag column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagType {
    /// An integer tag (type `c`, `C`, `s`, `S`, `i` or `I`) whose value fits a signed 32-bit integer.
    Integer,
    /// A tag of type `Z` whose value is ASCII.
    Text,
}

/// Tags that have a column of their own, named `tag_XX`; `RG` is not listed because its column is `read_group`. Integer
/// tags precede text tags, and each type is in the order of the columns.
pub const TAG_COLUMNS: [([u8; 2], TagType); 8] = [
    (*b"NM", TagType::Integer),
    (*b"AS", TagType::Integer),
    (*b"XS", TagType::Integer),
    (*b"MQ", TagType::Integer),
    (*b"MD", TagType::Text),
    (*b"MC", TagType::Text),
    (*b"SA", TagType::Text),
    (*b"XA", TagType::Text),
];

/// Returns the schema of the columns, without metadata. Rows are sorted by `contig_id` (null last) and `position`.
///
/// `position`, `end_position` and `mate_position` are 0-based, -1 if absent. A record covers
/// `[position, end_position)`: one base if the record has no CIGAR or is unmapped. `contig`, `mate_contig`, `cigar`,
/// `bases` and `qualities` are null if SAM has `*`. `qualities` are Phred scores without an offset.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use arrow_schema::DataType;
/// use godwit_model::schema::alignment_columns;
///
/// let schema = alignment_columns::alignments();
/// assert_eq!(schema.field_with_name("mapping_quality")?.data_type(), &DataType::UInt8);
/// assert_eq!(schema.field_with_name("tag_NM")?.data_type(), &DataType::Int32);
/// assert!(schema.field_with_name("contig")?.is_nullable());
/// # Ok(())
/// # }
/// ```
pub fn alignments() -> SchemaRef {
    alignment_schema(DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)))
}

/// Returns the schema of [`alignments`] with contigs and read groups as strings instead of dictionaries, for conversion
/// back to SAM records.
pub fn alignments_without_dictionaries() -> SchemaRef {
    alignment_schema(DataType::Utf8)
}

fn alignment_schema(name_type: DataType) -> SchemaRef {
    let mut fields = vec![
        Field::new("name", DataType::Utf8, false),
        Field::new("flags", DataType::UInt16, false),
        Field::new("contig", name_type.clone(), true),
        Field::new("contig_id", DataType::Int32, true),
        Field::new("position", DataType::Int32, false),
        Field::new("end_position", DataType::Int32, false),
        Field::new("mapping_quality", DataType::UInt8, false),
        Field::new("cigar", DataType::Utf8, true),
        Field::new("mate_contig", name_type.clone(), true),
        Field::new("mate_position", DataType::Int32, false),
        Field::new("template_length", DataType::Int32, false),
        Field::new("bases", DataType::Utf8, true),
        Field::new("qualities", DataType::Binary, true),
        Field::new("read_group", name_type, true),
    ];
    for ([a, b], kind) in TAG_COLUMNS {
        let data_type = match kind {
            TagType::Integer => DataType::Int32,
            TagType::Text => DataType::Utf8,
        };
        fields.push(Field::new(format!("tag_{}{}", char::from(a), char::from(b)), data_type, true));
    }
    fields.push(Field::new("tag_layout", DataType::Utf8, false));
    fields.push(Field::new("other_tags", DataType::Binary, true));
    Arc::new(Schema::new(fields))
}
