//! The record of accesses: a line of JSON for each, which says what the lines before it were.
//!
//! The last field of a line, `chain`, is the BLAKE3 of the line without it behind the chain of the line before: whoever changes, moves or
//! removes a line breaks those that follow. Lines at the end can still be cut off, and the whole be written anew, by who may
//! write the file; who notes the last chain elsewhere finds that out, too.
//!
//! A line is on the disk before [`Audit`] says so. One that a stop cut short stays as it is, and a line behind it says so.

mod chain;
mod writer;

pub use chain::{Verified, verify};
pub use writer::Audit;
