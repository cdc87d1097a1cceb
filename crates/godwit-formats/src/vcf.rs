//! Readers of VCF and BCF files (VCFv4.4), and conversion of their records into columns
//! ([`godwit_model::schema::variant_columns`]).
//!
//! Flows in: VCF (plain, gzip or BGZF), or BCF. Flows out: the [`Header`], a [`Record`] for each line, record batches
//! ([`VariantBatchBuilder`]), which `godwit_columnar` writes to Parquet and Arrow files. BGZF files can also be read at
//! positions from an index ([`VcfFile`]). [`VariantRowEncoder`] converts rows back into lines of VCF, and [`BcfEncoder`]
//! converts records into BCF. Every header that bcftools reads is accepted: a missing description, a field
//! that is defined twice, or an unknown line is not an error. Ambiguous records are rejected, which have too few fields, no position, or text
//! that is not UTF-8. [`lines`] is for the output of variant callers, whose bytes are checked and stored unchanged.

mod batch_builder;
mod bcf;
mod error;
mod field_builder;
mod fields;
mod genotype;
mod header;
mod indexed_reader;
pub mod lines;
mod reader;
mod record;
mod row_encoder;
mod variant_layout;

#[cfg(test)]
mod tests;

pub use batch_builder::VariantBatchBuilder;
pub use bcf::BcfEncoder;
pub use error::VcfError;
pub use genotype::Genotype;
pub use header::{Header, HeaderContig};
pub use indexed_reader::{IndexedRecords, IntervalFilter, VcfFile};
pub use reader::Reader;
pub use record::Record;
pub use row_encoder::{VariantRowEncoder, VariantRows};
pub use variant_layout::VariantLayout;

/// Maximum bytes of a line, which allows 120 bytes for each of two million samples, or alleles of millions of bases.
const MAX_LINE_BYTES: usize = 256 << 20;
