//! Positions in a file from which its text can be decompressed without the text before them.
//!
//! The thread that reads a file records them where its compression allows: anywhere in plain text, at BGZF blocks, at gzip
//! members, and between the deflate blocks of a member. The bytes before a point may have changed: they are hashed and
//! compared, which costs less than decompressing and parsing them.

use serde::{Deserialize, Serialize};

/// Maximum distance in bytes that deflate refers back in the text (RFC 1951 §3.2.5).
pub const WINDOW_BYTES: usize = 32 << 10;

/// A limit above the text of any file, and low enough that later sums do not overflow.
const MAX_TEXT_OFFSET: u64 = 1 << 60;

/// A position in a file at which decompression can begin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessPoint {
    /// Bytes of text before it.
    pub text_bytes: u64,
    /// Offset in the file of the next byte to read.
    pub offset: u64,
    /// The data at the offset.
    #[serde(rename = "coding")]
    pub kind: AccessPointKind,
    /// The last text of the member before the point, at most [`WINDOW_BYTES`]; only within a member. It is stored apart
    /// from the other fields, because it is large.
    #[serde(skip)]
    pub window: Vec<u8>,
}

/// The kind of data at an access point, with the decoder state needed to continue there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "coding", rename_all = "snake_case")]
pub enum AccessPointKind {
    /// Text.
    Plain,
    /// A BGZF block, in a file that began with one.
    #[serde(rename = "block")]
    BgzfBlock,
    /// The header of a gzip member.
    #[serde(rename = "member")]
    GzipMember,
    /// A deflate block within a gzip member.
    #[serde(rename = "deflate")]
    DeflateBlock(DeflateState),
}

/// The position in a gzip member, and the running values that its trailer is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeflateState {
    /// Highest bits of `last_byte` that belong to the next deflate block, 0 to 7.
    #[serde(rename = "bits")]
    pub pending_bits: u8,
    /// The byte before the point's offset.
    pub last_byte: u8,
    /// CRC32 of the text of the member so far.
    pub crc: u32,
    /// Bytes of the member's text so far, as the trailer counts them: modulo 2^32 (RFC 1952 §2.3.1).
    #[serde(rename = "member_bytes")]
    pub member_text_bytes: u32,
}

/// The position at which reading a text can begin: an access point, and a number of bytes behind it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResumePoint {
    /// Access point at which reading the file begins.
    #[serde(rename = "point")]
    pub access_point: AccessPoint,
    /// Bytes of text behind the access point that are skipped.
    pub skip_bytes: u64,
    /// Bytes at the start of the file that the hash covers: at least all from which the text before the resume point is
    /// decompressed.
    pub hashed_bytes: u64,
    /// BLAKE3 of those bytes, hexadecimal.
    #[serde(rename = "hash")]
    pub blake3: String,
}

impl ResumePoint {
    /// Reports whether the numbers can be those of a resume point; a journal may hold anything.
    pub fn is_valid(&self) -> bool {
        let AccessPoint { text_bytes, offset, kind, ref window } = self.access_point;
        let within = match kind {
            AccessPointKind::DeflateBlock(within) => within.pending_bits < 8 && window.len() <= WINDOW_BYTES,
            AccessPointKind::Plain | AccessPointKind::BgzfBlock | AccessPointKind::GzipMember => window.is_empty(),
        };
        within && offset <= self.hashed_bytes && text_bytes <= MAX_TEXT_OFFSET && self.skip_bytes <= MAX_TEXT_OFFSET
    }

    /// Returns the bytes of text before it.
    pub fn text_offset(&self) -> u64 {
        self.access_point.text_bytes + self.skip_bytes
    }
}

/// Spacing of access points, in bytes of text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AccessPointSpacing {
    /// Spacing at the start of a file.
    pub(crate) min_bytes: u64,
    /// Spacing far into a file. Text between an access point and a resume point is decompressed and discarded.
    pub(crate) max_bytes: u64,
}

impl Default for AccessPointSpacing {
    /// Returns a spacing of at most a quarter of a second of decompression, and less than an eighth of the text before.
    fn default() -> Self {
        Self { min_bytes: 64 << 10, max_bytes: 64 << 20 }
    }
}

impl AccessPointSpacing {
    /// Returns the minimum text offset of the access point after one at `text_bytes`.
    pub(super) fn next_text_offset(self, text_bytes: u64) -> u64 {
        text_bytes + (text_bytes / 8).clamp(self.min_bytes, self.max_bytes)
    }
}

/// The recording of access points, and the position at which reading begins.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AccessPointMode<'s> {
    /// Read from the start of the file, without access points.
    Disabled,
    /// Read from the start of the file or a resume point, and record access points.
    Enabled(AccessPointSpacing, Option<&'s ResumePoint>),
}
