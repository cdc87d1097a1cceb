//! What all batches of a file, and all files of a run, share.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::StringArray;
use arrow_schema::SchemaRef;
use godwit_model::schema::columnar;

use super::error::ColumnarError;
use crate::sam::Header;

/// The schema, the header, and the names that dictionaries hold.
#[derive(Debug)]
pub struct ColumnLayout {
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

impl ColumnLayout {
    /// The layout for records under a header.
    ///
    /// # Errors
    /// [`ColumnarError::NotUtf8`], [`ColumnarError::Header`].
    pub fn new(header: &Header) -> Result<Self, ColumnarError> {
        let text = String::from_utf8(header.text());
        let text = text.map_err(|_| ColumnarError::NotUtf8 { what: "the SAM header".into() })?;
        let genome = header.genome()?;
        let ids: Vec<String> = header.read_groups()?.into_iter().map(|group| group.id).collect();
        Ok(Self {
            schema: columnar::alignments(),
            header: text,
            contigs: Arc::new(genome.contigs().iter().map(|contig| Some(contig.name.as_str())).collect()),
            read_groups: Arc::new(ids.iter().map(|id| Some(id.as_str())).collect()),
            read_group_index: ids.into_iter().zip(0..).map(|(id, index)| (id.into_bytes(), index)).collect(),
        })
    }

    /// IDs of read groups, in the order of the header.
    pub fn read_group_ids(&self) -> impl Iterator<Item = &str> {
        self.read_groups.iter().flatten()
    }

    /// [`ColumnLayout::metadata`] as schemas of Arrow have it.
    pub(super) fn owned_metadata(&self) -> HashMap<String, String> {
        self.metadata().into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    /// Key-value metadata of every file: version and header.
    pub(super) fn metadata(&self) -> [(&'static str, &str); 2] {
        [(columnar::VERSION_KEY, columnar::VERSION), (columnar::HEADER_KEY, &self.header)]
    }
}
