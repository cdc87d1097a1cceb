//! Places in a file from which its text can be had again without what lies before them.
//!
//! The thread that reads a file notes them as it goes, at places that its compression allows: anywhere in plain text, at
//! BGZF blocks, at gzip members, and between the deflate blocks of a member. What lies before a point is not believed to
//! be as it was: its bytes are hashed and compared, which costs less than decompressing and parsing them.

use serde::{Deserialize, Serialize};

/// Bytes of text that deflate reaches back at most (RFC 1951 §3.2.5).
pub const WINDOW_BYTES: usize = 32 << 10;

/// More text than any file has, and little enough to be counted on from.
const MAX_TEXT_BYTES: u64 = 1 << 60;

/// A place in a file to read on from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// Bytes of text before it.
    pub text_bytes: u64,
    /// Bytes of the file before the next one that is read.
    pub offset: u64,
    /// What stands there.
    pub coding: Coding,
    /// The last text of the member before the point, at most [`WINDOW_BYTES`]; only within a member. Kept apart from the
    /// rest, because it is large.
    #[serde(skip)]
    pub window: Vec<u8>,
}

/// What stands at a point, and what has to be known to go on with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "coding", rename_all = "snake_case")]
pub enum Coding {
    /// Text.
    Plain,
    /// A BGZF block, in a file that began with one.
    Block,
    /// The header of a gzip member.
    Member,
    /// A deflate block within a gzip member.
    Deflate(WithinMember),
}

/// Where in a gzip member, and what its trailer will be compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WithinMember {
    /// Highest bits of `last_byte` that belong to what follows, 0 to 7.
    pub bits: u8,
    /// The byte before the point's offset.
    pub last_byte: u8,
    /// CRC32 of the text of the member so far.
    pub crc: u32,
    /// Its bytes, as the trailer counts them: modulo 2^32 (RFC 1952 §2.3.1).
    pub member_bytes: u32,
}

/// Where reading a text can begin: at a point, or so far behind it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// Where reading the file begins.
    pub point: Point,
    /// Bytes of text behind the point that are passed over.
    pub skip_bytes: u64,
    /// Bytes at the start of the file that `hash` is of: at least all that the text before the start is made of.
    pub hashed_bytes: u64,
    /// Their BLAKE3, hexadecimal.
    pub hash: String,
}

impl Start {
    /// Whether its numbers can be those of a start: what is read of a journal may be anything.
    pub fn is_sound(&self) -> bool {
        let Point { text_bytes, offset, coding, ref window } = self.point;
        let within = match coding {
            Coding::Deflate(within) => within.bits < 8 && window.len() <= WINDOW_BYTES,
            Coding::Plain | Coding::Block | Coding::Member => window.is_empty(),
        };
        within && offset <= self.hashed_bytes && text_bytes <= MAX_TEXT_BYTES && self.skip_bytes <= MAX_TEXT_BYTES
    }

    /// Bytes of text before it.
    pub fn text_bytes(&self) -> u64 {
        self.point.text_bytes + self.skip_bytes
    }
}

/// How far points lie apart, in bytes of text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spacing {
    /// At the start of a file.
    pub(crate) least: u64,
    /// In the long run. What lies between a point and where reading has to begin is decompressed, and thrown away.
    pub(crate) most: u64,
}

impl Default for Spacing {
    /// A quarter of a second of decompression, and less than an eighth of what lies before.
    fn default() -> Self {
        Self { least: 64 << 10, most: 64 << 20 }
    }
}

impl Spacing {
    /// Where the point after one at `text_bytes` may be.
    pub(super) fn after(self, text_bytes: u64) -> u64 {
        text_bytes + (text_bytes / 8).clamp(self.least, self.most)
    }
}

/// Whether points are noted, and where reading begins.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Points<'s> {
    /// At the start of the file, and nobody asks for points.
    Unused,
    /// At the start of the file, or elsewhere.
    Noted(Spacing, Option<&'s Start>),
}
