//! VCF and BCF files (VCFv4.4): their header, their records one by one, and columns of them ([`godwit_model::schema::variants`]).
//!
//! Flows in: VCF, plain, gzip or BGZF, or BCF. Flows out: the [`Header`], a [`Record`] for each line, record batches
//! ([`Columns`]), and Parquet files of those ([`ParquetFile`]; for
//! Arrow files see [`crate::columnar::ArrowPart::with_schema`]). Of BGZF also the records of places that an index tells ([`VcfFile`]). Headers are taken as callers write them: whatever bcftools reads is read, so a
//! missing description, a field defined twice or an unknown line is no reason to stop. What makes a record ambiguous is
//! refused: too few fields, no position, text that is not UTF-8. Nothing is written as VCF.

mod bcf;
mod columns;
mod error;
mod fields;
mod genotype;
mod header;
mod layout;
mod parquet_file;
mod reader;
mod record;
mod stretch;

#[cfg(test)]
mod tests;

pub use columns::Columns;
pub use error::VcfError;
pub use genotype::Genotype;
pub use header::{Header, HeaderContig};
pub use layout::VariantLayout;
pub use parquet_file::ParquetFile;
pub use reader::Reader;
pub use record::Record;
pub use stretch::{Records, VcfFile};
