//! The audit log: a file with one line of JSON per access, in which each line contains a hash of all lines before it.
//!
//! The last field of a line is `chain`. Its value is the BLAKE3 hash of two parts: the chain of the preceding line, and
//! this line without the field. If a line is changed, moved or removed, the chains of all following lines are wrong. A
//! process with write access can still truncate the file or rewrite it completely. To detect that, note a chain in
//! another place and compare it later.
//!
//! [`AuditLog`] acknowledges a record when its line is on disk. If the server stops while it writes a line, the torn
//! line remains, and the next line records this.

mod audit_log;
mod hash_chain;

pub use audit_log::AuditLog;
pub use hash_chain::{AuditSummary, verify_audit};
