//! Variants as columns: a VCF file in Parquet and Arrow. `docs/formats/variants.md` describes them for authors of readers.
//!
//! The columns depend on the header of the VCF file: each `INFO` and `FORMAT` line of it has one.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};

/// Version of this schema, under [`VERSION_KEY`]. A reader rejects a higher one.
pub const VERSION: &str = "1";
/// Metadata key of [`VERSION`].
pub const VERSION_KEY: &str = "godwit.variants";
/// Metadata key of the VCF header, as text: from `##fileformat` to `#CHROM`, every line ended by a line feed.
pub const HEADER_KEY: &str = "vcf.header";

/// The type of the values of a field (VCFv4.4 §1.4.2: `Type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// Present or absent: `Flag`, or any field with `Number=0`.
    Flag,
    /// `Integer`, signed 32 bits.
    Integer,
    /// `Float`, 32 bits.
    Float,
    /// `String`, `Character`, and every other type.
    Text,
}

/// The number of values of a field in a record or sample (VCFv4.4 §1.4.2: `Number`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueCount {
    /// At most one value.
    One,
    /// A list: a value for each allele, genotype or other item.
    List,
}

/// A field that an `INFO` or `FORMAT` line of a header defines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldDefinition {
    /// `ID`.
    pub id: String,
    /// Type of the values.
    pub value_type: ValueType,
    /// Number of values.
    pub count: ValueCount,
}

impl FieldDefinition {
    /// Returns Arrow's type of one value: of a record for `INFO`, of a sample of a record for `FORMAT`.
    pub fn data_type(&self) -> DataType {
        let value = match self.value_type {
            ValueType::Flag => DataType::Boolean,
            ValueType::Integer => DataType::Int32,
            ValueType::Float => DataType::Float32,
            ValueType::Text => DataType::Utf8,
        };
        if self.count == ValueCount::List { list_type(value) } else { value }
    }
}

/// Returns the type of a list whose elements may be null.
pub fn list_type(element: DataType) -> DataType {
    DataType::List(Arc::new(Field::new("item", element, true)))
}

/// Returns the columns, without metadata. Rows are in the order of the file.
///
/// `position` is 0-based; a record covers `[position, end_position)` of the reference. `contig_id` is the index of the
/// header's `contig` line, null if there is none. `identifiers`, `quality` and `filters` are null where VCF has `.`;
/// `alternates` is empty there. With `samples`, lists over samples in the order of the header follow: the alleles of
/// genotypes as indices (0: the reference; null: missing), whether they are phased, and one for each of `formats`; a list is
/// null if the record does not have the field. Values that fit no column are in `other_info` and `other_formats`, as text.
pub fn variants(info: &[FieldDefinition], formats: &[FieldDefinition], samples: bool) -> SchemaRef {
    let mut fields = vec![
        Field::new("contig", DataType::Utf8, false),
        Field::new("contig_id", DataType::Int32, true),
        Field::new("position", DataType::Int32, false),
        Field::new("end_position", DataType::Int32, false),
        Field::new("identifiers", list_type(DataType::Utf8), true),
        Field::new("reference", DataType::Utf8, false),
        Field::new("alternates", list_type(DataType::Utf8), false),
        Field::new("quality", DataType::Float32, true),
        Field::new("filters", list_type(DataType::Utf8), true),
    ];
    for field in info {
        let nullable = field.value_type != ValueType::Flag;
        fields.push(Field::new(format!("info_{}", field.id), field.data_type(), nullable));
    }
    fields.push(Field::new("other_info", DataType::Utf8, true));
    if samples {
        fields.push(Field::new("genotype_alleles", list_type(list_type(DataType::Int32)), true));
        fields.push(Field::new("genotype_phased", list_type(DataType::Boolean), true));
        for field in formats {
            fields.push(Field::new(format!("format_{}", field.id), list_type(field.data_type()), true));
        }
        fields.push(Field::new("other_formats", list_type(DataType::Utf8), true));
    }
    Arc::new(Schema::new(fields))
}
