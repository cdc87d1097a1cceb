//! A builder of the columns of tags. Some tags have a column each; the other tags remain in BAM encoding in one column.
//! The layout column stores the order of all tags of a record.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int32Array};
use arrow_buffer::{Buffer, NullBufferBuilder, ScalarBuffer};
use arrow_schema::ArrowError;
use godwit_model::RawRecord;
use godwit_model::schema::alignment_columns::{
    COLUMN_COUNT, FIRST_TAG_COLUMN, OTHER_TAGS_COLUMN, TAG_COLUMNS, TAG_LAYOUT_COLUMN, TagType,
};

use super::bytes_builder::BytesBuilder;

/// Number of integer columns, which are the first in [`TAG_COLUMNS`].
pub(super) const INTEGER_TAG_COUNT: usize = {
    let mut count = 0;
    while matches!(TAG_COLUMNS[count].tag_type, TagType::Integer) {
        count += 1;
    }
    count
};
pub(super) const TEXT_TAG_COUNT: usize = TAG_COLUMNS.len() - INTEGER_TAG_COUNT;
/// Number of all columns of tags: those of [`TAG_COLUMNS`], the layout, and the other tags.
const TAG_COLUMN_COUNT: usize = COLUMN_COUNT - FIRST_TAG_COLUMN;
const TAG_LAYOUT_INDEX: usize = TAG_LAYOUT_COLUMN - FIRST_TAG_COLUMN;
const OTHER_TAGS_INDEX: usize = OTHER_TAGS_COLUMN - FIRST_TAG_COLUMN;

/// A builder of a nullable integer column.
#[derive(Debug)]
pub(super) struct IntegerBuilder {
    values: Vec<i32>,
    validity: NullBufferBuilder,
}

impl Default for IntegerBuilder {
    fn default() -> Self {
        Self { values: Vec::new(), validity: NullBufferBuilder::new(0) }
    }
}

impl IntegerBuilder {
    #[inline]
    pub(super) fn push(&mut self, value: Option<i32>) {
        self.values.push(value.unwrap_or_default());
        self.validity.append(value.is_some());
    }

    /// Returns the values and the validity bitmap, and leaves an empty builder.
    pub(super) fn finish_parts(&mut self) -> (ScalarBuffer<i32>, Option<arrow_buffer::NullBuffer>) {
        let fresh = Vec::with_capacity(self.values.capacity());
        (ScalarBuffer::from(std::mem::replace(&mut self.values, fresh)), self.validity.finish())
    }

    pub(super) fn finish(&mut self) -> ArrayRef {
        let (values, validity) = self.finish_parts();
        Arc::new(Int32Array::new(values, validity))
    }
}

/// A builder of all columns of tags.
#[derive(Debug)]
pub(super) struct TagColumnsBuilder {
    /// For each column, true if the batch contains it. The other columns get no rows.
    projection: [bool; TAG_COLUMN_COUNT],
    integers: [IntegerBuilder; INTEGER_TAG_COUNT],
    texts: [BytesBuilder; TEXT_TAG_COUNT],
    tag_layout: BytesBuilder,
    other_tags: BytesBuilder,
}

impl TagColumnsBuilder {
    pub(super) fn new(projection: [bool; TAG_COLUMN_COUNT]) -> Self {
        let (integers, texts) = (Default::default(), Default::default());
        Self { projection, integers, texts, tag_layout: BytesBuilder::default(), other_tags: BytesBuilder::default() }
    }

    /// Appends the tags of a record. Returns the index of its read group, which `read_group` finds by the ID.
    ///
    /// A tag goes to its column if it is the first tag of the record with its name and type, and its value fits. All
    /// other tags go to the column of other tags. The tag `CG` is left out if it contains a CIGAR that is too long for
    /// the CIGAR field, because the CIGAR column contains it.
    #[inline]
    pub(super) fn push(&mut self, record: RawRecord, mut read_group: impl FnMut(&[u8]) -> Option<i32>) -> Option<i32> {
        let mut integers = [None; INTEGER_TAG_COUNT];
        let mut texts = [None; TEXT_TAG_COUNT];
        let mut group = None;
        // One bit per column, set once a tag of the column was found; the last bit is that of the read group.
        let mut seen = 0u32;
        let others_start = self.other_tags.data.len();
        let cigar_in_tag = record.has_cigar_in_tag();
        for tag in record.iter_tags() {
            if cigar_in_tag && &tag.name == b"CG" {
                continue;
            }
            if self.projection[TAG_LAYOUT_INDEX] {
                self.tag_layout.data.extend_from_slice(&[tag.name[0], tag.name[1], tag.type_code]);
            }
            let column = tag_column_index(tag.name, tag.type_code).filter(|column| seen >> column & 1 == 0);
            if let Some(column) = column {
                seen |= 1 << column;
            }
            let has_column = match column {
                Some(column) if column < INTEGER_TAG_COUNT => {
                    integers[column] = tag.integer().and_then(|value| i32::try_from(value).ok());
                    integers[column].is_some()
                }
                Some(column) if column < TAG_COLUMNS.len() => {
                    texts[column - INTEGER_TAG_COUNT] = Some(tag.value).filter(|value| value.is_ascii());
                    texts[column - INTEGER_TAG_COUNT].is_some()
                }
                Some(_) => {
                    group = read_group(tag.value);
                    group.is_some()
                }
                None => false,
            };
            if !has_column && self.projection[OTHER_TAGS_INDEX] {
                self.other_tags.data.extend_from_slice(&record.bytes()[tag.start..tag.end]);
            }
        }
        if self.projection[TAG_LAYOUT_INDEX] {
            self.tag_layout.end_value();
        }
        if self.projection[OTHER_TAGS_INDEX] {
            if self.other_tags.data.len() > others_start {
                self.other_tags.end_value()
            } else {
                self.other_tags.push_null()
            }
        }
        let (want_integers, want_texts) = self.projection.split_at(INTEGER_TAG_COUNT);
        for ((column, value), _) in self.integers.iter_mut().zip(integers).zip(want_integers).filter(|(_, want)| **want)
        {
            column.push(value);
        }
        for ((column, value), _) in self.texts.iter_mut().zip(texts).zip(want_texts).filter(|(_, want)| **want) {
            column.push_option(value);
        }
        group
    }

    /// Takes the memory of the values of a used column for the next column. `column` is the index among the columns of
    /// tags.
    pub(super) fn recycle(&mut self, column: usize, values: Buffer) {
        match column {
            TAG_LAYOUT_INDEX => self.tag_layout.recycle(values),
            OTHER_TAGS_INDEX => self.other_tags.recycle(values),
            _ => {
                if let Some(text) = column.checked_sub(INTEGER_TAG_COUNT).and_then(|text| self.texts.get_mut(text)) {
                    text.recycle(values);
                }
            }
        }
    }

    /// Returns the finished columns in the order of the schema.
    pub(super) fn finish(&mut self) -> Result<Vec<ArrayRef>, ArrowError> {
        let mut columns: Vec<ArrayRef> = self.integers.iter_mut().map(IntegerBuilder::finish).collect();
        for text in &mut self.texts {
            columns.push(text.finish_text()?);
        }
        columns.push(self.tag_layout.finish_text()?);
        columns.push(self.other_tags.finish_binary()?);
        Ok(columns)
    }
}

/// Returns the index in [`TAG_COLUMNS`] of the column for a tag with this name and type. The index after the last means
/// the read group.
#[inline]
pub(super) fn tag_column_index(name: [u8; 2], kind: u8) -> Option<usize> {
    let is_integer = matches!(kind, b'c' | b'C' | b's' | b'S' | b'i' | b'I');
    if kind == b'Z' && &name == b"RG" {
        return Some(TAG_COLUMNS.len());
    }
    TAG_COLUMNS.iter().position(|column| {
        column.tag == name
            && match column.tag_type {
                TagType::Integer => is_integer,
                TagType::Text => kind == b'Z',
            }
    })
}
