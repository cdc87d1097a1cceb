//! The range of numbers that a rule shows.

use arrow_array::{ArrayRef, BooleanArray};
use arrow_buffer::i256;
use arrow_schema::{ArrowError, DataType};

use crate::column_values::{parse_float, test_floats, test_integers};
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
                // Round as the numbers of the column are: 0.1 in a column of 32-bit numbers is greater than 0.1. A bound
                // that is too large for the type of the column is compared as it is.
                let round = |bound: Number| {
                    let rounded = parse_float(&bound.to_string(), data_type).ok().flatten();
                    rounded.map_or_else(|| bound.to_f64(), f64::from_bits)
                };
                let least = at_least.map_or(f64::NEG_INFINITY, round);
                let most = at_most.map_or(f64::INFINITY, round);
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Array, Float32Array};

    use super::*;

    #[test]
    fn bounds_are_rounded_as_the_values_of_the_column_are() {
        let contains = |at_least: Option<f64>, at_most: Option<f64>, value: f32| {
            let values: ArrayRef = Arc::new(Float32Array::from(vec![value]));
            let [least, most] = [at_least, at_most].map(|bound| bound.map(Number::Float));
            NumberRange::new(least, most, values.data_type()).unwrap().contains(&values).unwrap().value(0)
        };
        assert!(contains(None, Some(0.1), 0.1));
        assert!(contains(Some(0.7), None, 0.7));
        assert!(!contains(None, Some(0.1), 0.100_001));
        assert!(!contains(Some(0.7), None, 0.699_999));
        // These bounds are too large for the column.
        assert!(contains(Some(-1e39), Some(1e39), f32::MAX));
        assert!(!contains(Some(1e39), None, f32::MAX));
    }
}
