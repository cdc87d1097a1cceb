//! CRAM (CRAMv3, 2023-05-24) through htslib, which decodes what every other writer made.
//!
//! Flows in: packed records and their reference. Flows out: parts of a CRAM file, each encoded by itself
//! ([`Encoder`], [`PartEncoder`]), with the index of all ([`write_index`]). The other way: a CRAM file of any origin as
//! chunks of packed records that later code may trust ([`Reader`]), decoded by another process ([`decode`]).
//!
//! References come from the file that is given, never from a network: htslib is built without one. All of htslib that is
//! used is behind `htslib.rs`.

mod decode;
mod decoder;
mod encoder;
mod error;
mod htslib;
mod index;
mod packing;
mod reader;
mod reference;

#[cfg(test)]
mod tests;

pub use decode::{DecodeRequest, decode};
pub use decoder::Decoder;
pub use encoder::{Encoder, PartEncoder};
pub use error::CramError;
pub use index::{IndexEntry, write_index};
pub use reader::{DECODE_VERB, Reader};
pub use reference::{ChecksumScan, Checksums, Reference};

/// The container that ends every file of version 3 (CRAMv3 §9).
pub const EOF_CONTAINER: [u8; 38] = [
    0x0f, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff, 0x0f, 0xe0, 0x45, 0x4f, 0x46, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00,
    0x05, 0xbd, 0xd9, 0x4f, 0x00, 0x01, 0x00, 0x06, 0x06, 0x01, 0x00, 0x01, 0x00, 0x01, 0x00, 0xee, 0x63, 0x01, 0x4b,
];
