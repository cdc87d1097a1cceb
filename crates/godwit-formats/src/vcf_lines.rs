//! VCF by the line (VCFv4.3): header lines, the position of each record, and checks of the shape of every line.
//!
//! Flows in: the text that a variant caller wrote, in any state. Flows out: [`Header`]s that can be merged, and [`Record`]s
//! that keep the caller's bytes. Fields beyond position and length are not parsed here.

mod error;
mod header;
mod reader;

#[cfg(test)]
mod tests;

pub use error::VcfLinesError;
pub use header::{Header, is_volatile};
pub use reader::{Reader, Record};
