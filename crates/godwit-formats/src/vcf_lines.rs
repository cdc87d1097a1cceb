//! VCF by the line (VCFv4.3): which lines are header, where each record lies, and that nothing else is wrong with its shape.
//!
//! Flows in: the text that a variant caller wrote, in any state. Flows out: [`Header`]s that can be put together, and
//! [`Record`]s that keep the caller's bytes. Fields beyond place and length are not read here.

mod error;
mod header;
mod reader;

#[cfg(test)]
mod tests;

pub use error::VcfLinesError;
pub use header::{Header, is_volatile};
pub use reader::{Reader, Record};
