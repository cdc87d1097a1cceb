//! The columns of variants: the records of a VCF file in Parquet and Arrow files. `docs/formats/variants.md` describes
//! the columns for authors of readers.
//!
//! The columns depend on the header of the VCF file: each `INFO` and `FORMAT` line has a column.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};

/// Version of this schema, stored in the schema metadata under [`VERSION_KEY`]. Readers reject a file of another version
/// ([`check_version`](super::check_version)). Columns that are added at the end do not change the version.
pub const VERSION: &str = "1";
/// Key of the schema metadata that holds [`VERSION`].
pub const VERSION_KEY: &str = "godwit.variants";
/// Key of the schema metadata that holds the text of the VCF header, from `##fileformat` to `#CHROM`. A line feed ends
/// each line.
pub const HEADER_KEY: &str = "vcf.header";

/// Columns that follow from other columns.
pub const DERIVED_COLUMNS: [&str; 4] = ["contig_id", "end_position", "genotype_alleles", "genotype_phased"];

/// The type of the values of a field (VCFv4.4 §1.4.2: `Type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// A field that is only present or absent: type `Flag`, or any field with `Number=0`.
    Flag,
    /// Type `Integer`: signed, 32 bits.
    Integer,
    /// Type `Float`: 32 bits.
    Float,
    /// Type `String`, `Character`, or any other type.
    Text,
}

/// The number of values of a field in a record or sample (VCFv4.4 §1.4.2: `Number`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueCount {
    /// At most one value.
    One,
    /// A list, with a value for each allele, genotype or other item.
    List,
}

/// A field that an `INFO` or `FORMAT` line of a header defines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldDefinition {
    /// Name of the field: `ID` of the header line.
    pub id: String,
    /// Type of the values: `Type` of the header line.
    pub value_type: ValueType,
    /// Number of values: `Number` of the header line.
    pub count: ValueCount,
}

impl FieldDefinition {
    /// Returns the Arrow type of the field: for `INFO` in one record, for `FORMAT` in one sample of a record.
    ///
    /// # Examples
    ///
    /// ```
    /// use arrow_schema::DataType;
    /// use godwit_model::schema::variant_columns::{FieldDefinition, ValueCount, ValueType, list_type};
    ///
    /// // ##INFO=<ID=AC,Number=A,Type=Integer,Description="Allele count">
    /// let (id, value_type, count) = ("AC".to_owned(), ValueType::Integer, ValueCount::List);
    /// let field = FieldDefinition { id, value_type, count };
    /// assert_eq!(field.data_type(), list_type(DataType::Int32));
    /// ```
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

/// Returns the schema of the columns, without metadata. Rows are in the order of the VCF file.
///
/// `position` is 0-based; a record covers `[position, end_position)` of the reference. `contig_id` is the index of the
/// `contig` line in the header, or null if there is no such line. If VCF has `.`, `identifiers`, `quality` and
/// `filters` are null and `alternates` is empty.
///
/// With `samples`, columns of lists follow, whose elements are the samples in header order: the alleles of the genotype
/// as indices (0: the reference; null: missing), whether the genotype is phased, and the values of each field in
/// `formats`. A list is null if the record does not have the field. Values that do not fit a column are in `other_info`
/// and `other_formats`, as text.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use arrow_schema::DataType;
/// use godwit_model::schema::variant_columns::{FieldDefinition, ValueCount, ValueType, variants};
///
/// // ##INFO=<ID=DP,Number=1,Type=Integer,Description="Depth">
/// let (id, value_type, count) = ("DP".to_owned(), ValueType::Integer, ValueCount::One);
/// let schema = variants(&[FieldDefinition { id, value_type, count }], &[], false);
/// assert_eq!(schema.field_with_name("info_DP")?.data_type(), &DataType::Int32);
/// assert!(schema.field_with_name("genotype_alleles").is_err());
/// # Ok(())
/// # }
/// ```
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
