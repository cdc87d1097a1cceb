//! The values of a column in a form that can be compared exactly, and the entries of rules in the same form.
//!
//! Numbers, dates and times are never compared as text, because one value has several texts: `1`, `1.0` and `1.00`.
//! Integers, decimals, dates, times and booleans become integers: the number in units of the column's scale, the time in
//! units of the column's type, or 0 and 1.

use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::timezone::Tz;
use arrow_array::types::{Decimal128Type, Decimal256Type, Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, Float64Array};
use arrow_buffer::{BooleanBuffer, i256};
use arrow_cast::parse::{string_to_datetime, string_to_time_nanoseconds};
use arrow_cast::{cast, cast_single_string_to_boolean_default};
use arrow_schema::{ArrowError, DECIMAL128_MAX_PRECISION, DataType, TimeUnit};

use crate::decimal_number::DecimalNumber;

/// Nanoseconds in a second.
const SECOND_NS: i64 = 1_000_000_000;
/// Nanoseconds in a day.
const DAY_NS: i64 = 86_400 * SECOND_NS;
/// Offset of the times in columns without a time zone.
const UTC_OFFSET: &str = "+00:00";

/// The form in which the values of a column are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueForm {
    Text,
    Integer,
    Float,
}

/// The reason why an entry of a rule cannot be compared with a column: it is not a value of the column's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TypeMismatch;

impl ValueForm {
    /// Returns the form for a type that is neither a dictionary nor a view; `None` if rules cannot compare its values.
    pub(crate) fn for_type(data_type: &DataType) -> Option<Self> {
        match data_type {
            // A column without any value has the type `Null`.
            DataType::Null | DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => {
                Some(Self::Text)
            }
            DataType::Boolean | DataType::Date32 | DataType::Date64 => Some(Self::Integer),
            DataType::Timestamp(..) | DataType::Time32(_) | DataType::Time64(_) => Some(Self::Integer),
            number if number.is_integer() || number.is_decimal() => Some(Self::Integer),
            number if number.is_floating() => Some(Self::Float),
            _ => None,
        }
    }
}

/// Converts an entry of a rule to the integer that represents it in a column of the form [`ValueForm::Integer`]. Returns
/// `None` if the entry is a value that a column of this type cannot contain, such as 1.5 for integers.
///
/// # Errors
/// [`TypeMismatch`] if the entry is not a number, date, time or boolean, as the type requires.
pub(crate) fn parse_integer(text: &str, data_type: &DataType) -> Result<Option<i256>, TypeMismatch> {
    let decimal = |scale: i8| DecimalNumber::parse(text).map(|number| number.to_units(scale)).ok_or(TypeMismatch);
    match data_type {
        DataType::Boolean => {
            let truth = cast_single_string_to_boolean_default(text).ok_or(TypeMismatch)?;
            Ok(Some(i256::from(i8::from(truth))))
        }
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => decimal(*scale),
        number if number.is_integer() => decimal(0),
        DataType::Date32 => parse_instant(text, UTC_OFFSET, DAY_NS),
        DataType::Date64 => parse_instant(text, UTC_OFFSET, unit_ns(TimeUnit::Millisecond)),
        DataType::Timestamp(unit, zone) => parse_instant(text, zone.as_deref().unwrap_or(UTC_OFFSET), unit_ns(*unit)),
        DataType::Time32(unit) | DataType::Time64(unit) => {
            let time_ns = string_to_time_nanoseconds(text).map_err(|_| TypeMismatch)?;
            Ok(exact_quotient(i128::from(time_ns), unit_ns(*unit)))
        }
        _ => Err(TypeMismatch),
    }
}

/// Converts a date, with or without a time, to the number of units since 1970 in UTC; `None` if it is between two units.
/// A text without an offset has the time zone `zone`.
fn parse_instant(text: &str, zone: &str, unit_ns: i64) -> Result<Option<i256>, TypeMismatch> {
    let zone: Tz = zone.parse().map_err(|_| TypeMismatch)?;
    let instant = string_to_datetime(&zone, text).map_err(|_| TypeMismatch)?;
    let seconds_ns = i128::from(instant.timestamp()) * i128::from(SECOND_NS);
    Ok(exact_quotient(seconds_ns + i128::from(instant.timestamp_subsec_nanos()), unit_ns))
}

fn unit_ns(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => SECOND_NS,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    }
}

/// Returns the quotient of two integers; `None` if the division leaves a remainder.
fn exact_quotient(dividend: i128, divisor: i64) -> Option<i256> {
    let divisor = i128::from(divisor);
    (dividend % divisor == 0).then(|| i256::from_i128(dividend / divisor))
}

/// Converts an entry of a rule to a number of a floating-point column, in the form of [`float_key`]. The entry is
/// rounded as the numbers of the column are. Returns `None` if the entry is too large for the type of the column.
///
/// # Errors
/// [`TypeMismatch`] if the entry is not a number. NaN equals no number, so it is rejected too.
pub(crate) fn parse_float(text: &str, data_type: &DataType) -> Result<Option<u64>, TypeMismatch> {
    let parsed = match data_type {
        DataType::Float64 => text.parse::<f64>(),
        // Round only once: first to 64 bits and then to 32 bits may give another number.
        _ => text.parse::<f32>().map(f64::from),
    };
    let number = parsed.ok().filter(|number| !number.is_nan()).ok_or(TypeMismatch)?;
    let number: ArrayRef = Arc::new(Float64Array::from(vec![number]));
    let rounded = cast(&number, data_type).and_then(|rounded| cast(&rounded, &DataType::Float64));
    let rounded = rounded.map_err(|_| TypeMismatch)?;
    let rounded = rounded.as_primitive::<Float64Type>().iter().next().flatten();
    let is_infinity = text.to_ascii_lowercase().contains("inf");
    Ok(rounded.filter(|number| number.is_infinite() == is_infinity).map(float_key))
}

/// Returns the bits of a floating-point number. The result is the same for 0.0 and -0.0, which are equal.
pub(crate) fn float_key(number: f64) -> u64 {
    (number + 0.0).to_bits()
}

/// Returns for each value of a column the result of a test of its text. The result is null if there is no value.
pub(crate) fn test_texts(values: &ArrayRef, test: impl Fn(&str) -> bool) -> Result<BooleanArray, ArrowError> {
    let texts = cast(values, &DataType::Utf8)?;
    let texts = texts.as_string::<i32>();
    Ok(test_rows(texts, |row| test(texts.value(row))))
}

/// Returns for each value of a column the result of a test of the integer that represents it. The result is null if
/// there is no value.
pub(crate) fn test_integers(values: &ArrayRef, test: impl Fn(i256) -> bool) -> Result<BooleanArray, ArrowError> {
    let wide = match values.data_type() {
        DataType::Decimal256(..) => {
            let numbers = values.as_primitive::<Decimal256Type>();
            return Ok(test_rows(numbers, |row| test(numbers.value(row))));
        }
        DataType::Decimal128(..) => values.data_type().clone(),
        DataType::Decimal32(_, scale) | DataType::Decimal64(_, scale) => {
            DataType::Decimal128(DECIMAL128_MAX_PRECISION, *scale)
        }
        DataType::UInt64 => DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0),
        _ => DataType::Int64,
    };
    let values = cast(values, &wide)?;
    Ok(match values.as_primitive_opt::<Decimal128Type>() {
        Some(numbers) => test_rows(numbers, |row| test(i256::from_i128(numbers.value(row)))),
        None => {
            let numbers = values.as_primitive::<Int64Type>();
            test_rows(numbers, |row| test(i256::from(numbers.value(row))))
        }
    })
}

/// Returns for each value of a column the result of a test of the number. The result is null if there is no value.
pub(crate) fn test_floats(values: &ArrayRef, test: impl Fn(f64) -> bool) -> Result<BooleanArray, ArrowError> {
    let numbers = cast(values, &DataType::Float64)?;
    let numbers = numbers.as_primitive::<Float64Type>();
    Ok(test_rows(numbers, |row| test(numbers.value(row))))
}

fn test_rows(values: &dyn Array, test: impl FnMut(usize) -> bool) -> BooleanArray {
    BooleanArray::new(BooleanBuffer::collect_bool(values.len(), test), values.nulls().cloned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn integer(text: &str, data_type: &DataType) -> Result<Option<i128>, TypeMismatch> {
        Ok(parse_integer(text, data_type)?.map(|number| number.to_i128().unwrap()))
    }

    fn timestamp(unit: TimeUnit, zone: Option<&str>) -> DataType {
        DataType::Timestamp(unit, zone.map(Into::into))
    }

    #[test]
    fn an_entry_becomes_a_value_of_the_column_or_none_or_an_error() {
        let date_s = 1_577_923_200;
        for (text, data_type, expected) in [
            ("1.0", DataType::Int8, Ok(Some(1))),
            ("300", DataType::Int8, Ok(Some(300))),
            ("1.5", DataType::Int64, Ok(None)),
            ("x", DataType::Int64, Err(TypeMismatch)),
            ("true", DataType::Int64, Err(TypeMismatch)),
            ("1.5", DataType::Decimal64(10, 2), Ok(Some(150))),
            ("1.005", DataType::Decimal128(10, 2), Ok(None)),
            ("nan", DataType::Decimal256(10, 2), Err(TypeMismatch)),
            ("true", DataType::Boolean, Ok(Some(1))),
            ("0", DataType::Boolean, Ok(Some(0))),
            ("2", DataType::Boolean, Err(TypeMismatch)),
            ("2020-01-02", DataType::Date32, Ok(Some(18_263))),
            ("2020-01-02T00:00:00", DataType::Date32, Ok(Some(18_263))),
            ("2020-01-02 00:00:01", DataType::Date32, Ok(None)),
            ("1969-12-31", DataType::Date32, Ok(Some(-1))),
            ("2020-01-02", DataType::Date64, Ok(Some(date_s * 1000))),
            ("2020-02-30", DataType::Date32, Err(TypeMismatch)),
            ("18263", DataType::Date32, Err(TypeMismatch)),
            ("2020-01-02 00:00:00", timestamp(TimeUnit::Second, None), Ok(Some(date_s))),
            ("2020-01-02T00:00:00.5", timestamp(TimeUnit::Second, None), Ok(None)),
            ("2020-01-02T00:00:00.5", timestamp(TimeUnit::Microsecond, None), Ok(Some(date_s * 1_000_000 + 500_000))),
            ("2020-01-02T02:00:00+02:00", timestamp(TimeUnit::Nanosecond, None), Ok(Some(date_s * 1_000_000_000))),
            ("2020-01-02", timestamp(TimeUnit::Second, Some("+02:00")), Ok(Some(date_s - 7200))),
            ("2020-01-02 00:00:00Z", timestamp(TimeUnit::Second, Some("UTC")), Ok(Some(date_s))),
            ("2020-01-02", timestamp(TimeUnit::Second, Some("Nowhere")), Err(TypeMismatch)),
            ("1577923200", timestamp(TimeUnit::Second, None), Err(TypeMismatch)),
            ("06:30", DataType::Time32(TimeUnit::Second), Ok(Some(23_400))),
            ("06:30:00.5", DataType::Time32(TimeUnit::Second), Ok(None)),
            ("06:30:00.5", DataType::Time64(TimeUnit::Nanosecond), Ok(Some(23_400_500_000_000))),
            ("630", DataType::Time64(TimeUnit::Nanosecond), Err(TypeMismatch)),
        ] {
            assert_eq!(integer(text, &data_type), expected, "{text} {data_type}");
        }
    }

    #[test]
    fn a_number_is_rounded_as_the_values_of_its_column_are() {
        let float = |text: &str, data_type: &DataType| parse_float(text, data_type).map(|key| key.map(f64::from_bits));
        for text in ["0.1", "1e-1", "0.10"] {
            assert_eq!(float(text, &DataType::Float64), Ok(Some(0.1)));
            assert_eq!(float(text, &DataType::Float32), Ok(Some(f64::from(0.1_f32))));
        }
        assert_eq!(float("1.5", &DataType::Float16), Ok(Some(1.5)));
        assert_eq!(float("-0", &DataType::Float64), Ok(Some(0.0)));
        assert_eq!(float("-inf", &DataType::Float32), Ok(Some(f64::NEG_INFINITY)));
        for (text, data_type) in
            [("1e400", DataType::Float64), ("1e39", DataType::Float32), ("70000", DataType::Float16)]
        {
            assert_eq!(float(text, &data_type), Ok(None), "{text}");
        }
        for text in ["x", "", "nan", "NaN", "true"] {
            assert_eq!(float(text, &DataType::Float64), Err(TypeMismatch), "{text:?}");
        }
        assert_eq!(float_key(-0.0), float_key(0.0));
    }
}
