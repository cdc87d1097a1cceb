//! A builder that converts packed records into record batches.

use std::borrow::Borrow;
use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, DictionaryArray, Int32Array, PrimitiveArray, RecordBatch, RecordBatchOptions, StringArray, UInt8Array,
    UInt16Array,
};
use arrow_buffer::Buffer;
use arrow_schema::{ArrowError, Schema, SchemaRef};
use godwit_model::RawRecord;
use godwit_model::schema::alignment_columns::{
    BASES_COLUMN, CIGAR_COLUMN, COLUMN_COUNT, CONTIG_COLUMN, CONTIG_ID_COLUMN, END_POSITION_COLUMN, FIRST_TAG_COLUMN,
    FLAGS_COLUMN, MAPPING_QUALITY_COLUMN, MATE_CONTIG_COLUMN, MATE_POSITION_COLUMN, NAME_COLUMN, POSITION_COLUMN,
    QUALITIES_COLUMN, READ_GROUP_COLUMN, TEMPLATE_LENGTH_COLUMN,
};

use super::alignment_layout::AlignmentLayout;
use super::bytes_builder::{BytesBuilder, append_cigar_text, unpack_bases};
use super::error::ColumnarError;
use super::tag_columns::{IntegerBuilder, TagColumnsBuilder};

/// Number of rows at which a batch is full.
const MAX_BATCH_ROWS: usize = 4096;
/// Number of bytes of packed records at which a batch is full. Batches of long reads have fewer rows.
const MAX_BATCH_RECORD_BYTES: usize = 2 << 20;

/// A builder of record batches of alignments. [`AlignmentBatchBuilder::recycle`] reuses the memory of a batch for the
/// next batch.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use arrow_array::cast::AsArray;
/// use arrow_array::types::Int32Type;
/// use godwit_columnar::{AlignmentBatchBuilder, AlignmentLayout};
/// use godwit_formats::sam::{Header, LineEncoder};
/// use godwit_model::RawRecord;
///
/// let header = Header::parse(b"@SQ\tSN:chr1\tLN:1000\n")?;
/// let mut bytes = Vec::new();
/// let line = b"r1\t16\tchr1\t7\t60\t3M1S\t*\t0\t0\tACGT\tIIII\tNM:i:1";
/// LineEncoder::new(&header.genome()?).encode(line, &mut bytes)?;
/// let record = RawRecord::from_bytes(&bytes, 1)?;
///
/// let layout = AlignmentLayout::new(&header)?;
/// let mut builder = AlignmentBatchBuilder::new(&layout);
/// builder.push(record, record.flag());
/// let batch = builder.take_batch()?;
/// assert_eq!(batch["position"].as_primitive::<Int32Type>().value(0), 6);
/// assert_eq!(batch["cigar"].as_string::<i32>().value(0), "3M1S");
/// assert_eq!(batch["tag_NM"].as_primitive::<Int32Type>().value(0), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct AlignmentBatchBuilder<L> {
    layout: L,
    /// For each column of the layout, true if the batches contain it.
    projection: [bool; COLUMN_COUNT],
    /// Schema of the batches.
    schema: SchemaRef,
    row_count: usize,
    packed_bytes: usize,
    name: BytesBuilder,
    flags: Vec<u16>,
    contig: IntegerBuilder,
    position: Vec<i32>,
    end_position: Vec<i32>,
    mapping_quality: Vec<u8>,
    cigar: BytesBuilder,
    mate_contig: IntegerBuilder,
    mate_position: Vec<i32>,
    template_length: Vec<i32>,
    bases: BytesBuilder,
    qualities: BytesBuilder,
    read_group: IntegerBuilder,
    /// ID and index of the read group of the previous record. Most records have the same read group as the record
    /// before.
    last_read_group: (Vec<u8>, Option<i32>),
    tags: TagColumnsBuilder,
}

impl<L: Borrow<AlignmentLayout>> AlignmentBatchBuilder<L> {
    /// Creates an empty builder of batches with all columns of a layout.
    pub fn new(layout: L) -> Self {
        let schema = layout.borrow().schema.clone();
        Self::from_parts([true; COLUMN_COUNT], schema, layout)
    }

    /// Creates a builder of batches with some columns of a layout. `columns` are 0-based indexes in the schema of the
    /// layout; the batches have the columns in the order of that schema. Fields of other columns are not decoded.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use godwit_formats::sam::{Header, LineEncoder};
    /// # use godwit_model::RawRecord;
    /// use arrow_array::cast::AsArray;
    /// use godwit_columnar::{AlignmentBatchBuilder, AlignmentLayout};
    ///
    /// # let header = Header::parse(b"@SQ\tSN:chr1\tLN:1000\n")?;
    /// # let mut bytes = Vec::new();
    /// # let line = b"r1\t16\tchr1\t7\t60\t3M1S\t*\t0\t0\tACGT\tIIII\tNM:i:1";
    /// # LineEncoder::new(&header.genome()?).encode(line, &mut bytes)?;
    /// # let record = RawRecord::from_bytes(&bytes, 1)?;
    /// # let layout = AlignmentLayout::new(&header)?;
    /// // A record with the CIGAR 3M1S.
    /// let columns = [layout.schema.index_of("position")?, layout.schema.index_of("cigar")?];
    /// let mut builder = AlignmentBatchBuilder::with_projection(&layout, &columns);
    /// builder.push(record, record.flag());
    /// let batch = builder.take_batch()?;
    /// assert_eq!(batch.num_columns(), 2);
    /// assert_eq!(batch.column(1).as_string::<i32>().value(0), "3M1S");
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_projection(layout: L, columns: &[usize]) -> Self {
        let whole = layout.borrow().schema.clone();
        let projection = std::array::from_fn(|column| columns.contains(&column));
        let fields: Vec<_> = whole
            .fields()
            .iter()
            .zip(projection)
            .filter(|(_, wanted)| *wanted)
            .map(|(field, _)| field.clone())
            .collect();
        Self::from_parts(projection, Arc::new(Schema::new(fields)), layout)
    }

    fn from_parts(projection: [bool; COLUMN_COUNT], schema: SchemaRef, layout: L) -> Self {
        Self {
            layout,
            projection,
            schema,
            row_count: 0,
            packed_bytes: 0,
            name: BytesBuilder::default(),
            flags: Vec::new(),
            contig: IntegerBuilder::default(),
            position: Vec::new(),
            end_position: Vec::new(),
            mapping_quality: Vec::new(),
            cigar: BytesBuilder::default(),
            mate_contig: IntegerBuilder::default(),
            mate_position: Vec::new(),
            template_length: Vec::new(),
            bases: BytesBuilder::default(),
            qualities: BytesBuilder::default(),
            read_group: IntegerBuilder::default(),
            last_read_group: (Vec::new(), None),
            tags: TagColumnsBuilder::new(projection[FIRST_TAG_COLUMN..].try_into().expect("as many as the schema has")),
        }
    }

    /// Appends a record with the FLAG `flag`, which may differ from that of the packed record in the duplicate bit.
    #[inline]
    pub fn push(&mut self, record: RawRecord, flag: u16) {
        self.row_count += 1;
        self.packed_bytes += record.bytes().len();
        self.push_position(record, flag);
        self.push_mate(record);
        self.push_read(record);
        if self.projection[READ_GROUP_COLUMN..].contains(&true) {
            let (read_groups, last) = (&self.layout.borrow().read_group_index, &mut self.last_read_group);
            let read_group = self.tags.push(record, |id| {
                if last.0 != id {
                    *last = (id.to_vec(), read_groups.get(id).copied());
                }
                last.1
            });
            if self.projection[READ_GROUP_COLUMN] {
                self.read_group.push(read_group);
            }
        }
    }

    /// Appends FLAG, contig, positions, mapping quality and CIGAR.
    #[inline]
    fn push_position(&mut self, record: RawRecord, flag: u16) {
        let projection = &self.projection;
        if projection[FLAGS_COLUMN] {
            self.flags.push(flag);
        }
        if projection[CONTIG_COLUMN] || projection[CONTIG_ID_COLUMN] {
            self.contig.push(contig_key(record.contig()));
        }
        if projection[POSITION_COLUMN] {
            self.position.push(record.position());
        }
        if projection[END_POSITION_COLUMN] {
            self.end_position.push(record.end_position(flag));
        }
        if projection[MAPPING_QUALITY_COLUMN] {
            self.mapping_quality.push(record.mapping_quality());
        }
        if projection[CIGAR_COLUMN] {
            let cigar_start = self.cigar.data.len();
            append_cigar_text(record.cigar(), &mut self.cigar.data);
            if self.cigar.data.len() > cigar_start { self.cigar.end_value() } else { self.cigar.push_null() }
        }
    }

    #[inline]
    fn push_mate(&mut self, record: RawRecord) {
        if self.projection[MATE_CONTIG_COLUMN] {
            self.mate_contig.push(contig_key(record.mate_contig()));
        }
        if self.projection[MATE_POSITION_COLUMN] {
            self.mate_position.push(record.mate_position());
        }
        if self.projection[TEMPLATE_LENGTH_COLUMN] {
            self.template_length.push(record.template_length());
        }
    }

    /// Appends the name, the bases and the qualities of the read.
    #[inline]
    fn push_read(&mut self, record: RawRecord) {
        if self.projection[NAME_COLUMN] {
            self.name.push(record.name());
        }
        if self.projection[BASES_COLUMN] {
            if record.sequence_length() == 0 {
                self.bases.push_null();
            } else {
                unpack_bases(record.packed_bases(), record.sequence_length(), &mut self.bases.data);
                self.bases.end_value();
            }
        }
        if self.projection[QUALITIES_COLUMN] {
            let has_qualities = record.sequence_length() > 0 && record.has_qualities();
            self.qualities.push_option(has_qualities.then(|| record.qualities()));
        }
    }

    /// Returns the schema of the batches, without metadata.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns the number of rows since the last batch.
    pub fn row_count(&self) -> usize {
        self.row_count
    }

    /// Returns whether the rows since the last batch fill a batch.
    pub fn is_full(&self) -> bool {
        self.row_count() >= MAX_BATCH_ROWS || self.packed_bytes >= MAX_BATCH_RECORD_BYTES
    }

    /// Returns a batch of the rows since the last batch.
    ///
    /// # Errors
    /// [`ColumnarError::NotUtf8`] if a read name is not UTF-8.
    pub fn take_batch(&mut self) -> Result<RecordBatch, ColumnarError> {
        let rows = RecordBatchOptions::new().with_row_count(Some(self.row_count));
        let first_position = self.position.first().copied().unwrap_or_default();
        let not_text = |_| ColumnarError::NotUtf8 {
            subject: format!("a read name at or after 0-based position {first_position}"),
        };
        let name = self.name.finish_text();
        (self.row_count, self.packed_bytes) = (0, 0);
        let name = name.map_err(not_text)?;
        self.take_columns(name)
            .and_then(|columns| RecordBatch::try_new_with_options(self.schema.clone(), columns, &rows))
            .map_err(ColumnarError::Columns)
    }

    /// Takes the memory of a used batch for the next batch, if there is no other reference to the batch. New memory
    /// would cost time, because the operating system clears its pages first.
    pub fn recycle(&mut self, batch: RecordBatch) {
        let values = |column: &ArrayRef| column.to_data().buffers().get(1).cloned();
        let values: Vec<Option<Buffer>> = batch.columns().iter().map(values).collect();
        drop(batch);
        let columns = self.projection.iter().enumerate().filter(|(_, wanted)| **wanted).map(|(column, _)| column);
        for (column, values) in columns.zip(values) {
            let Some(values) = values else { continue };
            match column {
                NAME_COLUMN => self.name.recycle(values),
                CIGAR_COLUMN => self.cigar.recycle(values),
                BASES_COLUMN => self.bases.recycle(values),
                QUALITIES_COLUMN => self.qualities.recycle(values),
                FIRST_TAG_COLUMN.. => self.tags.recycle(column - FIRST_TAG_COLUMN, values),
                _ => {}
            }
        }
    }

    /// Finishes all columns, and returns those that the batches contain.
    fn take_columns(&mut self, name: ArrayRef) -> Result<Vec<ArrayRef>, ArrowError> {
        let layout = self.layout.borrow();
        let (contigs, read_groups) = (&layout.contigs, &layout.read_groups);
        let contig_id = self.contig.finish_parts();
        let contig_id = Int32Array::new(contig_id.0, contig_id.1);
        let mut columns: Vec<ArrayRef> = vec![
            name,
            Arc::new(UInt16Array::from(take_values(&mut self.flags))),
            Arc::new(DictionaryArray::<Int32Type>::try_new(contig_id.clone(), contigs.clone())?),
            Arc::new(contig_id),
            Arc::new(Int32Array::from(take_values(&mut self.position))),
            Arc::new(Int32Array::from(take_values(&mut self.end_position))),
            Arc::new(UInt8Array::from(take_values(&mut self.mapping_quality))),
            self.cigar.finish_text()?,
            dictionary_array(&mut self.mate_contig, contigs)?,
            Arc::new(Int32Array::from(take_values(&mut self.mate_position))),
            Arc::new(Int32Array::from(take_values(&mut self.template_length))),
            self.bases.finish_text()?,
            self.qualities.finish_binary()?,
            dictionary_array(&mut self.read_group, read_groups)?,
        ];
        columns.extend(self.tags.finish()?);
        let mut projection = self.projection.iter();
        columns.retain(|_| projection.next() == Some(&true));
        Ok(columns)
    }
}

/// Returns the contig index as a dictionary key; `None` for -1, which means no contig.
#[inline]
fn contig_key(contig: i32) -> Option<i32> {
    (contig >= 0).then_some(contig)
}

/// Returns the values, and leaves an empty vector with the same capacity.
fn take_values<T>(values: &mut Vec<T>) -> Vec<T> {
    let fresh = Vec::with_capacity(values.capacity());
    std::mem::replace(values, fresh)
}

fn dictionary_array(indexes: &mut IntegerBuilder, names: &Arc<StringArray>) -> Result<ArrayRef, ArrowError> {
    let (values, validity) = indexes.finish_parts();
    let keys = PrimitiveArray::<Int32Type>::new(values, validity);
    Ok(Arc::new(DictionaryArray::try_new(keys, names.clone())?))
}
