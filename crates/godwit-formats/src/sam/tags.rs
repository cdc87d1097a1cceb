//! Conversion of the optional fields (tags) of a SAM line into the form of BAM (SAMv1 §1.5, §4.2.4).

use memchr::{memchr, memchr2};

use super::error::{SamError, excerpt};
use super::field_cursor::FieldCursor;

/// Converts all tags after the cursor and appends them to `out`. A tab at the end of the line does not start a tag, as
/// in htslib.
#[inline]
pub(super) fn append_all_tags(cursor: &mut FieldCursor<'_>, out: &mut Vec<u8>) -> Result<(), SamError> {
    let mut rest = cursor.rest();
    while !rest.is_empty() {
        rest = append_tag(rest, out).map_err(|problem| {
            let end = memchr(b'\t', rest).unwrap_or(rest.len());
            SamError::Tag { tag: excerpt(&rest[..end]), problem }
        })?;
    }
    Ok(())
}

/// Converts the first tag of `rest`, appends it to `out`, and returns the text after the tab that follows the tag.
#[inline]
fn append_tag<'a>(rest: &'a [u8], out: &mut Vec<u8>) -> Result<&'a [u8], &'static str> {
    let [name1, name2, b':', kind, b':', value @ ..] = rest else {
        return Err("it is not NAME:TYPE:VALUE with a name of two characters and a type of one");
    };
    // SAMv1 §1.5 requires a letter, and then a letter or digit. Files of old programs have other characters, which
    // htslib 1.16 accepts.
    if !name1.is_ascii_graphic() || !name2.is_ascii_graphic() {
        return Err("its name is not two printable characters");
    }
    out.extend_from_slice(&[*name1, *name2]);
    match kind {
        b'i' => append_integer_text(value, out),
        b'Z' => append_text(value, out),
        b'A' => append_character(value, out),
        _ => {
            let (value, rest) = split_value(value);
            match kind {
                b'f' => {
                    out.push(b'f');
                    out.extend_from_slice(&parse_float(value)?.to_le_bytes());
                }
                // SAMv1 does not define type `d`, but htslib supports it and stores all 64 bits in BAM.
                b'd' => {
                    out.push(b'd');
                    out.extend_from_slice(&parse_double(value)?.to_le_bytes());
                }
                b'H' => append_hex(value, out)?,
                b'B' => append_array(value, out)?,
                _ => return Err("its type is not one of A, i, f, d, Z, H and B"),
            }
            Ok(rest)
        }
    }
}

/// Splits `rest` into the value before the next tab and the text after the tab.
fn split_value(rest: &[u8]) -> (&[u8], &[u8]) {
    let (value, rest) = rest.split_at(memchr(b'\t', rest).unwrap_or(rest.len()));
    (value, rest.get(1..).unwrap_or_default())
}

/// Appends an integer tag value as `aux_parse` of htslib 1.16 does: a number with a minus sign in the smallest signed
/// type, any other number in the smallest unsigned type.
#[inline]
fn append_integer_text<'a>(rest: &'a [u8], out: &mut Vec<u8>) -> Result<&'a [u8], &'static str> {
    let (value, rest) = match parse_plain_digits(rest) {
        Some(found) => found,
        None => {
            let (text, after_value) = split_value(rest);
            let value = parse_integer(text)?;
            if text[0] == b'-' {
                append_negative(value, out)?;
                return Ok(after_value);
            }
            (value, after_value)
        }
    };
    append_positive(value, out)?;
    Ok(rest)
}

/// Appends the BAM type and the value of an integer: the smallest type that holds it, as for an integer in SAM text.
pub fn append_integer_value(value: i32, out: &mut Vec<u8>) {
    let value = i64::from(value);
    let appended = if value < 0 { append_negative(value, out) } else { append_positive(value, out) };
    appended.expect("32 bits with a sign are in the range of both");
}

/// Appends the type and value of an integer whose text has no minus sign.
#[inline]
fn append_positive(value: i64, out: &mut Vec<u8>) -> Result<(), &'static str> {
    if let Ok(small) = u8::try_from(value) {
        out.extend_from_slice(&[b'C', small]);
    } else if let Ok(medium) = u16::try_from(value) {
        let [low, high] = medium.to_le_bytes();
        out.extend_from_slice(&[b'S', low, high]);
    } else {
        let large = u32::try_from(value).map_err(|_| "its value is above 4294967295")?;
        out.push(b'I');
        out.extend_from_slice(&large.to_le_bytes());
    }
    Ok(())
}

/// Parses the most frequent form of an integer: one to nine digits without sign.
#[inline]
fn parse_plain_digits(rest: &[u8]) -> Option<(i64, &[u8])> {
    let mut value = 0i64;
    for (at, byte) in rest.iter().enumerate().take(10) {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return (*byte == b'\t' && at > 0).then(|| (value, &rest[at + 1..]));
        }
        value = value * 10 + i64::from(digit);
    }
    (1..10).contains(&rest.len()).then_some((value, &[]))
}

/// Appends the type and value of an integer whose text has no minus sign.
fn append_negative(value: i64, out: &mut Vec<u8>) -> Result<(), &'static str> {
    if value >= i64::from(i8::MIN) {
        out.extend_from_slice(&[b'c', value as u8]);
    } else if value >= i64::from(i16::MIN) {
        out.push(b's');
        out.extend_from_slice(&(value as i16).to_le_bytes());
    } else if value >= i64::from(i32::MIN) {
        out.push(b'i');
        out.extend_from_slice(&(value as i32).to_le_bytes());
    } else {
        return Err("its value is below -2147483648");
    }
    Ok(())
}

/// Parses an integer of the form `[-+]?[0-9]+`, with at most eighteen digits after any number of leading zeros.
fn parse_integer(text: &[u8]) -> Result<i64, &'static str> {
    let digits = text.strip_prefix(b"-").or(text.strip_prefix(b"+")).unwrap_or(text);
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    let significant = &digits[zeros..];
    if digits.is_empty() || significant.len() > 18 || !significant.iter().all(u8::is_ascii_digit) {
        return Err("its value is not a whole number in range");
    }
    let digits = significant;
    let magnitude = digits.iter().fold(0i64, |value, digit| value * 10 + i64::from(digit - b'0'));
    Ok(if text[0] == b'-' { -magnitude } else { magnitude })
}

#[inline]
fn append_text<'a>(rest: &'a [u8], out: &mut Vec<u8>) -> Result<&'a [u8], &'static str> {
    out.push(b'Z');
    // A NUL byte ends a text value in BAM, so the value itself cannot contain one.
    let end = match memchr2(b'\t', 0, rest) {
        Some(end) if rest[end] == 0 => return Err("its value contains NUL"),
        Some(end) => end,
        None => rest.len(),
    };
    out.extend_from_slice(&rest[..end]);
    out.push(0);
    Ok(rest.get(end + 1..).unwrap_or_default())
}

fn append_character<'a>(rest: &'a [u8], out: &mut Vec<u8>) -> Result<&'a [u8], &'static str> {
    match *rest {
        [b'!'..=b'~'] | [b'!'..=b'~', b'\t', ..] => {
            out.extend_from_slice(&[b'A', rest[0]]);
            Ok(rest.get(2..).unwrap_or_default())
        }
        _ => Err("its value is not one printable character"),
    }
}

fn append_hex(value: &[u8], out: &mut Vec<u8>) -> Result<(), &'static str> {
    if !value.len().is_multiple_of(2) || !value.iter().all(u8::is_ascii_hexdigit) {
        return Err("its value is not an even number of hexadecimal digits");
    }
    out.push(b'H');
    out.extend_from_slice(value);
    out.push(0);
    Ok(())
}

/// Parses a 32-bit float by rounding a 64-bit float, because htslib uses `strtod` and then rounds.
fn parse_float(text: &[u8]) -> Result<f32, &'static str> {
    parse_double(text).map(|value| value as f32)
}

fn parse_double(text: &[u8]) -> Result<f64, &'static str> {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or("its value is not a number")
}

fn append_array(value: &[u8], out: &mut Vec<u8>) -> Result<(), &'static str> {
    let (kind, elements) = match *value {
        [kind] => (kind, None),
        [kind, b',', ..] => (kind, Some(&value[2..])),
        _ => return Err("its value is not an element type followed by a comma and numbers"),
    };
    out.extend_from_slice(&[b'B', kind]);
    let count_at = out.len();
    out.extend_from_slice(&[0; 4]);
    let mut count = 0u32;
    for element in elements.into_iter().flat_map(|elements| elements.split(|byte| *byte == b',')) {
        append_element(kind, element, out)?;
        count += 1;
    }
    if !b"cCsSiIf".contains(&kind) {
        return Err("its element type is not one of c, C, s, S, i, I and f");
    }
    out[count_at..count_at + 4].copy_from_slice(&count.to_le_bytes());
    Ok(())
}

fn append_element(kind: u8, text: &[u8], out: &mut Vec<u8>) -> Result<(), &'static str> {
    if kind == b'f' {
        out.extend_from_slice(&parse_float(text)?.to_le_bytes());
        return Ok(());
    }
    let (range, bytes) = match kind {
        b'c' => (i64::from(i8::MIN)..=i64::from(i8::MAX), 1),
        b'C' => (0..=i64::from(u8::MAX), 1),
        b's' => (i64::from(i16::MIN)..=i64::from(i16::MAX), 2),
        b'S' => (0..=i64::from(u16::MAX), 2),
        b'i' => (i64::from(i32::MIN)..=i64::from(i32::MAX), 4),
        b'I' => (0..=i64::from(u32::MAX), 4),
        _ => return Err("its element type is not one of c, C, s, S, i, I and f"),
    };
    let value = parse_integer(text)?;
    if !range.contains(&value) {
        return Err("an element is out of the range of its type");
    }
    out.extend_from_slice(&value.to_le_bytes()[..bytes]);
    Ok(())
}
