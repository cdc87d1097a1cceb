//! BGZF (SAMv1 §4.1): gzip members of at most 64 KiB of data each, so that a file can be entered at any block, and
//! several threads can work on one file.
//!
//! Flows in: bytes of records ([`Writer`], [`BlockCompressor`]), or a file on disk ([`Reader`], [`open_text`], and FASTQ).
//! Flows out: blocks with the virtual offsets that an index needs, or the bytes again, checked. Every reader of the crate
//! decompresses here, ahead of whoever reads: blocks in parallel and in order, gzip members and plain text on one thread,
//! nothing but the zero padding that gzip tolerates between or after them. A file of text can be entered again at a
//! [`Start`] that was noted when it was read before. Lookups by an index go through [`SeekReader`], on the caller's thread.

mod block;
mod blocks;
mod cut;
mod deflate;
mod error;
mod gzip;
mod inflate;
mod line;
mod making;
mod point;
mod read_ahead;
mod reader;
mod seek;
mod source;
mod stretch;
mod writer;

#[cfg(test)]
mod point_tests;
#[cfg(test)]
mod tests;

pub use block::{BlockCompressor, EOF_BLOCK, MAX_BLOCK_DATA};
pub use blocks::{BgzfText, BlockTable, starts_with_block};
pub use cut::{Cut, cut};
pub use error::BgzfError;
pub(crate) use error::Fault;
pub(crate) use line::{NextLine, next_line};
pub use making::{BlockMaker, Making, block_length};
pub(crate) use point::Points;
#[cfg(test)]
pub(crate) use point::Spacing;
pub use point::{Coding, Point, Start, WINDOW_BYTES, WithinMember};
pub use read_ahead::STDIN;
pub(crate) use read_ahead::{Accept, ReadAhead};
pub use reader::{Reader, Unpacked, open_text, open_text_of};
pub use seek::{SeekReader, VirtualOffset};
pub(crate) use stretch::StretchReader;
pub use writer::{RecordPlace, Writer};
