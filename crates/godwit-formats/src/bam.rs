//! BAM (SAMv1 §4.2): headers, and readers of packed records.
//!
//! Flows in: a BAM file of any origin. Flows out: its [`Header`](crate::sam::Header), and its packed records, which are
//! validated so that later code may trust them ([`check_record`]). The records are read in order ([`Reader`]) or at
//! positions from an index ([`BamFile`]). [`godwit_io::bgzf::Writer`] writes records; [`godwit_model::RawRecord`] reads the
//! fields of a record.

mod error;
mod header;
mod indexed_reader;
mod reader;
mod record_validation;

#[cfg(test)]
mod tests;

pub use error::{BamError, DamagedRecordError};
pub use header::encode_header;
pub use indexed_reader::{BamFile, IndexMismatch, IndexedRecords};
pub use reader::{Reader, RecordBuffer};
pub use record_validation::{RecordProblem, check_record};

/// First bytes of an uncompressed BAM file.
const MAGIC: [u8; 4] = *b"BAM\x01";
