//! Variable-length integers (LEB128): seven bits per byte, the lowest bits first. The highest bit is set in all bytes
//! except the last.

/// Appends a number to `out` as LEB128.
pub fn append_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A reader of numbers and bytes from a byte slice.
#[derive(Clone, Copy, Debug)]
pub struct VarintReader<'b>(&'b [u8]);

impl<'b> VarintReader<'b> {
    /// Returns a reader at the start of `bytes`.
    pub fn new(bytes: &'b [u8]) -> Self {
        Self(bytes)
    }

    /// Reads a number. Returns `None` if the bytes end early, or if the number has more than 63 bits or superfluous
    /// zero bytes.
    pub fn read_varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..63).step_by(7) {
            let byte = self.read_bytes(1)?[0];
            value |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return (byte > 0 || shift == 0).then_some(value);
            }
        }
        None
    }

    /// Reads `count` bytes; `None` if fewer are left.
    pub fn read_bytes(&mut self, count: usize) -> Option<&'b [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    /// Reads an array of `N` bytes; `None` if fewer are left.
    pub fn read_array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.read_bytes(N)?.try_into().ok()
    }

    /// Reports whether no bytes are left.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }
}
