//! SAM text: conversion of lines into packed records, headers, and a reader that returns several lines at a time.
//!
//! Flows in: the SAM lines that an aligner prints ([`LineEncoder`]), or a SAM file, plain or compressed ([`Reader`]).
//! Flows out: packed records (BAM records without `block_size`) and [`Header`]s. [`RecordValues`] packs the records of
//! an aligner that returns values instead of text. This module does not convert records into SAM text.

mod bases;
mod error;
mod field_cursor;
mod header;
mod line_encoder;
mod reader;
mod record_values;
mod tags;

#[cfg(test)]
pub(crate) mod tests;

pub use error::{FileHeaderError, HeaderError, SamError, SamReadError};
pub use header::{Header, ReadGroup};
pub use line_encoder::LineEncoder;
pub(crate) use line_encoder::fits_bam_positions;
pub(crate) use reader::detect_format_in_bytes;
pub use reader::{AlignmentFormat, Reader, SamLines, detect_format};
pub use record_values::{RecordValues, append_float_tag, append_integer_tag, append_tags, append_text_tag};
pub use tags::append_integer_value;

/// Maximum bytes of a line. A record is at most twice as long as its line, so all lengths in the record fit into 31 bits.
const MAX_LINE_BYTES: usize = 512 << 20;
