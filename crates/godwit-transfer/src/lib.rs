//! Files over long fat networks.
//!
//! [`delta`] is reference-based compression of genomes.

pub mod delta;
