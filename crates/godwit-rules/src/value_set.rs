//! Sets of values with which rules compare the values of a column.

use std::collections::HashSet;
use std::hash::Hash;

use arrow_array::{ArrayRef, BooleanArray};
use arrow_buffer::i256;
use arrow_schema::{ArrowError, DataType};

use crate::column_values::{
    TypeMismatch, ValueForm, float_key, parse_float, parse_integer, test_floats, test_integers, test_texts,
};
use crate::rule::ConditionValue;

/// A list of values from a rule, converted to the type of a column.
#[derive(Debug)]
pub(crate) enum ValueSet {
    Texts(HashSet<String>),
    /// The integers that represent the values, as [`parse_integer`] returns them.
    Integers(HashSet<i256>),
    /// The keys of the numbers, as [`float_key`] returns them.
    Floats(HashSet<u64>),
}

impl ValueSet {
    /// Converts the entries of a rule to the type of a column, which is neither a dictionary nor a view. Also returns the
    /// 1-based number of the first entry that is not a value of this type. The set omits all such entries. Returns
    /// `None` if rules cannot compare values of this type.
    pub(crate) fn new(entries: &[ConditionValue], data_type: &DataType) -> Option<(Self, Option<usize>)> {
        Some(match ValueForm::for_type(data_type)? {
            ValueForm::Text => (Self::Texts(entries.iter().map(ConditionValue::text).collect()), None),
            ValueForm::Integer => {
                let (values, mismatch) = convert_entries(entries, |text| parse_integer(text, data_type));
                (Self::Integers(values), mismatch)
            }
            ValueForm::Float => {
                let (values, mismatch) = convert_entries(entries, |text| parse_float(text, data_type));
                (Self::Floats(values), mismatch)
            }
        })
    }

    /// Returns for each value of a column whether the set contains it. The result is null if there is no value.
    pub(crate) fn contains(&self, values: &ArrayRef) -> Result<BooleanArray, ArrowError> {
        match self {
            Self::Texts(texts) => test_texts(values, |text| texts.contains(text)),
            Self::Integers(integers) => test_integers(values, |integer| integers.contains(&integer)),
            // The set has no NaN, so it contains no value that is NaN.
            Self::Floats(keys) => test_floats(values, |number| keys.contains(&float_key(number))),
        }
    }
}

/// Converts the text of each entry with `convert`. Also returns the 1-based number of the first entry that cannot be
/// converted.
fn convert_entries<T: Eq + Hash>(
    entries: &[ConditionValue],
    convert: impl Fn(&str) -> Result<Option<T>, TypeMismatch>,
) -> (HashSet<T>, Option<usize>) {
    let (mut values, mut mismatch) = (HashSet::new(), None);
    for (at, entry) in entries.iter().enumerate() {
        match convert(&entry.text()) {
            Ok(value) => values.extend(value),
            Err(TypeMismatch) => mismatch = mismatch.or(Some(at + 1)),
        }
    }
    (values, mismatch)
}
