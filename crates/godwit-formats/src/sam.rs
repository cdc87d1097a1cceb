//! SAM text: lines to packed records, headers, and a reader that hands out lines in chunks.
//!
//! Flows in: the lines an aligner prints ([`LineEncoder`]) or a SAM file, plain or compressed ([`Reader`]). Flows out:
//! packed records (BAM records without `block_size`) and [`Header`]s. An aligner that returns values instead of text has them
//! packed in the same way ([`RecordValues`]). Printing records as SAM text is not done here.

mod bases;
mod cursor;
mod encode;
mod error;
mod header;
mod reader;
mod tags;
mod values;

#[cfg(test)]
pub(crate) mod tests;

pub use encode::LineEncoder;
pub use error::{HeaderError, ReadError, SamError, UnusableHeader};
pub use header::{Header, ReadGroup};
pub(crate) use reader::format_of;
pub use reader::{InputFormat, LineChunk, Reader, sniff};
pub(crate) use tags::append_value;
pub use values::{RecordValues, append_float_tag, append_integer_tag, append_tags, append_text_tag};
