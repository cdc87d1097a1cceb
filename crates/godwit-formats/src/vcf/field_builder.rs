//! Builders of the Arrow columns of `INFO` and `FORMAT` fields.

use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, Float32Builder, Int32Builder, StringBuilder};
use arrow_array::{ArrayRef, ListArray};
use arrow_buffer::{NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, Field};
use godwit_model::schema::variant_columns::{FieldDefinition, ValueCount, ValueType};

use super::fields::split_fields;

/// The text that means a missing value in VCF.
pub(super) const MISSING_VALUE: &str = ".";

/// A builder of an array of the values of a field, all of one type.
#[derive(Debug)]
pub(super) enum ValuesBuilder {
    Flag(BooleanBuilder),
    Integer(Int32Builder),
    Float(Float32Builder),
    Text(StringBuilder),
}

impl ValuesBuilder {
    pub(super) fn new(value_type: ValueType) -> Self {
        match value_type {
            ValueType::Flag => Self::Flag(BooleanBuilder::new()),
            ValueType::Integer => Self::Integer(Int32Builder::new()),
            ValueType::Float => Self::Float(Float32Builder::new()),
            ValueType::Text => Self::Text(StringBuilder::new()),
        }
    }

    /// Returns whether a text is a valid value of the type, or a missing value.
    fn accepts(&self, text: &str) -> bool {
        match self {
            _ if text == MISSING_VALUE => true,
            Self::Flag(_) => false,
            Self::Integer(_) => text.parse::<i32>().is_ok(),
            Self::Float(_) => text.parse::<f32>().is_ok(),
            Self::Text(_) => true,
        }
    }

    /// Appends the value of a text; returns false and changes nothing if the text is not a valid value of the type.
    fn try_push(&mut self, text: &str) -> bool {
        match self {
            _ if text == MISSING_VALUE => self.push(text),
            Self::Flag(_) => return false,
            Self::Integer(values) => match text.parse() {
                Ok(value) => values.append_value(value),
                Err(_) => return false,
            },
            Self::Float(values) => match text.parse() {
                Ok(value) => values.append_value(value),
                Err(_) => return false,
            },
            Self::Text(values) => values.append_value(text),
        }
        true
    }

    /// Appends a value whose text [`Self::accepts`] has accepted.
    pub(super) fn push(&mut self, text: &str) {
        match self {
            Self::Flag(values) => values.append_value(true),
            Self::Integer(values) => values.append_option(text.parse().ok()),
            Self::Float(values) => values.append_option(text.parse().ok()),
            Self::Text(values) => values.append_option((text != MISSING_VALUE).then_some(text)),
        }
    }

    pub(super) fn push_null(&mut self) {
        match self {
            // A flag that a record does not have is false.
            Self::Flag(values) => values.append_value(false),
            Self::Integer(values) => values.append_null(),
            Self::Float(values) => values.append_null(),
            Self::Text(values) => values.append_null(),
        }
    }

    fn len(&self) -> usize {
        use arrow_array::builder::ArrayBuilder;
        match self {
            Self::Flag(values) => values.len(),
            Self::Integer(values) => values.len(),
            Self::Float(values) => values.len(),
            Self::Text(values) => values.len(),
        }
    }

    pub(super) fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Flag(values) => Arc::new(values.finish()),
            Self::Integer(values) => Arc::new(values.finish()),
            Self::Float(values) => Arc::new(values.finish()),
            Self::Text(values) => Arc::new(values.finish()),
        }
    }
}

/// A builder of a list array. It stores the end of each list in the array of elements, which another builder builds.
#[derive(Debug)]
pub(super) struct ListOffsetsBuilder {
    offsets: Vec<i32>,
    validity: NullBufferBuilder,
}

impl ListOffsetsBuilder {
    pub(super) fn new() -> Self {
        Self { offsets: vec![0], validity: NullBufferBuilder::new(0) }
    }

    /// Ends the current list; `end` is the number of elements appended so far, over all lists.
    pub(super) fn end_list(&mut self, end: usize) {
        // A batch contains at most a line of 256 MiB, or a few MiB of shorter lines, so it has far fewer than 2^31
        // elements.
        self.offsets.push(end as i32);
        self.validity.append_non_null();
    }

    pub(super) fn push_null_list(&mut self, end: usize) {
        self.offsets.push(end as i32);
        self.validity.append_null();
    }

    fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    pub(super) fn finish(&mut self, elements: ArrayRef) -> Result<ArrayRef, ArrowError> {
        let offsets = OffsetBuffer::new(ScalarBuffer::from(std::mem::replace(&mut self.offsets, vec![0])));
        let field = Arc::new(Field::new("item", elements.data_type().clone(), true));
        Ok(Arc::new(ListArray::try_new(field, offsets, elements, self.validity.finish())?))
    }
}

/// A builder of a column with a list of texts for each row.
#[derive(Debug)]
pub(super) struct TextListBuilder {
    lists: ListOffsetsBuilder,
    values: StringBuilder,
    value_count: usize,
}

impl TextListBuilder {
    pub(super) fn new() -> Self {
        Self { lists: ListOffsetsBuilder::new(), values: StringBuilder::new(), value_count: 0 }
    }

    /// Appends a text, or null, to the current list.
    pub(super) fn push(&mut self, value: Option<&str>) {
        self.values.append_option(value);
        self.value_count += 1;
    }

    pub(super) fn end_list(&mut self) {
        self.lists.end_list(self.value_count);
    }

    pub(super) fn push_null_list(&mut self) {
        self.lists.push_null_list(self.value_count);
    }

    pub(super) fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        self.value_count = 0;
        self.lists.finish(Arc::new(self.values.finish()))
    }
}

/// A builder of the column of an `INFO` or `FORMAT` field. The column has a value, or a list of values, for each row or
/// sample.
#[derive(Debug)]
pub(super) struct FieldBuilder {
    values: ValuesBuilder,
    lists: Option<ListOffsetsBuilder>,
    /// True if the value of the current row or sample has been set.
    filled: bool,
}

impl FieldBuilder {
    pub(super) fn new(definition: &FieldDefinition) -> Self {
        let lists = (definition.count == ValueCount::List).then(ListOffsetsBuilder::new);
        Self { values: ValuesBuilder::new(definition.value_type), lists, filled: false }
    }

    /// Returns whether the value of the current row or sample has been set.
    pub(super) fn is_filled(&self) -> bool {
        self.filled
    }

    /// Sets the value of the current row or sample; `text` is `None` for a key without a value. Returns false and
    /// changes nothing if the text does not have the type of the field.
    pub(super) fn try_fill(&mut self, text: Option<&str>) -> bool {
        if let ValuesBuilder::Flag(values) = &mut self.values {
            values.append_value(true);
            self.filled = true;
            // VCF does not define lists of flags. If a header declares one, it becomes a single flag.
            return matches!(text, None | Some("1"));
        }
        let Some(text) = text else { return false };
        match &mut self.lists {
            None if self.values.try_push(text) => {}
            Some(lists) if text == MISSING_VALUE => lists.push_null_list(self.values.len()),
            Some(lists) if split_fields(text, b',').all(|value| self.values.accepts(value)) => {
                split_fields(text, b',').for_each(|value| self.values.push(value));
                lists.end_list(self.values.len());
            }
            _ => return false,
        }
        self.filled = true;
        true
    }

    /// Ends the current row or sample. Its value is null if no value was set.
    pub(super) fn end_value(&mut self) {
        if !std::mem::replace(&mut self.filled, false) {
            match &mut self.lists {
                Some(lists) => lists.push_null_list(self.values.len()),
                None => self.values.push_null(),
            }
        }
    }

    /// Returns the number of rows or samples that have been ended.
    pub(super) fn len(&self) -> usize {
        self.lists.as_ref().map_or_else(|| self.values.len(), ListOffsetsBuilder::len)
    }

    pub(super) fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        let values = self.values.finish();
        match &mut self.lists {
            Some(lists) => lists.finish(values),
            None => Ok(values),
        }
    }
}
