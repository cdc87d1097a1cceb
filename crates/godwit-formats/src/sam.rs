//! SAM text: lines to packed records, headers, and a reader that hands out lines in chunks.
//!
//! Flows in: the lines an aligner prints ([`LineEncoder`]) or a SAM file, plain or compressed ([`Reader`]). Flows out:
//! packed records (BAM records without `block_size`) and [`Header`]s. Printing records as SAM text is not done here.

mod bases;
mod cursor;
mod encode;
mod error;
mod header;
mod reader;
mod tags;

#[cfg(test)]
pub(crate) mod tests;

pub use encode::LineEncoder;
pub use error::{HeaderError, ReadError, SamError, UnusableHeader};
pub use header::{Header, ReadGroup};
pub(crate) use reader::format_of;
pub use reader::{InputFormat, LineChunk, Reader, sniff};
pub(crate) use tags::append_value;
