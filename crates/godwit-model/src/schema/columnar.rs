//! Alignments as columns for everybody: what Parquet and Arrow files hold. `docs/formats/alignments.md` describes it for
//! those who write readers.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};

/// Version of this schema, under [`VERSION_KEY`]. A reader refuses a higher one.
pub const VERSION: &str = "1";
/// Metadata key of [`VERSION`].
pub const VERSION_KEY: &str = "godwit.alignments";
/// Metadata key of the SAM header, as text.
pub const HEADER_KEY: &str = "sam.header";

/// What a column of a tag holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagType {
    /// Any of the types `cCsSiI`, where the value fits 32 bits with a sign.
    Integer,
    /// `Z`, where the value is ASCII.
    Text,
}

/// Tags that have a column `tag_XX`, besides `RG`, which is `read_group`. Integers first, each kind in the order of its
/// columns.
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

/// The columns, without metadata. Rows are in the order of `contig_id` (null last) and `position`.
///
/// `position`, `end_position` and `mate_position` are 0-based, -1 for none; a record covers
/// `[position, end_position)`, one base where it has no CIGAR or is unmapped. `contig`, `mate_contig`, `cigar`, `bases`
/// and `qualities` are null where SAM has `*`; `qualities` are Phred scores without an offset.
pub fn alignments() -> SchemaRef {
    with_names(DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)))
}

/// The columns of [`alignments`], names of contigs and read groups as plain text: what is made records again.
pub fn plain_alignments() -> SchemaRef {
    with_names(DataType::Utf8)
}

fn with_names(names: DataType) -> SchemaRef {
    let mut fields = vec![
        Field::new("name", DataType::Utf8, false),
        Field::new("flags", DataType::UInt16, false),
        Field::new("contig", names.clone(), true),
        Field::new("contig_id", DataType::Int32, true),
        Field::new("position", DataType::Int32, false),
        Field::new("end_position", DataType::Int32, false),
        Field::new("mapping_quality", DataType::UInt8, false),
        Field::new("cigar", DataType::Utf8, true),
        Field::new("mate_contig", names.clone(), true),
        Field::new("mate_position", DataType::Int32, false),
        Field::new("template_length", DataType::Int32, false),
        Field::new("bases", DataType::Utf8, true),
        Field::new("qualities", DataType::Binary, true),
        Field::new("read_group", names, true),
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
