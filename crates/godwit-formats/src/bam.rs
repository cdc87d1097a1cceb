//! BAM (SAMv1 §4.2): headers, and a reader of packed records.
//!
//! Flows in: a BAM file of any origin. Flows out: its [`Header`](crate::sam::Header) and chunks of packed records that
//! later code may trust ([`check_record`]), or single records of places that an index tells ([`BamFile`]). Records are written through [`crate::bgzf::Writer`]; fields of records are
//! read through [`godwit_model::RawRecord`].

mod check;
mod error;
mod header;
mod reader;
mod stretch;

#[cfg(test)]
mod tests;

pub(crate) use check::fits_positions;
pub use check::{RecordProblem, check_record};
pub use error::{BamError, DamagedRecord};
pub use header::encode_header;
pub use reader::{Reader, RecordChunk};
pub use stretch::{BamFile, Records};

/// First bytes of a BAM file, uncompressed.
const MAGIC: [u8; 4] = *b"BAM\x01";
