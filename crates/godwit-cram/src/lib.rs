//! Reads and writes CRAM files (specification CRAMv3, 2023-05-24) with htslib, which can decode files of every CRAM
//! writer.
//!
//! Writing: [`Encoder`] and [`PartEncoder`] encode BAM-packed records and their reference to parts of a CRAM file, each
//! independently of the others. [`write_index`] writes the index of all parts. Reading: [`Reader`] returns the records
//! of an untrusted CRAM file as buffers of valid BAM-packed records. A separate process decodes the file
//! ([`run_decoder`]). [`find_index_mismatch`] detects the index of another file.
//!
//! References are local files, never fetched from a network: htslib is built without network support. All calls of
//! htslib are in `htslib.rs`.

mod crai;
mod decoder;
mod decoder_process;
mod encoder;
mod error;
mod htslib;
mod htslib_layout;
mod index_mismatch;
mod reader;
mod reference;

#[cfg(test)]
mod tests;

pub use crai::{IndexEntry, write_index};
pub use decoder::Decoder;
pub use decoder_process::{DecodeRequest, run_decoder};
pub use encoder::{Encoder, PartEncoder};
pub use error::CramError;
pub use index_mismatch::{IndexMismatch, find_index_mismatch};
pub use reader::{DECODE_VERB, Reader};
pub use reference::{ChecksumScan, Reference, ReferenceChecksums};

/// Bytes of the end-of-file container, the last container of every CRAM 3 file (CRAMv3 §9).
pub const EOF_CONTAINER: [u8; 38] = [
    0x0f, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff, 0x0f, 0xe0, 0x45, 0x4f, 0x46, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00,
    0x05, 0xbd, 0xd9, 0x4f, 0x00, 0x01, 0x00, 0x06, 0x06, 0x01, 0x00, 0x01, 0x00, 0x01, 0x00, 0xee, 0x63, 0x01, 0x4b,
];
