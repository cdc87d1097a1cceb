//! Pure functions on packed records and signatures, which sort, mark duplicates and count.
//!
//! This crate does not open files or start long-lived threads. Data that exceed the memory budget are written to the
//! [`sort::Spill`] trait, which the caller implements.

pub mod flagstat;
pub mod markdup;
pub mod picard_text;
pub mod qc;
pub mod sort;
pub mod threads;
