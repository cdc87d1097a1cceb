//! Datasets asked with SQL and over Arrow Flight, against samtools, bcftools and clients that nobody here wrote.

mod access;
mod clients;
mod hostile;
mod joins;
mod kinds;
mod query;
mod refusals;
mod regions;
