//! BGZF (SAMv1 §4.1): gzip members of at most 64 KiB of data each, so that a file can be entered at any block.
//!
//! Flows in: bytes of records ([`Writer`], [`BlockCompressor`]) or a compressed file ([`Reader`], [`open_text`]). Flows
//! out: blocks with the virtual offsets that an index needs, or the bytes again, checked. Seeking is not done here.

mod block;
mod error;
mod reader;
mod text;
mod writer;

#[cfg(test)]
mod tests;

pub use block::{BlockCompressor, EOF_BLOCK, MAX_BLOCK_DATA};
pub use error::BgzfError;
pub use reader::Reader;
pub use text::{TextReader, open_text};
pub use writer::{RecordPlace, Writer};
