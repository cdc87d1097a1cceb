//! Delta compression of genomes against a reference: a few bytes for each variant.
//!
//! Input: the text of a FASTA file, or any bytes, and a [`Reference`]. Output: a packed file (`.gwp`, `docs/formats/gwp.md`)
//! that yields the same bytes with the same reference ([`pack`], [`unpack`]), or a region of them ([`GwpReader`]). Text
//! unlike the reference is packed as small as by zstd at its best level. [`Collection`] holds many genomes against one
//! reference. Reads are not compressed here; CRAM serves for them.

mod bases;
mod collection;
mod copy_source;
mod edit_script;
mod edit_script_builder;
mod error;
mod fasta_layout;
mod gwp_chunk;
mod gwp_file;
mod gwp_reader;
mod kmer_index;
mod letter_masks;
mod mutate;
mod ordered_workers;
mod pack;
mod range_coder;
mod reference;
mod segment;
mod unpack;
mod varint;
mod zstd_bytes;

#[cfg(test)]
mod tests;

pub use collection::{Collection, CollectionMember};
pub use error::DeltaError;
pub use gwp_file::GwpFile;
pub use gwp_reader::{GwpReader, GwpSequence};
pub use kmer_index::KmerIndex;
pub use mutate::{MutationRates, mutate_fasta};
pub use pack::{PackOptions, PackSummary, pack};
pub use reference::{Digest, Reference, ReferenceCachePolicy, ReferenceContig};
pub use unpack::{UnpackSummary, unpack};
pub(crate) use varint::{VarintReader, append_varint};
