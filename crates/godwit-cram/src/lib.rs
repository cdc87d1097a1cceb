//! CRAM (CRAMv3, 2023-05-24) through htslib, which decodes the files of every other writer.
//!
//! Flows in: packed records and their reference. Flows out: parts of a CRAM file, each encoded independently ([`Encoder`],
//! [`PartEncoder`]), with the index of all ([`write_index`]). In the other direction: a CRAM file of any origin as buffers
//! of packed records that later code may trust ([`Reader`]), decoded by another process ([`run_decoder`]).
//!
//! References are the given files, never fetched from a network: htslib is built without network support. All calls of
//! htslib are in `htslib.rs`.

mod crai;
mod decoder;
mod decoder_process;
mod encoder;
mod error;
mod htslib;
mod htslib_layout;
mod reader;
mod reference;

#[cfg(test)]
mod tests;

pub use crai::{IndexEntry, write_index};
pub use decoder::Decoder;
pub use decoder_process::{DecodeRequest, run_decoder};
pub use encoder::{Encoder, PartEncoder};
pub use error::CramError;
pub use reader::{DECODE_VERB, Reader};
pub use reference::{ChecksumScan, Reference, ReferenceChecksums};

/// The container that ends every file of version 3 (CRAMv3 §9).
pub const EOF_CONTAINER: [u8; 38] = [
    0x0f, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff, 0x0f, 0xe0, 0x45, 0x4f, 0x46, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00,
    0x05, 0xbd, 0xd9, 0x4f, 0x00, 0x01, 0x00, 0x06, 0x06, 0x01, 0x00, 0x01, 0x00, 0x01, 0x00, 0xee, 0x63, 0x01, 0x4b,
];
