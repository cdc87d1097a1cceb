//! Columns of `INFO` and `FORMAT` fields in the making.

use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, Float32Builder, Int32Builder, StringBuilder};
use arrow_array::{ArrayRef, ListArray};
use arrow_buffer::{NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, Field};
use godwit_model::schema::variants::{FieldDefinition, ValueCount, ValueType};

/// What VCF has for no value.
pub(super) const MISSING: &str = ".";

/// Values of any field, all of one type.
#[derive(Debug)]
pub(super) enum Values {
    Flag(BooleanBuilder),
    Integer(Int32Builder),
    Float(Float32Builder),
    Text(StringBuilder),
}

impl Values {
    pub(super) fn new(value_type: ValueType) -> Self {
        match value_type {
            ValueType::Flag => Self::Flag(BooleanBuilder::new()),
            ValueType::Integer => Self::Integer(Int32Builder::new()),
            ValueType::Float => Self::Float(Float32Builder::new()),
            ValueType::Text => Self::Text(StringBuilder::new()),
        }
    }

    /// Whether a value is of the type.
    fn fits(&self, text: &str) -> bool {
        match self {
            _ if text == MISSING => true,
            Self::Flag(_) => false,
            Self::Integer(_) => text.parse::<i32>().is_ok(),
            Self::Float(_) => text.parse::<f32>().is_ok(),
            Self::Text(_) => true,
        }
    }

    /// Appends a value that fits.
    pub(super) fn push(&mut self, text: &str) {
        match self {
            Self::Flag(values) => values.append_value(true),
            Self::Integer(values) => values.append_option(text.parse().ok()),
            Self::Float(values) => values.append_option(text.parse().ok()),
            Self::Text(values) => values.append_option((text != MISSING).then_some(text)),
        }
    }

    pub(super) fn push_null(&mut self) {
        match self {
            // A flag that is not there is off.
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

/// Lists of what other columns hold: where each ends there.
#[derive(Debug)]
pub(super) struct Lists {
    offsets: Vec<i32>,
    validity: NullBufferBuilder,
}

impl Lists {
    pub(super) fn new() -> Self {
        Self { offsets: vec![0], validity: NullBufferBuilder::new(0) }
    }

    /// Ends a list of everything up to `end`.
    pub(super) fn end(&mut self, end: usize) {
        // A batch holds a line of 128 MiB or a few MiB of short ones, so its values are far fewer than 2^31.
        self.offsets.push(end as i32);
        self.validity.append_non_null();
    }

    pub(super) fn push_null(&mut self, end: usize) {
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

/// A list of texts for each row.
#[derive(Debug)]
pub(super) struct TextLists {
    lists: Lists,
    values: StringBuilder,
    count: usize,
}

impl TextLists {
    pub(super) fn new() -> Self {
        Self { lists: Lists::new(), values: StringBuilder::new(), count: 0 }
    }

    /// Appends to the list in the making.
    pub(super) fn push(&mut self, value: Option<&str>) {
        self.values.append_option(value);
        self.count += 1;
    }

    pub(super) fn end_list(&mut self) {
        self.lists.end(self.count);
    }

    pub(super) fn push_null_list(&mut self) {
        self.lists.push_null(self.count);
    }

    pub(super) fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        self.count = 0;
        self.lists.finish(Arc::new(self.values.finish()))
    }
}

/// The column of a field: a value or a list of values in each place.
#[derive(Debug)]
pub(super) struct FieldColumn {
    values: Values,
    lists: Option<Lists>,
    /// Places of the row or sample that is being read.
    filled: bool,
}

impl FieldColumn {
    pub(super) fn new(definition: &FieldDefinition) -> Self {
        let lists = (definition.count == ValueCount::List).then(Lists::new);
        Self { values: Values::new(definition.value_type), lists, filled: false }
    }

    /// Whether the place in hand has its value.
    pub(super) fn is_filled(&self) -> bool {
        self.filled
    }

    /// Takes the value of the place in hand, `None` for a key without one. Returns false, and takes nothing, where it does not fit.
    pub(super) fn try_fill(&mut self, text: Option<&str>) -> bool {
        if let Values::Flag(values) = &mut self.values {
            values.append_value(true);
            self.filled = true;
            // Lists of flags are not defined: a header that says so gets one flag.
            return matches!(text, None | Some("1"));
        }
        let Some(text) = text else { return false };
        match &mut self.lists {
            None if self.values.fits(text) => self.values.push(text),
            Some(lists) if text == MISSING => lists.push_null(self.values.len()),
            Some(lists) if text.split(',').all(|value| self.values.fits(value)) => {
                text.split(',').for_each(|value| self.values.push(value));
                lists.end(self.values.len());
            }
            _ => return false,
        }
        self.filled = true;
        true
    }

    /// Ends the place in hand; it is null where it was not filled.
    pub(super) fn end_place(&mut self) {
        if !std::mem::replace(&mut self.filled, false) {
            match &mut self.lists {
                Some(lists) => lists.push_null(self.values.len()),
                None => self.values.push_null(),
            }
        }
    }

    /// Places ended so far.
    pub(super) fn places(&self) -> usize {
        self.lists.as_ref().map_or_else(|| self.values.len(), Lists::len)
    }

    pub(super) fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        let values = self.values.finish();
        match &mut self.lists {
            Some(lists) => lists.finish(values),
            None => Ok(values),
        }
    }
}
