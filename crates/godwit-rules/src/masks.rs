//! Masks, which replace the values of a column by less precise or pseudonymous values.
//!
//! A masked array must not contain bytes of hidden values. Dictionaries and views may contain values of hidden rows, so
//! they are expanded before.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Float64Type, Int32Type, Int64Type};
use arrow_array::{Array as _, ArrayRef, StringArray, new_null_array};
use arrow_cast::{can_cast_types, cast};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields};

use crate::pseudonyms::{PseudonymKey, pseudonymize};
use crate::rule::{DatePart, Mask};

/// Returns the plain form of a type, in which every value is stored separately; `None` if there is no such form.
pub(crate) fn plain_type(of: &DataType) -> Option<DataType> {
    let plain_field = |field: &FieldRef| -> Option<FieldRef> {
        Some(Arc::new(Field::new(field.name(), plain_type(field.data_type())?, field.is_nullable())))
    };
    let plain = match of {
        DataType::Dictionary(_, values) => plain_type(values)?,
        DataType::RunEndEncoded(_, values) => plain_type(values.data_type())?,
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        DataType::List(field) => DataType::List(plain_field(field)?),
        DataType::LargeList(field) => DataType::LargeList(plain_field(field)?),
        DataType::FixedSizeList(field, size) => DataType::FixedSizeList(plain_field(field)?, *size),
        DataType::Struct(fields) => DataType::Struct(
            fields.iter().map(plain_field).collect::<Option<Vec<_>>>()?.into_iter().collect::<Fields>(),
        ),
        DataType::Union(..) | DataType::ListView(_) | DataType::LargeListView(_) | DataType::Map(..) => return None,
        other => other.clone(),
    };
    (plain == *of || can_cast_types(of, &plain)).then_some(plain)
}

/// Returns the type of a column that is visible without a mask; `None` if it has no plain form. If rows are hidden,
/// `expand_dictionaries` must be true, because a dictionary would contain values of hidden rows.
pub(crate) fn unmasked_type(of: &DataType, expand_dictionaries: bool) -> Option<DataType> {
    let plain = plain_type(of)?;
    match of {
        DataType::Dictionary(_, values) if !expand_dictionaries && **values == plain => Some(of.clone()),
        _ => Some(plain),
    }
}

/// Returns the type of a column after masking. If the mask does not support the column's type, the error names the type
/// that it needs.
pub(crate) fn masked_type(of: &DataType, mask: Mask) -> Result<DataType, &'static str> {
    let plain = plain_type(of).ok_or("a type that can be masked; drop it")?;
    let is_time = matches!(plain, DataType::Date32 | DataType::Date64 | DataType::Timestamp(..));
    let is_text = matches!(plain, DataType::Utf8 | DataType::LargeUtf8);
    match mask {
        Mask::Drop | Mask::Redact => Ok(plain),
        Mask::Hash => Ok(DataType::Utf8),
        Mask::Bin(_) if plain.is_integer() || plain.is_floating() => Ok(plain),
        Mask::Bin(_) => Err("numbers for `bin`"),
        Mask::Prefix(_) if is_text => Ok(DataType::Utf8),
        Mask::Prefix(_) => Err("text for `keep`"),
        Mask::Date(_) if is_text || is_time => Ok(DataType::Utf8),
        Mask::Date(_) => Err("dates or times for `date`"),
    }
}

/// Returns the masked values of a column. `data_type`: the result of [`masked_type`].
pub(crate) fn mask_column(
    values: &ArrayRef,
    mask: Mask,
    data_type: &DataType,
    key: Option<&PseudonymKey>,
) -> Result<ArrayRef, ArrowError> {
    match mask {
        Mask::Drop | Mask::Redact => Ok(new_null_array(data_type, values.len())),
        Mask::Hash => match key {
            Some(key) => pseudonymize(values, key),
            // A policy with a hash mask always has a key. If it is missing nevertheless, all values become null.
            None => Ok(new_null_array(data_type, values.len())),
        },
        Mask::Bin(width) => bin_values(values, width, data_type),
        Mask::Prefix(characters) => truncate_values(values, |text| {
            Some(text.char_indices().nth(characters).map_or(text, |(end, _)| &text[..end]))
        }),
        Mask::Date(part) => truncate_values(values, |text| truncate_date(text, part)),
    }
}

fn bin_values(values: &ArrayRef, width: f64, data_type: &DataType) -> Result<ArrayRef, ArrowError> {
    let values = cast(values, data_type)?;
    let whole = data_type.is_integer() && width.fract() == 0.0;
    if let (Some(numbers), Ok(width), true) =
        (values.as_primitive_opt::<Int32Type>(), i32::try_from(width as i64), whole)
    {
        // Fast path for positions: check only the smallest number for overflow, not each number.
        let least = numbers.values().iter().copied().min().unwrap_or_default();
        if least.div_euclid(width).checked_mul(width).is_some() {
            return Ok(Arc::new(numbers.unary::<_, Int32Type>(|number| number.div_euclid(width) * width)));
        }
    }
    let binned: ArrayRef = if whole {
        let width = width as i64;
        let numbers = cast(&values, &DataType::Int64)?;
        // If the lower bound of the bin is less than the smallest number of the type, the value becomes null.
        let below = |number: i64| number.div_euclid(width).checked_mul(width);
        Arc::new(numbers.as_primitive::<Int64Type>().unary_opt::<_, Int64Type>(below))
    } else {
        let numbers = cast(&values, &DataType::Float64)?;
        let below = |number: f64| (number / width).floor() * width;
        Arc::new(numbers.as_primitive::<Float64Type>().unary::<_, Float64Type>(below))
    };
    // A number that no longer fits its type becomes null.
    cast(&binned, data_type)
}

/// Replaces each text by a part of it; `truncate` returns this part, or `None` to hide the text.
fn truncate_values(values: &ArrayRef, truncate: impl Fn(&str) -> Option<&str>) -> Result<ArrayRef, ArrowError> {
    let texts = cast(values, &DataType::Utf8)?;
    let shown = texts.as_string::<i32>().iter().map(|text| text.and_then(&truncate));
    Ok(Arc::new(shown.collect::<StringArray>()))
}

/// Returns the part of an ISO 8601 date that remains with this precision. Returns `None` if the text is not such a date,
/// because its first characters might be the day and the month.
fn truncate_date(text: &str, part: DatePart) -> Option<&str> {
    let bytes = text.as_bytes();
    let has_digits =
        |range| bytes.get::<Range<usize>>(range).is_some_and(|digits| digits.iter().all(u8::is_ascii_digit));
    let has_part = |separator: usize| bytes.get(separator) == Some(&b'-') && has_digits(separator + 1..separator + 3);
    let end = match (has_digits(0..4), has_part(4), has_part(7)) {
        (true, true, true) => DatePart::Day.characters(),
        (true, true, false) => DatePart::Month.characters(),
        (true, false, _) => DatePart::Year.characters(),
        (false, ..) => return None,
    };
    let is_complete = match bytes.get(end) {
        None => true,
        // A time follows only a complete date.
        Some(separator) => end == DatePart::Day.characters() && matches!(separator, b'T' | b't' | b' '),
    };
    is_complete.then(|| &text[..end.min(part.characters())])
}

#[cfg(test)]
mod tests {
    use arrow_array::{Date32Array, Float32Array, Int32Array, Int64Array};
    use arrow_cast::display::{ArrayFormatter, FormatOptions};

    use super::*;

    fn masked_texts(values: ArrayRef, mask: Mask) -> Vec<String> {
        let data_type = masked_type(values.data_type(), mask).unwrap();
        let masked = mask_column(&values, mask, &data_type, None).unwrap();
        assert_eq!(masked.data_type(), &data_type);
        let options = FormatOptions::default().with_null("-");
        let texts = ArrayFormatter::try_new(&masked, &options).unwrap();
        (0..masked.len()).map(|row| texts.value(row).to_string()).collect()
    }

    #[test]
    fn values_are_made_coarser() {
        let of = |numbers: Vec<i32>| -> ArrayRef { Arc::new(Int32Array::from(numbers)) };
        assert_eq!(masked_texts(of(vec![37, 40, -1, 0]), Mask::Bin(5.0)), ["35", "40", "-5", "0"]);
        assert_eq!(masked_texts(of(vec![i32::MIN + 1]), Mask::Bin(1000.0)), ["-"]);
        assert_eq!(masked_texts(Arc::new(Int64Array::from(vec![i64::MIN])), Mask::Bin(1000.0)), ["-"]);
        assert_eq!(masked_texts(Arc::new(Float32Array::from(vec![0.37, -0.1])), Mask::Bin(0.25)), ["0.25", "-0.25"]);
        let texts = || -> ArrayRef { Arc::new(StringArray::from(vec![Some("éa1987-03-05"), Some(""), None])) };
        assert_eq!(masked_texts(texts(), Mask::Prefix(2)), ["éa", "", "-"]);
        assert_eq!(masked_texts(texts(), Mask::Redact), ["-", "-", "-"]);
        let dates: ArrayRef = Arc::new(Date32Array::from(vec![6272, -1]));
        assert_eq!(masked_texts(dates.clone(), Mask::Date(DatePart::Year)), ["1987", "1969"]);
        assert_eq!(masked_texts(dates, Mask::Date(DatePart::Month)), ["1987-03", "1969-12"]);
        assert!(masked_type(&DataType::Utf8, Mask::Bin(1.0)).is_err());
        assert!(masked_type(&DataType::Int32, Mask::Prefix(1)).is_err());
    }

    #[test]
    fn a_text_that_is_not_a_date_is_hidden_and_not_truncated() {
        let texts = ["1987-03-05", "1987-03-05T06:30:00Z", "1987-03-05 06:30", "1987-03", "1987"];
        let others =
            ["05.03.1987", "19870305", "0503-1987", "1987-03-051", "1987-3-5", "March 1987", "198", "", "é987-03"];
        let dates: ArrayRef = Arc::new(StringArray::from_iter_values(texts.into_iter().chain(others)));
        for (part, expected) in [
            (DatePart::Year, ["1987", "1987", "1987", "1987", "1987"]),
            (DatePart::Month, ["1987-03", "1987-03", "1987-03", "1987-03", "1987"]),
            (DatePart::Day, ["1987-03-05", "1987-03-05", "1987-03-05", "1987-03", "1987"]),
        ] {
            let expected: Vec<_> = expected.into_iter().chain(["-"; 9]).collect();
            assert_eq!(masked_texts(dates.clone(), Mask::Date(part)), expected);
        }
    }

    #[test]
    fn columns_whose_values_lie_elsewhere_become_plain() {
        let dictionary = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8View));
        assert_eq!(plain_type(&dictionary), Some(DataType::Utf8));
        let lists = DataType::List(Arc::new(Field::new("item", dictionary, true)));
        assert_eq!(plain_type(&lists), Some(DataType::List(Arc::new(Field::new("item", DataType::Utf8, true)))));
        assert_eq!(plain_type(&DataType::Int8), Some(DataType::Int8));
    }

    #[test]
    fn dictionaries_stay_where_all_rows_are_seen_and_hold_nothing_else() {
        let of = |values| DataType::Dictionary(Box::new(DataType::Int32), Box::new(values));
        assert_eq!(unmasked_type(&of(DataType::Utf8), false), Some(of(DataType::Utf8)));
        assert_eq!(unmasked_type(&of(DataType::Utf8), true), Some(DataType::Utf8));
        // A view array may refer to bytes of hidden values, so it is always expanded.
        assert_eq!(unmasked_type(&of(DataType::Utf8View), false), Some(DataType::Utf8));
        assert_eq!(unmasked_type(&DataType::Utf8View, false), Some(DataType::Utf8));
    }
}
