//! The schema and header that all batches of a file share.

use std::collections::HashMap;

use arrow_schema::{Schema, SchemaRef};
use godwit_model::schema::variant_columns::{self, FieldDefinition, ValueCount, ValueType};

use super::error::VcfError;
use super::header::Header;

/// Maximum fields that become columns; the largest annotations in use define hundreds.
const MAX_FIELDS: usize = 4096;
/// The field with separate columns, independent of its header line.
const GENOTYPE_KEY: &str = "GT";

/// The schema, the header, and the column of each field.
#[derive(Debug)]
pub struct VariantLayout {
    /// The columns, with metadata: version and header.
    pub schema: SchemaRef,
    pub(super) contigs: HashMap<String, i32>,
    pub(super) info: Vec<FieldDefinition>,
    pub(super) formats: Vec<FieldDefinition>,
    pub(super) info_index: HashMap<String, usize>,
    pub(super) format_index: HashMap<String, usize>,
    pub(super) sample_count: usize,
}

impl VariantLayout {
    /// Reports whether the header describes a contig of that name.
    pub fn has_contig(&self, name: &str) -> bool {
        self.contigs.contains_key(name)
    }

    /// Creates the layout for records under a header.
    ///
    /// # Errors
    /// [`VcfError::TooManyFields`] where the header defines too many fields.
    pub fn new(header: &Header) -> Result<Self, VcfError> {
        let sample_count = header.samples().len();
        let info = header.info().to_vec();
        let mut formats = header.formats().to_vec();
        let fields = info.len() + formats.len();
        if fields > MAX_FIELDS {
            return Err(VcfError::TooManyFields { fields, limit: MAX_FIELDS });
        }
        formats.retain(|field| field.id != GENOTYPE_KEY);
        let id = GENOTYPE_KEY.to_owned();
        formats.insert(0, FieldDefinition { id, value_type: ValueType::Text, count: ValueCount::One });
        if sample_count == 0 {
            formats.clear();
        }
        let schema = variant_columns::variants(&info, &formats, sample_count > 0);
        let metadata =
            [(variant_columns::VERSION_KEY, variant_columns::VERSION), (variant_columns::HEADER_KEY, header.text())];
        let metadata = metadata.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let schema = Schema::new_with_metadata(schema.fields().clone(), metadata.into());
        let index = |fields: &[FieldDefinition]| {
            fields.iter().enumerate().map(|(at, field)| (field.id.clone(), at)).collect::<HashMap<_, _>>()
        };
        let contigs = header.contigs().iter().zip(0..).map(|(contig, id)| (contig.name.clone(), id)).collect();
        let (info_index, format_index) = (index(&info), index(&formats));
        Ok(Self { schema: schema.into(), contigs, info, formats, info_index, format_index, sample_count })
    }

    /// Returns the cells of every row, whatever its content.
    pub(super) fn cells_per_row(&self) -> usize {
        self.schema.fields().len()
    }
}
