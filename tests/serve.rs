//! Datasets asked with SQL and over Arrow Flight, against samtools, bcftools and clients that nobody here wrote.

pub mod access;
mod changing;
mod clients;
mod encryption;
mod grpc;
mod guide;
mod hostile;
mod htsget;
mod joins;
mod kinds;
mod limits;
mod live;
mod metrics;
mod objects;
mod packed;
mod page;
mod plain;
mod puts;
mod query;
mod refget;
mod refusals;
mod regions;
mod remote;
mod rules;
mod scanners;
mod traces;
pub mod web;
