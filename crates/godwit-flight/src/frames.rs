//! Where HTTP/2 frames end in the bytes that come in, so that a reader need not be woken before that.
//!
//! Nothing can be done with part of a frame, yet the kernel wakes a reader for every segment: on loopback, where waking is the
//! sender's work, that was a sixth of its time. [`FrameEnds`] says how many bytes are missing; the socket sleeps until
//! they are here (`SO_RCVLOWAT`). A sender that has begun a frame ends it, so nobody waits for what will not come.

/// Length, type, flags and stream before each frame (RFC 9113 §4.1).
const HEADER_BYTES: usize = 9;

/// The frame that is coming in.
#[derive(Debug, Default)]
pub(crate) struct FrameEnds {
    header: [u8; HEADER_BYTES],
    header_seen: usize,
    missing: usize,
}

impl FrameEnds {
    /// Passes over bytes that came.
    pub(crate) fn pass(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.missing > 0 {
                let passed = self.missing.min(bytes.len());
                self.missing -= passed;
                bytes = &bytes[passed..];
                continue;
            }
            let passed = (HEADER_BYTES - self.header_seen).min(bytes.len());
            self.header[self.header_seen..self.header_seen + passed].copy_from_slice(&bytes[..passed]);
            self.header_seen += passed;
            bytes = &bytes[passed..];
            if self.header_seen == HEADER_BYTES {
                let [high, middle, low, ..] = self.header;
                self.missing = u32::from_be_bytes([0, high, middle, low]) as usize;
                self.header_seen = 0;
            }
        }
    }

    /// Bytes until the current frame is whole; 0 between frames.
    pub(crate) fn missing(&self) -> usize {
        self.missing
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_missing_is_the_rest_of_the_frame_however_bytes_come(
            sizes in proptest::collection::vec(0usize..3000, 1..6),
            piece in 1usize..500,
        ) {
            let mut bytes = Vec::new();
            // What is missing after each byte.
            let mut expected = Vec::new();
            for size in &sizes {
                bytes.extend([&(*size as u32).to_be_bytes()[1..], &[0; 6], &vec![9; *size][..]].concat());
                expected.extend([0; HEADER_BYTES - 1]);
                expected.extend((0..=*size).rev());
            }
            let mut ends = FrameEnds::default();
            let mut passed = 0;
            for chunk in bytes.chunks(piece) {
                ends.pass(chunk);
                passed += chunk.len();
                prop_assert_eq!(ends.missing(), expected[passed - 1]);
            }
        }
    }
}
