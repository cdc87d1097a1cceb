//! What all batches of a file share.

use std::collections::HashMap;

use arrow_schema::{Schema, SchemaRef};
use godwit_model::schema::variants::{self, FieldDefinition, ValueCount, ValueType};

use super::error::VcfError;
use super::header::Header;

/// Most fields that become columns; the largest annotations in use define hundreds.
const MAX_FIELDS: usize = 4096;
/// The field that has columns of its own, whatever the header says of it.
const GENOTYPE: &str = "GT";

/// Schema, header, and where each field goes.
#[derive(Debug)]
pub struct VariantLayout {
    /// The columns, with metadata: version and header.
    pub schema: SchemaRef,
    pub(super) contigs: HashMap<String, i32>,
    pub(super) info: Vec<FieldDefinition>,
    pub(super) formats: Vec<FieldDefinition>,
    pub(super) info_index: HashMap<String, usize>,
    pub(super) format_index: HashMap<String, usize>,
    pub(super) samples: usize,
}

impl VariantLayout {
    /// Returns whether the header describes a contig of that name.
    pub fn has_contig(&self, name: &str) -> bool {
        self.contigs.contains_key(name)
    }

    /// The layout for records under a header.
    ///
    /// # Errors
    /// [`VcfError::TooManyFields`].
    pub fn new(header: &Header) -> Result<Self, VcfError> {
        let samples = header.samples().len();
        let info = header.info().to_vec();
        let mut formats = header.formats().to_vec();
        let fields = info.len() + formats.len();
        if fields > MAX_FIELDS {
            return Err(VcfError::TooManyFields { fields, limit: MAX_FIELDS });
        }
        formats.retain(|field| field.id != GENOTYPE);
        let id = GENOTYPE.to_owned();
        formats.insert(0, FieldDefinition { id, value_type: ValueType::Text, count: ValueCount::One });
        if samples == 0 {
            formats.clear();
        }
        let schema = variants::variants(&info, &formats, samples > 0);
        let metadata = [(variants::VERSION_KEY, variants::VERSION), (variants::HEADER_KEY, header.text())];
        let metadata = metadata.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let schema = Schema::new_with_metadata(schema.fields().clone(), metadata.into());
        let index = |fields: &[FieldDefinition]| {
            fields.iter().enumerate().map(|(at, field)| (field.id.clone(), at)).collect::<HashMap<_, _>>()
        };
        let contigs = header.contigs().iter().zip(0..).map(|(contig, id)| (contig.name.clone(), id)).collect();
        let (info_index, format_index) = (index(&info), index(&formats));
        Ok(Self { schema: schema.into(), contigs, info, formats, info_index, format_index, samples })
    }

    /// Cells that every row has, whatever is in it.
    pub(super) fn cells_of_a_row(&self) -> usize {
        self.schema.fields().len()
    }
}
