//! The range of numbers that a rule shows.

use arrow_array::{ArrayRef, BooleanArray};
use arrow_buffer::i256;
use arrow_schema::{ArrowError, DataType};

use crate::column_values::{test_floats, test_integers};
use crate::decimal_number::DecimalNumber;
use crate::rule::Number;

/// A range of numbers from a rule, which includes both bounds, converted to the type of a column.
#[derive(Debug)]
pub(crate) enum NumberRange {
    /// A range of integers or decimals, in units of the column's scale. A conversion to floating-point numbers would
    /// round numbers with more than 15 digits.
    Integers { least: i256, most: i256 },
    /// A range of floating-point numbers. It does not contain NaN.
    Floats { least: f64, most: f64 },
}

impl NumberRange {
    /// Converts the bounds of a rule to the type of a column, which is neither a dictionary nor a view. Returns `None`
    /// if the type is not numeric, or a bound is not finite.
    pub(crate) fn new(at_least: Option<Number>, at_most: Option<Number>, data_type: &DataType) -> Option<Self> {
        if [at_least, at_most].into_iter().flatten().any(|bound| !bound.is_finite()) {
            return None;
        }
        let scale = match data_type {
            DataType::Decimal32(_, scale)
            | DataType::Decimal64(_, scale)
            | DataType::Decimal128(_, scale)
            | DataType::Decimal256(_, scale) => *scale,
            number if number.is_integer() => 0,
            number if number.is_floating() => {
                let least = at_least.map_or(f64::NEG_INFINITY, Number::to_f64);
                let most = at_most.map_or(f64::INFINITY, Number::to_f64);
                return Some(Self::Floats { least, most });
            }
            _ => return None,
        };
        let least = match at_least {
            Some(number) => DecimalNumber::parse(&number.to_string())?.ceil_units(scale),
            None => i256::MIN,
        };
        let most = match at_most {
            Some(number) => DecimalNumber::parse(&number.to_string())?.floor_units(scale),
            None => i256::MAX,
        };
        Some(Self::Integers { least, most })
    }

    /// Returns for each value of a column whether the range contains it. The result is null if there is no value.
    pub(crate) fn contains(&self, values: &ArrayRef) -> Result<BooleanArray, ArrowError> {
        match *self {
            Self::Integers { least, most } => test_integers(values, |number| (least..=most).contains(&number)),
            Self::Floats { least, most } => test_floats(values, |number| (least..=most).contains(&number)),
        }
    }
}
