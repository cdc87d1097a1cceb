//! Programs that normalize variants: they left-align and trim alleles and write one change per record.

pub mod bcftools;
