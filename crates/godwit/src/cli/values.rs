//! Values of options as people write them: sizes, rates, times, names, tags.

use godwit_engines::EngineError;
use godwit_engines::aligner::AlignerChoice;

/// Bits a second, in decimal units as networks are sold: `10G`, `500M`.
pub(super) fn parse_rate(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == '/');
    let unit: u64 = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "bit/s" | "bps" => 1,
        "k" | "kbit/s" | "kbps" => 1_000,
        "m" | "mbit/s" | "mbps" => 1_000_000,
        "g" | "gbit/s" | "gbps" => 1_000_000_000,
        unit => return Err(format!("{unit} is not a unit of bandwidth; use K, M or G, in bits a second")),
    };
    let number: u64 = digits.parse().map_err(|_| "a bandwidth is a whole number and a unit, as in 10G".to_string())?;
    number.checked_mul(unit).filter(|rate| *rate > 0).ok_or_else(|| "out of range".into())
}

/// Milliseconds, the unit spelled out or not.
pub(super) fn parse_milliseconds(text: &str) -> Result<f64, String> {
    let number: f64 = text.trim_end_matches("ms").parse().map_err(|_| "a number of milliseconds".to_string())?;
    Some(number).filter(|number| *number > 0.0 && *number < 1e6).ok_or_else(|| "out of range".into())
}

/// `512M`, `8G`, `1T`, `64K` or plain bytes.
pub(super) fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        "T" | "TB" | "TIB" => 40,
        unit => return Err(format!("{unit} is not a unit of size; use K, M, G or T")),
    };
    let number: u64 =
        digits.parse().map_err(|_| "a size is a whole number and a unit, as in 512M or 8G".to_string())?;
    number.checked_mul(1 << unit).filter(|bytes| *bytes > 0).ok_or_else(|| "out of range".into())
}

/// Sample names become file names and `SM` values.
pub(super) fn parse_sample(text: &str) -> Result<String, String> {
    let fine = !text.is_empty()
        && text.len() <= 200
        && !text.starts_with('.')
        && text.chars().all(|c| !c.is_control() && c != '/');
    if fine {
        Ok(text.into())
    } else {
        Err("a sample name is a file name: no /, no control characters, no leading dot".into())
    }
}

/// The two letters of a SAM tag (SAMv1 §1.5, 2023-05-24).
pub(super) fn parse_tag(text: &str) -> Result<[u8; 2], String> {
    match text.as_bytes() {
        [first, second] if first.is_ascii_alphabetic() && second.is_ascii_alphanumeric() => Ok([*first, *second]),
        _ => Err("a tag is a letter and a letter or digit, as in RX".into()),
    }
}

/// A tag to carry over. The read group is the lane's.
pub(super) fn parse_kept_tag(text: &str) -> Result<[u8; 2], String> {
    match text {
        "RG" => Err("RG comes from the header or --read-group".into()),
        _ => parse_tag(text),
    }
}

/// A name or a template.
pub(super) fn parse_aligner(text: &str) -> Result<AlignerChoice, String> {
    text.parse().map_err(|error: EngineError| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_binary_units() {
        assert_eq!(parse_size("8G"), Ok(8 << 30));
        assert_eq!(parse_size("128M"), Ok(128 << 20));
        assert_eq!(parse_size("1000"), Ok(1000));
        assert!(parse_size("8X").is_err() && parse_size("").is_err() && parse_size("0G").is_err());
        assert!(parse_size("99999999999T").is_err());
    }

    #[test]
    fn rates_take_decimal_units_and_times_are_milliseconds() {
        assert_eq!(parse_rate("10G"), Ok(10_000_000_000));
        assert_eq!(parse_rate("500Mbit/s"), Ok(500_000_000));
        assert!(parse_rate("10X").is_err() && parse_rate("0G").is_err());
        assert_eq!(parse_milliseconds("40ms"), Ok(40.0));
        assert!(parse_milliseconds("-1").is_err() && parse_milliseconds("soon").is_err());
    }
}
