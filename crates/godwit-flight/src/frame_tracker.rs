//! Finds the ends of HTTP/2 frames in received bytes, so that the kernel wakes a reader only at the end of a frame.
//!
//! A reader cannot use an incomplete frame, but the kernel wakes the reader for every received TCP segment. On
//! loopback, where the sender does the waking, this took a sixth of the sender's time. [`FrameTracker`] counts the
//! bytes that the current frame lacks, and `SO_RCVLOWAT` lets the reader sleep until they have arrived. No reader waits
//! forever, because a sender completes each frame that it has started.

/// Size of the header of an HTTP/2 frame, which contains length, type, flags and stream identifier (RFC 9113 §4.1).
const FRAME_HEADER_BYTES: usize = 9;

/// The received part of the header of the current frame, and the number of bytes that its payload lacks.
#[derive(Debug, Default)]
pub(crate) struct FrameTracker {
    header: [u8; FRAME_HEADER_BYTES],
    header_bytes_read: usize,
    missing_bytes: usize,
}

impl FrameTracker {
    /// Updates the state by the next received bytes.
    pub(crate) fn advance(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.missing_bytes > 0 {
                let passed = self.missing_bytes.min(bytes.len());
                self.missing_bytes -= passed;
                bytes = &bytes[passed..];
                continue;
            }
            let passed = (FRAME_HEADER_BYTES - self.header_bytes_read).min(bytes.len());
            self.header[self.header_bytes_read..self.header_bytes_read + passed].copy_from_slice(&bytes[..passed]);
            self.header_bytes_read += passed;
            bytes = &bytes[passed..];
            if self.header_bytes_read == FRAME_HEADER_BYTES {
                let [high, middle, low, ..] = self.header;
                self.missing_bytes = u32::from_be_bytes([0, high, middle, low]) as usize;
                self.header_bytes_read = 0;
            }
        }
    }

    /// Returns the number of payload bytes that the current frame lacks; 0 between frames and within a frame header.
    pub(crate) fn missing_bytes(&self) -> usize {
        self.missing_bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn missing_bytes_are_the_rest_of_the_frame_in_any_segmentation(
            sizes in proptest::collection::vec(0usize..3000, 1..6),
            piece in 1usize..500,
        ) {
            let mut bytes = Vec::new();
            // For each byte: the expected number of missing bytes after this byte.
            let mut expected = Vec::new();
            for size in &sizes {
                bytes.extend([&(*size as u32).to_be_bytes()[1..], &[0; 6], &vec![9; *size][..]].concat());
                expected.extend([0; FRAME_HEADER_BYTES - 1]);
                expected.extend((0..=*size).rev());
            }
            let mut ends = FrameTracker::default();
            let mut passed = 0;
            for chunk in bytes.chunks(piece) {
                ends.advance(chunk);
                passed += chunk.len();
                prop_assert_eq!(ends.missing_bytes(), expected[passed - 1]);
            }
        }
    }
}
