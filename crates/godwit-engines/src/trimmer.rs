//! Programs that trim adapters and low-quality ends of reads before alignment.

pub mod fastp;
