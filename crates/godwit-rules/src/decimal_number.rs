//! Decimal numbers of policy files, which are compared exactly with integers and decimals.

use arrow_buffer::i256;

/// Maximum number of decimal digits of which every number fits into an [`i256`].
const MAX_DIGITS: i64 = 76;

/// A decimal number of any size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DecimalNumber {
    is_negative: bool,
    /// The decimal digits, without zeros at either end; empty for the number 0.
    digits: String,
    /// The power of ten by which the digits are multiplied.
    exponent: i64,
}

impl DecimalNumber {
    /// Parses a number such as `-12`, `0.50` or `1e-3`. Returns `None` if the text is not a finite number.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (is_negative, unsigned) = match text.strip_prefix('-') {
            Some(unsigned) => (true, unsigned),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
            None => (unsigned, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = format!("{whole}{fraction}");
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let significant = digits.trim_end_matches('0');
        let omitted_zeros = digits.len() - significant.len();
        let exponent = i64::from(exponent) - fraction.len() as i64 + omitted_zeros as i64;
        Some(Self { is_negative, digits: significant.trim_start_matches('0').to_owned(), exponent })
    }

    /// Returns the number in units of 10^-`scale`; `None` if it is not a multiple of this unit, or has more than 76
    /// digits in this unit.
    pub(crate) fn to_units(&self, scale: i8) -> Option<i256> {
        let (units, is_exact) = self.floor_and_exactness(scale);
        is_exact.then_some(units)
    }

    /// Returns the number in units of 10^-`scale`, rounded down. A number with more than 76 digits becomes the smallest
    /// or largest `i256`.
    pub(crate) fn floor_units(&self, scale: i8) -> i256 {
        self.floor_and_exactness(scale).0
    }

    /// Returns the number in units of 10^-`scale`, rounded up. A number with more than 76 digits becomes the smallest or
    /// largest `i256`, or one more than the smallest.
    pub(crate) fn ceil_units(&self, scale: i8) -> i256 {
        let (units, is_exact) = self.floor_and_exactness(scale);
        if is_exact { units } else { units.checked_add(i256::ONE).unwrap_or(i256::MAX) }
    }

    /// Returns the number in units of 10^-`scale`, rounded down, and whether the result equals the number.
    fn floor_and_exactness(&self, scale: i8) -> (i256, bool) {
        if self.digits.is_empty() {
            return (i256::ZERO, true);
        }
        let shift = self.exponent + i64::from(scale);
        let whole_digits = self.digits.len() as i64 + shift;
        if whole_digits > MAX_DIGITS {
            return (if self.is_negative { i256::MIN } else { i256::MAX }, false);
        }
        // The last digit is not 0, so a number with digits after the decimal point is not a multiple of the unit.
        let is_exact = shift >= 0;
        let text = match is_exact {
            true => format!("{}{}", self.digits, "0".repeat(shift as usize)),
            false => format!("0{}", &self.digits[..whole_digits.max(0) as usize]),
        };
        let magnitude = i256::from_string(&text).expect("at most 76 digits fit into 256 bits");
        let units = match (self.is_negative, is_exact) {
            (false, _) => magnitude,
            (true, true) => magnitude.wrapping_neg(),
            (true, false) => magnitude.wrapping_neg().wrapping_sub(i256::ONE),
        };
        (units, is_exact)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(text: &str, scale: i8) -> Option<i128> {
        DecimalNumber::parse(text).unwrap().to_units(scale).map(|units| units.to_i128().unwrap())
    }

    #[test]
    fn equal_numbers_have_equal_units_however_they_are_written() {
        for text in ["1", "1.0", "01.00", "+1", "1e0", "0.1e1", "10E-1", "1.", "100000e-5"] {
            assert_eq!(units(text, 0), Some(1), "{text}");
            assert_eq!(units(text, 2), Some(100), "{text}");
            assert_eq!(units(&format!("-{}", text.trim_start_matches('+')), 2), Some(-100), "{text}");
        }
        for text in ["0", "-0.00", "0e9", ".0"] {
            assert_eq!(units(text, 3), Some(0), "{text}");
        }
        assert_eq!(units("18446744073709551615", 0), Some(18_446_744_073_709_551_615));
        assert_eq!(units("1200", -2), Some(12));
        for text in
            ["", "-", "+-1", "--1", ".", "1.2.3", "1e", "1e1.5", "e5", "abc", "0x10", "nan", "inf", " 1", "1_000"]
        {
            assert_eq!(DecimalNumber::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_number_between_two_units_is_rounded_to_the_requested_side() {
        let rounded = |text: &str, scale| {
            let number = DecimalNumber::parse(text).unwrap();
            assert_eq!(number.to_units(scale), None, "{text}");
            (number.floor_units(scale).to_i128(), number.ceil_units(scale).to_i128())
        };
        assert_eq!(rounded("1.005", 2), (Some(100), Some(101)));
        assert_eq!(rounded("-1.005", 2), (Some(-101), Some(-100)));
        assert_eq!(rounded("0.5", 0), (Some(0), Some(1)));
        assert_eq!(rounded("-1e-2000000000", 0), (Some(-1), Some(0)));
        assert_eq!(rounded("150", -2), (Some(1), Some(2)));
        let exact = DecimalNumber::parse("-12.5").unwrap();
        assert_eq!((exact.floor_units(1), exact.ceil_units(1)), (i256::from(-125), i256::from(-125)));
    }

    #[test]
    fn a_number_with_too_many_digits_is_beyond_all_units() {
        let number = |text: &str| DecimalNumber::parse(text).unwrap();
        let largest = "9".repeat(76);
        assert_eq!(number(&largest).to_units(0), i256::from_string(&largest));
        assert_eq!(number(&format!("-{largest}")).to_units(0), i256::from_string(&format!("-{largest}")));
        for text in ["1e76", "1e2000000000"] {
            assert_eq!(number(text).to_units(0), None);
            assert_eq!((number(text).floor_units(0), number(text).ceil_units(0)), (i256::MAX, i256::MAX));
            let negative = number(&format!("-{text}"));
            assert_eq!(negative.floor_units(0), i256::MIN);
            assert!(negative.ceil_units(0) < number(&format!("-{largest}")).floor_units(0));
        }
    }
}
