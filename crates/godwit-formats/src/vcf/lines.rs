//! A line-based reader of VCF text (VCFv4.3): header lines, the position of each record, and checks of the form of each
//! line.
//!
//! Flows in: the VCF text that a variant caller wrote, which may be invalid or incomplete. Flows out: [`Header`]s that
//! can be merged, and [`Record`]s with the unchanged bytes of the caller. Fields that do not determine the interval of
//! a record are not parsed in this module.

mod error;
mod header;
mod reader;

#[cfg(test)]
mod tests;

pub use error::VcfLinesError;
pub use header::{Header, is_volatile};
pub use reader::{Reader, Record};
