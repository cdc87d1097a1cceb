//! A cursor over the tab-separated fields of a SAM line.

use memchr::memchr;

use super::error::{SamError, excerpt};

/// A cursor that holds the part of a SAM line that has not been parsed.
pub(super) struct FieldCursor<'a> {
    rest: &'a [u8],
}

impl<'a> FieldCursor<'a> {
    pub(super) fn new(line: &'a [u8]) -> Self {
        Self { rest: line }
    }

    /// Returns the part of the line after the last field and its tab.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Returns the next `bytes` bytes, or all that remain if there are fewer, and skips a tab after them.
    #[inline]
    pub(super) fn take_bytes(&mut self, bytes: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(bytes.min(self.rest.len()));
        self.rest = rest.get(1..).unwrap_or_default();
        taken
    }

    /// Returns the next field, which may be the last field of the line.
    pub(super) fn take_last_field(&mut self, field: &'static str) -> Result<&'a [u8], SamError> {
        let bytes = memchr(b'\t', self.rest).unwrap_or(self.rest.len());
        if bytes == 0 { Err(SamError::MissingField { field }) } else { Ok(self.take_bytes(bytes)) }
    }

    /// Returns the next field, which must be followed by a tab. Empty fields are an error.
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

    /// Parses the next field as an unsigned decimal number of at most `maximum`. A tab must follow the field.
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

    /// Parses the next field as FLAG: a decimal number, a hexadecimal number with the prefix `0x`, or an octal number
    /// with the prefix `0`, as in htslib 1.16.
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

    /// Parses the next field as a decimal number with an optional sign. A tab must follow the field.
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

/// Parses the decimal number before the next tab. Returns the number and the text after the tab, or `None` if it
/// exceeds `maximum` or is malformed.
#[inline]
fn parse_digits(text: &[u8], maximum: u32) -> Option<(u32, &[u8])> {
    let mut value = 0u64;
    // A number of ten digits does not overflow 64 bits, and a number of eleven digits exceeds every allowed maximum.
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

/// Parses like [`parse_digits`], but accepts a plus sign and any number of leading zeros.
#[cold]
fn parse_signed_padded(text: &[u8], maximum: u32) -> Option<(u32, &[u8])> {
    parse_padded_digits(text.strip_prefix(b"+").unwrap_or(text), maximum)
}

/// Parses like [`parse_digits`], but accepts any number of leading zeros.
#[cold]
fn parse_padded_digits(text: &[u8], maximum: u32) -> Option<(u32, &[u8])> {
    let zeros = text.iter().take_while(|byte| **byte == b'0').count();
    // If all digits are zeros, the last zero is the number.
    parse_digits(&text[zeros..], maximum).or_else(|| parse_digits(&text[zeros.checked_sub(1)?..], maximum))
}

/// Parses the hexadecimal (prefix `0x`) or octal (prefix `0`) number before the next tab. Returns the number and the
/// text after the tab, or `None` if it exceeds 65535 or is malformed.
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
