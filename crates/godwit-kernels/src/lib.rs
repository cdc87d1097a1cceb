//! Pure functions on packed records and signatures: ordering, duplicate marking, counting.
//!
//! Nothing here opens a file or starts a thread. What must leave memory leaves it through the [`sort::Spill`] trait.

pub mod flagstat;
pub mod markdup;
pub mod qc;
pub mod sort;
