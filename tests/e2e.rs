//! End-to-end tests: the built binary compared with bwa, samtools and Picard.

mod capacity_plan;
mod delta_compression;
mod fleet;
mod integrations;
mod python;
mod run;
mod score;
mod search;
mod serve;
mod transfer;
mod workflow_engines;
