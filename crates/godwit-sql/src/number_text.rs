//! Parses the number with which a text begins, as the C function `strtod` does (C17 §7.22.1.3).

/// Parses the longest number with which a text begins, as `strtod` does. Returns the number and its length in bytes.
pub(crate) fn parse_number(text: &str) -> Option<(f64, usize)> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let sign_bytes = text.len() - unsigned.len();
    let (magnitude, length) = parse_magnitude(unsigned)?;
    Some((if text.starts_with('-') { -magnitude } else { magnitude }, sign_bytes + length))
}

fn parse_magnitude(text: &str) -> Option<(f64, usize)> {
    let lower = text.get(..text.len().min(8)).unwrap_or_default().to_ascii_lowercase();
    for (name, number) in [("infinity", f64::INFINITY), ("inf", f64::INFINITY), ("nan", f64::NAN)] {
        if lower.starts_with(name) {
            return Some((number, name.len()));
        }
    }
    if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        let length = digits.bytes().take_while(u8::is_ascii_hexdigit).count();
        if length > 0 {
            let digit = |byte: u8| f64::from(char::from(byte).to_digit(16).unwrap_or_default());
            let number = digits.bytes().take(length).fold(0.0, |number, byte| number * 16.0 + digit(byte));
            return Some((number, 2 + length));
        }
    }
    let digit_count = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let whole = digit_count(text);
    let fraction = text[whole..].strip_prefix('.').map(digit_count);
    if whole + fraction.unwrap_or_default() == 0 {
        return None;
    }
    let mut length = whole + fraction.map_or(0, |digits| digits + 1);
    if let Some(exponent) = text[length..].strip_prefix(['e', 'E']) {
        let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        match digit_count(unsigned) {
            0 => {}
            digits => length += 1 + exponent.len() - unsigned.len() + digits,
        }
    }
    Some((text[..length].parse().ok()?, length))
}
