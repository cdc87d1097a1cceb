//! The audit log: one line of JSON for each access, chained by hashes.
//!
//! The last field of a line, `chain`, is the BLAKE3 of the line without it behind the chain of the line before: changing, moving
//! or removing a line breaks all that follow. A writer of the file can still truncate or rewrite it; comparing with a chain noted
//! elsewhere detects that.
//!
//! [`AuditLog`] acknowledges a line when it is on the disk. A line torn by a stop stays as it is; the line behind it records that.

mod audit_log;
mod hash_chain;

pub use audit_log::AuditLog;
pub use hash_chain::{AuditSummary, verify_audit};
