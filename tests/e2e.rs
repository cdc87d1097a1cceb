//! End-to-end tests: the built binary judged against bwa, samtools and Picard.

mod fleet;
mod integrations;
mod pack;
mod plan;
mod python;
mod run;
mod score;
mod search;
mod serve;
mod transfer;
