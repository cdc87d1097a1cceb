//! Packed records to record batches.

use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, DictionaryArray, Int32Array, PrimitiveArray, RecordBatch, StringArray, UInt8Array, UInt16Array,
};
use arrow_schema::ArrowError;
use godwit_model::RawRecord;

use super::error::ColumnarError;
use super::layout::ColumnLayout;
use super::tags::{Integers, TagColumns};
use super::text::{Bytes, print_cigar, unpack_bases};

/// Rows after which a batch is full.
const BATCH_ROWS: usize = 4096;
/// Bytes of packed records after which a batch is full: long reads fill one with fewer rows.
const BATCH_BYTES: usize = 2 << 20;

/// Columns of a batch in the making. The memory of one batch serves the next.
#[derive(Debug)]
pub struct Columns<'l> {
    layout: &'l ColumnLayout,
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

impl<'l> Columns<'l> {
    /// Columns without rows.
    pub fn new(layout: &'l ColumnLayout) -> Self {
        Self {
            layout,
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
            tags: TagColumns::default(),
        }
    }

    /// Appends a record whose FLAG is `flag`, which may differ from the packed one in the duplicate bit.
    pub fn push(&mut self, record: RawRecord, flag: u16) {
        self.packed_bytes += record.bytes().len();
        self.name.push(record.name());
        self.flags.push(flag);
        self.contig.push(index(record.contig()));
        self.position.push(record.position());
        self.end_position.push(record.end_position(flag));
        self.mapping_quality.push(record.mapping_quality());
        let cigar_start = self.cigar.data.len();
        print_cigar(record.cigar(), &mut self.cigar.data);
        if self.cigar.data.len() > cigar_start {
            self.cigar.end_value()
        } else {
            self.cigar.push_null()
        }
        self.mate_contig.push(index(record.mate_contig()));
        self.mate_position.push(record.mate_position());
        self.template_length.push(record.template_length());
        if record.bases() == 0 {
            self.bases.push_null();
        } else {
            unpack_bases(record.packed_bases(), record.bases(), &mut self.bases.data);
            self.bases.end_value();
        }
        self.qualities.push_option(Some(record.qualities()).filter(|bytes| bytes.first().is_some_and(|q| *q != 0xff)));
        let (known, last) = (&self.layout.read_group_index, &mut self.last_group);
        self.read_group.push(self.tags.push(record, |id| {
            if last.0 != id {
                *last = (id.to_vec(), known.get(id).copied());
            }
            last.1
        }));
    }

    /// Rows since the last batch.
    pub fn rows(&self) -> usize {
        self.flags.len()
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
        let first_position = self.position.first().copied().unwrap_or_default();
        let not_text =
            |_| ColumnarError::NotUtf8 { what: format!("a read name at or after 0-based position {first_position}") };
        let name = self.name.take_text().map_err(not_text)?;
        self.packed_bytes = 0;
        self.take_columns(name)
            .and_then(|columns| RecordBatch::try_new(self.layout.schema.clone(), columns))
            .map_err(ColumnarError::Columns)
    }

    fn take_columns(&mut self, name: ArrayRef) -> Result<Vec<ArrayRef>, ArrowError> {
        let (contigs, read_groups) = (&self.layout.contigs, &self.layout.read_groups);
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
