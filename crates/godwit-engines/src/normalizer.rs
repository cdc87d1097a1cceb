//! Programs that write variants in one way: leftmost, shortest, one change at a time.

pub mod bcftools;
