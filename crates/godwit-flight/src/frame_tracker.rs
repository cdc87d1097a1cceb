//! Tracks where HTTP/2 frames end in the received bytes, so that a reader is not woken before the end of a frame.
//!
//! A part of a frame is of no use, but the kernel wakes a reader for every segment: on loopback, where waking is the
//! sender's work, that was a sixth of its time. [`FrameTracker`] counts the missing bytes; the socket sleeps until they have
//! arrived (`SO_RCVLOWAT`). A sender completes each frame that it starts, so no reader waits forever.

/// Bytes of length, type, flags and stream before each frame (RFC 9113 §4.1).
const FRAME_HEADER_BYTES: usize = 9;

/// The state of the frame that is being received.
#[derive(Debug, Default)]
pub(crate) struct FrameTracker {
    header: [u8; FRAME_HEADER_BYTES],
    header_bytes_read: usize,
    missing_bytes: usize,
}

impl FrameTracker {
    /// Advances over received bytes.
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

    /// Returns the bytes that the current frame lacks; 0 between frames.
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
            // The missing bytes after each byte.
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
