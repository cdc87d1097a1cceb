//! Genomes as what differs from a reference: a few bytes for each variant.
//!
//! Flows in: the text of a FASTA file, or any bytes, and a [`Reference`]. Flows out: a packed file (`.gwp`, `docs/formats/gwp.md`)
//! from which, with the same reference, the same bytes come back ([`pack`], [`unpack`]), or a region of them
//! ([`PackedGenome`]). What is not like the reference is packed as well as zstd does it at its best. [`Collection`] is many genomes
//! against one reference. Nothing here compresses reads, which CRAM does well.

mod align;
mod anchors;
mod bases;
mod chunk;
mod collection;
mod error;
mod file;
mod layout;
mod marks;
mod mutate;
mod ordered;
mod pack;
mod place;
mod range_coder;
mod reference;
mod region;
mod script;
mod segment;
mod unpack;
mod varint;
mod zstd_bytes;

#[cfg(test)]
mod tests;

pub use anchors::Anchors;
pub use collection::{Collection, Member};
pub use error::DeltaError;
pub use file::PackedFile;
pub use mutate::{Mutations, mutate};
pub use pack::{PackOptions, PackSummary, pack};
pub use reference::{Digest, Keep, Reference, ReferenceContig};
pub use region::{PackedGenome, PackedSequence};
pub use unpack::{UnpackSummary, unpack};
pub(crate) use varint::{Cursor, put_varint};
