//! Packed records to record batches.

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

use super::error::ColumnarError;
use super::layout::ColumnLayout;
use super::tags::{Integers, OF_TAGS, TagColumns};
use super::text::{Bytes, print_cigar, unpack_bases};

/// Places of the columns in the schema ([`godwit_model::schema::columnar::alignments`]).
const NAME: usize = 0;
const FLAGS: usize = 1;
const CONTIG: usize = 2;
const CONTIG_ID: usize = 3;
const POSITION: usize = 4;
const END_POSITION: usize = 5;
const MAPPING_QUALITY: usize = 6;
const CIGAR: usize = 7;
const MATE_CONTIG: usize = 8;
const MATE_POSITION: usize = 9;
const TEMPLATE_LENGTH: usize = 10;
const BASES: usize = 11;
const QUALITIES: usize = 12;
const READ_GROUP: usize = 13;
const FIRST_TAG: usize = 14;
const ALIGNMENT_COLUMNS: usize = FIRST_TAG + OF_TAGS;

/// Rows after which a batch is full.
const BATCH_ROWS: usize = 4096;
/// Bytes of packed records after which a batch is full: long reads fill one with fewer rows.
const BATCH_BYTES: usize = 2 << 20;

/// Columns of a batch in the making. The memory of one batch serves the next, where it is given back ([`Columns::reuse`]).
#[derive(Debug)]
pub struct Columns<L> {
    layout: L,
    /// Which columns of the layout are made.
    wanted: [bool; ALIGNMENT_COLUMNS],
    /// The schema of those.
    schema: SchemaRef,
    rows: usize,
    packed_bytes: usize,
    name: Bytes,
    flags: Vec<u16>,
    contig: Integers,
    position: Vec<i32>,
    end_position: Vec<i32>,
    mapping_quality: Vec<u8>,
    cigar: Bytes,
    mate_contig: Integers,
    mate_position: Vec<i32>,
    template_length: Vec<i32>,
    bases: Bytes,
    qualities: Bytes,
    read_group: Integers,
    /// ID and index of the read group of the record before: mostly the next one's too.
    last_group: (Vec<u8>, Option<i32>),
    tags: TagColumns,
}

impl<L: Borrow<ColumnLayout>> Columns<L> {
    /// All columns of a layout, without rows.
    pub fn new(layout: L) -> Self {
        let schema = layout.borrow().schema.clone();
        Self::with([true; ALIGNMENT_COLUMNS], schema, layout)
    }

    /// Some columns of a layout, by their 0-based index in its schema, in the order of that schema. What is not wanted is not
    /// taken out of records.
    pub fn some(layout: L, columns: &[usize]) -> Self {
        let whole = layout.borrow().schema.clone();
        let wanted = std::array::from_fn(|column| columns.contains(&column));
        let fields: Vec<_> =
            whole.fields().iter().zip(wanted).filter(|(_, wanted)| *wanted).map(|(field, _)| field.clone()).collect();
        Self::with(wanted, Arc::new(Schema::new(fields)), layout)
    }

    fn with(wanted: [bool; ALIGNMENT_COLUMNS], schema: SchemaRef, layout: L) -> Self {
        Self {
            layout,
            wanted,
            schema,
            rows: 0,
            packed_bytes: 0,
            name: Bytes::default(),
            flags: Vec::new(),
            contig: Integers::default(),
            position: Vec::new(),
            end_position: Vec::new(),
            mapping_quality: Vec::new(),
            cigar: Bytes::default(),
            mate_contig: Integers::default(),
            mate_position: Vec::new(),
            template_length: Vec::new(),
            bases: Bytes::default(),
            qualities: Bytes::default(),
            read_group: Integers::default(),
            last_group: (Vec::new(), None),
            tags: TagColumns::new(wanted[FIRST_TAG..].try_into().expect("as many as the schema has")),
        }
    }

    /// Appends a record whose FLAG is `flag`, which may differ from the packed one in the duplicate bit.
    #[inline]
    pub fn push(&mut self, record: RawRecord, flag: u16) {
        self.rows += 1;
        self.packed_bytes += record.bytes().len();
        self.push_place(record, flag);
        self.push_mate(record);
        self.push_read(record);
        if self.wanted[READ_GROUP..].contains(&true) {
            let (known, last) = (&self.layout.borrow().read_group_index, &mut self.last_group);
            let read_group = self.tags.push(record, |id| {
                if last.0 != id {
                    *last = (id.to_vec(), known.get(id).copied());
                }
                last.1
            });
            if self.wanted[READ_GROUP] {
                self.read_group.push(read_group);
            }
        }
    }

    /// Where it is, and what is known of it.
    #[inline]
    fn push_place(&mut self, record: RawRecord, flag: u16) {
        let wanted = &self.wanted;
        if wanted[FLAGS] {
            self.flags.push(flag);
        }
        if wanted[CONTIG] || wanted[CONTIG_ID] {
            self.contig.push(index(record.contig()));
        }
        if wanted[POSITION] {
            self.position.push(record.position());
        }
        if wanted[END_POSITION] {
            self.end_position.push(record.end_position(flag));
        }
        if wanted[MAPPING_QUALITY] {
            self.mapping_quality.push(record.mapping_quality());
        }
        if wanted[CIGAR] {
            let cigar_start = self.cigar.data.len();
            print_cigar(record.cigar(), &mut self.cigar.data);
            if self.cigar.data.len() > cigar_start { self.cigar.end_value() } else { self.cigar.push_null() }
        }
    }

    #[inline]
    fn push_mate(&mut self, record: RawRecord) {
        if self.wanted[MATE_CONTIG] {
            self.mate_contig.push(index(record.mate_contig()));
        }
        if self.wanted[MATE_POSITION] {
            self.mate_position.push(record.mate_position());
        }
        if self.wanted[TEMPLATE_LENGTH] {
            self.template_length.push(record.template_length());
        }
    }

    /// What the sequencer said.
    #[inline]
    fn push_read(&mut self, record: RawRecord) {
        if self.wanted[NAME] {
            self.name.push(record.name());
        }
        if self.wanted[BASES] {
            if record.bases() == 0 {
                self.bases.push_null();
            } else {
                unpack_bases(record.packed_bases(), record.bases(), &mut self.bases.data);
                self.bases.end_value();
            }
        }
        if self.wanted[QUALITIES] {
            let qualities = Some(record.qualities()).filter(|bytes| bytes.first().is_some_and(|q| *q != 0xff));
            self.qualities.push_option(qualities);
        }
    }

    /// The columns that are made, without metadata.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Rows since the last batch.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Whether it is time to take the batch.
    pub fn is_full(&self) -> bool {
        self.rows() >= BATCH_ROWS || self.packed_bytes >= BATCH_BYTES
    }

    /// The rows since the last batch.
    ///
    /// # Errors
    /// [`ColumnarError::NotUtf8`] where a read name is no text.
    pub fn take_batch(&mut self) -> Result<RecordBatch, ColumnarError> {
        let rows = RecordBatchOptions::new().with_row_count(Some(self.rows));
        let first_position = self.position.first().copied().unwrap_or_default();
        let not_text =
            |_| ColumnarError::NotUtf8 { what: format!("a read name at or after 0-based position {first_position}") };
        let name = self.name.take_text();
        (self.rows, self.packed_bytes) = (0, 0);
        let name = name.map_err(not_text)?;
        self.take_columns(name)
            .and_then(|columns| RecordBatch::try_new_with_options(self.schema.clone(), columns, &rows))
            .map_err(ColumnarError::Columns)
    }

    /// Takes back the memory of a batch that was taken out, where nobody has it any more: new memory comes from the system in pages that
    /// it clears first.
    pub fn reuse(&mut self, batch: RecordBatch) {
        let values = |column: &ArrayRef| column.to_data().buffers().get(1).cloned();
        let values: Vec<Option<Buffer>> = batch.columns().iter().map(values).collect();
        drop(batch);
        let columns = self.wanted.iter().enumerate().filter(|(_, wanted)| **wanted).map(|(column, _)| column);
        for (column, values) in columns.zip(values) {
            let Some(values) = values else { continue };
            match column {
                NAME => self.name.reuse(values),
                CIGAR => self.cigar.reuse(values),
                BASES => self.bases.reuse(values),
                QUALITIES => self.qualities.reuse(values),
                FIRST_TAG.. => self.tags.reuse(column - FIRST_TAG, values),
                _ => {}
            }
        }
    }

    /// Takes all columns out, and returns those that are wanted.
    fn take_columns(&mut self, name: ArrayRef) -> Result<Vec<ArrayRef>, ArrowError> {
        let layout = self.layout.borrow();
        let (contigs, read_groups) = (&layout.contigs, &layout.read_groups);
        let contig_id = self.contig.take();
        let contig_id = Int32Array::new(contig_id.0, contig_id.1);
        let mut columns: Vec<ArrayRef> = vec![
            name,
            Arc::new(UInt16Array::from(take(&mut self.flags))),
            Arc::new(DictionaryArray::<Int32Type>::try_new(contig_id.clone(), contigs.clone())?),
            Arc::new(contig_id),
            Arc::new(Int32Array::from(take(&mut self.position))),
            Arc::new(Int32Array::from(take(&mut self.end_position))),
            Arc::new(UInt8Array::from(take(&mut self.mapping_quality))),
            self.cigar.take_text()?,
            named(&mut self.mate_contig, contigs)?,
            Arc::new(Int32Array::from(take(&mut self.mate_position))),
            Arc::new(Int32Array::from(take(&mut self.template_length))),
            self.bases.take_text()?,
            self.qualities.take_binary()?,
            named(&mut self.read_group, read_groups)?,
        ];
        columns.extend(self.tags.take()?);
        let mut wanted = self.wanted.iter();
        columns.retain(|_| wanted.next() == Some(&true));
        Ok(columns)
    }
}

/// `None` for -1.
#[inline]
fn index(contig: i32) -> Option<i32> {
    (contig >= 0).then_some(contig)
}

/// The values; room for as many is kept.
fn take<T>(values: &mut Vec<T>) -> Vec<T> {
    let fresh = Vec::with_capacity(values.capacity());
    std::mem::replace(values, fresh)
}

fn named(indexes: &mut Integers, names: &Arc<StringArray>) -> Result<ArrayRef, ArrowError> {
    let (values, validity) = indexes.take();
    let keys = PrimitiveArray::<Int32Type>::new(values, validity);
    Ok(Arc::new(DictionaryArray::try_new(keys, names.clone())?))
}
