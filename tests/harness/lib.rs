//! What the end-to-end tests stand on: the built binary, the real tools as oracle, seeded inputs, and comparisons.
//!
//! Flows in: nothing but seeds, the tools on `PATH`, and Picard from the cache (`tools/picard/fetch.sh`). Flows out:
//! inputs made from seeds ([`genome`], [`reads`], [`fuzz`]), the files the reference tools make of them ([`pipeline`],
//! [`picard`]), what godwit makes of them ([`binary`]), and a list of differences ([`sam`], [`metrics`]).
//!
//! Nothing here depends on godwit's crates: an oracle that shares code with what it judges repeats its mistakes. The
//! harness panics where a test would fail anyway, with a message that says what could not be done.

pub mod binary;
pub mod fastq_cases;
pub mod faults;
pub mod fuzz;
pub mod gatk;
pub mod genome;
pub mod golden;
pub mod marking;
pub mod metrics;
pub mod patience;
pub mod picard;
pub mod pipeline;
pub mod processes;
pub mod qc;
pub mod random;
pub mod reads;
pub mod s3;
pub mod sam;
pub mod scratch;
pub mod served;
pub mod shrink;
pub mod skip;
pub mod slurm;
pub mod ssh_server;
pub mod tool;
