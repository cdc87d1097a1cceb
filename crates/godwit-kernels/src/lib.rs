//! Pure functions on packed records and signatures: ordering, duplicate marking, counting.
//!
//! Nothing here opens a file or starts a long-lived thread. Data beyond the memory budget goes to the [`sort::Spill`] trait.

pub mod flagstat;
pub mod markdup;
pub mod qc;
pub mod sort;
