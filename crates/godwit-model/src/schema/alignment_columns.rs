//! The columns of alignments in Parquet and Arrow files. `docs/formats/alignments.md` describes the columns for authors
//! of readers.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};

/// Version of this schema, stored in the schema metadata under [`VERSION_KEY`]. Readers reject a file of another version
/// ([`check_version`](super::check_version)). Columns that are added at the end do not change the version.
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

/// A column of one tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagColumn {
    /// Name of the tag.
    pub tag: [u8; 2],
    /// Name of the column.
    pub name: &'static str,
    /// Type of the tags whose values are in the column.
    pub tag_type: TagType,
}

impl TagColumn {
    const fn new(tag: [u8; 2], name: &'static str, tag_type: TagType) -> Self {
        Self { tag, name, tag_type }
    }
}

/// Tags that have a column of their own; `RG` is not listed because its column is `read_group`. Integer tags precede text
/// tags, and each type is in the order of the columns.
pub const TAG_COLUMNS: [TagColumn; 8] = [
    TagColumn::new(*b"NM", "tag_NM", TagType::Integer),
    TagColumn::new(*b"AS", "tag_AS", TagType::Integer),
    TagColumn::new(*b"XS", "tag_XS", TagType::Integer),
    TagColumn::new(*b"MQ", "tag_MQ", TagType::Integer),
    TagColumn::new(*b"MD", "tag_MD", TagType::Text),
    TagColumn::new(*b"MC", "tag_MC", TagType::Text),
    TagColumn::new(*b"SA", "tag_SA", TagType::Text),
    TagColumn::new(*b"XA", "tag_XA", TagType::Text),
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

// 0-based indexes of the columns in the schema.
/// Index of `name`.
pub const NAME_COLUMN: usize = 0;
/// Index of `flags`.
pub const FLAGS_COLUMN: usize = 1;
/// Index of `contig`.
pub const CONTIG_COLUMN: usize = 2;
/// Index of `contig_id`.
pub const CONTIG_ID_COLUMN: usize = 3;
/// Index of `position`.
pub const POSITION_COLUMN: usize = 4;
/// Index of `end_position`.
pub const END_POSITION_COLUMN: usize = 5;
/// Index of `mapping_quality`.
pub const MAPPING_QUALITY_COLUMN: usize = 6;
/// Index of `cigar`.
pub const CIGAR_COLUMN: usize = 7;
/// Index of `mate_contig`.
pub const MATE_CONTIG_COLUMN: usize = 8;
/// Index of `mate_position`.
pub const MATE_POSITION_COLUMN: usize = 9;
/// Index of `template_length`.
pub const TEMPLATE_LENGTH_COLUMN: usize = 10;
/// Index of `bases`.
pub const BASES_COLUMN: usize = 11;
/// Index of `qualities`.
pub const QUALITIES_COLUMN: usize = 12;
/// Index of `read_group`.
pub const READ_GROUP_COLUMN: usize = 13;
/// Index of the first of [`TAG_COLUMNS`].
pub const FIRST_TAG_COLUMN: usize = 14;
/// Index of `tag_layout`.
pub const TAG_LAYOUT_COLUMN: usize = FIRST_TAG_COLUMN + TAG_COLUMNS.len();
/// Index of `other_tags`.
pub const OTHER_TAGS_COLUMN: usize = TAG_LAYOUT_COLUMN + 1;
/// Number of columns.
pub const COLUMN_COUNT: usize = OTHER_TAGS_COLUMN + 1;

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
    for column in TAG_COLUMNS {
        let data_type = match column.tag_type {
            TagType::Integer => DataType::Int32,
            TagType::Text => DataType::Utf8,
        };
        fields.push(Field::new(column.name, data_type, true));
    }
    fields.push(Field::new("tag_layout", DataType::Utf8, false));
    fields.push(Field::new("other_tags", DataType::Binary, true));
    Arc::new(Schema::new(fields))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_those_of_the_names() {
        let schema = alignments();
        let names = [
            (NAME_COLUMN, "name"),
            (FLAGS_COLUMN, "flags"),
            (CONTIG_COLUMN, "contig"),
            (CONTIG_ID_COLUMN, "contig_id"),
            (POSITION_COLUMN, "position"),
            (END_POSITION_COLUMN, "end_position"),
            (MAPPING_QUALITY_COLUMN, "mapping_quality"),
            (CIGAR_COLUMN, "cigar"),
            (MATE_CONTIG_COLUMN, "mate_contig"),
            (MATE_POSITION_COLUMN, "mate_position"),
            (TEMPLATE_LENGTH_COLUMN, "template_length"),
            (BASES_COLUMN, "bases"),
            (QUALITIES_COLUMN, "qualities"),
            (READ_GROUP_COLUMN, "read_group"),
            (TAG_LAYOUT_COLUMN, "tag_layout"),
            (OTHER_TAGS_COLUMN, "other_tags"),
        ];
        let tags = TAG_COLUMNS.iter().enumerate().map(|(at, column)| (FIRST_TAG_COLUMN + at, column.name));
        for (index, name) in names.into_iter().chain(tags) {
            assert_eq!(schema.field(index).name(), name);
        }
        assert_eq!((names.len() + TAG_COLUMNS.len(), schema.fields().len()), (COLUMN_COUNT, COLUMN_COUNT));
    }

    #[test]
    fn tag_columns_have_the_names_of_the_tags_and_integers_are_first() {
        for column in TAG_COLUMNS {
            assert_eq!(column.name.as_bytes(), [&b"tag_"[..], &column.tag].concat());
        }
        assert!(TAG_COLUMNS.is_sorted_by_key(|column| column.tag_type == TagType::Text));
    }
}
