//! Programs that cut adapters and poor ends off reads on their way in.

pub mod fastp;
