//! The text of Picard's metrics files (htsjdk 4.2.0 `MetricsFile`, `FormatUtil`): the header and the numbers.

use std::fmt::Write;

/// Returns the lines that a metrics file starts with: a header for each comment, and an empty line.
pub fn picard_header<'c>(comments: impl IntoIterator<Item = &'c str>) -> String {
    let headers = comments.into_iter().map(|comment| format!("## htsjdk.samtools.metrics.StringHeader\n# {comment}\n"));
    headers.chain(["\n".to_owned()]).collect()
}

/// Formats a number as htsjdk 4.2.0 `FormatUtil` does: at most six decimals, ties rounded towards zero, no trailing
/// zeros, a sign also for negative numbers that are rounded to 0.
///
/// # Examples
///
/// ```
/// use godwit_kernels::picard_text::format_double;
///
/// assert_eq!(format_double(2.0 / 3.0), "0.666667");
/// assert_eq!(format_double(f64::NAN), "?");
/// ```
pub fn format_double(value: f64) -> String {
    if value.is_nan() {
        return "?".into();
    }
    let sign = if value.is_sign_negative() { "-" } else { "" };
    if value.is_infinite() {
        return format!("{sign}?");
    }
    // A double has at most 1,074 decimals, so this text is the exact value, and the test for ties below is exact.
    let mut exact = String::new();
    let _ = write!(exact, "{:.1074}", value.abs());
    let Some((whole, decimals)) = exact.split_once('.') else { return exact };
    let (kept, rest) = decimals.split_at(6);
    let mut digits: Vec<u8> = whole.bytes().chain(kept.bytes()).collect();
    let above_half = rest.as_bytes()[0] > b'5' || (rest.as_bytes()[0] == b'5' && rest[1..].bytes().any(|d| d != b'0'));
    if above_half {
        round_up(&mut digits);
    }
    let point = digits.len() - 6;
    let mut text: String = digits.iter().map(|digit| char::from(*digit)).collect();
    text.insert(point, '.');
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{sign}{text}")
}

/// Adds one to the last digit of a decimal number whose most significant digit is first.
fn round_up(digits: &mut Vec<u8>) {
    for digit in digits.iter_mut().rev() {
        if *digit < b'9' {
            *digit += 1;
            return;
        }
        *digit = b'0';
    }
    digits.insert(0, b'1');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_printed_as_java_prints_them() {
        for (value, text) in [
            (0.0, "0"),
            (0.5, "0.5"),
            (1.0, "1"),
            (2.0 / 3.0, "0.666667"),
            (3.0 / 128.0, "0.023437"),
            (1.0 / 128.0, "0.007812"),
            (0.9999999, "1"),
            (1234567.25, "1234567.25"),
            (f64::NAN, "?"),
            (f64::NEG_INFINITY, "-?"),
            (-0.0000001, "-0"),
        ] {
            assert_eq!(format_double(value), text);
        }
    }
}
