//! A cursor over the fields of a SAM line.

use memchr::memchr;

use super::error::{SamError, excerpt};

/// A cursor over the rest of a line.
pub(super) struct FieldCursor<'a> {
    rest: &'a [u8],
}

impl<'a> FieldCursor<'a> {
    pub(super) fn new(line: &'a [u8]) -> Self {
        Self { rest: line }
    }

    /// Returns the rest, without the tab in front of it.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Takes `bytes` bytes, or all where there are fewer, and a tab behind them.
    #[inline]
    pub(super) fn take_bytes(&mut self, bytes: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(bytes.min(self.rest.len()));
        self.rest = rest.get(1..).unwrap_or_default();
        taken
    }

    /// Takes a field that may be the last of the line.
    pub(super) fn take_last_field(&mut self, field: &'static str) -> Result<&'a [u8], SamError> {
        let bytes = memchr(b'\t', self.rest).unwrap_or(self.rest.len());
        if bytes == 0 { Err(SamError::MissingField { field }) } else { Ok(self.take_bytes(bytes)) }
    }

    /// Takes a field that is not the last of the line. Fields are never empty.
    #[inline]
    pub(super) fn take_field(&mut self, field: &'static str) -> Result<&'a [u8], SamError> {
        match memchr(b'\t', self.rest) {
            Some(end) if end > 0 => {
                let text = &self.rest[..end];
                self.rest = &self.rest[end + 1..];
                Ok(text)
            }
            _ => Err(SamError::MissingField { field }),
        }
    }

    /// Takes a field of decimal digits, not the last of the line: at most `maximum`.
    #[inline]
    pub(super) fn take_unsigned(&mut self, field: &'static str, maximum: u32) -> Result<u32, SamError> {
        match parse_digits(self.rest, maximum).or_else(|| parse_signed_padded(self.rest, maximum)) {
            Some((value, rest)) => {
                self.rest = rest;
                Ok(value)
            }
            None => Err(self.number_error(field, 0, maximum)),
        }
    }

    /// Takes FLAG: decimal digits, or hexadecimal ones behind `0x` or octal ones behind `0`, as htslib 1.16 reads it.
    #[inline]
    pub(super) fn take_flag(&mut self) -> Result<u16, SamError> {
        let found = match self.rest {
            [b'0', next, ..] if *next != b'\t' => parse_prefixed_flag(self.rest),
            rest => parse_digits(rest, u32::from(u16::MAX)).map(|(value, rest)| (value as u16, rest)),
        };
        match found {
            Some((value, rest)) => {
                self.rest = rest;
                Ok(value)
            }
            None => Err(self.number_error("FLAG", 0, u32::from(u16::MAX))),
        }
    }

    /// Takes a field with an optional sign and decimal digits, not the last of the line.
    #[inline]
    pub(super) fn take_signed(&mut self, field: &'static str) -> Result<i32, SamError> {
        let parsed = match self.rest {
            [b'-', magnitude @ ..] => {
                let found = parse_digits(magnitude, 1 << 31).or_else(|| parse_padded_digits(magnitude, 1 << 31));
                found.map(|(value, rest)| (-i64::from(value) as i32, rest))
            }
            rest => {
                let found = parse_digits(rest, i32::MAX as u32).or_else(|| parse_signed_padded(rest, i32::MAX as u32));
                found.map(|(value, rest)| (value as i32, rest))
            }
        };
        match parsed {
            Some((value, rest)) => {
                self.rest = rest;
                Ok(value)
            }
            None => Err(self.number_error(field, i64::from(i32::MIN), i32::MAX as u32)),
        }
    }

    #[cold]
    fn number_error(&mut self, field: &'static str, minimum: i64, maximum: u32) -> SamError {
        match self.take_field(field) {
            Ok(text) => SamError::Number { field, text: excerpt(text), minimum, maximum: i64::from(maximum) },
            Err(missing) => missing,
        }
    }
}

/// Returns the number before the next tab, at most `maximum`, and the text after the tab.
#[inline]
fn parse_digits(text: &[u8], maximum: u32) -> Option<(u32, &[u8])> {
    let mut value = 0u64;
    // Ten digits cannot overflow 64 bits, and a number of eleven exceeds every range.
    for (at, byte) in text.iter().enumerate().take(11) {
        let digit = byte.wrapping_sub(b'0');
        if digit <= 9 {
            value = value * 10 + u64::from(digit);
        } else {
            let good = *byte == b'\t' && at > 0 && value <= u64::from(maximum);
            return good.then(|| (value as u32, &text[at + 1..]));
        }
    }
    None
}

/// Parses as [`parse_digits`], with an optional plus sign and any number of leading zeros.
#[cold]
fn parse_signed_padded(text: &[u8], maximum: u32) -> Option<(u32, &[u8])> {
    parse_padded_digits(text.strip_prefix(b"+").unwrap_or(text), maximum)
}

/// Parses as [`parse_digits`], with any number of leading zeros.
#[cold]
fn parse_padded_digits(text: &[u8], maximum: u32) -> Option<(u32, &[u8])> {
    let zeros = text.iter().take_while(|byte| **byte == b'0').count();
    // The last zero may be the only digit.
    parse_digits(&text[zeros..], maximum).or_else(|| parse_digits(&text[zeros.checked_sub(1)?..], maximum))
}

/// Returns the number before the next tab whose prefix makes it hexadecimal (`0x`) or octal (`0`), at most 65535, and the
/// text after the tab.
#[cold]
fn parse_prefixed_flag(text: &[u8]) -> Option<(u16, &[u8])> {
    let end = memchr(b'\t', text)?;
    let (digits, radix) = match &text[..end] {
        [b'0', b'x' | b'X', hexadecimal @ ..] => (hexadecimal, 16),
        [b'0', octal @ ..] => (octal, 8),
        _ => return None,
    };
    let is_number = digits.iter().all(|byte| (*byte as char).is_digit(radix));
    let value = u16::from_str_radix(std::str::from_utf8(digits).ok().filter(|_| is_number)?, radix).ok()?;
    Some((value, &text[end + 1..]))
}
