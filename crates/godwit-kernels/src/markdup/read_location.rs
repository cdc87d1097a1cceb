//! Parser of the flow cell location in a read name, with the rules of the default `READ_NAME_REGEX` of Picard 3.4.0
//! (`ReadNameParser.getLastThreeFields`). Names have 5 or 7 fields separated by `:`; the last three fields are tile, x
//! and y.

use godwit_model::ReadLocation;

/// Returns the location in a read name, or [`ReadLocation::NONE`] if the name does not contain a location.
///
/// # Examples
///
/// ```
/// use godwit_kernels::markdup::read_location;
/// use godwit_model::ReadLocation;
///
/// let location = read_location(b"A00123:45:HXXXXDSXX:1:1101:2345:6789");
/// assert_eq!(location, ReadLocation { tile: 1101, x: 2345, y: 6789 });
/// assert_eq!(read_location(b"SRR000001.1"), ReadLocation::NONE);
/// ```
pub fn read_location(name: &[u8]) -> ReadLocation {
    let Some((fields, [tile, x, y])) = last_three_fields(name) else { return ReadLocation::NONE };
    if fields == 5 || fields == 7 {
        // Picard stores tile, x and y as 16-bit Java shorts.
        ReadLocation { tile: tile as i16, x: x as i16, y: y as i16 }
    } else {
        ReadLocation::NONE
    }
}

/// Returns the number of fields of a name and the last three fields as integers; `None` if one of these three does not
/// start with a number.
///
/// As in Picard, a `:` at the start of the name does not end a field.
fn last_three_fields(name: &[u8]) -> Option<(usize, [i32; 3])> {
    let mut tokens = [0; 3];
    let mut filled = 0;
    let mut fields = 0;
    let mut end = name.len();
    for at in (0..name.len()).rev() {
        if name[at] != b':' && at != 0 {
            continue;
        }
        fields += 1;
        if filled < 3 {
            let start = if at == 0 { 0 } else { at + 1 };
            tokens[2 - filled] = leading_integer(&name[start..end])?;
            filled += 1;
            end = at;
        }
    }
    (fields >= 3).then_some((fields, tokens))
}

/// Parses an optional `-` and the digits after it, with the overflow of a Java `int`. Text after the digits is ignored.
fn leading_integer(text: &[u8]) -> Option<i32> {
    let (negative, digits) = match text.first() {
        Some(b'-') => (true, &text[1..]),
        _ => (false, text),
    };
    let count = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if count == 0 {
        return None;
    }
    let value = digits[..count].iter().fold(0i32, |v, d| v.wrapping_mul(10).wrapping_add(i32::from(d - b'0')));
    Some(if negative { value.wrapping_neg() } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(tile: i16, x: i16, y: i16) -> ReadLocation {
        ReadLocation { tile, x, y }
    }

    #[test]
    fn five_and_seven_fields_tell_a_location() {
        assert_eq!(read_location(b"RUNID:7:1203:2886:16756"), location(1203, 2886, 16756));
        assert_eq!(read_location(b"M:1:FC:2:1101:10:20"), location(1101, 10, 20));
        assert_eq!(read_location(b"M:1:FC:1101:10:20"), ReadLocation::NONE);
        assert_eq!(read_location(b"read1"), ReadLocation::NONE);
    }

    #[test]
    fn text_after_the_digits_is_ignored() {
        assert_eq!(read_location(b"RUNID:7:1203:2886:16756#NNN/1"), location(1203, 2886, 16756));
        assert_eq!(read_location(b"RUNID:7:1203:x2886:16756"), ReadLocation::NONE);
    }

    #[test]
    fn coordinates_keep_sixteen_bits() {
        assert_eq!(read_location(b"R:1:1:32768:65537"), location(1, -32768, 1));
        assert_eq!(read_location(b"R:1:-5:-7:99999999999"), location(-5, -7, (1215752191i32) as i16));
    }

    #[test]
    fn a_colon_at_the_start_ends_no_field() {
        assert_eq!(read_location(b":1:2:3:4"), ReadLocation::NONE);
        assert_eq!(read_location(b":a:1:2:3:4"), location(2, 3, 4));
    }
}
