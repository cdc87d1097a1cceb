//! Tags: those that have a column go there, the rest stay as BAM has them, and a layout tells the order of all.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int32Array};
use arrow_buffer::{Buffer, NullBufferBuilder, ScalarBuffer};
use arrow_schema::ArrowError;
use godwit_model::RawRecord;
use godwit_model::schema::columnar::{TAG_COLUMNS, TagType};

use super::text::Bytes;

/// Integer columns come first in [`TAG_COLUMNS`].
pub(super) const INTEGERS: usize = 4;
pub(super) const TEXTS: usize = TAG_COLUMNS.len() - INTEGERS;
/// Columns of tags: [`TAG_COLUMNS`], the layout, and the others.
pub(super) const OF_TAGS: usize = TAG_COLUMNS.len() + 2;
const LAYOUT: usize = TAG_COLUMNS.len();
const OTHERS: usize = LAYOUT + 1;

/// A column of integers in the making.
#[derive(Debug)]
pub(super) struct Integers {
    values: Vec<i32>,
    validity: NullBufferBuilder,
}

impl Default for Integers {
    fn default() -> Self {
        Self { values: Vec::new(), validity: NullBufferBuilder::new(0) }
    }
}

impl Integers {
    #[inline]
    pub(super) fn push(&mut self, value: Option<i32>) {
        self.values.push(value.unwrap_or_default());
        self.validity.append(value.is_some());
    }

    /// Values and validity.
    pub(super) fn take(&mut self) -> (ScalarBuffer<i32>, Option<arrow_buffer::NullBuffer>) {
        let fresh = Vec::with_capacity(self.values.capacity());
        (ScalarBuffer::from(std::mem::replace(&mut self.values, fresh)), self.validity.finish())
    }

    pub(super) fn take_array(&mut self) -> ArrayRef {
        let (values, validity) = self.take();
        Arc::new(Int32Array::new(values, validity))
    }
}

/// The columns of tags in the making.
#[derive(Debug)]
pub(super) struct TagColumns {
    /// Which are made; the others have no rows.
    wanted: [bool; OF_TAGS],
    integers: [Integers; INTEGERS],
    texts: [Bytes; TEXTS],
    layout: Bytes,
    others: Bytes,
}

impl TagColumns {
    pub(super) fn new(wanted: [bool; OF_TAGS]) -> Self {
        let (integers, texts) = (Default::default(), Default::default());
        Self { wanted, integers, texts, layout: Bytes::default(), others: Bytes::default() }
    }

    /// Appends the tags of a record and returns its read group, if that is one of those `read_group` knows.
    ///
    /// A tag is in its column if it is the first of its name and type in the record and its value fits; any other is
    /// among the others. `CG` holds a CIGAR too long for its place, which is in the column of CIGARs.
    #[inline]
    pub(super) fn push(&mut self, record: RawRecord, mut read_group: impl FnMut(&[u8]) -> Option<i32>) -> Option<i32> {
        let mut integers = [None; INTEGERS];
        let mut texts = [None; TEXTS];
        let mut group = None;
        // One bit per column, the last for the read group: set once its tag was seen.
        let mut seen = 0u32;
        let others_start = self.others.data.len();
        let cigar_in_tag = record.has_cigar_in_tag();
        for tag in record.each_tag() {
            if cigar_in_tag && &tag.name == b"CG" {
                continue;
            }
            if self.wanted[LAYOUT] {
                self.layout.data.extend_from_slice(&[tag.name[0], tag.name[1], tag.kind]);
            }
            let column = column_of(tag.name, tag.kind).filter(|column| seen >> column & 1 == 0);
            if let Some(column) = column {
                seen |= 1 << column;
            }
            let placed = match column {
                Some(column) if column < INTEGERS => {
                    integers[column] = tag.integer().and_then(|value| i32::try_from(value).ok());
                    integers[column].is_some()
                }
                Some(column) if column < TAG_COLUMNS.len() => {
                    texts[column - INTEGERS] = Some(tag.value).filter(|value| value.is_ascii());
                    texts[column - INTEGERS].is_some()
                }
                Some(_) => {
                    group = read_group(tag.value);
                    group.is_some()
                }
                None => false,
            };
            if !placed && self.wanted[OTHERS] {
                self.others.data.extend_from_slice(&record.bytes()[tag.start..tag.end]);
            }
        }
        if self.wanted[LAYOUT] {
            self.layout.end_value();
        }
        if self.wanted[OTHERS] {
            if self.others.data.len() > others_start { self.others.end_value() } else { self.others.push_null() }
        }
        let (want_integers, want_texts) = self.wanted.split_at(INTEGERS);
        for ((column, value), _) in self.integers.iter_mut().zip(integers).zip(want_integers).filter(|(_, want)| **want)
        {
            column.push(value);
        }
        for ((column, value), _) in self.texts.iter_mut().zip(texts).zip(want_texts).filter(|(_, want)| **want) {
            column.push_option(value);
        }
        group
    }

    /// Takes memory that held values of a column, by its place among those of tags.
    pub(super) fn reuse(&mut self, column: usize, values: Buffer) {
        match column {
            LAYOUT => self.layout.reuse(values),
            OTHERS => self.others.reuse(values),
            _ => {
                if let Some(text) = column.checked_sub(INTEGERS).and_then(|text| self.texts.get_mut(text)) {
                    text.reuse(values);
                }
            }
        }
    }

    /// The columns in the order of the schema.
    pub(super) fn take(&mut self) -> Result<Vec<ArrayRef>, ArrowError> {
        let mut columns: Vec<ArrayRef> = self.integers.iter_mut().map(Integers::take_array).collect();
        for text in &mut self.texts {
            columns.push(text.take_text()?);
        }
        columns.push(self.layout.take_text()?);
        columns.push(self.others.take_binary()?);
        Ok(columns)
    }
}

/// Which of [`TAG_COLUMNS`] is for this name and type; one past them is the read group.
#[inline]
pub(super) fn column_of(name: [u8; 2], kind: u8) -> Option<usize> {
    let is_integer = matches!(kind, b'c' | b'C' | b's' | b'S' | b'i' | b'I');
    if kind == b'Z' && &name == b"RG" {
        return Some(TAG_COLUMNS.len());
    }
    TAG_COLUMNS.iter().position(|(of_column, data)| {
        *of_column == name
            && match data {
                TagType::Integer => is_integer,
                TagType::Text => kind == b'Z',
            }
    })
}
