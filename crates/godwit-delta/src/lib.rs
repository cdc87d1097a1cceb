//! Delta compression of genomes: a genome is stored as its differences from a reference, a few bytes for each variant.
//!
//! [`pack()`] reads the text of a FASTA file, or any bytes, and writes a packed file (`.gwp`, `docs/formats/gwp.md`) of
//! the differences from a [`Reference`]. With the same reference, [`unpack()`] restores the same bytes, and
//! [`GwpReader`] reads a region. Text unlike the reference becomes as small as with zstd at its best level. A
//! [`Collection`] has many genomes and one reference. For sequencing reads, use CRAM instead.

mod bases;
pub mod bgzf_recompression;
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
mod reference_store;
mod segment;
mod unpack;
mod zstd_bytes;

#[cfg(test)]
mod tests;

pub use collection::{Collection, CollectionMember};
pub use error::{DeltaError, DeltaFileError};
pub use gwp_file::GwpFile;
pub use gwp_reader::{GwpReader, GwpSequence};
pub use kmer_index::KmerIndex;
pub use mutate::{MutationRates, mutate_fasta};
pub use pack::{PackOptions, PackSummary, pack};
pub use reference::{Digest, Reference, ReferenceCachePolicy, ReferenceContig};
pub use reference_store::{LoadedReference, ReferenceStore};
pub use unpack::{UnpackSummary, unpack};
