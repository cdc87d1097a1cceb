//! Access points: positions in a file from which the text can be decompressed without decompressing the text before.
//!
//! The thread that reads a file records access points wherever the compression allows: anywhere in plain text, at BGZF
//! blocks, at gzip members, and between the deflate blocks of a member. Before a file is read from an access point, the
//! bytes before are hashed again, because they may have changed. Hashing costs less than decompressing and parsing.

use serde::{Deserialize, Serialize};

/// Maximum distance, in bytes of text, over which deflate data refers back to earlier text (RFC 1951 §3.2.5).
pub const WINDOW_BYTES: usize = 32 << 10;

/// An upper limit of text offsets: larger than any file, and low enough that sums of offsets do not overflow.
const MAX_TEXT_OFFSET: u64 = 1 << 60;

/// A position in a file at which decompression can begin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessPoint {
    /// Bytes of uncompressed text before the access point.
    pub text_bytes: u64,
    /// Offset in the file on disk of the next byte to read.
    pub offset: u64,
    /// The kind of data at `offset`.
    #[serde(rename = "coding")]
    pub kind: AccessPointKind,
    /// For an access point within a gzip member, the last text of that member before the access point, at most
    /// [`WINDOW_BYTES`]; otherwise empty. It is stored separately from the other fields, because it is large.
    #[serde(skip)]
    pub window: Vec<u8>,
}

/// The kind of data at an access point, with the decoder state that is needed to continue there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "coding", rename_all = "snake_case")]
pub enum AccessPointKind {
    /// Plain text.
    Plain,
    /// The start of a BGZF block, in a file that begins with a BGZF block.
    #[serde(rename = "block")]
    BgzfBlock,
    /// The start of the header of a gzip member.
    #[serde(rename = "member")]
    GzipMember,
    /// The start of a deflate block within a gzip member.
    #[serde(rename = "deflate")]
    DeflateBlock(DeflateState),
}

/// The state of the decoder between two deflate blocks of a gzip member, including the values that are compared with
/// the trailer of the member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeflateState {
    /// Number of highest bits of `last_byte` that belong to the next deflate block, 0 to 7.
    #[serde(rename = "bits")]
    pub pending_bits: u8,
    /// The byte of the file before the offset of the access point.
    pub last_byte: u8,
    /// CRC32 of the text of the member so far.
    pub crc: u32,
    /// Bytes of text of the member so far, modulo 2^32 as in the trailer (RFC 1952 §2.3.1).
    #[serde(rename = "member_bytes")]
    pub member_text_bytes: u32,
}

/// A position in the text of a file from which the text can be read again: an access point, and the number of bytes of
/// text to skip after it.
///
/// # Examples
///
/// ```
/// use godwit_io::bgzf::{AccessPoint, AccessPointKind, ResumePoint};
///
/// // A block at byte 9000 of the file, whose text begins at byte 40,000 of the text.
/// let (kind, window) = (AccessPointKind::BgzfBlock, Vec::new());
/// let access_point = AccessPoint { text_bytes: 40_000, offset: 9_000, kind, window };
/// let blake3 = blake3::hash(b"the file so far").to_hex().to_string();
/// let resume_point = ResumePoint { access_point, skip_bytes: 150, hashed_bytes: 18_000, blake3 };
/// assert_eq!(resume_point.text_offset(), 40_150);
/// assert!(resume_point.is_valid());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResumePoint {
    /// Access point at which decompression of the file begins.
    #[serde(rename = "point")]
    pub access_point: AccessPoint,
    /// Bytes of text after the access point that are decompressed but not returned.
    pub skip_bytes: u64,
    /// Number of bytes at the start of the file that the hash covers. They include all bytes from which the text before
    /// the resume point is decompressed.
    pub hashed_bytes: u64,
    /// BLAKE3 hash of the first `hashed_bytes` bytes of the file, in hexadecimal digits.
    #[serde(rename = "hash")]
    pub blake3: String,
}

impl ResumePoint {
    /// Returns whether the numbers are possible for a resume point. A resume point that was read from a journal may
    /// hold any numbers.
    pub fn is_valid(&self) -> bool {
        let AccessPoint { text_bytes, offset, kind, ref window } = self.access_point;
        let within = match kind {
            AccessPointKind::DeflateBlock(within) => within.pending_bits < 8 && window.len() <= WINDOW_BYTES,
            AccessPointKind::Plain | AccessPointKind::BgzfBlock | AccessPointKind::GzipMember => window.is_empty(),
        };
        within && offset <= self.hashed_bytes && text_bytes <= MAX_TEXT_OFFSET && self.skip_bytes <= MAX_TEXT_OFFSET
    }

    /// Returns the offset of the resume point in the uncompressed text, in bytes.
    pub fn text_offset(&self) -> u64 {
        self.access_point.text_bytes + self.skip_bytes
    }
}

/// Distance between access points, in bytes of text.
#[derive(Clone, Copy, Debug)]
pub struct AccessPointSpacing {
    /// Distance at the start of a file.
    pub min_bytes: u64,
    /// Distance far from the start of a file. The text between an access point and a resume point is decompressed and
    /// discarded, so this limits the cost of resuming.
    pub max_bytes: u64,
}

impl Default for AccessPointSpacing {
    /// Returns limits with which resuming decompresses at most 64 MiB of text, which takes about a quarter of a second.
    fn default() -> Self {
        Self { min_bytes: 64 << 10, max_bytes: 64 << 20 }
    }
}

impl AccessPointSpacing {
    /// Returns the minimum text offset of the access point that follows an access point at `text_bytes`.
    pub(super) fn next_text_offset(self, text_bytes: u64) -> u64 {
        text_bytes + (text_bytes / 8).clamp(self.min_bytes, self.max_bytes)
    }
}

/// The mode of recording access points, and the position from which the file is read.
#[derive(Clone, Copy, Debug)]
pub enum AccessPointMode<'s> {
    /// Read from the start of the file, and do not record access points.
    Disabled,
    /// Read from the resume point if one is given, otherwise from the start of the file. Record access points with this
    /// spacing.
    Enabled(AccessPointSpacing, Option<&'s ResumePoint>),
}
