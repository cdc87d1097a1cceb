//! The schema and header that all batches of a file, and all files of a job, share.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::StringArray;
use arrow_schema::SchemaRef;
use godwit_model::schema::alignment_columns;

use super::error::ColumnarError;
use crate::sam::Header;

/// The schema, the header, and the names in dictionaries.
#[derive(Debug)]
pub struct AlignmentLayout {
    /// The columns, without metadata.
    pub schema: SchemaRef,
    /// The SAM header, as text.
    pub header: String,
    /// Names of contigs, in the order of the header.
    pub(super) contigs: Arc<StringArray>,
    /// IDs of read groups, in the order of the header.
    pub(super) read_groups: Arc<StringArray>,
    pub(super) read_group_index: HashMap<Vec<u8>, i32>,
}

impl AlignmentLayout {
    /// Creates the layout for records under a header.
    ///
    /// # Errors
    /// [`ColumnarError::NotUtf8`] where the header is not UTF-8, [`ColumnarError::Header`] where its contigs or read groups
    /// are invalid.
    pub fn new(header: &Header) -> Result<Self, ColumnarError> {
        let text = String::from_utf8(header.text());
        let text = text.map_err(|_| ColumnarError::NotUtf8 { subject: "the SAM header".into() })?;
        let genome = header.genome()?;
        let ids: Vec<String> = header.read_groups()?.into_iter().map(|group| group.id).collect();
        Ok(Self {
            schema: alignment_columns::alignments(),
            header: text,
            contigs: Arc::new(genome.contigs().iter().map(|contig| Some(contig.name.as_str())).collect()),
            read_groups: Arc::new(ids.iter().map(|id| Some(id.as_str())).collect()),
            read_group_index: ids.into_iter().zip(0..).map(|(id, index)| (id.into_bytes(), index)).collect(),
        })
    }

    /// Returns the IDs of read groups, in the order of the header.
    pub fn read_group_ids(&self) -> impl Iterator<Item = &str> {
        self.read_groups.iter().flatten()
    }

    /// Returns [`AlignmentLayout::metadata`] in the type of Arrow schemas.
    pub(super) fn owned_metadata(&self) -> HashMap<String, String> {
        self.metadata().into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    /// Returns the key-value metadata of every file: version and header.
    pub(super) fn metadata(&self) -> [(&'static str, &str); 2] {
        [(alignment_columns::VERSION_KEY, alignment_columns::VERSION), (alignment_columns::HEADER_KEY, &self.header)]
    }
}
