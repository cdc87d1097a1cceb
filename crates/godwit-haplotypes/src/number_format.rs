//! Numbers as Java prints them: rounding half up on the shortest decimal digits of a number.

/// The shortest decimal digits of a number, and the power of ten of the first of them.
fn decimal_digits(number: f64) -> (Vec<u8>, i32) {
    let text = format!("{:e}", number.abs());
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let digits = digits.bytes().filter(u8::is_ascii_digit).map(|digit| digit - b'0').collect();
    (digits, exponent.parse().unwrap_or(0))
}

/// Rounds digits half up to the first `count`, which may be 0 or less. Returns the digits and the new exponent.
fn round_digits(mut digits: Vec<u8>, mut exponent: i32, count: i32) -> (Vec<u8>, i32) {
    let Ok(kept) = usize::try_from(count) else { return (Vec::new(), exponent) };
    if kept >= digits.len() {
        return (digits, exponent);
    }
    let is_up = digits[kept] >= 5;
    digits.truncate(kept);
    if is_up {
        match digits.iter().rposition(|digit| *digit < 9) {
            Some(last) => {
                digits[last] += 1;
                digits[last + 1..].fill(0);
            }
            None => {
                digits.insert(0, 1);
                digits[1..].fill(0);
                exponent += 1;
            }
        }
    }
    (digits, exponent)
}

fn digit_at(digits: &[u8], exponent: i32, power: i32) -> char {
    let index = usize::try_from(exponent - power).ok();
    char::from(b'0' + index.and_then(|index| digits.get(index)).copied().unwrap_or(0))
}

/// Appends the digits of a number from its first place before the point to a number of decimals.
fn plain_text(digits: &[u8], exponent: i32, decimals: i32) -> String {
    let mut text: String = (0..=exponent.max(0)).rev().map(|power| digit_at(digits, exponent, power)).collect();
    if decimals > 0 {
        text.push('.');
        text.extend((1..=decimals).map(|place| digit_at(digits, exponent, -place)));
    }
    text
}

/// Returns a number with a fixed number of decimals; `NaN` and `Infinity` by name.
pub(crate) fn fixed(number: f64, decimals: i32) -> String {
    if !number.is_finite() {
        return special_name(number);
    }
    let (digits, exponent) = decimal_digits(number);
    let (digits, exponent) = round_digits(digits, exponent, exponent + 1 + decimals);
    let text = plain_text(&digits, exponent, decimals);
    let is_zero = digits.iter().all(|digit| *digit == 0);
    if number < 0.0 && !is_zero { format!("-{text}") } else { text }
}

/// Returns a positive number with three significant digits, and an exponent from 1000 on.
pub(crate) fn three_digits(number: f64) -> String {
    let (digits, exponent) = decimal_digits(number);
    let (digits, exponent) = round_digits(digits, exponent, 3);
    if (-4..3).contains(&exponent) {
        return plain_text(&digits, exponent, 2 - exponent);
    }
    format!("{}e{}{:02}", plain_text(&digits, 0, 2), if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

/// Returns the shortest text of a number that has a point, with an exponent below 0.001 and from 10,000,000 on.
pub(crate) fn shortest(number: f64) -> String {
    if !number.is_finite() {
        return special_name(number);
    }
    let (digits, exponent) = decimal_digits(number);
    let sign = if number.is_sign_negative() { "-" } else { "" };
    let count = digits.len() as i32;
    if number == 0.0 || (-3..7).contains(&exponent) {
        return format!("{sign}{}", plain_text(&digits, exponent, (count - 1 - exponent).max(1)));
    }
    format!("{sign}{}E{exponent}", plain_text(&digits, 0, (count - 1).max(1)))
}

fn special_name(number: f64) -> String {
    let name = if number.is_nan() { "NaN" } else { "Infinity" };
    if number < 0.0 { format!("-{name}") } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::{fixed, shortest, three_digits};

    #[test]
    fn halves_are_rounded_up_on_the_shortest_digits() {
        assert_eq!(
            [0.125, 1.005, 2.5, 0.996, 9.999].map(|number| fixed(number, 2)),
            ["0.13", "1.01", "2.50", "1.00", "10.00"]
        );
        assert_eq!(
            [0.0004, 0.0005, 618.0, 0.05].map(|number| fixed(number, 3)),
            ["0.000", "0.001", "618.000", "0.050"]
        );
        assert_eq!([-0.0001, -1.5, f64::NAN].map(|number| fixed(number, 1)), ["0.0", "-1.5", "NaN"]);
        assert_eq!([0.4, 0.5, 99.5].map(|number| fixed(number, 0)), ["0", "1", "100"]);
    }

    #[test]
    fn weights_have_three_significant_digits() {
        assert_eq!([0.5, 2.0, 1.0 / 3.0, 0.9996, 12.34].map(three_digits), ["0.500", "2.00", "0.333", "1.00", "12.3"]);
        assert_eq!([0.05, 100.0, 1234.0].map(three_digits), ["0.0500", "100", "1.23e+03"]);
    }

    #[test]
    fn scores_are_printed_as_java_prints_a_double() {
        assert_eq!(
            [50.0, 0.0, 612.7, 1.0e-5, 12_345_678.0, 1.0e7].map(shortest),
            ["50.0", "0.0", "612.7", "1.0E-5", "1.2345678E7", "1.0E7"]
        );
        assert_eq!([0.001, 9_999_999.0, -2.5].map(shortest), ["0.001", "9999999.0", "-2.5"]);
    }
}
