//! Shared code of the end-to-end tests: the built binary, the reference tools as oracle, seeded inputs, and comparisons.
//!
//! Input: only seeds, the tools on `PATH`, and Picard from the cache (`tools/picard/fetch.sh`). Output: inputs made from
//! seeds ([`genome`], [`sample`], [`sam_fuzzer`]), the files that the reference tools make of them
//! ([`reference_pipeline`], [`picard`]), the output of godwit ([`binary`]), and a list of differences ([`sam`],
//! [`metrics`]).
//!
//! No module here depends on godwit's crates: an oracle that shares code with the program under test repeats its
//! mistakes. The harness panics where a test would fail anyway, with a message that names the operation that failed.

pub mod binary;
pub mod collectors;
pub mod data_server;
pub mod duplicate_options;
pub mod fastq_cases;
pub mod fault_injection;
pub mod gatk;
pub mod genome;
pub mod host_network;
pub mod metrics;
pub mod network_namespace;
pub mod picard;
pub mod picard_cases;
pub mod processes;
pub mod qc;
pub mod random;
pub mod reference_pipeline;
pub mod s3;
pub mod sam;
pub mod sam_fuzzer;
pub mod sam_records;
pub mod sample;
pub mod scratch;
pub mod shrink;
pub mod skip;
pub mod slurm;
pub mod ssh_server;
pub mod tool;
pub mod wait;
