//! Bytes to be sent, in pieces that stay where they lie.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes};

/// Pieces in order. One HTTP/2 frame takes as many of them as fit it, in one system call.
#[derive(Debug, Default)]
pub struct Segments {
    pieces: VecDeque<Bytes>,
    bytes: usize,
}

impl Segments {
    /// Appends a piece.
    pub fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.bytes += piece.len();
            self.pieces.push_back(piece);
        }
    }

    /// Appends all pieces of `other`.
    pub fn append(&mut self, mut other: Self) {
        self.bytes += other.bytes;
        self.pieces.append(&mut other.pieces);
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
