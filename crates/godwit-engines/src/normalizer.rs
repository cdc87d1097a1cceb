//! Programs that normalize variants: left-aligned, parsimonious, one change per record.

pub mod bcftools;
