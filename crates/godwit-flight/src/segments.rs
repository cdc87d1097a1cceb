//! A queue of byte buffers to send, which are not copied.

use std::collections::VecDeque;
use std::io::IoSlice;

use arrow_buffer::Buffer;
use bytes::{Buf, Bytes};

/// Maximum number of bytes that are passed to HTTP/2 at once. The h2 library rejects more than the largest flow control
/// window, 2 GiB - 1.
const MAX_FRAME_DATA_BYTES: usize = 1 << 30;

/// A wrapper by which [`Bytes`] can own an Arrow buffer.
struct BufferOwner(Buffer);

impl AsRef<[u8]> for BufferOwner {
    fn as_ref(&self) -> &[u8] {
        self.0.as_slice()
    }
}

/// Byte buffers (pieces) in the order in which they are sent. One system call writes the pieces of an HTTP/2 frame.
#[derive(Debug, Default)]
pub struct Segments {
    pieces: VecDeque<Bytes>,
    bytes: usize,
}

impl Segments {
    /// Appends a piece without a copy.
    pub fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.bytes += piece.len();
            self.pieces.push_back(piece);
        }
    }

    /// Appends an Arrow buffer without a copy.
    pub(crate) fn push_buffer(&mut self, buffer: Buffer) {
        self.push(Bytes::from_owner(BufferOwner(buffer)));
    }

    /// Appends all pieces of `other`.
    pub fn append(&mut self, mut other: Self) {
        self.bytes += other.bytes;
        self.pieces.append(&mut other.pieces);
    }

    /// Removes and returns the first bytes, as many as may be passed to HTTP/2 at once; `None` if none are left.
    pub(crate) fn take_frame(&mut self) -> Option<Self> {
        if self.bytes <= MAX_FRAME_DATA_BYTES {
            return (self.bytes > 0).then(|| std::mem::take(self));
        }
        Some(self.split_to(MAX_FRAME_DATA_BYTES))
    }

    /// Removes and returns the first `count` bytes; more bytes must be present.
    fn split_to(&mut self, count: usize) -> Self {
        let mut first = Self::default();
        while let Some(mut piece) = self.pieces.pop_front() {
            let left = count - first.bytes;
            if piece.len() > left {
                first.push(piece.split_to(left));
                self.pieces.push_front(piece);
                break;
            }
            first.push(piece);
        }
        self.bytes -= first.bytes;
        first
    }
}

impl From<Bytes> for Segments {
    fn from(piece: Bytes) -> Self {
        let mut segments = Self::default();
        segments.push(piece);
        segments
    }
}

impl Buf for Segments {
    fn remaining(&self) -> usize {
        self.bytes
    }

    fn chunk(&self) -> &[u8] {
        self.pieces.front().map_or(&[], |piece| piece)
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let pairs = slices.iter_mut().zip(&self.pieces);
        pairs.map(|(slice, piece)| *slice = IoSlice::new(piece)).count()
    }

    fn advance(&mut self, mut count: usize) {
        assert!(count <= self.bytes, "cannot advance beyond the end");
        self.bytes -= count;
        while let Some(piece) = self.pieces.front_mut() {
            if count < piece.len() {
                piece.advance(count);
                return;
            }
            count -= piece.len();
            self.pieces.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_split_is_the_same_bytes() {
        let whole = b"abcdefghij";
        for count in 0..whole.len() {
            let mut segments = Segments::default();
            for piece in [&whole[..3], &whole[3..4], &whole[4..]] {
                segments.push(Bytes::from_static(piece));
            }
            let mut first = segments.split_to(count);
            assert_eq!((first.remaining(), segments.remaining()), (count, whole.len() - count));
            assert_eq!(first.copy_to_bytes(count), &whole[..count]);
            assert_eq!(segments.copy_to_bytes(whole.len() - count), &whole[count..]);
        }
    }

    #[test]
    fn pieces_are_read_as_one() {
        let mut segments = Segments::from(Bytes::from_static(b"abc"));
        segments.push(Bytes::new());
        segments.push(Bytes::from_static(b"de"));
        segments.append(Segments::from(Bytes::from_static(b"f")));
        let mut slices = [IoSlice::new(&[]); 8];
        assert_eq!((segments.remaining(), segments.chunks_vectored(&mut slices)), (6, 3));
        segments.advance(4);
        assert_eq!((segments.remaining(), segments.chunk()), (2, &b"e"[..]));
        assert_eq!(segments.copy_to_bytes(2), &b"ef"[..]);
        assert!(!segments.has_remaining() && segments.chunk().is_empty());
    }
}
