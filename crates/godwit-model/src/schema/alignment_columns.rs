//! Alignments as columns, as Parquet and Arrow files hold them. `docs/formats/alignments.md` describes them for authors of
//! readers.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};

/// Version of this schema, under [`VERSION_KEY`]. A reader rejects a higher one.
pub const VERSION: &str = "1";
/// Metadata key of [`VERSION`].
pub const VERSION_KEY: &str = "godwit.alignments";
/// Metadata key of the SAM header, as text.
pub const HEADER_KEY: &str = "sam.header";

/// The type of a tag column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagType {
    /// Any of the types `cCsSiI`, if the value fits a signed 32-bit integer.
    Integer,
    /// `Z`, if the value is ASCII.
    Text,
}

/// Tags with a column `tag_XX`, besides `RG`, which is `read_group`. Integers first, each type in the order of its columns.
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

/// Returns the columns, without metadata. Rows are in the order of `contig_id` (null last) and `position`.
///
/// `position`, `end_position` and `mate_position` are 0-based, -1 for none. A record covers `[position, end_position)`, one
/// base if it has no CIGAR or is unmapped. `contig`, `mate_contig`, `cigar`, `bases` and `qualities` are null where SAM has
/// `*`; `qualities` are Phred scores without an offset.
pub fn alignments() -> SchemaRef {
    alignment_schema(DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)))
}

/// Returns the columns of [`alignments`] with contigs and read groups as plain text, for conversion back to records.
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
