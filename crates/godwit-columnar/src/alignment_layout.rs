//! The schema and the header that all batches of a file, and all files of a job, share.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::StringArray;
use arrow_schema::SchemaRef;
use godwit_model::schema::alignment_columns;

use super::error::ColumnarError;
use godwit_formats::sam::Header;

/// The schema of alignment columns, the SAM header, and the names that dictionary columns contain.
#[derive(Debug)]
pub struct AlignmentLayout {
    /// Schema of the columns, without metadata.
    pub schema: SchemaRef,
    /// Text of the SAM header.
    pub header: String,
    /// Contig names in the order of the header.
    pub(super) contigs: Arc<StringArray>,
    /// Read group IDs in the order of the header.
    pub(super) read_groups: Arc<StringArray>,
    pub(super) read_group_index: HashMap<Vec<u8>, i32>,
}

impl AlignmentLayout {
    /// Creates the layout for the records of a file with this header.
    ///
    /// # Errors
    /// [`ColumnarError::NotUtf8`] if the header is not UTF-8, [`ColumnarError::Header`] if its contigs or read groups
    /// are invalid.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_columnar::AlignmentLayout;
    /// use godwit_formats::sam::Header;
    ///
    /// let header = Header::parse(b"@SQ\tSN:chr1\tLN:1000\n@RG\tID:lane1\tSM:NA12878\n")?;
    /// let layout = AlignmentLayout::new(&header)?;
    /// assert!(layout.read_group_ids().eq(["lane1"]));
    /// assert!(layout.schema.index_of("tag_NM").is_ok());
    /// # Ok(())
    /// # }
    /// ```
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

    /// Returns the read group IDs in the order of the header.
    pub fn read_group_ids(&self) -> impl Iterator<Item = &str> {
        self.read_groups.iter().flatten()
    }

    /// Returns [`AlignmentLayout::metadata`] in the type that Arrow schemas use.
    pub(super) fn owned_metadata(&self) -> HashMap<String, String> {
        self.metadata().into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    /// Returns the key-value metadata of every file: the version of the schema, and the SAM header.
    pub(super) fn metadata(&self) -> [(&'static str, &str); 2] {
        [(alignment_columns::VERSION_KEY, alignment_columns::VERSION), (alignment_columns::HEADER_KEY, &self.header)]
    }
}
