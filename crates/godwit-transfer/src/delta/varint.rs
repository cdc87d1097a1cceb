//! Numbers of few bytes: seven bits in each, lowest first, the uppermost bit set in all but the last (LEB128).

/// Appends a number.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Bytes that are read from front to back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'b>(&'b [u8]);

impl<'b> Cursor<'b> {
    pub(crate) fn new(bytes: &'b [u8]) -> Self {
        Self(bytes)
    }

    /// The next number; `None` where there is none, or one of more than 63 bits, or one with needless bytes.
    pub(crate) fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..63).step_by(7) {
            let byte = self.bytes(1)?[0];
            value |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return (byte > 0 || shift == 0).then_some(value);
            }
        }
        None
    }

    /// The next bytes.
    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'b [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    /// The next bytes, as many as fit.
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    /// Whether nothing is left.
    pub(crate) fn is_empty(self) -> bool {
        self.0.is_empty()
    }
}
